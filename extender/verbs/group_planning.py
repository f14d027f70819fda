"""Plans nodes for the members of a tree of pod groups, and answers kube-scheduler's filter calls from the plan.

`group_plans` says which plan a call belongs to and when a plan ends. This module reads only the table that it is given,
so a replay of a recording can make the same plan again. Start with `Planner.plan`.

A member is judged as kube-scheduler does while it plans the whole group in its own snapshot: some members are already
placed there, and pods of lower priority may have been removed. No request and no API object shows this before the first
bind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from extender.framework.profile import Profile
from extender.groups import DecideOne, GroupDecision, GroupRules, Leaf, MemberDecision, Tree, decide_group
from extender.groups.decision import leaf_decisions
from extender.groups.group_preemption import victim_units
from extender.groups.group_tree import (
    groups_of,
    leaves,
    path_to,
    reaches_minimum,
    scheduled_members,
    waiting_members,
    with_leaves,
)
from extender.model.pod import Pod
from extender.model.pod_groups import CompositePodGroup, PodGroup
from extender.plugins.inter_pod_affinity import NAME as INTER_POD_AFFINITY
from extender.plugins.pod_topology_spread import NAME as POD_TOPOLOGY_SPREAD
from extender.plugins.users.predicate import without_users_predicates
from extender.plugins.volume_restrictions import NAME as VOLUME_RESTRICTIONS
from extender.preemption.candidates import evictable
from extender.preemption.evaluator import leaving_victims, rows_without_lower_priority
from extender.runtime.clock import NO_DEADLINE, Deadline
from extender.table import PodInfo, Table, Trial
from extender.table.labels import ABSENT, Rows

# kube-scheduler has run these rules before the call, on a snapshot that may lack pods of other nodes.
_SEE_OTHER_NODES = frozenset((INTER_POD_AFFINITY, POD_TOPOLOGY_SPREAD, VOLUME_RESTRICTIONS))


def is_member(pod: Pod) -> bool:
    """Returns True if the pod belongs to a pod group."""
    return pod.group_key is not None


def rows_in_dry_run(profile: Profile, info: PodInfo, table: Table, rows: Rows) -> Rows:
    """Returns the rows of nodes that could take the member if all pods of lower priority were removed.

    In the dry run of a group's preemption, kube-scheduler removes these pods from its own snapshot, and then asks about
    the nodes. The request does not show that the pods were removed.
    """
    predicates = [predicate for predicate in profile.predicates if predicate.name not in _SEE_OTHER_NODES]
    return rows_without_lower_priority(replace(profile, predicates=predicates), info, table, rows)


@contextmanager
def without_nominated_siblings(
    info: PodInfo, node: str, table: Table, key_of: Callable[[Pod], str | None]
) -> Iterator[None]:
    """During the `with` block, removes the nominations of other members of the pod's group to the node.

    A member that waits at Permit is nominated to its node. kube-scheduler counted that member when it chose the node.
    `key_of` returns the key of a pod's group; None if the pod has no group.
    """
    nominated = table.nominated.get(node, {}).values()
    key = key_of(info.pod)
    others = [other for other in nominated if other.uid != info.uid]
    siblings = [other for other in others if key is not None and key_of(other.pod) == key]
    for sibling in siblings:
        table.withdraw(sibling.uid)
    try:
        yield
    finally:
        for sibling in siblings:
            table.nominate(sibling, node)


_FEW_NODES = 8
"""To find a node for a single member, at most this many are emptied. Emptying all takes a second for 30,000 pods."""
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
    """The answer that refuses every node: a group cannot be placed, or the plan has another node for the member.

    `rules` are the names of the rules that refused nodes.
    """

    reason: str
    rules: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BesideSiblings:
    """The answer for a member without a planned node: filter checks the nodes as it does for a pod without a group.

    Attributes:
        siblings: the other members that have a planned node, each with that node. filter counts them as placed on
            these nodes, even if kube-scheduler has not asked about them yet. Objects that they reserve do not count.
    """

    siblings: Sequence[tuple[PodInfo, str]]


GroupAnswer = PlannedNode | RefusedGroup | BesideSiblings


class GroupAnswers(Protocol):
    """Answers filter calls about members of pod groups."""

    def answer(self, info: PodInfo, names: list[str], profile: Profile, deadline: Deadline, /) -> GroupAnswer | None:
        """Returns the answer to a filter call about a pod; None if no plan is possible for the pod."""


@dataclass(slots=True)
class Plan:
    """The plan for one group, or for a tree of groups.

    Attributes:
        groups: the groups of the tree, the root first.
        members: UID -> member, for the waiting members in the order in which they were decided.
        leaf_of: UID of a member -> the key of its PodGroup.
        decisions: UID of a placed member -> the decision about it.
        nodes: the names of the planned nodes.
        refusal: why no group is placed; None if the root is placed.
        passed_over: key of a PodGroup -> why it is not placed, although the root is.
        labels: key of a PodGroup -> the node labels of the topology constraints of the groups from the root to it;
            empty if no group below the root has a constraint.
        chosen: key of a PodGroup with `labels` -> the names of the nodes in the topology domain chosen for it.
        is_emptied: True if the tree fits only if all pods of lower priority are evicted.
        counted: the UIDs of the pods that were on the planned nodes when the plan was made.
        domain: the names of the nodes in the topology domain in which kube-scheduler is trying the root; None if it is
            not known.
        answered: the UIDs of the members about which kube-scheduler has got an answer in this pass over the tree.
        asked: the calls of this pass, each as the member's UID and the topology domain of the call: a value for each
            of the member's `labels`.
        cursor: the position in the cache's journal up to which the changes were compared with the plan.
        number: counts the plans of a process from 1.
        touched: the planned nodes that have changed since they were planned, or since another member was moved. A
            member is checked again before it gets such a node.
        used_at: the time of the last answer, in monotonic seconds.
    """

    groups: tuple[PodGroup | CompositePodGroup, ...]
    profile: Profile
    members: dict[str, PodInfo]
    leaf_of: dict[str, str]
    decisions: dict[str, MemberDecision]
    nodes: frozenset[str]
    refusal: RefusedGroup | None
    passed_over: Mapping[str, RefusedGroup]
    labels: Mapping[str, Sequence[str]]
    chosen: Mapping[str, frozenset[str]]
    is_emptied: bool
    counted: frozenset[str]
    domain: frozenset[str] | None
    answered: set[str] = field(default_factory=set)
    asked: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    cursor: int = 0
    number: int = 0
    touched: set[str] = field(default_factory=set)
    used_at: float = 0.0

    def after(self, before: Plan) -> Plan:
        """Returns this plan, extended with the other members of the plan `before`, which keep their nodes."""
        kept = before.members.keys() - self.members.keys()
        members = {uid: info for uid, info in before.members.items() if uid in kept}
        decisions = {uid: decision for uid, decision in before.decisions.items() if uid in kept}
        tried = {*self.leaf_of.values()}
        passed_over = {key: refusal for key, refusal in before.passed_over.items() if key not in tried}
        return replace(
            self, members=members | self.members, leaf_of=before.leaf_of | self.leaf_of,
            decisions=decisions | self.decisions, nodes=before.nodes | self.nodes,
            passed_over={**passed_over, **self.passed_over}, chosen={**before.chosen, **self.chosen},
            answered=before.answered, asked=before.asked, touched=set(before.nodes),
        )  # fmt: skip

    def refusal_of(self, uid: str) -> RefusedGroup | None:
        """Returns why the member's group is not placed; None if it is placed."""
        return self.refusal or self.passed_over.get(self.leaf_of.get(uid, ""))

    def labels_of(self, uid: str) -> Sequence[str]:
        """Returns the node labels of the constraints for the member, the root's first; see `labels`."""
        return self.labels.get(self.leaf_of.get(uid, ""), ())

    def is_elsewhere(self, uid: str, names: Collection[str]) -> bool:
        """Returns True if the nodes are in another topology domain than the one chosen for the member's group."""
        chosen = self.chosen.get(self.leaf_of.get(uid, ""))
        return chosen is not None and chosen.isdisjoint(names)

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
            decision = self.decisions[info.uid]
            for obj in decision.reserved:
                trial.set_object(obj)
            trial.place(info.annotated(decision.annotations), node)
        return [info.uid for info, _ in placed]

    def _on_nodes(self, uids: Container[str]) -> list[tuple[PodInfo, str]]:
        nodes = ((info, self.node_of(uid)) for uid, info in self.members.items() if uid in uids)
        return [(info, node) for info, node in nodes if node is not None]

    def answer(self, info: PodInfo, names: Collection[str]) -> GroupAnswer:
        """Returns the answer to a filter call about this member and these nodes, and records it in `answered`."""
        if (refusal := self.refusal_of(info.uid)) is not None:
            self.answered.add(info.uid)
            return refusal
        node = self.node_of(info.uid)
        if self.is_elsewhere(info.uid, names) or (node is not None and node not in names):
            return RefusedGroup(OTHER_NODE)  # in the second case, kube-scheduler asks about the nominated node alone
        self.answered.add(info.uid)
        return BesideSiblings(self._on_nodes(self.members)) if node is None else PlannedNode(node)


