"""@predicate: a function that says which nodes can take a pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar, overload

import numpy as np

from extender.errors import DeadlineExceeded
from extender.framework.events.queueing_hints import EVERYTHING, Interests
from extender.framework.profile import Profile
from extender.framework.rules import Check, Predicate, Verdict
from extender.framework.status import Code, Refusal, unresolvable
from extender.plugins.users.failures import RuleFailures, is_ctrl_c, sendable
from extender.plugins.users.function import BoundFunction, RuleFunction, interests_of
from extender.plugins.users.unanswered import answer_of
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, Rows

P = ParamSpec("P")
R = TypeVar("R")
MOST_REASONS: Final = 256
"""How many reasons of a rule a pod may have on all nodes: each costs a column of them."""


class PredicateFunction(RuleFunction[P, R]):
    """A function made a predicate by `@predicate`."""

    def __init__(self, function: Callable[P, R], sees_pods: bool, woken_by: Mapping[str, str] | None = None) -> None:
        super().__init__(function)
        self.sees_pods, self.interests = sees_pods, interests_of(woken_by)
        self._reached: Mapping[str, Callable[[], object]] = {}

    @property
    def in_force(self) -> bool:
        """Is True while `extender serve` or `extender schedule` decides by it: never offline, nor once it is replaced.

        A thread of the rule's own should end when this is False.
        """
        return bool(self._reached)

    def wake(self) -> None:
        """Has the pods tried again that it refused, for something outside the cluster has changed; from any thread.

        `extender schedule` tries them after their backoff; `extender serve` brings those that fit now to
        kube-scheduler's notice, if it leads. Nothing happens where the rule is not in force.
        """
        for reached in self._reached.values():
            reached()

    def reach(self, reached: Mapping[str, Callable[[], object]]) -> None:
        """Sets what `wake` calls, by the names that the rule has in the policy; none: it is not in force."""
        self._reached = reached

    def rule(self, name: str, arguments: Mapping[str, object], failures: RuleFailures) -> Predicate:
        """The predicate as the engine runs it; `arguments` are valid already."""
        code = Code.UNSCHEDULABLE if self.sees_pods else Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        function = BoundFunction(self.function, arguments)
        return CustomPredicate(name, function, self.columns, code, failures, self.interests, self)


@overload
def predicate(function: Callable[P, R], /) -> PredicateFunction[P, R]: ...
@overload
def predicate(
    *, sees_pods: bool = False, woken_by: Mapping[str, str] | None = None
) -> Callable[[Callable[P, R]], PredicateFunction[P, R]]: ...
def predicate(
    function: Callable[P, R] | None = None, /, *, sees_pods: bool = False, woken_by: Mapping[str, str] | None = None
) -> PredicateFunction[P, R] | Callable[[Callable[P, R]], PredicateFunction[P, R]]:
    """Makes the function a predicate.

    One of (pod, node) answers True or None where the pod fits; where it does not, the reason as a short text without
    names and numbers ("node(s) had no power left"), or False for a general one. One of (pod, table, rows) answers
    bool[len(rows)], True where the pod fits, or {reason: bool[len(rows)]}, True where it does not for that reason. Of
    more than 256 reasons for one pod the rest share one.

    Args:
        sees_pods: the answer depends on the pods that stand on the nodes, so that evicting some may help. Without it a
            refusal is final, and preemption leaves the node alone.
        woken_by: the cluster events that may help a pod that it refused, in upstream's words: {"Node":
            "Add|UpdateNodeLabel", "AssignedPod": "Delete"}. Without it any event has `extender schedule` try the pod
            again; kube-scheduler does so whatever an extender says. Raises TypeError for other words.

    Where the function raises, or answers anything else, the node is refused for good, with the rule's name.
    """
    if function is not None:
        return PredicateFunction(function, sees_pods, woken_by)
    return lambda decorated: PredicateFunction(decorated, sees_pods, woken_by)


@dataclass(frozen=True, slots=True)
class CustomPredicate:
    """A user's predicate with its name and arguments."""

    name: str
    function: BoundFunction
    columns: bool
    code: Code
    failures: RuleFailures
    interests: Interests = EVERYTHING
    decorated: PredicateFunction[..., Any] | None = None

    def prepare(self, pod: PodInfo, table: Table) -> Check:
        return _ColumnsCheck(self, pod, table) if self.columns else _PlainCheck(self, pod, table)

    def refusal(self, reason: str) -> Refusal:
        return Refusal(self.name, self.code, (sendable(reason) or f"node(s) were refused by {self.name}",))

    @property
    def other_reasons(self) -> str:
        """The text for all reasons beyond MOST_REASONS."""
        return f"node(s) were refused by {self.name} for other reasons"

    def failed(self, error: BaseException) -> Refusal:
        """Nobody knows what the rule would have said: closed, and beyond what evicting pods could open."""
        self.failures.failed(self.name, error)
        return unresolvable(self.name, f"rule {self.name} failed")


