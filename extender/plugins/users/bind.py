"""@bind: turns a function into a rule that chooses annotations which a pod gets in its Binding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar, overload

import numpy as np

from extender.errors import BindingFailed, RuleUnanswered
from extender.framework.annotations import AnnotationRule
from extender.framework.plugin import BIND, error_prefix
from extender.plugins.users.function import CustomRule, RuleFunction, nodes_at
from extender.plugins.users.handle import RuleHost
from extender.plugins.users.rule_calls import sendable
from extender.table import PodInfo, Table

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class BindFunction(RuleFunction[P, R]):
    """A function that `@bind` turned into a Bind rule."""

    forms: Mapping[int, str] = {2: "(pod, node)"}
    point = BIND

    def rule(self, name: str, arguments: Mapping[str, object], host: RuleHost) -> AnnotationRule:
        """Returns the rule for the engine; `arguments` must be valid."""
        return CustomBind(name, self, arguments, host)


@overload
def bind(function: Callable[P, R], /) -> BindFunction[P, R]: ...
@overload
def bind(*, woken_by: Mapping[str, str] | None = None) -> Callable[[Callable[P, R]], BindFunction[P, R]]: ...
def bind(
    function: Callable[P, R] | None = None, /, *, woken_by: Mapping[str, str] | None = None
) -> BindFunction[P, R] | Callable[[Callable[P, R]], BindFunction[P, R]]:
    """Turns the function into a rule of Bind, which chooses annotations that leave in the pod's Binding.

    A function of (pod, node) returns a dict of annotations, or None if it has none for this pod. To reject the pod, it
    returns the reason, or False. It is called when a node was chosen, on the state of the cluster on which that was
    decided; the pod itself is not in `node.pods` yet. The choice counts from the moment in which the pod is assumed,
    and is forgotten with it. So the function must not change anything outside: the pod may not be bound after all.

    Args:
        woken_by: the cluster events that may help a pod that the rule rejected, as for `predicate`.

    If the function raises or returns anything else, the pod is not bound, whatever `onRuleFailure` says.
    """
    if function is not None:
        return BindFunction(function, woken_by)
    return lambda decorated: BindFunction(decorated, woken_by)


@dataclass(frozen=True, slots=True)
class CustomBind(CustomRule):
    """A user's Bind rule, with its name and arguments."""

    def choose(self, pod: PodInfo, row: int, table: Table) -> Mapping[str, str]:
        """Returns the annotations that the function chooses, see AnnotationRule.choose."""
        prefix = error_prefix(BIND, self.name)
        if self.is_left_out:
            raise BindingFailed(f"{prefix}the rule did not answer a short while ago")
        function = self.function(pod.pod, table)
        (node,) = nodes_at(np.array([row], np.intp), table, self.decorated.wants_pods)
        try:
            return self._annotations(
                self.answer_of(partial(function, pod.pod, node), self.host.limited(table.deadline))
            )
        except (RuleUnanswered, BindingFailed):
            raise
        except BaseException as error:
            self.report(error)
            raise BindingFailed(self.failure_text(error, prefix)) from None

    def _annotations(self, answer: object) -> Mapping[str, str]:
        if answer is None:
            return {}
        if answer is False or isinstance(answer, str):
            raise BindingFailed(sendable(str(answer or f"rejected by {self.name}")), self.name)
        if not isinstance(answer, Mapping):
            raise TypeError(
                f"a rule of {BIND} must return a dict of annotations, None, False or a reason, not {answer!r}"
            )
        for key, value in answer.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError(f"an annotation must be a pair of texts, not {key!r}: {value!r}")
            if sendable(key + value) != key + value:
                raise ValueError(f"the annotation {key!r} has characters that cannot be encoded")
        return dict(answer)