@dataclass(frozen=True, slots=True)
class MemberCall:
    """A filter call about a member of a group."""

    info: PodInfo
    names: list[str]
    profile: Profile
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

    def domain(self, keys: Sequence[str], table: Table) -> Rows | None:
        """Returns the rows of the topology domain that has all nodes in the request; None if there is no such domain.

        kube-scheduler tries a group with a topology constraint on one domain after the other. So a request with the
        nodes of one domain shows that kube-scheduler is trying that domain.

        Args:
            keys: the node labels that must have the same values on all nodes of a domain.
        """
        if not keys or not len(rows := self.rows(table)):
            return None
        every = table.nodes.rows
        is_inside = np.ones(len(every), np.bool_)
        for key in keys:
            ids = table.nodes.labels[key].ids
            domains = np.unique(ids[rows])
            if len(domains) > 1 or domains[0] == ABSENT:
                return None
            is_inside &= ids[every] == domains[0]
        inside: Rows = every[is_inside]
        return inside

    def restricted(self, decide: DecideOne, table: Table, inner: Rows | None) -> DecideOne:
        """Returns a version of `decide` that tries only the nodes that kube-scheduler can choose at the moment.

        The member of this call may use only the nodes in the request. If that is its nominated node alone, it may use
        all nodes, because kube-scheduler asks about the others next. So may the other members: the nodes in a request
        depend on where kube-scheduler has placed siblings, and they may be a sample.

        Args:
            inner: the nodes of the domain in which kube-scheduler tries the groups of the call's member below the root.
                The request shows nothing about other nodes.
        """
        rows = self.rows(table)
        named = None if self.is_about_nominated_node or len(rows) == len(table.nodes.rows) else rows
        if named is not None and inner is not None:
            named = np.union1d(named, np.setdiff1d(table.nodes.rows, inner))

        def decide_one(info: PodInfo, rows: Rows | None) -> MemberDecision:
            return decide(info, _common(rows, named) if info is self.info else rows)

        return decide_one


