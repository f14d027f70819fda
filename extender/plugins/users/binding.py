"""@reserve, @permit, @pre_bind, @bind and @post_bind: turn functions into rules that run after a node was chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar, overload

import numpy as np

from extender.errors import BindingFailed, RuleUnanswered
from extender.framework.annotations import AnnotationRule
from extender.framework.permit import BindRule, Permits, ReserveRule, Wait
from extender.framework.plugin import BIND, PERMIT, POST_BIND, PRE_BIND, RESERVE, error_prefix
from extender.model.node import Node
from extender.model.pod import Pod
from extender.plugins.users.function import BoundFunction, CustomRule, RuleFunction, as_decorator, nodes_at
from extender.plugins.users.handle import RuleHost
from extender.plugins.users.rule_calls import sendable
from extender.runtime.clock import Deadline
from extender.table import PodInfo, Table

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
F = TypeVar("F", bound=Callable[..., object])


class NodeFunction(RuleFunction[P, R]):
    """A function of a pod and of the node that was chosen for it. The third parameter may be a `Handle`."""

    forms: Mapping[int, str] = {2: "(pod, node)", 3: "(pod, node, handle)"}


class ReserveFunction(NodeFunction[P, R]):
    """A function that `@reserve` turned into a Reserve rule."""

    point = RESERVE

    def __init__(self, function: Callable[P, R], woken_by: Mapping[str, str] | None = None) -> None:
        super().__init__(function, woken_by)
        self._undo: ReserveFunction[..., object] | None = None

    def unreserve(self, function: F) -> F:
        """Registers the decorated function, which undoes what this rule did for a pod that was not bound.

        The function takes the parameters of the rule, but may leave out some arguments. It may be called more than
        once, and also for a pod that the rule rejected or has not seen. Raises TypeError if it takes an argument that
        the rule does not take.
        """
        undo: ReserveFunction[..., object] = ReserveFunction(function)
        if unknown := undo.arguments.model_fields.keys() - self.arguments.model_fields.keys():
            raise TypeError(f"{undo.__name__} takes {', '.join(sorted(unknown))}, which {self.__name__} does not")
        self._undo = undo
        return function

    def rule(self, name: str, arguments: Mapping[str, object], host: RuleHost) -> ReserveRule:
        """Returns the rule that the engine runs with these arguments, which must be valid."""
        undo = None
        if self._undo is not None:
            own = self._undo.arguments.model_fields
            undo = CustomCall(name, self._undo, {key: arguments[key] for key in arguments.keys() & own.keys()}, host)
        return CustomReserve(name, self, arguments, host, undo, may_wait=self.point == PERMIT)


class PermitFunction(ReserveFunction[P, R]):
    """A function that `@permit` turned into a Permit rule."""

    point = PERMIT


class PreBindFunction(NodeFunction[P, R]):
    """A function that `@pre_bind` turned into a PreBind rule."""

    point = PRE_BIND

    def rule(self, name: str, arguments: Mapping[str, object], host: RuleHost) -> BindRule:
        """Returns the rule that the engine runs with these arguments, which must be valid."""
        return CustomPreBind(name, self, arguments, host)


class PostBindFunction(NodeFunction[P, R]):
    """A function that `@post_bind` turned into a PostBind rule."""

    point = POST_BIND

    def rule(self, name: str, arguments: Mapping[str, object], host: RuleHost) -> BindRule:
        """Returns the rule for the engine; `arguments` must be valid."""
        return CustomPostBind(name, self, arguments, host)


@overload
def reserve(function: Callable[P, R], /) -> ReserveFunction[P, R]: ...
@overload
def reserve(*, woken_by: Mapping[str, str] | None = None) -> Callable[[Callable[P, R]], ReserveFunction[P, R]]: ...
def reserve(
    function: Callable[P, R] | None = None, /, *, woken_by: Mapping[str, str] | None = None
) -> ReserveFunction[P, R] | Callable[[Callable[P, R]], ReserveFunction[P, R]]:
    """Turns the function into a rule of Reserve, which is called once the pod is assumed on its node.

    A function of (pod, node) or (pod, node, handle) returns True or None if it has reserved what the pod needs. If not,
    it returns the reason, or False. `@rule.unreserve` decorates the function that undoes the reservation.

    Args:
        woken_by: the cluster events that may help a pod that the rule rejected, as for `predicate`.

    If the function raises or returns anything else, the pod is retried after its backoff.
    """
    return as_decorator(lambda decorated: ReserveFunction(decorated, woken_by), function)


@overload
def permit(function: Callable[P, R], /) -> PermitFunction[P, R]: ...
@overload
def permit(*, woken_by: Mapping[str, str] | None = None) -> Callable[[Callable[P, R]], PermitFunction[P, R]]: ...
def permit(
    function: Callable[P, R] | None = None, /, *, woken_by: Mapping[str, str] | None = None
) -> PermitFunction[P, R] | Callable[[Callable[P, R]], PermitFunction[P, R]]:
    """Turns the function into a rule of Permit, which is called after all rules of Reserve and may make the pod wait.

    The function returns what a rule of `reserve` returns, or `Wait(seconds)`. A waiting pod keeps its node while other
    pods are scheduled. The pod is bound once the rule allows it (`handle.waiting`), or rejected after these seconds.
    """
    return as_decorator(lambda decorated: PermitFunction(decorated, woken_by), function)


@overload
def pre_bind(function: Callable[P, R], /) -> PreBindFunction[P, R]: ...
@overload
def pre_bind(*, woken_by: Mapping[str, str] | None = None) -> Callable[[Callable[P, R]], PreBindFunction[P, R]]: ...
def pre_bind(
    function: Callable[P, R] | None = None, /, *, woken_by: Mapping[str, str] | None = None
) -> PreBindFunction[P, R] | Callable[[Callable[P, R]], PreBindFunction[P, R]]:
    """Turns the function into a rule of PreBind, which is called just before the pod is bound.

    The function takes and returns what a rule of `reserve` does. Other pods are scheduled while it runs, so it may send
    a request to another service. If the pod is not bound after all, the `unreserve` function of a Reserve rule can undo
    the request.
    """
    return as_decorator(lambda decorated: PreBindFunction(decorated, woken_by), function)


def post_bind(function: Callable[P, R]) -> PostBindFunction[P, R]:
    """Turns the function into a rule of PostBind, which is called after the pod was bound. Its answer is ignored."""
    return PostBindFunction(function)


@dataclass(frozen=True, slots=True)
class CustomCall(CustomRule):
    """A user's function of a pod and of the node that was chosen for it."""

    def call(self, pod: Pod, node: Node, permits: Permits, deadline: Deadline, what: str = "") -> object:
        """Calls the function and returns its answer. An exception of the function is raised.

        Args:
            what: the name of the call in errors; by default the name of the rule.

        Raises:
            RuleUnanswered: the function has not answered before the deadline, or could not be called.
        """
        handle = self.decorated.handle(self.name, pod, self.host, permits=permits)
        given = {**self.given, "handle": handle} if self.decorated.wants_handle else self.given
        inputs: tuple[Any, ...] = (pod, node, handle) if self.decorated.columns else (pod, node)
        function = partial(BoundFunction(self.decorated.function, given), *inputs)

        def call() -> object:  # with a deadline, this runs in another thread, and may hang after the deadline
            with self.host.watch(self.name, pod.key, node.name):
                return function()

        return self.answer_of(call, self.host.limited(deadline), what)

    @property
    def prefix(self) -> str:
        """The prefix of the rule's errors, in kube-scheduler's words."""
        return error_prefix(self.decorated.point, self.name)

    def judge(self, pod: Pod, node: Node, permits: Permits, deadline: Deadline) -> float:
        """Returns how many seconds the pod may wait, 0 if it need not; 0 also if the rule or its failure is ignored.

        Raises:
            BindingFailed: the function rejected the pod, raised an exception or returned a wrong answer.
            RuleUnanswered: the function has not answered before the deadline, or could not be called.
        """
        if self.is_left_out:
            return 0.0
        try:
            return self._seconds(self.call(pod, node, permits, deadline))
        except (RuleUnanswered, BindingFailed):
            raise
        except BaseException as error:
            if self.ignores(error):
                return 0.0
            raise BindingFailed(self.failure_text(error, self.prefix)) from None

    def _seconds(self, answer: object) -> float:
        point = self.decorated.point
        if answer is None or answer is True:
            return 0.0
        if answer is False or isinstance(answer, str):
            raise BindingFailed(sendable(str(answer or f"rejected by {self.name}")), self.name)
        if isinstance(answer, Wait) and point == PERMIT:
            return float(answer.timeout_seconds)
        answers = "True, None, Wait(seconds), False or a reason" if point == PERMIT else "True, None, False or a reason"
        raise TypeError(f"a rule of {point} must return {answers}, not {answer!r}")


