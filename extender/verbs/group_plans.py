"""Plans whole pod groups for filter, so that a member is judged with the others on planned nodes.

kube-scheduler asks about the members one after the other. It assumes each of them on a node, but only in its own
snapshot, so the next request does not show where the earlier members are. Therefore the first call about a group plans
all its waiting members, with the same code as the scheduler's loop. The plan gives the answers to the later calls, one
node per member. A request does not say if kube-scheduler has started again with the group. But kube-scheduler asks
about each member only once in a pass, so a second call about a member begins a new pass.

If the group has a parent, the plan is for the whole tree of groups; a group without a parent is a tree of one group.
kube-scheduler tries a group below the root in all its topology domains within one pass. The plan chooses one of them,
and the calls in the other domains get no node.

    the plan         a filter call for                           what happens
    ------------     -----------------------------------------   ---------------------------------------------
    (none)           a member                                    the tree is planned: PLACED or REFUSED
    PLACED           a member not answered yet                   its planned node is the answer
    PLACED           a member not answered yet, whose planned    the member is planned again beside all others; if
                     node cannot be the answer any longer        it finds no node, the remaining members are planned
                                                                 again beside those already answered: PLACED or REFUSED
    PLACED           a member of a child group that is not       every node is refused
                     placed
    REFUSED          a member not answered yet                   every node is refused
    any              a member answered before, or a new one      a new pass: the tree is planned again
    any              nodes of another topology domain            a new pass: the tree is planned again
    any              (a group, the profile or a placed           the plan is dropped, and the next call plans again
                     member changed; a member was bound to
                     another node; the plan, or a refusal,
                     is too old)

A plan reserves nothing: other pods are judged without it. `group_quorum` keeps a gang together at bind.

When a group is refused, the nominations of its members end, except nominations to nodes that victims are leaving. Other
pods may then take that room, until the watch shows that kube-scheduler has nominated a member again.

If the group does not fit, the call may belong to the dry run of the group's preemption, for which kube-scheduler has
removed all pods of lower priority from its snapshot. So the group is planned again without these pods, unless only
users' rules refuse it. In that case kube-scheduler, which does not run these rules, has no reason for a preemption.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from threading import Lock
from typing import Protocol

import numpy as np

from extender.cache.cache import Cache
from extender.cache.changes import POD, Update
from extender.cache.groups import ready
from extender.cache.pod_states import PodPlacement
from extender.framework.find_fit import find_fit
from extender.framework.profile import Profile
from extender.groups import Leaf, Tree
from extender.groups.group_tree import waiting_members, with_leaves
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.pod_groups import CompositePodGroup, GroupName, PodGroup
from extender.runtime.clock import Clock, Deadline
from extender.runtime.ports import Telemetry
from extender.table import PodInfo, Table, Trial
from extender.verbs.group_planning import GroupAnswer, Judge, MemberCall, Plan, Planner, PlanRequest, void_nominations
from extender.verbs.split_gangs import SplitGangs
from extender.verbs.verb import PAUSE_SECONDS, PAUSES

MOST_PLANS = 8
PLAN_SECONDS = 30.0  # how long after its last answer a plan may still be used
REFUSAL_SECONDS = 1.0
"""A plan that refuses the group may be used until this long after its last answer.

