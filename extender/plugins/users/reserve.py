"""@reserve and @permit: functions that a pod passes between the choice of its node and its Binding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar, overload

from extender.errors import BindingFailed, RuleUnanswered
from extender.framework.events.queueing_hints import EVERYTHING, Interests
from extender.framework.permit import Handle, ReserveRule, Wait
from extender.framework.plugin import PERMIT, RESERVE
from extender.model.node import Node
from extender.model.pod import Pod
from extender.plugins.users.failures import RuleFailures, is_ctrl_c, sendable
from extender.plugins.users.function import BoundFunction, RuleFunction, interests_of
from extender.plugins.users.unanswered import answer_of
from extender.runtime.clock import Deadline

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., object])


class ReserveFunction(RuleFunction[P, R]):
    """A function made a rule of Reserve by `@reserve`."""

    forms = "(pod, node) or (pod, node, handle)"
    point = RESERVE

    def __init__(self, function: Callable[P, R], woken_by: Mapping[str, str] | None = None) -> None:
        super().__init__(function)
        self.interests = interests_of(woken_by)
        self._undo: ReserveFunction[..., object] | None = None

    def unreserve(self, function: F) -> F:
        """Makes `function` the one that takes back what this rule did for a pod that is not bound after all.

        It takes what the rule takes, and those of its arguments that it names. It may be called for a pod that the rule
        was not asked about, or has rejected, and more than once. Raises TypeError where its form is another.
        """
        undo: ReserveFunction[..., object] = ReserveFunction(function)
        if unknown := undo.arguments.model_fields.keys() - self.arguments.model_fields.keys():
            raise TypeError(f"{undo.__name__} takes {', '.join(sorted(unknown))}, which {self.__name__} does not")
        self._undo = undo
        return function

    def rule(self, name: str, arguments: Mapping[str, object], failures: RuleFailures) -> ReserveRule:
        """The rule as the engine runs it; `arguments` are valid already."""
        undo = None if self._undo is None else self._undo.given(arguments)
        return CustomReserve(name, self.given(arguments), undo, self.point == PERMIT, failures, self.interests)

    def given(self, arguments: Mapping[str, object]) -> _Call:
        """Returns the function with those of the arguments that it takes."""
        own = {key: value for key, value in arguments.items() if key in self.arguments.model_fields}
        return _Call(BoundFunction(self.function, own), self.columns)


class PermitFunction(ReserveFunction[P, R]):
    """A function made a rule of Permit by `@permit`."""

    point = PERMIT


@overload
def reserve(function: Callable[P, R], /) -> ReserveFunction[P, R]: ...
@overload
def reserve(*, woken_by: Mapping[str, str] | None = None) -> Callable[[Callable[P, R]], ReserveFunction[P, R]]: ...
def reserve(
    function: Callable[P, R] | None = None, /, *, woken_by: Mapping[str, str] | None = None
) -> ReserveFunction[P, R] | Callable[[Callable[P, R]], ReserveFunction[P, R]]:
    """Makes the function a rule of Reserve, which is asked once a pod counts on its node.

    One of (pod, node) or (pod, node, handle) answers True or None where it has reserved what the pod needs, else the
    reason why the pod cannot go there now, or False. `@rule.unreserve` decorates the function that takes it back.

    Args:
        woken_by: the cluster events that may help a pod that it rejected, as for `predicate`.

    Where the function raises, or answers anything else, the pod is tried again after its backoff.
    """
    if function is not None:
        return ReserveFunction(function, woken_by)
    return lambda decorated: ReserveFunction(decorated, woken_by)


@overload
def permit(function: Callable[P, R], /) -> PermitFunction[P, R]: ...
@overload
def permit(*, woken_by: Mapping[str, str] | None = None) -> Callable[[Callable[P, R]], PermitFunction[P, R]]: ...
def permit(
    function: Callable[P, R] | None = None, /, *, woken_by: Mapping[str, str] | None = None
) -> PermitFunction[P, R] | Callable[[Callable[P, R]], PermitFunction[P, R]]:
    """Makes the function a rule of Permit, which is asked after all rules of Reserve, and may have the pod wait.

    It answers as one of `reserve` does, or `Wait(seconds)`: then the pod keeps its node while others are scheduled, and
    is bound once the rule allows it (`handle.waiting`), or rejected when its time is over.
    """
    if function is not None:
        return PermitFunction(function, woken_by)
    return lambda decorated: PermitFunction(decorated, woken_by)


@dataclass(frozen=True, slots=True)
class _Call:
    """A function with its arguments, and whether it takes a handle."""

    function: BoundFunction
    takes_handle: bool

    def __call__(self, pod: Pod, node: Node, handle: Handle) -> object:
        inputs: tuple[Any, ...] = (pod, node, handle) if self.takes_handle else (pod, node)
        return self.function(*inputs)


@dataclass(frozen=True, slots=True)
class CustomReserve:
    """A user's rule of Reserve or Permit with its name and arguments."""

    name: str
    function: _Call
    undo: _Call | None
    may_wait: bool
    failures: RuleFailures
    interests: Interests = EVERYTHING

    def run(self, pod: Pod, node: Node, handle: Handle, deadline: Deadline) -> float:
        """See ReserveRule."""
        try:
            answer = answer_of(self.name, partial(self.function, pod, node, handle), deadline)
            seconds = self._seconds(answer)
        except RuleUnanswered:
            raise
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            self.failures.failed(self.name, error)
            raise BindingFailed(f"rule {self.name} failed") from None
        if seconds is None:
            raise BindingFailed(sendable(str(answer or f"rejected by {self.name}")), self.name)
        return seconds

    def unreserve(self, pod: Pod, node: Node, handle: Handle, deadline: Deadline) -> None:
        """See ReserveRule."""
        try:
            if self.undo is not None:
                answer_of(f"unreserve of {self.name}", partial(self.undo, pod, node, handle), deadline)
        except RuleUnanswered as error:
            self.failures.failed(self.name, error)
            raise
        except BaseException as error:  # the others, and the pod itself, must be given back all the same
            if is_ctrl_c(error):
                raise
            self.failures.failed(self.name, error)

    def _seconds(self, answer: object) -> float | None:
        """Returns how long the pod has to wait; None: it is rejected."""
        if answer is None or answer is True:
            return 0.0
        if answer is False or isinstance(answer, str):
            return None
        if isinstance(answer, Wait) and self.may_wait:
            return float(answer.timeout_seconds)
        point, waits = (PERMIT, ", Wait(seconds)") if self.may_wait else (RESERVE, "")
        raise TypeError(f"a rule of {point} answers True, None{waits}, False or a reason, not {answer!r}")