def put_in_force(profiles: Iterable[Profile], wake: Callable[[str], object], before: Iterable[Profile] = ()) -> None:
    """Has the rules of these profiles call `wake` with their name; those of `before` alone are in force no longer."""
    reached: dict[PredicateFunction[..., Any], dict[str, Callable[[], object]]]
    reached = {decorated: {} for _, decorated in _decorated_in(before)}
    for name, decorated in _decorated_in(profiles):
        reached.setdefault(decorated, {})[name] = partial(wake, name)
    for decorated, names in reached.items():
        decorated.reach(names)


def _decorated_in(profiles: Iterable[Profile]) -> Iterator[tuple[str, PredicateFunction[..., Any]]]:
    for rule in (rule for profile in profiles for rule in profile.predicates):
        if isinstance(rule, CustomPredicate) and rule.decorated is not None:
            yield rule.name, rule.decorated


class _CustomCheck(Check):
    def __init__(self, rule: CustomPredicate, pod: PodInfo, table: Table) -> None:
        self._rule, self._pod, self._table = rule, pod, table
        self.sees_pods = rule.code is Code.UNSCHEDULABLE

    def refuse(self, rows: Rows) -> Verdict:
        return answer_of(self._rule.name, partial(self._judge, rows), self._table.deadline)

    def _judge(self, rows: Rows) -> Verdict:
        raise NotImplementedError


class _PlainCheck(_CustomCheck):
    def _judge(self, rows: Rows) -> Verdict:
        by_reason: dict[str, list[int]] = {}
        broken: list[int] = []
        first_error: BaseException | None = None
        deadline, rest = self._table.deadline, f"the rest of {self._rule.name}"
        for position, row in enumerate(rows.tolist()):
            deadline.check(rest)
            try:
                reason = self._reason(row)
            except BaseException as error:
                if is_ctrl_c(error):
                    raise
                first_error = first_error or error
                broken.append(position)
            else:
                if reason is not None:
                    known = reason in by_reason or len(by_reason) < MOST_REASONS
                    by_reason.setdefault(reason if known else self._rule.other_reasons, []).append(position)
        verdict = [(_mask(at, len(rows)), self._rule.refusal(reason)) for reason, at in by_reason.items()]
        if first_error is not None:
            verdict.append((_mask(broken, len(rows)), self._rule.failed(first_error)))
        return verdict

    def _reason(self, row: int) -> str | None:
        answer = self._rule.function(self._pod.pod, self._table.nodes.node(row))
        if answer is None:
            return None
        if isinstance(answer, bool | np.bool_):
            return None if answer else ""
        if isinstance(answer, str):
            return answer
        raise TypeError(f"a predicate of (pod, node) answers True, False, None or a reason, not {answer!r}")


class _ColumnsCheck(_CustomCheck):
    def _judge(self, rows: Rows) -> Verdict:
        try:
            return self._verdict(self._rule.function(self._pod, self._table, rows), len(rows))
        except DeadlineExceeded:
            raise
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            return [(np.ones(len(rows), np.bool_), self._rule.failed(error))]

    def _verdict(self, answer: object, rows: int) -> Verdict:
        if not isinstance(answer, Mapping):
            return [(~_bools(answer, rows), self._rule.refusal(""))]
        told = np.zeros(rows, np.bool_)
        others = np.zeros(rows, np.bool_)
        verdict: list[tuple[BoolColumn, Refusal]] = []
        for reason, refused in answer.items():
            mask = _bools(refused, rows) & ~told
            told |= mask
            if len(verdict) < MOST_REASONS:
                verdict.append((mask, self._rule.refusal(str(reason))))
            else:
                others |= mask
        return [*verdict, (others, self._rule.refusal(self._rule.other_reasons))]


def _bools(answer: object, rows: int) -> BoolColumn:
    mask = np.asarray(answer)
    if mask.dtype != np.bool_ or mask.shape != (rows,):
        raise TypeError(f"a predicate of columns answers bool[{rows}], not {mask.dtype}{list(mask.shape)}")
    return mask


def _mask(positions: list[int], rows: int) -> BoolColumn:
    mask = np.zeros(rows, np.bool_)
    mask[positions] = True
    return mask
