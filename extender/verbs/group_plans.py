"""Plans whole pod groups for filter, so that a member is judged beside the others' planned nodes.

kube-scheduler asks about the members one after the other. It assumes each on a node in its own snapshot, which no
request shows. So the first call about a group plans all its waiting members, with the same code as the scheduler's
loop. The plan gives the answers to the later calls, one node per member. No request says that kube-scheduler starts
again with the group, but in one pass it asks about each member only once.

    the plan         a filter call for                           what happens
    ------------     -----------------------------------------   ---------------------------------------------
    (none)           a member                                    the group is planned: PLACED or REFUSED
    PLACED           a member not answered yet                   its planned node is the answer
    PLACED           the same, but its planned node is not       the remaining members are planned again beside
                     in the request or refuses it now            those already answered: PLACED or REFUSED
    REFUSED          a member not answered yet                   every node is refused
    any              a member answered before, or a new one      a new pass: the group is planned again
    any              (the group, its profile or a placed         the plan is dropped, and the next call plans again
                     member changed; a member was bound to
                     another node; the plan is too old)

A plan reserves nothing: other pods are judged without it. `group_quorum` keeps a gang together at bind.

If the group does not fit, the call may belong to the dry run of the group's preemption. For that, kube-scheduler has
removed all pods of lower priority from its snapshot. The group is then planned without these pods too. This is not done
if only users' rules refuse the group: kube-scheduler does not run them, so it has found nodes without a preemption.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock
from typing import Protocol

import numpy as np

from extender.cache.cache import Cache
from extender.cache.changes import NODE, POD, Update
from extender.cache.groups import GroupState
from extender.cache.placements import PodPlacement
from extender.framework.find_fit import find_fit
from extender.framework.profile import Profile
from extender.groups import DecideOne, GroupDecision, GroupRules, Leaf, MemberDecision, decide_group
from extender.groups.group_preemption import victim_units
from extender.model.pod import Pod
from extender.model.scheduling.pod_groups import PodGroup
from extender.plugins.users.predicate import without_users_predicates
from extender.runtime.clock import Clock, Deadline
from extender.runtime.ports import Telemetry
from extender.table import PodInfo, Table
from extender.table.labels import ABSENT, Rows
from extender.table.pods.pod_templates import of_one_template
from extender.table.trial import Trial
from extender.verbs.waiting import PAUSE_SECONDS, PAUSES

MOST_PLANS = 8
OTHER_NODE = "the pod group is planned with the pod on another node"


class Dropped(Enum):
    """The reason why a plan was dropped, for the metric."""

    ASKED_AGAIN = "asked_again"
    CHANGED = "changed"
    NODE = "node"
    BOUND_ELSEWHERE = "bound_elsewhere"
    AGE = "age"


class Judge(Protocol):
    """Takes a profile and a table, and returns the function that decides about one member on that table."""

    def __call__(self, profile: Profile, table: Table, /) -> DecideOne: ...


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """The answer for a member that the plan places: its node."""

    node_name: str


@dataclass(frozen=True, slots=True)
class RefusedGroup:
    """The answer for a member of a group that does not fit: no node, with the reason and the rules that refused."""

    reason: str
    rules: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BesideSiblings:
    """The answer for a member without a planned node: filter judges it alone, with these siblings on their nodes."""

    siblings: Sequence[tuple[PodInfo, str]]


GroupAnswer = PlannedNode | RefusedGroup | BesideSiblings


@dataclass(slots=True)
class Plan:
    """The plan for one group.

    Attributes:
        members: UID -> member, for the waiting members in the order in which they were decided.
        decisions: UID of a member -> the decision about it.
        refusal: why the group is not placed; None if it is placed.
        is_emptied: True if the group fits only once all pods of lower priority have left.
        cursor: the position in the cache's journal up to which the changes were compared with the plan.
        counted: the UIDs of the pods that were on the planned nodes when the plan was made.
        touched: the planned nodes that have changed since. A member is checked again before it gets such a node.
        answered: the UIDs of the members that were answered in this pass.
        used_at: the time of the last answer, in monotonic seconds.
    """

    group: PodGroup
    profile: Profile
    members: dict[str, PodInfo]
    decisions: dict[str, MemberDecision]
    refusal: RefusedGroup | None
    is_emptied: bool
    cursor: int
    counted: frozenset[str]
    touched: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)
    used_at: float = 0.0

    def node_of(self, uid: str) -> str | None:
        decision = self.decisions.get(uid)
        return decision.node_name if decision is not None else None

    def placed(self) -> list[tuple[PodInfo, str]]:
        """Returns pairs of a member and its node, for the members that were answered with a node."""
        nodes = ((info, self.node_of(uid)) for uid, info in self.members.items() if uid in self.answered)
        return [(info, node) for info, node in nodes if node is not None]

    def planned_nodes(self) -> Set[str]:
        return {node for uid in self.decisions if (node := self.node_of(uid)) is not None}


class GroupPlans:
    """The plans of the groups that kube-scheduler is asking about. Thread-safe; one call plans at a time.

    Args:
        seconds: how long a plan is used after its last answer.
        scheduler_filters: True if kube-scheduler runs its own filters first; it may then ask in a dry run.
        pause: sleeps while the watch has not shown the group; None means time.sleep.
    """

    def __init__(
        self,
        cache: Cache,
        judge: Judge,
        telemetry: Telemetry,
        clock: Clock,
        seconds: float,
        *,
        scheduler_filters: bool = True,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._cache = cache
        self._judge = judge
        self._telemetry = telemetry
        self._clock = clock
        self._seconds = seconds
        self._scheduler_filters = scheduler_filters
        self._pause = pause or time.sleep
        self._planning = Lock()
        self._lock = Lock()  # guards `_plans`, because bind reads it too
        self._plans: OrderedDict[str, Plan] = OrderedDict()

    def __len__(self) -> int:
        return len(self._plans)

    def answer(self, info: PodInfo, names: list[str], profile: Profile, deadline: Deadline) -> GroupAnswer | None:
        """Returns the answer to a filter call about a waiting member; None if no plan is possible for the pod.

        A plan is possible only for a member without a node, of a group that is not in a tree. Raises DeadlineExceeded.
        """
        key = self._cache.groups.key_of(info.pod)
        if key is None:
            return None
        group = self._await_group(info, key)
        if group is None or not group.is_self_contained:
            return None
        with self._planning:
            state = self._cache.groups.get(group.key)
            if info.uid not in state.unscheduled:
                return None
            call = _Call(info, names, profile, group, deadline)
            plan = self._current(call)
            if plan is None:
                plan = self._keep(self._plan(call, state))
            elif not self._is_answerable(plan, call):
                plan = self._keep(self._plan_rest(plan, call, state))
            plan.used_at = self._clock.monotonic()
            return _answer(plan, call)

    def bound(self, pod: Pod, node_name: str) -> None:
        """Drops the plan of the pod's group if kube-scheduler binds the pod to a node other than the planned one."""
        if (key := self._cache.groups.key_of(pod)) is not None:
            with self._lock:
                plan = self._plans.get(key)
            if plan is not None and plan.refusal is None and plan.node_of(pod.uid) not in (None, node_name):
                self._drop(key, Dropped.BOUND_ELSEWHERE)

    # ---- the plan that a call belongs to

    def _await_group(self, info: PodInfo, key: str) -> PodGroup | None:
        """Waits until the watch has shown the pod's group and enough of its members; returns the group.

        kube-scheduler may see them a moment earlier. After a second, the group is returned anyway, or None if it is
        unknown.
        """
        for _ in range(PAUSES):
            group = find_group(self._cache, key)
            if group is not None and self._cache.groups.has(key, info.uid, group.min_count):
                break
            self._pause(PAUSE_SECONDS)
        return group

    def _current(self, call: _Call) -> Plan | None:
        """Returns the group's plan if it applies to this call; otherwise drops it and returns None."""
        with self._lock:
            plan = self._plans.get(call.group.key)
        if plan is None:
            return None
        reason: Dropped | None = None
        if plan.group.spec != call.group.spec or plan.profile is not call.profile:
            reason = Dropped.CHANGED
        elif self._clock.monotonic() - plan.used_at > self._seconds:
            reason = Dropped.AGE
        elif call.info.uid in plan.answered or call.info.uid not in plan.members:
            reason = Dropped.ASKED_AGAIN
        elif not self._follow(plan):
            reason = Dropped.CHANGED
        if reason is None:
            return plan
        self._drop(call.group.key, reason)
        return None

    def _follow(self, plan: Plan) -> bool:
        """Compares new changes with the plan; returns False if a member was deleted or is on another node.

        A member on its planned node is no reason to plan again: the new plan would not know which nodes were answered
        for the members whose bind has not begun.
        """
        updates, cursor, is_restart = self._cache.updates_since(plan.cursor)
        if is_restart:
            return False
        plan.cursor = cursor
        planned = plan.planned_nodes()
        for update in updates:
            if update.kind == POD and update.key in plan.members:
                if not _is_as_planned(plan, update):
                    return False
            elif (node := _touched_node(update)) in planned and update.key not in plan.counted:
                plan.touched.add(node)
        return True

    def _is_answerable(self, plan: Plan, call: _Call) -> bool:
        """Returns True if the planned node of the member is in the request and still fits, or if no node is planned."""
        node = plan.node_of(call.info.uid)
        if plan.refusal is not None or node is None or call.is_about_nominated_node:
            return True
        if node not in call.names:
            return False
        if plan.is_emptied or node not in plan.touched:
            return True
        with self._cache.snapshot("groups", call.deadline) as table:
            row = table.nodes.row_of.get(node, -1)
            if row < 0 or not table.nodes.present[row]:
                return False
            trial = Trial(table)
            try:
                _place(trial, plan)
                return len(find_fit(plan.profile, call.info, table, np.array([row], np.intp)).feasible) > 0
            finally:
                trial.revert()

    def _keep(self, plan: Plan) -> Plan:
        with self._lock:
            self._plans[plan.group.key] = plan
            self._plans.move_to_end(plan.group.key)
            if len(self._plans) > MOST_PLANS:
                self._plans.popitem(last=False)
        self._telemetry.group_planned("placed" if plan.refusal is None else "refused")
        return plan

    def _drop(self, key: str, reason: Dropped) -> None:
        with self._lock:
            self._plans.pop(key, None)
        self._telemetry.plan_dropped(reason.value)

    # ---- planning

    def _plan(self, call: _Call, state: GroupState) -> Plan:
        """Plans nodes for all waiting members of the group, starting with the member that this call is about."""
        others = [info for info in state.ready() if info.uid != call.info.uid]
        return self._decide(call, [call.info, *others], state, None)

    def _plan_rest(self, before: Plan, call: _Call, state: GroupState) -> Plan:
        """Plans nodes for this call's member and the others not answered yet, beside the answered members."""
        self._telemetry.plan_dropped(Dropped.NODE.value)
        waiting = (state.unscheduled.get(uid) for uid in before.members if uid not in before.answered)
        others = [info for info in waiting if info is not None and info.uid != call.info.uid]
        rest = self._decide(call, [call.info, *others], state, before)
        answered = {uid: before.members[uid] for uid in before.answered}
        rest.members = answered | rest.members
        rest.decisions = {uid: before.decisions[uid] for uid in answered if uid in before.decisions} | rest.decisions
        rest.answered = before.answered
        return rest

    def _decide(self, call: _Call, waiting: Sequence[PodInfo], state: GroupState, before: Plan | None) -> Plan:
        cursor = self._cache.cursor()  # The cursor is read before the table, so that no change is missed.
        with self._cache.snapshot("groups", call.deadline) as table:
            trial = Trial(table)
            try:
                if before is not None:
                    _place(trial, before)
                scheduled = {uid: info for uid, info in state.scheduled.items() if uid in table.pods.slot_of}
                siblings = {info.uid: info for info, _ in before.placed()} if before is not None else {}
                leaf = Leaf(call.group, waiting, scheduled | siblings)
                decision, is_emptied = self._decide_group(call, leaf, trial, before is not None and before.is_emptied)
                nodes = [table.nodes.row_of[node] for node in set(decision.placed.values())]
                counted = frozenset(info.uid for row in nodes for info in table.pods.at(table.pods.on(row)))
            finally:
                trial.revert()
        return Plan(
            call.group,
            call.profile,
            {info.uid: info for info in waiting},
            dict(decision.members) if decision.is_success else {},
            None if decision.is_success else _refusal(decision, waiting),
            is_emptied,
            cursor,
            counted,
        )

    def _decide_group(self, call: _Call, leaf: Leaf, trial: Trial, emptied: bool) -> tuple[GroupDecision, bool]:
        """Returns the decision, and True if it holds only once the pods of lower priority have left."""
        decision = self._decision(call, leaf, trial, call.profile)
        if decision.is_success or not self._scheduler_filters:
            return decision, False
        in_tree = without_users_predicates(call.profile)
        if not emptied and in_tree is not None and self._decision(call, leaf, trial, in_tree).is_success:
            return decision, False
        units = victim_units(trial.table, leaf.group.priority)
        mark = trial.mark()
        for unit in units:
            for info, _ in unit.pods:
                trial.take_away(info.uid)
        in_dry_run = self._decision(call, leaf, trial, call.profile) if units else decision
        trial.revert(mark)
        return (in_dry_run, True) if in_dry_run.is_success else (decision, False)

    def _decision(self, call: _Call, leaf: Leaf, trial: Trial, profile: Profile) -> GroupDecision:
        domain = call.domain(trial.table)
        decide_one = call.restricted(self._judge(profile, trial.table), trial.table, domain)
        is_constrained = leaf.group.topology_key is not None
        rules = GroupRules.beside_scheduler(profile, by_placements=is_constrained and domain is None)
        return decide_group(leaf, trial, decide_one, rules)