Changes of the cluster do not end such a plan, because it has no nodes. kube-scheduler asks about the members of one
pass without a pause.
"""
Groups = tuple[PodGroup | CompositePodGroup, ...]
"""The groups of a tree, the root first."""


class Dropped(Enum):
    """The reasons why the plan of a group is dropped. Each value is a label value of the metric of dropped plans."""

    ASKED_AGAIN = "asked_again"
    CHANGED = "changed"
    NODE = "node"
    BOUND_ELSEWHERE = "bound_elsewhere"
    AGE = "age"


class PlanObserver(Protocol):
    """Observes the plans of pod groups, in the thread of the filter call. It must be quick and must not raise."""

    def plan_begins(self) -> None:
        """Called before a plan is made: the random numbers drawn from now on are for this plan."""

    def planned(self, plan: Plan, request: PlanRequest, table: Table) -> None:
        """Called with each new plan, and with the table for which the plan was made."""

    def answered_from(self, plan: Plan) -> None:
        """Called with the plan from which the current filter call is answered."""


class GroupPlans:
    """The plans of the trees of groups that kube-scheduler is asking about. Thread-safe; one call plans at a time.

    Args:
        scheduler_filters, coscheduling: see Planner.
        observer: receives each plan; None if the process is not recorded.
        pause: sleeps while the watch has not shown the group; None means time.sleep.
        split: keeps room for the waiting members of split gangs.
    """

    def __init__(
        self,
        cache: Cache,
        judge: Judge,
        telemetry: Telemetry,
        clock: Clock,
        *,
        scheduler_filters: bool = True,
        coscheduling: bool = False,
        observer: PlanObserver | None = None,
        pause: Callable[[float], object] | None = None,
        split: SplitGangs | None = None,
    ) -> None:
        self._cache = cache
        self._planner = Planner(judge, scheduler_filters=scheduler_filters, coscheduling=coscheduling)
        self._telemetry = telemetry
        self._clock = clock
        self._observer = observer
        self._split = split
        self._made = 0
        self._pause = pause or time.sleep
        self._planning = Lock()
        self._lock = Lock()  # guards `_plans`, because bind reads it too
        self._plans: OrderedDict[GroupName, Plan] = OrderedDict()  # by root

    def __len__(self) -> int:
        return len(self._plans)

    def answer(self, info: PodInfo, names: list[str], profile: Profile, deadline: Deadline) -> GroupAnswer | None:
        """Returns the answer to a filter call about a waiting member; None if no plan is possible for the pod.

        A plan is possible only if the member has no node, and its groups exist. Raises DeadlineExceeded.
        """
        if self._split is not None:
            self._split.keep_room()
        key = self._cache.groups.key_of(info.pod)
        if key is None:
            return None
        groups = self._await_groups(info, key)
        if not groups:
            return None
        with self._planning:
            if not self._cache.groups.is_waiting(key, info.uid):
                return None
            call = MemberCall(info, names, profile, deadline)
            plan = self._plan_for(call, groups)
            if plan is None:
                return None
            plan.used_at = self._clock.monotonic()
            if self._observer is not None:
                self._observer.answered_from(plan)
            answer = plan.answer(info, names)
            if info.uid in plan.answered or not call.is_about_nominated_node:
                plan.asked.add((info.uid, self._domain(plan, call)))
            return answer

    def bound(self, pod: Pod, node_name: str) -> None:
        """Drops the plan of the pod's tree if kube-scheduler binds the pod to a node other than the planned one."""
        if (key := self._cache.groups.key_of(pod)) is not None:
            root = self._cache.groups.root_of(key)
            with self._lock:
                plan = self._plans.get(root)
                is_elsewhere = plan is not None and plan.node_of(pod.uid) not in (None, node_name)
                if is_elsewhere:
                    del self._plans[root]
            if is_elsewhere:
                self._telemetry.plan_dropped(Dropped.BOUND_ELSEWHERE.value)

    # ---- the plan that a call belongs to

    def _await_groups(self, info: PodInfo, key: str) -> Groups:
        """Waits until the watch has shown the pod's groups and the members that they need; returns these groups.

        kube-scheduler's own watch may show the pods a moment earlier. After a second, returns the groups all the same;
        none if the watch has not shown the pod's group and all groups above it.
        """
        for _ in range(PAUSES):
            if groups := self._cache.groups.family(key, info.uid):
                return groups
            self._pause(PAUSE_SECONDS)
        return self._cache.groups.family(key)

    def _plan_for(self, call: MemberCall, groups: Groups) -> Plan | None:
        """Returns the plan that answers the call, and makes it if necessary; None if the member no longer waits."""
        plan = self._current(call, groups)
        if plan is not None and self._can_answer(plan, call):
            return plan
        tree = self._cache.groups.tree(GroupName.of(groups[0]))
        if tree is None:
            return None
        return self._plan(call, tree) if plan is None else self._plan_around(plan, call, tree)

    def _current(self, call: MemberCall, groups: Groups) -> Plan | None:
        """Returns the tree's plan if it applies to this call; otherwise drops it and returns None."""
        root = GroupName.of(groups[0])
        with self._lock:
            plan = self._plans.get(root)
        if plan is None:
            return None
        uid = call.info.uid
        was_asked = (uid, self._domain(plan, call)) in plan.asked
        reason: Dropped | None = None
        if plan.profile is not call.profile or not _are_same(plan.groups, groups):
            reason = Dropped.CHANGED
        elif self._clock.monotonic() - plan.used_at > (PLAN_SECONDS if plan.refusal is None else REFUSAL_SECONDS):
            reason = Dropped.AGE
        elif was_asked or uid not in plan.members or not plan.has_domain_of(call.names):
            reason = Dropped.ASKED_AGAIN
        elif not self._still_applies(plan):
            reason = Dropped.CHANGED
        if reason is None:
            return plan
        self._drop(root, reason)
        return None

    def _domain(self, plan: Plan, call: MemberCall) -> tuple[str, ...]:
        """Returns the topology domain in which kube-scheduler tries the member's groups, if the plan chooses one."""
        labels = plan.labels_of(call.info.uid) if plan.labels and call.names else ()
        node = self._cache.effective(Node.__name__, call.names[0]) if labels else None
        return tuple(node.labels.get(label, "") for label in labels) if isinstance(node, Node) else ()

    def _still_applies(self, plan: Plan) -> bool:
        """Compares the latest changes with the plan; returns False if a member was deleted or is on another node.

        If a member is now on its planned node, the plan still applies. A new plan might use other nodes for members
        about which kube-scheduler already has an answer. Also returns False if the journal has dropped changes before
        they could be compared.
        """
        updates, cursor, is_restart = self._cache.updates_since(plan.cursor)
        if is_restart:
            return False
        plan.cursor = cursor
        for update in updates:
            if update.kind == POD and update.key in plan.members:
                if not _is_as_planned(plan, update):
                    return False
            elif update.node_name in plan.nodes and update.key not in plan.counted:
                plan.touched.add(update.node_name)
        return True

    def _can_answer(self, plan: Plan, call: MemberCall) -> bool:
        """Returns True if the member's planned node is in the request and still fits.

        Also returns True if the answer needs no check: the group is refused, the member has no planned node, or the
        request is about its nominated node alone, or about a domain in which the plan does not place its group.
        """
        node = plan.node_of(call.info.uid)
        if node is None or call.is_about_nominated_node or plan.is_elsewhere(call.info.uid, call.names):
            return True
        if node not in call.names:
            return False
        if plan.is_emptied or node not in plan.touched:
            return True
        with self._cache.snapshot("groups", call.deadline) as table:
            if not table.nodes.has(node):
                return False
            trial = Trial(table)
            try:
                plan.place(plan.answered, trial)
                rows = np.array([table.nodes.row_of[node]])
                return len(find_fit(plan.profile, call.info, table, rows).feasible) > 0
            finally:
                trial.revert()

    def _keep(self, plan: Plan) -> None:
        with self._lock:
            root = GroupName.of(plan.groups[0])
            self._plans[root] = plan
            self._plans.move_to_end(root)
            if len(self._plans) > MOST_PLANS:
                self._plans.popitem(last=False)
        self._telemetry.group_planned("placed" if plan.refusal is None else "refused")

    def _drop(self, root: GroupName, reason: Dropped) -> None:
        with self._lock:
            self._plans.pop(root, None)
        self._telemetry.plan_dropped(reason.value)

    # ---- planning

    def _plan(self, call: MemberCall, tree: Tree) -> Plan | None:
        """Plans nodes for all waiting members, in their group starting with the member that this call is about."""
        return self._make_plan(call, tree, [lambda leaf: _led(leaf, call.info, ready(leaf.waiting))], None)

    def _plan_around(self, before: Plan, call: MemberCall, tree: Tree) -> Plan | None:
        """Plans another node for the member of the call; all others keep theirs.

        If there is no such node, plans nodes again for all members that have no answer yet.
        """
        self._telemetry.plan_dropped(Dropped.NODE.value)
        others = before.members.keys() - before.answered - {call.info.uid}

        def alone(leaf: Leaf) -> Leaf:
            return _led(leaf, call.info, ())

        def with_others(leaf: Leaf) -> Leaf:
            waiting = {info.uid: info for info in leaf.waiting if info.uid in others}
            return _led(leaf, call.info, [waiting[uid] for uid in before.members if uid in waiting])

        return self._make_plan(call, tree, [alone, with_others] if others else [alone], before)

    def _make_plan(
        self, call: MemberCall, tree: Tree, attempts: Sequence[Callable[[Leaf], Leaf]], before: Plan | None
    ) -> Plan | None:
        """Plans nodes for the members that the first of `attempts` leaves in the tree.

        If that gives the call's member no node, tries the next. Members that have got a node since `tree` was read
        count as scheduled. Returns None if the call's member is one of them, or was deleted. Ends the nominations of
        the members that the last plan refuses.
        """
        cursor = self._cache.cursor()  # The cursor is read before the table, so that no change is missed.
        with self._cache.snapshot("groups", call.deadline) as table:
            tree = with_leaves(tree, lambda leaf: _updated(leaf, table))
            if not _waits(call.info, tree):
                return None
            for attempt in attempts:
                request = PlanRequest(call, with_leaves(tree, attempt), before)
                plan = self._number(request, table, cursor)
                if plan.node_of(call.info.uid) is not None and (before is None or plan.is_emptied == before.is_emptied):
                    break
            void = void_nominations(plan, request, table)
        for uid, node_name in void:
            self._cache.nominate(uid, "", instead_of=node_name)
        self._keep(plan)
        return plan

    def _number(self, request: PlanRequest, table: Table, cursor: int) -> Plan:
        """Makes a plan, gives it a number, and reports it to the observer."""
        if self._observer is not None:
            self._observer.plan_begins()
        plan = self._planner.plan(request, table)
        self._made += 1
        plan.cursor = cursor
        plan.number = self._made
        if self._observer is not None:
            self._observer.planned(plan, request, table)
        return plan


