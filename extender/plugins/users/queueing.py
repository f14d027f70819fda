"""@pre_enqueue and @queue_sort: turn functions into rules of the queue of `extender schedule`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf, isnan
from typing import ParamSpec, TypeVar, overload

from extender.framework.plugin import PRE_ENQUEUE, QUEUE_SORT
from extender.framework.rules import PreEnqueueRule, QueueSort
from extender.framework.status import Refusal, unresolvable
from extender.model.pod import Pod
from extender.plugins.users.function import CustomRule, RuleFunction, as_decorator
from extender.plugins.users.handle import RuleHost, in_queue_rule
from extender.plugins.users.rule_calls import answer_of, sendable
from extender.table import PodInfo, Table

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class PodFunction(RuleFunction[P, R]):
    forms: Mapping[int, str] = {1: "(pod)"}


class PreEnqueueFunction(PodFunction[P, R]):
    """A function that `@pre_enqueue` turned into a PreEnqueue rule."""

    point = PRE_ENQUEUE

    def rule(self, name: str, arguments: Mapping[str, object], host: RuleHost) -> PreEnqueueRule:
        """Returns the PreEnqueue rule that the queue calls; `arguments` must be valid."""
        return CustomPreEnqueue(name, self, arguments, host)


class QueueSortFunction(PodFunction[P, R]):
    """A function that `@queue_sort` turned into the order of the queue."""

    point = QUEUE_SORT

    def rule(self, name: str, arguments: Mapping[str, object], host: RuleHost) -> QueueSort:
        """Returns the QueueSort rule that orders the queue; `arguments` must be valid."""
        return CustomQueueSort(name, self, arguments, host)


@overload
def pre_enqueue(function: Callable[P, R], /) -> PreEnqueueFunction[P, R]: ...
@overload
def pre_enqueue(
    *, woken_by: Mapping[str, str] | None = None
) -> Callable[[Callable[P, R]], PreEnqueueFunction[P, R]]: ...
def pre_enqueue(
    function: Callable[P, R] | None = None, /, *, woken_by: Mapping[str, str] | None = None
) -> PreEnqueueFunction[P, R] | Callable[[Callable[P, R]], PreEnqueueFunction[P, R]]:
    """Turns the function into a rule of PreEnqueue, which decides if a pod may enter the active queue.

    A function of (pod) returns True or None if the pod may be tried. If not, it returns the reason, or False. The pod
    then waits, without an attempt, until an event in `woken_by` or a call of `wake` asks the rule again. The queue is
    locked during the call, so the function must be quick.

    Args:
        woken_by: the cluster events that may let the pod in, as for `predicate`.

    If the function raises or returns anything else, the pod waits.
    """
    return as_decorator(lambda decorated: PreEnqueueFunction(decorated, woken_by), function)


def queue_sort(function: Callable[P, R]) -> QueueSortFunction[P, R]:
    """Turns the function into the order in which ready pods are tried, instead of PrioritySort.

    A function of (pod) returns a number, or a tuple of numbers; smaller numbers come first. Pods with equal numbers are
    sorted as by PrioritySort: by priority, and then by the time of their arrival. The function must always return the
    same numbers for a pod, because the queue sorts a pod once. The queue is locked during the call, so the function
    must be quick.

    If the function raises or returns anything else, the pod is sorted behind all others.
    """
    return QueueSortFunction(function)


@dataclass(frozen=True, slots=True)
class CustomPreEnqueue(CustomRule):
    """A user's PreEnqueue rule, with its name and arguments."""

    def refuse(self, pod: PodInfo, table: Table | None = None, /) -> Refusal | None:
        """Returns the refusal with the function's reason; None if the pod may be tried."""
        if self.is_left_out:
            return None
        try:
            function = self.function(pod.pod, table)
            reason = self._reason(answer_of(self.name, partial(_called, function, pod.pod), self.host.begin()))
        except BaseException as error:
            reason = None if self.ignores(error) else self.failure_text(error)
        return None if reason is None else unresolvable(self.name, sendable(reason))

    def _reason(self, answer: object) -> str | None:
        if answer is None or answer is True:
            return None
        if answer is False or isinstance(answer, str):
            return str(answer or f"held back by {self.name}")
        raise TypeError(f"a rule of {PRE_ENQUEUE} must return True, None, False or a reason, not {answer!r}")


_LAST = (inf,)


@dataclass(frozen=True, slots=True)
class CustomQueueSort(CustomRule):
    """A user's order of the queue, with its name and arguments."""

    def key(self, pod: PodInfo) -> tuple[float, ...]:
        """Returns the function's answer as a tuple of numbers."""
        if self.is_left_out:
            return _LAST
        try:
            function = self.function(pod.pod)
            return _numbers(answer_of(self.name, partial(_called, function, pod.pod), self.host.begin()))
        except BaseException as error:
            self.report(error)
            return _LAST


def _called(function: Callable[[Pod], object], pod: Pod) -> object:
    with in_queue_rule():
        return function(pod)


def _numbers(answer: object) -> tuple[float, ...]:
    numbers = answer if isinstance(answer, tuple) else (answer,)
    if all(isinstance(number, int | float) and not isnan(number) for number in numbers):
        return numbers
    raise TypeError(f"a rule of {QUEUE_SORT} must return a number or a tuple of numbers, not {answer!r}")
