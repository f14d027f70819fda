"""@predicate and @post_filter: turn functions into rules that filter nodes, and that propose one if none is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, ParamSpec, TypeVar, overload

import numpy as np

from extender.errors import DeadlineExceeded
from extender.framework.plugin import FILTER, POST_FILTER
from extender.framework.profile import Profile
from extender.framework.rules import NO_REFUSAL, Check, PostFilter, Predicate, Proposal, RowCheck, Verdict
from extender.framework.status import Code, Refusal, unresolvable
from extender.model.node import Node
from extender.plugins.users.function import BoundFunction, CustomRule, RuleFunction, as_decorator, nodes_at
from extender.plugins.users.handle import RuleHost
from extender.plugins.users.rule_calls import checked, is_ctrl_c, sendable
from extender.runtime.clock import Deadline
from extender.table import NodeInfo, PodInfo, Table
from extender.table.labels import BoolColumn, Rows, mask_of

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
MAX_REASONS: Final = 256
"""The most distinct reasons that a rule may give for one pod, because each reason costs an array over all nodes."""


class PredicateFunction(RuleFunction[P, R]):
    """A function that `@predicate` turned into a predicate."""

    point = FILTER

    def __init__(self, function: Callable[P, R], sees_pods: bool, woken_by: Mapping[str, str] | None = None) -> None:
        super().__init__(function, woken_by)
        self.sees_pods = sees_pods

    def rule(self, name: str, arguments: Mapping[str, object], host: RuleHost) -> Predicate:
        """Returns the predicate that the engine runs with these arguments, which must be valid."""
        return CustomPredicate(name, self, arguments, host, self.sees_pods)


@overload
def predicate(function: Callable[P, R], /) -> PredicateFunction[P, R]: ...
@overload
def predicate(
    *, sees_pods: bool = False, woken_by: Mapping[str, str] | None = None
) -> Callable[[Callable[P, R]], PredicateFunction[P, R]]: ...
def predicate(
    function: Callable[P, R] | None = None, /, *, sees_pods: bool = False, woken_by: Mapping[str, str] | None = None
) -> PredicateFunction[P, R] | Callable[[Callable[P, R]], PredicateFunction[P, R]]:
    """Turns the function into a predicate.

    A function of (pod, node) returns True or None if the pod fits. If not, it returns False, or a reason: a short text
    without names and numbers, like "node(s) had no power left".

    A function of (pod, table, rows) returns bool[len(rows)], True if the pod fits. To give reasons, it returns {reason:
    bool[len(rows)]}, False if the reason applies to the row. The first such reason counts.

    If a pod gets more than 256 different reasons, the rest share one.

    Args:
        sees_pods: True if the answer depends on placed pods, so that evicting some may help. If False, preemption does
            not consider the nodes that the rule refuses.
        woken_by: the cluster events that may help a pod that the rule refused, in upstream's words: {"Node":
            "Add|UpdateNodeLabel", "AssignedPod": "Delete"}. By default, `extender schedule` retries the pod after any
            event, as kube-scheduler always does. Raises TypeError for unknown words.

    If the function raises or returns anything else, the node is refused, and no eviction helps. With the setting
    `onRuleFailure: ignore`, the function then counts as having accepted the node.
    """
    return as_decorator(lambda decorated: PredicateFunction(decorated, sees_pods, woken_by), function)


@dataclass(frozen=True, slots=True)
class CustomPredicate(CustomRule):
    """A user's predicate, with its name and arguments."""

    sees_pods: bool

    def prepare(self, pod: PodInfo, table: Table) -> Check:
        if self.is_left_out:
            return RowCheck(lambda _rows: NO_REFUSAL)
        function = self.function(pod.pod, table)
        check = _ColumnsCheck if self.decorated.columns else _NodeByNodeCheck
        return check(self, function, pod, table)

    def refusal(self, reason: str) -> Refusal:
        code = Code.UNSCHEDULABLE if self.sees_pods else Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Refusal(self.name, code, (sendable(reason) or f"node(s) were refused by {self.name}",))

    @property
    def other_reasons(self) -> str:
        """The text that replaces all reasons beyond MAX_REASONS."""
        return f"node(s) were refused by {self.name} for other reasons"

    def failed(self, error: BaseException, failed: BoolColumn) -> Verdict:
        """Reports that the rule failed for some nodes; returns their refusal, unless the rule is ignored.

        Preemption does not consider such nodes.
        """
        return NO_REFUSAL if self.ignores(error) else [(failed, unresolvable(self.name, self.failure_text(error)))]


def without_users_predicates(profile: Profile) -> Profile | None:
    """Returns the profile without the predicates that are users' functions; None if it has no such predicates."""
    predicates = [predicate for predicate in profile.predicates if not isinstance(predicate, CustomPredicate)]
    return replace(profile, predicates=predicates) if len(predicates) < len(profile.predicates) else None


class _CustomCheck(Check):
    def __init__(self, rule: CustomPredicate, function: BoundFunction, pod: PodInfo, table: Table) -> None:
        self._rule = rule
        self._function = function
        self._pod = pod
        self._table = table
        self.sees_pods = rule.sees_pods

    def refuse(self, rows: Rows) -> Verdict:
        deadline = self._rule.host.limited(self._table.deadline)
        try:
            return self._rule.answer_of(partial(self._judge, rows, deadline), deadline)
        except DeadlineExceeded as error:
            if self._rule.ignores_late(error):
                return NO_REFUSAL
            raise

    def _judge(self, rows: Rows, deadline: Deadline) -> Verdict:
        raise NotImplementedError