class PlanRequest(NamedTuple):
    """The data for making a plan: the filter call that needs the plan, and the members at the time of the call.

    Attributes:
        tree: the groups, with the members to place and those that have a node. The call's member is the first to place
            in its PodGroup.
        before: the plan to continue, whose other members keep their nodes; None to begin a new plan.
    """

    call: MemberCall
    tree: Tree
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
        call, tree, before = request
        members = {info.uid: info for info in waiting_members(tree)}
        leaf_of = {info.uid: leaf.group.key for leaf in leaves(tree) for info in leaf.waiting}
        labels = _labels(tree)
        trial = Trial(table)
        try:
            places = _Places.of(call, tree, labels.get(leaf_of[call.info.uid], ()), table)
            around = tree if before is None else _around(before, tree, trial)
            decision, is_emptied = self._decide(call, around, trial, places, before is not None and before.is_emptied)
            placed = decision.placed
            nodes = frozenset(placed.values())
            rows = [table.nodes.row_of[node] for node in nodes]
            counted = frozenset(info.uid for row in rows for info in table.pods.at(table.pods.on(row)))
            chosen = _chosen(labels, {leaf_of[uid]: node for uid, node in placed.items()}, table)
        finally:
            trial.revert()
        decisions = {uid: member for uid, member in decision.tried.items() if uid in placed}
        plan = Plan(
            tuple(groups_of(tree)), call.profile, members, leaf_of, decisions, nodes,
            None if decision.is_success else _refusal(decision), _passed_over(decision), labels, chosen, is_emptied,
            counted, None if places.domain is None else frozenset(table.nodes.names_of(places.domain)),
        )  # fmt: skip
        return plan if before is None else plan.after(before)

    def _decide(
        self, call: MemberCall, tree: Tree, trial: Trial, places: _Places, emptied: bool
    ) -> tuple[GroupDecision, bool]:
        """Returns the decision, and True if the decision requires that all pods of lower priority are evicted.

        `emptied`: True if that was so in the plan that is continued.
        """
        decision = self._decision(call, tree, trial, places, call.profile)
        if decision.is_success or not self._has_dry_runs:
            return decision, emptied
        if emptied and (moved := self._decision_on_few_emptied(call, tree, trial, places)) is not None:
            return moved, True
        in_tree = without_users_predicates(call.profile)
        if not emptied and in_tree is not None and self._decision(call, tree, trial, places, in_tree).is_success:
            return decision, False
        units = victim_units(trial.table, tree.group.priority)
        mark = trial.mark()
        for unit in units:
            call.deadline.check("a plan without the pods of lower priority")
            for info, _ in unit.pods:
                trial.take_away(info.uid)
        in_dry_run = self._decision(call, tree, trial, places, call.profile) if units else decision
        trial.revert(mark)
        return (in_dry_run, True) if in_dry_run.is_success else (decision, False)

    def _decision_on_few_emptied(
        self, call: MemberCall, tree: Tree, trial: Trial, places: _Places
    ) -> GroupDecision | None:
        """Decides about one member again, without the pods of lower priority on a few of the nodes in the request.

        Returns None if several members wait, or if this one still finds no node.
        """
        table, (info, *others) = trial.table, waiting_members(tree)
        rows = rows_in_dry_run(call.profile, info, table, call.rows(table))[:_FEW_NODES]
        if others or not len(rows):
            return None
        mark = trial.mark()
        for row in rows.tolist():
            for victim in table.pods.at(evictable(table, table.pods.on(row), info.priority)):
                trial.take_away(victim.uid)
        decision = self._decision(call, tree, trial, places, call.profile)
        trial.revert(mark)
        return decision if info.uid in decision.placed else None

    def _decision(self, call: MemberCall, tree: Tree, trial: Trial, places: _Places, profile: Profile) -> GroupDecision:
        decide_one = call.restricted(self._judge(profile, trial.table), trial.table, places.inner)
        rules = GroupRules.beside_scheduler(profile, by_placements=places.are_chosen)
        return decide_group(tree, trial, decide_one, rules, rows=places.domain)


