"""Plans nodes for the members of one pod group, and answers kube-scheduler's filter calls from the plan.

`group_plans` says which plan a call belongs to and when a plan ends. This module reads only the table that it is given,
so a replay of a recording can make the same plan again. Start with `Planner.plan`.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from extender.framework.profile import Profile
from extender.groups import DecideOne, GroupDecision, GroupRules, Leaf, MemberDecision, decide_group
from extender.groups.group_preemption import victim_units
from extender.model.scheduling.pod_groups import PodGroup
from extender.plugins.users.predicate import without_users_predicates
from extender.preemption import evictable, leaving_victims
from extender.runtime.clock import NO_DEADLINE, Deadline
from extender.table import PodInfo, Table
from extender.table.labels import ABSENT, Rows
from extender.table.trial import Trial
from extender.verbs.pod_groups.members import rows_in_dry_run

_FEW_NODES = 8
"""How many nodes are emptied to find one for a single member. To empty all takes a second for 30,000 pods."""
OTHER_NODE = "the pod group is planned with the pod on another node"


class Judge(Protocol):
    """Takes a profile and a table, and returns the function that decides about one member on that table."""

    def __call__(self, profile: Profile, table: Table, /) -> DecideOne: ...


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """The answer for a member that has a node in the plan."""

    node_name: str


@dataclass(frozen=True, slots=True)
class RefusedGroup:
    """The answer that refuses every node: the group cannot be placed, or the plan has another node for the member.

    `rules` are the names of the rules that refused nodes.
    """

    reason: str
    rules: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BesideSiblings:
    """The answer for a member without a planned node: filter checks the nodes as it does for a pod without a group.

    Attributes:
        siblings: the other members that have a planned node, each with that node. filter counts them as placed on
            these nodes, even if kube-scheduler has not asked about them yet.
    """

    siblings: Sequence[tuple[PodInfo, str]]


GroupAnswer = PlannedNode | RefusedGroup | BesideSiblings


class GroupAnswers(Protocol):
    """Answers filter calls about members of pod groups."""

    def answer(self, info: PodInfo, names: list[str], profile: Profile, deadline: Deadline, /) -> GroupAnswer | None:
        """Returns the answer to a filter call about a pod; None if no plan is possible for the pod."""


@dataclass(slots=True)
class Plan:
    """The plan for one group.

    Attributes:
        members: UID -> member, for the waiting members in the order in which they were decided.
        decisions: UID of a member -> the decision about it.
        nodes: the names of the planned nodes.
        refusal: why the group is not placed; None if it is placed.
        is_emptied: True if the group fits only if all pods of lower priority are evicted.
        counted: the UIDs of the pods that were on the planned nodes when the plan was made.
        domain: the names of the nodes in the topology domain that kube-scheduler is trying; None if it is not known.
        answered: the UIDs of the members about which kube-scheduler has got an answer in this pass over the group.
        cursor: the position in the cache's journal up to which the changes were compared with the plan.
        number: counts the plans of a process from 1.
        touched: the planned nodes that have changed since they were planned, or since another member was moved. A
            member is checked again before it gets such a node.
        used_at: the time of the last answer, in monotonic seconds.
    """

    group: PodGroup
    profile: Profile
    members: dict[str, PodInfo]
    decisions: dict[str, MemberDecision]
    nodes: frozenset[str]
    refusal: RefusedGroup | None
    is_emptied: bool
    counted: frozenset[str]
    domain: frozenset[str] | None
    answered: set[str] = field(default_factory=set)
    cursor: int = 0
    number: int = 0
    touched: set[str] = field(default_factory=set)
    used_at: float = 0.0

    def after(self, before: Plan) -> Plan:
        """Returns this plan, extended with the other members of the plan `before`, which keep their nodes."""
        kept = before.members.keys() - self.members.keys()
        members = {uid: info for uid, info in before.members.items() if uid in kept}
        decisions = {uid: decision for uid, decision in before.decisions.items() if uid in kept}
        return replace(
            self, members=members | self.members, decisions=decisions | self.decisions,
            nodes=before.nodes | self.nodes, answered=before.answered, touched=set(before.nodes),
        )  # fmt: skip

    def has_domain_of(self, names: Sequence[str]) -> bool:
        """Returns True if a request with these nodes can belong to the same topology domain as the plan."""
        return self.domain is None or not names or names[0] in self.domain

    def node_of(self, uid: str) -> str | None:
        decision = self.decisions.get(uid)
        return decision.node_name if decision is not None else None

    def place(self, uids: Container[str], trial: Trial) -> list[str]:
        """Puts these members on their planned nodes in `trial`, with the objects that they reserve.

        Returns the UIDs of those that have a planned node.
        """
        placed = self._on_nodes(uids)
        for info, node in placed:
            for obj in self.decisions[info.uid].reserved:
                trial.set_object(obj)
            trial.place(info, node)
        return [info.uid for info, _ in placed]

    def _on_nodes(self, uids: Container[str]) -> list[tuple[PodInfo, str]]:
        nodes = ((info, self.node_of(uid)) for uid, info in self.members.items() if uid in uids)
        return [(info, node) for info, node in nodes if node is not None]

    def answer(self, info: PodInfo, names: Collection[str]) -> GroupAnswer:
        """Returns the answer to a filter call about this member and these nodes, and records it in `answered`."""
        if self.refusal is not None:
            self.answered.add(info.uid)
            return self.refusal
        node = self.node_of(info.uid)
        if node is not None and node not in names:  # kube-scheduler asks about the nominated node alone
            return RefusedGroup(OTHER_NODE)
        self.answered.add(info.uid)
        return BesideSiblings(self._on_nodes(self.members)) if node is None else PlannedNode(node)


@dataclass(frozen=True, slots=True)
class MemberCall:
    """A filter call about a member of a group."""

    info: PodInfo
    names: list[str]
    profile: Profile
    group: PodGroup
    deadline: Deadline = NO_DEADLINE

    @property
    def is_about_nominated_node(self) -> bool:
        """True if the request has only the nominated node. kube-scheduler asks about it before all other nodes."""
        return len(self.names) == 1 and self.names[0] == self.info.pod.status.nominated_node_name

    def rows(self, table: Table) -> Rows:
        """Returns the rows of the nodes in the request, sorted, so that a replay makes the same random choices."""
        nodes = table.nodes
        rows = nodes.rows_of(self.names)
        if rows is None:  # a name is unknown or occurs twice
            rows = np.array([*{nodes.row_of[name] for name in self.names if name in nodes.row_of}], np.intp)
        present: Rows = np.sort(rows[nodes.present[rows]])
        return present

    def domain(self, table: Table) -> Rows | None:
        """If all nodes in the request are in one topology domain, returns the rows of the domain; otherwise None.

        kube-scheduler tries a group with a topology constraint on one domain after the other. So a request with the
        nodes of one domain shows that kube-scheduler is trying that domain. All members are then restricted to it.
        """
        key = self.group.topology_key
        if key is None or not len(rows := self.rows(table)):
            return None
        ids = table.nodes.labels[key].ids
        domains = np.unique(ids[rows])
        if len(domains) > 1 or domains[0] == ABSENT:
            return None
        every = table.nodes.rows
        in_domain: Rows = every[ids[every] == domains[0]]
        return in_domain

    def restricted(self, decide: DecideOne, table: Table, domain: Rows | None) -> DecideOne:
        """Returns a version of `decide` that tries only the nodes that kube-scheduler can choose at the moment.

        The member of this call may use only the nodes in the request. If that is its nominated node alone, it may use
        all nodes in `domain`, because kube-scheduler asks about the others next. So may the other members: the nodes in
        a request depend on where kube-scheduler has placed siblings, and they may be a sample.
        """
        rows = self.rows(table)
        named = None if self.is_about_nominated_node or len(rows) == len(table.nodes.rows) else rows

        def decide_one(info: PodInfo, rows: Rows | None) -> MemberDecision:
            is_named = info is self.info and named is not None
            return decide(info, _common(rows, named if is_named else domain))

        return decide_one


class PlanRequest(NamedTuple):
    """The data for making a plan: the filter call that needs the plan, and the members at the time of the call.

    Attributes:
        waiting: the members to place, in the order in which they are tried; the call's member is the first.
        scheduled: the UIDs of the members that have a node.
        before: the plan to continue, whose other members keep their nodes; None to begin a new plan.
    """

    call: MemberCall
    waiting: Sequence[PodInfo]
    scheduled: Collection[str]
    before: Plan | None = None


class Planner:
    """Plans nodes for groups, by deciding about one member after the other.

    Args:
        judge: returns the function that decides about one member.
        scheduler_filters: True if kube-scheduler runs its own filters before it calls filter. A call may then belong to
            the dry run of a preemption, in which kube-scheduler has removed the pods of lower priority.
        coscheduling: True if the groups belong to the plugin Coscheduling. For these there is no such dry run.
    """

    def __init__(self, judge: Judge, *, scheduler_filters: bool = True, coscheduling: bool = False) -> None:
        self._judge = judge
        self._has_dry_runs = scheduler_filters and not coscheduling

    def plan(self, request: PlanRequest, table: Table) -> Plan:
        """Plans nodes for the waiting members. Restores `table` before it returns."""
        call, waiting, scheduled, before = request
        trial = Trial(table)
        try:
            others = before.members.keys() - {info.uid for info in waiting} if before is not None else ()
            siblings = before.place(others, trial) if before is not None else ()
            leaf = Leaf(call.group, waiting, {*scheduled, *siblings})
            decision, is_emptied = self._decide(call, leaf, trial, before is not None and before.is_emptied)
            domain = call.domain(table)
            nodes = frozenset(decision.placed.values())
            rows = [table.nodes.row_of[node] for node in nodes]
            counted = frozenset(info.uid for row in rows for info in table.pods.at(table.pods.on(row)))
        finally:
            trial.revert()
        members = {info.uid: info for info in waiting}
        decisions = dict(decision.members) if decision.is_success else {}
        refusal = None if decision.is_success else _refusal(decision, waiting)
        plan = Plan(
            call.group, call.profile, members, decisions, nodes, refusal, is_emptied, counted,
            None if domain is None else frozenset(table.nodes.names_of(domain)),
        )  # fmt: skip
        return plan if before is None else plan.after(before)

    def _decide(self, call: MemberCall, leaf: Leaf, trial: Trial, emptied: bool) -> tuple[GroupDecision, bool]:
        """Returns the decision, and True if the decision requires that all pods of lower priority are evicted.

        `emptied`: True if that was so in the plan that is continued.
        """
        decision = self._decision(call, leaf, trial, call.profile)
        if decision.is_success or not self._has_dry_runs:
            return decision, emptied
        if emptied and (moved := self._decision_on_few_emptied(call, leaf, trial)) is not None:
            return moved, True
        in_tree = without_users_predicates(call.profile)
        if not emptied and in_tree is not None and self._decision(call, leaf, trial, in_tree).is_success:
            return decision, False
        units = victim_units(trial.table, leaf.group.priority)
        mark = trial.mark()
        for unit in units:
            call.deadline.check("a plan without the pods of lower priority")
            for info, _ in unit.pods:
                trial.take_away(info.uid)
        in_dry_run = self._decision(call, leaf, trial, call.profile) if units else decision
        trial.revert(mark)
        return (in_dry_run, True) if in_dry_run.is_success else (decision, False)

    def _decision_on_few_emptied(self, call: MemberCall, leaf: Leaf, trial: Trial) -> GroupDecision | None:
        """Decides about one member again, without the pods of lower priority on a few of the nodes in the request.

        Returns None if several members wait, or if this one still finds no node.
        """
        table, (info, *others) = trial.table, leaf.waiting
        rows = rows_in_dry_run(call.profile, info, table, call.rows(table))[:_FEW_NODES]
        if others or not len(rows):
            return None
        mark = trial.mark()
        for row in rows.tolist():
            for victim in table.pods.at(evictable(table, table.pods.on(row), info.priority)):
                trial.take_away(victim.uid)
        decision = self._decision(call, leaf, trial, call.profile)
        trial.revert(mark)
        return decision if info.uid in decision.placed else None

    def _decision(self, call: MemberCall, leaf: Leaf, trial: Trial, profile: Profile) -> GroupDecision:
        domain = call.domain(trial.table)
        decide_one = call.restricted(self._judge(profile, trial.table), trial.table, domain)
        is_constrained = leaf.group.topology_key is not None
        rules = GroupRules.beside_scheduler(profile, by_placements=is_constrained and domain is None)
        return decide_group(leaf, trial, decide_one, rules)


def void_nominations(plan: Plan, request: PlanRequest, table: Table) -> list[tuple[str, str]]:
    """Returns (UID, nominated node) of the members whose nominations should end, because their group is refused.

    A nomination stays if victims are leaving the node. If the call is about one topology domain, nominations to other
    domains stay, too, because the group may still get these nodes. A split gang keeps its nominations, see
    `split_gangs`. kube-scheduler itself clears nominations only once, even if the API server refuses the write.
    """
    is_split = 0 < len(request.scheduled) < plan.group.min_count
    if plan.refusal is None or is_split:
        return []
    domain = request.call.domain(table)
    void = []
    for info in plan.members.values():
        if (nominated := table.nominated.of(info.uid)) is not None:
            row = table.nodes.row_of.get(nominated[1], -1)
            is_elsewhere = domain is not None and row not in domain
            if not is_elsewhere and (row < 0 or not len(leaving_victims(table, row, info.pod.priority))):
                void.append((info.uid, nominated[1]))
    return void


def _refusal(decision: GroupDecision, waiting: Sequence[PodInfo]) -> RefusedGroup:
    """Returns the refusal of the group, with the message of the first member that found no node."""
    rules: Set[str] = frozenset().union(*(member.rules for member in decision.members.values()))
    for info in waiting:
        member = decision.members.get(info.uid)
        if member is not None and member.node_name is None:
            return RefusedGroup(f"{decision.text} ({info.pod.name}: {member.message})", rules)
    return RefusedGroup(decision.text, rules)


def _common(rows: Rows | None, other: Rows | None) -> Rows | None:
    if rows is None or other is None:
        return other if rows is None else rows
    return np.intersect1d(rows, other)