class _NodeByNodeCheck(_CustomCheck):
    def _judge(self, rows: Rows, deadline: Deadline) -> Verdict:
        positions_by_reason: dict[str, list[int]] = {}
        failed: list[int] = []
        first_error: BaseException | None = None
        nodes = nodes_at(rows, self._table, self._rule.decorated.wants_pods)
        for position, node in enumerate(checked(nodes, deadline, f"the rest of {self._rule.name}")):
            try:
                reason = self._reason(node)
            except BaseException as error:
                if is_ctrl_c(error):
                    raise
                first_error = first_error or error
                failed.append(position)
            else:
                if reason is not None:
                    if reason not in positions_by_reason and len(positions_by_reason) >= MAX_REASONS:
                        reason = self._rule.other_reasons
                    positions_by_reason.setdefault(reason, []).append(position)
        verdict = [
            (mask_of(len(rows), positions), self._rule.refusal(reason))
            for reason, positions in positions_by_reason.items()
        ]
        if first_error is not None:
            verdict.extend(self._rule.failed(first_error, mask_of(len(rows), failed)))
        return verdict

    def _reason(self, node: Node | NodeInfo) -> str | None:
        """Returns the reason why the rule refuses the node, or "" if it gave no reason; None if the pod fits."""
        answer = self._function(self._pod.pod, node)
        if answer is None:
            return None
        if isinstance(answer, bool | np.bool_):
            return None if answer else ""
        if isinstance(answer, str):
            return answer
        raise TypeError(f"a predicate of (pod, node) must return True, False, None or a reason, not {answer!r}")


class _ColumnsCheck(_CustomCheck):
    def _judge(self, rows: Rows, deadline: Deadline) -> Verdict:
        try:
            return self._verdict(self._function(self._pod, self._table, rows), len(rows))
        except DeadlineExceeded:
            raise
        except BaseException as error:
            return self._rule.failed(error, np.ones(len(rows), np.bool_))

    def _verdict(self, answer: object, rows: int) -> Verdict:
        if not isinstance(answer, Mapping):
            return [(~_bools(answer, rows), self._rule.refusal(""))]
        refused = np.zeros(rows, np.bool_)
        others = np.zeros(rows, np.bool_)
        verdict: list[tuple[BoolColumn, Refusal]] = []
        for reason, column in answer.items():
            mask = ~_bools(column, rows) & ~refused
            refused |= mask
            if len(verdict) < MAX_REASONS:
                verdict.append((mask, self._rule.refusal(str(reason))))
            else:
                others |= mask
        return [*verdict, (others, self._rule.refusal(self._rule.other_reasons))]


def _bools(answer: object, rows: int) -> BoolColumn:
    mask = np.asarray(answer)
    if mask.dtype != np.bool_ or mask.shape != (rows,):
        raise TypeError(
            f"a predicate of (pod, table, rows) must return bool[{rows}], not {mask.dtype}{list(mask.shape)}"
        )
    return mask


@dataclass(frozen=True, slots=True)
class Nominate:
    """The answer of a PostFilter rule that nominates a node for the pod, because the pod will fit there soon.

    From then on, other pods of the same or a lower priority leave room for the pod on that node.
    """

    node_name: str


class PostFilterFunction(RuleFunction[P, R]):
    """A function that `@post_filter` turned into a PostFilter rule."""

    forms: Mapping[int, str] = {2: "(pod, refused)"}
    point = POST_FILTER

    def rule(self, name: str, arguments: Mapping[str, object], host: RuleHost) -> PostFilter:
        """Returns the rule for the engine; `arguments` must be valid."""
        return CustomPostFilter(name, self, arguments, host)


def post_filter(function: Callable[P, R]) -> PostFilterFunction[P, R]:
    """Turns the function into a rule of PostFilter, which runs in `extender schedule` for a pod that fits on no node.

    The function takes (pod, refused). `refused` maps the name of each node to its reasons. The function returns
    `Nominate(node)`, None, or a reason why it cannot help, which is added to the pod's message. Rules run in the order
    of the profile, and before preemption, which runs only if no rule nominates the pod. A nominated pod is tried again
    after an event that may help it, as after a preemption.

    If the function raises or returns anything else, the rule is ignored for this pod.
    """
    return PostFilterFunction(function)


@dataclass(frozen=True, slots=True)
class CustomPostFilter(CustomRule):
    """A user's PostFilter rule, with its name and arguments."""

    def propose(self, pod: PodInfo, refused: Mapping[str, str], table: Table) -> Proposal:
        """Returns what the function proposes, see PostFilter.propose."""

        def proposal() -> Proposal:
            call = partial(self.function(pod.pod, table), pod.pod, refused)
            return self._proposal(self.answer_of(call, self.host.limited(table.deadline)), table)

        return self.outlived(proposal, Proposal())

    def _proposal(self, answer: object, table: Table) -> Proposal:
        if answer is None:
            return Proposal()
        if isinstance(answer, str):
            return Proposal(reason=sendable(answer))
        if not isinstance(answer, Nominate):
            raise TypeError(f"a rule of {POST_FILTER} must return Nominate(node), a reason or None, not {answer!r}")
        if not table.nodes.has(answer.node_name):
            raise ValueError(f"there is no node {answer.node_name!r}")
        return Proposal(answer.node_name)