class _Places(NamedTuple):
    """The topology domains in which a tree is planned.

    Attributes:
        domain: the rows of the domain of the root in which kube-scheduler tries the tree; None for all nodes.
        inner: the rows of the domain in which it tries the groups of the call's member; None if it does not do so.
        are_chosen: True if the plan chooses a domain for some group. For groups below the root it always does, because
            kube-scheduler asks about one of these groups after the other. It gets no node in the other domains.
    """

    domain: Rows | None
    inner: Rows | None
    are_chosen: bool

    @classmethod
    def of(cls, call: MemberCall, tree: Tree, labels: Sequence[str], table: Table) -> _Places:
        root, *below = (group.topology_key for group in groups_of(tree))
        domain = call.domain(_present(root), table)
        are_chosen = (root is not None and domain is None) or any(key is not None for key in below)
        return cls(domain, call.domain(labels, table), are_chosen)


def _present(*keys: str | None) -> list[str]:
    return [key for key in keys if key is not None]


def _labels(tree: Tree) -> dict[str, Sequence[str]]:
    """Returns the labels of the constraints from the root to each PodGroup, see `Plan.labels`."""
    _, *below = groups_of(tree)
    if not any(group.topology_key for group in below):
        return {}
    keys = [leaf.group.key for leaf in leaves(tree)]
    return {key: _present(*(group.topology_key for group in path_to(tree, key))) for key in keys}


