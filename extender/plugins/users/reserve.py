"""@reserve and @permit: turn functions into rules that run after a node was chosen and before the pod is bound."""

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
from extender.plugins.users.calls import RuleFailures, answer_of, is_ctrl_c, sendable
from extender.plugins.users.function import BoundFunction, RuleFunction, interests_of
from extender.runtime.clock import Deadline

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., object])


class ReserveFunction(RuleFunction[P, R]):
    """A function that `@reserve` turned into a Reserve rule."""

    forms = "(pod, node) or (pod, node, handle)"
    point = RESERVE

    def __init__(self, function: Callable[P, R], woken_by: Mapping[str, str] | None = None) -> None:
        super().__init__(function)
        self.interests = interests_of(woken_by)
        self._undo: ReserveFunction[..., object] | None = None

    def unreserve(self, function: F) -> F:
        """Decorates the function that undoes what this rule did for a pod that was not bound.

        It takes what the rule takes, and may leave out arguments. It may be called more than once, and also for a pod
        that the rule rejected or was not called for. Raises TypeError if it takes arguments that the rule does not.
        """
        undo: ReserveFunction[..., object] = ReserveFunction(function)
        if unknown := undo.arguments.model_fields.keys() - self.arguments.model_fields.keys():
            raise TypeError(f"{undo.__name__} takes {', '.join(sorted(unknown))}, which {self.__name__} does not")
        self._undo = undo
        return function

    def rule(self, name: str, arguments: Mapping[str, object], failures: RuleFailures) -> ReserveRule:
        """Returns the rule for the engine; `arguments` must be valid."""
        undo = None if self._undo is None else self._undo.call_with(arguments)
        return CustomReserve(name, self.call_with(arguments), undo, self.point == PERMIT, failures, self.interests)

    def call_with(self, arguments: Mapping[str, object]) -> _Call:
        """Returns the function together with those of the `arguments` that it takes."""
        own = {key: value for key, value in arguments.items() if key in self.arguments.model_fields}
        return _Call(BoundFunction(self.function, own), self.columns)


class PermitFunction(ReserveFunction[P, R]):
    """A function that `@permit` turned into a Permit rule."""

    point = PERMIT


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
    """Turns the function into a rule of Permit, which is called after all rules of Reserve and may make the pod wait.

    It returns what a rule of `reserve` returns, or `Wait(seconds)`. A waiting pod keeps its node while other pods are
    scheduled. It is bound once the rule allows it (`handle.waiting`), or rejected after that time.
    """
    if function is not None:
        return PermitFunction(function, woken_by)
    return lambda decorated: PermitFunction(decorated, woken_by)


@dataclass(frozen=True, slots=True)
class _Call:
    """A function with its arguments. `takes_handle` is True if its third parameter is a handle."""

    function: BoundFunction
    takes_handle: bool

    def __call__(self, pod: Pod, node: Node, handle: Handle) -> object:
        inputs: tuple[Any, ...] = (pod, node, handle) if self.takes_handle else (pod, node)
        return self.function(*inputs)


@dataclass(frozen=True, slots=True)
class CustomReserve:
    """A user's Reserve or Permit rule, with its name and arguments."""

    name: str
    function: _Call
    undo: _Call | None
    may_wait: bool
    failures: RuleFailures
    interests: Interests = EVERYTHING

    def run(self, pod: Pod, node: Node, handle: Handle, deadline: Deadline) -> float:
        """Calls the function, see ReserveRule.run."""
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
        """Calls the function that undoes what the rule did, see ReserveRule.unreserve."""
        try:
            if self.undo is not None:
                answer_of(f"unreserve of {self.name}", partial(self.undo, pod, node, handle), deadline)
        except RuleUnanswered as error:
            self.failures.failed(self.name, error)
            raise
        except BaseException as error:  # continues, because the other rules must still undo what they reserved
            if is_ctrl_c(error):
                raise
            self.failures.failed(self.name, error)

    def _seconds(self, answer: object) -> float | None:
        """Returns how many seconds the pod may wait, according to the rule's answer; None if it rejects the pod."""
        if answer is None or answer is True:
            return 0.0
        if answer is False or isinstance(answer, str):
            return None
        if isinstance(answer, Wait) and self.may_wait:
            return float(answer.timeout_seconds)
        answers = "True, None, Wait(seconds), False or a reason" if self.may_wait else "True, None, False or a reason"
        point = PERMIT if self.may_wait else RESERVE
        raise TypeError(f"a rule of {point} must return {answers}, not {answer!r}")