@dataclass(frozen=True, slots=True)
class _Call:
    """A filter call about a member of a group."""

    info: PodInfo
    names: list[str]
    profile: Profile
    group: PodGroup
    deadline: Deadline

    @property
    def is_about_nominated_node(self) -> bool:
        """True if the request has only the nominated node, which kube-scheduler asks about before the others."""
        return len(self.names) == 1 and self.names[0] == self.info.pod.status.nominated_node_name

    def rows(self, table: Table) -> Rows:
        """Returns the rows of the nodes in the request."""
        nodes = table.nodes
        rows = nodes.rows_of(self.names)
        if rows is None:  # a name is unknown or occurs twice
            rows = np.array(sorted({nodes.row_of[name] for name in self.names if name in nodes.row_of}), np.intp)
        present: Rows = rows[nodes.present[rows]]
        return present

    def domain(self, table: Table) -> Rows | None:
        """Returns the rows of the only topology domain in the request; None if there is no such domain.

        A group with a topology constraint is tried on one domain in each pass. So if the nodes of the request are all
        in one domain, the other members are restricted to it too.
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
        """Returns `decide`, restricted to the nodes that kube-scheduler can choose in this pass.

        The nodes of the request apply to the call's member and to members like it. Other members may use the whole
        domain.
        """
        rows = self.rows(table)
        named = None if self.is_about_nominated_node or len(rows) == len(table.nodes.rows) else rows

        def decide_one(info: PodInfo, rows: Rows | None) -> MemberDecision:
            is_alike = info is self.info or of_one_template(info.pod, self.info.pod)
            return decide(info, _common(rows, named if is_alike and named is not None else domain))

        return decide_one


def find_group(cache: Cache, key: str) -> PodGroup | None:
    """Returns the PodGroup with this key; None if the watch has not shown it."""
    group = cache.effective(PodGroup.__name__, key)
    return group if isinstance(group, PodGroup) else None


def _answer(plan: Plan, call: _Call) -> GroupAnswer:
    uid = call.info.uid
    if plan.refusal is not None:
        plan.answered.add(uid)
        return plan.refusal
    node = plan.node_of(uid)
    if node is not None and node not in call.names:  # kube-scheduler asks about the nominated node alone
        return RefusedGroup(OTHER_NODE)
    plan.answered.add(uid)
    return BesideSiblings(plan.placed()) if node is None else PlannedNode(node)


def _place(trial: Trial, plan: Plan) -> None:
    """Puts the members that were answered on their planned nodes, with the objects that they reserve."""
    for info, node in plan.placed():
        for obj in plan.decisions[info.uid].reserved:
            trial.set_object(obj)
        trial.place(info, node)


def _refusal(decision: GroupDecision, waiting: Sequence[PodInfo]) -> RefusedGroup:
    """Returns the refusal of the group, with the message of the first member that found no node."""
    rules: Set[str] = frozenset().union(*(member.rules for member in decision.members.values()))
    for info in waiting:
        member = decision.members.get(info.uid)
        if member is not None and member.node_name is None:
            return RefusedGroup(f"{decision.text} ({info.pod.name}: {member.message})", rules)
    return RefusedGroup(decision.text, rules)


def _is_as_planned(plan: Plan, update: Update) -> bool:
    """Returns True if the member waits, or is on its planned node."""
    if isinstance(update.current, PodPlacement):
        return update.current.node_name == plan.node_of(update.key)
    return isinstance(update.current, PodInfo)


def _touched_node(update: Update) -> str:
    """Returns the name of the node that changed, or whose pod changed; "" if there is none."""
    if update.kind == NODE:
        return update.key
    return update.current.node_name if isinstance(update.current, PodPlacement) else ""


def _common(rows: Rows | None, other: Rows | None) -> Rows | None:
    if rows is None or other is None:
        return other if rows is None else rows
    return np.intersect1d(rows, other)