def _chosen(labels: Mapping[str, Sequence[str]], node_of: Mapping[str, str], table: Table) -> dict[str, frozenset[str]]:
    """Returns the names of the nodes in the topology domain of each PodGroup, see `Plan.chosen`.

    `node_of` has the node of one of its members.
    """
    nodes = table.nodes
    chosen = {}
    for key, node in node_of.items():
        if columns := [nodes.labels[label].ids for label in labels.get(key, ())]:
            inside = np.all([ids[nodes.rows] == ids[nodes.row_of[node]] for ids in columns], axis=0)
            chosen[key] = frozenset(nodes.names_of(nodes.rows[inside]))
    return chosen


def _around(before: Plan, tree: Tree, trial: Trial) -> Tree:
    """Puts the other members of the plan `before` on their nodes in `trial`; returns the tree with these scheduled."""
    by_leaf: dict[str, list[str]] = {}
    for uid in before.place(before.members.keys() - {info.uid for info in waiting_members(tree)}, trial):
        by_leaf.setdefault(before.leaf_of[uid], []).append(uid)
    return with_leaves(tree, lambda leaf: replace(leaf, scheduled={*leaf.scheduled, *by_leaf.get(leaf.group.key, ())}))


def void_nominations(plan: Plan, request: PlanRequest, table: Table) -> list[tuple[str, str]]:
    """Returns (UID, nominated node) of the members whose nominations should end, because their group is refused.

    A nomination stays if victims are leaving the node. If the call is about one topology domain, nominations to other
    domains stay, too, because the group may still get these nodes. A split gang keeps its nominations, see
    `split_gangs`. kube-scheduler itself clears nominations only once, even if the API server refuses the write.
    """
    tree = request.tree
    is_split = bool(scheduled_members(tree)) and not reaches_minimum(tree)
    refused = [info for uid, info in plan.members.items() if plan.refusal_of(uid) is not None]
    if is_split or not refused:
        return []
    domain = request.call.domain(_present(tree.group.topology_key), table)
    void = []
    for info in refused:
        if (nominated := table.nominated.of(info.uid)) is not None:
            row = table.nodes.row_of.get(nominated[1], -1)
            is_elsewhere = domain is not None and row not in domain
            if not is_elsewhere and (row < 0 or not len(leaving_victims(table, row, info.pod.priority))):
                void.append((info.uid, nominated[1]))
    return void


def _passed_over(decision: GroupDecision) -> dict[str, RefusedGroup]:
    """Returns why a PodGroup is not placed, by its key, for those with waiting members, if the root is placed."""
    if not decision.is_success or isinstance(decision.tree, Leaf):
        return {}
    refused = [each for each in leaf_decisions(decision) if not each.is_success and each.members]
    return {each.tree.group.key: _refusal(each) for each in refused}


def _refusal(decision: GroupDecision) -> RefusedGroup:
    """Returns the refusal of the group, with the message of the first member that found no node."""
    tried = decision.tried
    rules: Set[str] = frozenset().union(*(member.rules for member in tried.values()))
    for info in waiting_members(decision.tree):
        member = tried.get(info.uid)
        if member is not None and member.node_name is None and member.message != decision.text:
            return RefusedGroup(f"{decision.text} ({info.pod.name}: {member.message})", rules)
    return RefusedGroup(decision.text, rules)


def _common(rows: Rows | None, other: Rows | None) -> Rows | None:
    if rows is None or other is None:
        return other if rows is None else rows
    return np.intersect1d(rows, other)