@dataclass(frozen=True, slots=True)
class CustomReserve(CustomCall):
    """A user's Reserve or Permit rule, with its name and arguments."""

    undo: CustomCall | None
    may_wait: bool

    def run(self, pod: Pod, node: Node, permits: Permits, deadline: Deadline) -> float:
        return self.judge(pod, node, permits, deadline)

    def unreserve(self, pod: Pod, node: Node, permits: Permits, deadline: Deadline) -> None:
        """Calls the function that undoes what the rule did, see ReserveRule.unreserve."""
        try:
            if self.undo is not None:
                self.undo.call(pod, node, permits, deadline, f"unreserve of {self.name}")
        except RuleUnanswered:
            raise
        except BaseException as error:  # the other rules, and the pod itself, must still be unreserved
            self.report(error)


@dataclass(frozen=True, slots=True)
class CustomPreBind(CustomCall):
    """A user's PreBind rule, with its name and arguments."""

    def run(self, pod: Pod, node: Node, permits: Permits) -> None:
        try:
            self.judge(pod, node, permits, self.host.begin())
        except RuleUnanswered as error:  # reported by `call`
            if not self.host.ignores_failures:
                raise BindingFailed(f"{self.prefix}{error}") from None


@dataclass(frozen=True, slots=True)
class CustomPostBind(CustomCall):
    """A user's PostBind rule, with its name and arguments."""

    def run(self, pod: Pod, node: Node, permits: Permits) -> None:
        """Calls the function. An exception is only reported, because the pod is already bound."""
        if self.is_left_out:
            return
        try:
            self.call(pod, node, permits, self.host.begin())
        except RuleUnanswered:
            return
        except BaseException as error:
            self.report(error)


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
    return as_decorator(lambda decorated: BindFunction(decorated, woken_by), function)


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