def _are_same(before: Groups, groups: Groups) -> bool:
    """Returns True if these are the same groups with the same specs."""
    return before == groups or [(group.key, group.spec) for group in before] == [
        (group.key, group.spec) for group in groups
    ]


def _waits(info: PodInfo, tree: Tree) -> bool:
    return any(member.uid == info.uid for member in waiting_members(tree))


def _led(leaf: Leaf, first: PodInfo, others: Sequence[PodInfo]) -> Leaf:
    """Returns the group with these waiting members, and before them `first`, if that is a waiting member of it."""
    own = [first] if _waits(first, leaf) else []
    return replace(leaf, waiting=[*own, *(info for info in others if info.uid != first.uid)])


def _updated(leaf: Leaf, table: Table) -> Leaf:
    """Returns the group with the members that wait or have a node according to the table."""
    waiting = [info for info in leaf.waiting if info.uid not in table.pods.slot_of]
    members = (*(info.uid for info in leaf.waiting), *leaf.scheduled)
    return Leaf(leaf.group, waiting, [uid for uid in members if uid in table.pods.slot_of])


def _is_as_planned(plan: Plan, update: Update) -> bool:
    """Returns True if the member waits, or is on its planned node."""
    if isinstance(update.current, PodPlacement):
        return update.current.node_name == plan.node_of(update.key)
    return isinstance(update.current, PodInfo)
