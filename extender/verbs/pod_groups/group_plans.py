"""Plans whole pod groups for filter, so that a member is judged with the others on planned nodes.

kube-scheduler asks about the members one after the other. It assumes each of them on a node, but only in its own
snapshot, so the next request does not show where the earlier members are. Therefore the first call about a group plans
all its waiting members, with the same code as the scheduler's loop. The plan gives the answers to the later calls, one
node per member. A request does not say if kube-scheduler has started again with the group. But kube-scheduler asks
about each member only once in a pass, so a second call about a member begins a new pass.

    the plan         a filter call for                           what happens
    ------------     -----------------------------------------   ---------------------------------------------
    (none)           a member                                    the group is planned: PLACED or REFUSED
    PLACED           a member not answered yet                   its planned node is the answer
    PLACED           a member not answered yet, whose planned    the member is planned again beside all others; if
                     node cannot be the answer any longer        it finds no node, the remaining members are planned
                                                                 again beside those already answered: PLACED or REFUSED
    REFUSED          a member not answered yet                   every node is refused
    any              a member answered before, or a new one      a new pass: the group is planned again
    any              nodes of another topology domain            a new pass: the group is planned again
    any              (the group, its profile or a placed         the plan is dropped, and the next call plans again
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
from enum import Enum
from threading import Lock
from typing import Protocol

import numpy as np

from extender.cache.cache import Cache
from extender.cache.changes import POD, Update
from extender.cache.groups import GroupState
from extender.cache.placements import PodPlacement
from extender.framework.find_fit import find_fit
from extender.framework.profile import Profile
from extender.model.pod import Pod
from extender.model.scheduling.pod_groups import PodGroup
from extender.runtime.clock import Clock, Deadline
from extender.runtime.ports import Telemetry
from extender.table import PodInfo, Table
from extender.table.trial import Trial
from extender.verbs.pod_groups.group_planning import (
    GroupAnswer,
    Judge,
    MemberCall,
    Plan,
    Planner,
    PlanRequest,
    void_nominations,
)
from extender.verbs.pod_groups.split_gangs import SplitGangs
from extender.verbs.waiting import PAUSE_SECONDS, PAUSES

MOST_PLANS = 8
REFUSAL_SECONDS = 1.0
"""How long after its last answer a plan that refuses the group may still be used.

Changes of the cluster do not end such a plan, because it has no nodes. kube-scheduler asks about the members of one
pass without a pause.
"""


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
    """The plans of the groups that kube-scheduler is asking about. Thread-safe; one call plans at a time.

    Args:
        seconds: how long after its last answer a plan may still be used.
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
        seconds: float,
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
        self._seconds = seconds
        self._observer = observer
        self._split = split
        self._made = 0
        self._pause = pause or time.sleep
        self._planning = Lock()
        self._lock = Lock()  # guards `_plans`, because bind reads it too
        self._plans: OrderedDict[str, Plan] = OrderedDict()

    def __len__(self) -> int:
        return len(self._plans)

    def answer(self, info: PodInfo, names: list[str], profile: Profile, deadline: Deadline) -> GroupAnswer | None:
        """Returns the answer to a filter call about a waiting member; None if no plan is possible for the pod.

        A plan is possible only if the member has no node, and its group has no parent. Raises DeadlineExceeded.
        """
        if self._split is not None:
            self._split.keep_room()
        key = self._cache.groups.key_of(info.pod)
        if key is None:
            return None
        group = self._await_group(info, key)
        if group is None or group.parent_key is not None:
            return None
        with self._planning:
            if not self._cache.groups.is_waiting(group.key, info.uid):
                return None
            call = MemberCall(info, names, profile, group, deadline)
            plan = self._current(call)
            if plan is None:
                plan = self._plan(call)
            elif not self._can_answer(plan, call):
                plan = self._plan_around(plan, call)
            if plan is None:
                return None
            plan.used_at = self._clock.monotonic()
            if self._observer is not None:
                self._observer.answered_from(plan)
            return plan.answer(info, names)

    def bound(self, pod: Pod, node_name: str) -> None:
        """Drops the plan of the pod's group if kube-scheduler binds the pod to a node other than the planned one."""
        if (key := self._cache.groups.key_of(pod)) is not None:
            with self._lock:
                plan = self._plans.get(key)
                is_elsewhere = plan is not None and plan.node_of(pod.uid) not in (None, node_name)
                if is_elsewhere:
                    del self._plans[key]
            if is_elsewhere:
                self._telemetry.plan_dropped(Dropped.BOUND_ELSEWHERE.value)

    # ---- the plan that a call belongs to

    def _await_group(self, info: PodInfo, key: str) -> PodGroup | None:
        """Waits until the watch has shown the pod's group and enough of its members; returns the group.

        kube-scheduler's own watch may show the pods a moment earlier. After a second, returns the group all the same;
        None if the watch has not shown the group.
        """
        for _ in range(PAUSES):
            group = self._cache.groups.find(key)
            if group is not None and self._cache.groups.has_members(key, at_least=group.min_count, including=info.uid):
                break
            self._pause(PAUSE_SECONDS)
        return group

    def _current(self, call: MemberCall) -> Plan | None:
        """Returns the group's plan if it applies to this call; otherwise drops it and returns None."""
        with self._lock:
            plan = self._plans.get(call.group.key)
        if plan is None:
            return None
        reason: Dropped | None = None
        if plan.group.spec != call.group.spec or plan.profile is not call.profile:
            reason = Dropped.CHANGED
        elif self._clock.monotonic() - plan.used_at > (self._seconds if plan.refusal is None else REFUSAL_SECONDS):
            reason = Dropped.AGE
        elif call.info.uid in plan.answered or call.info.uid not in plan.members or not plan.has_domain_of(call.names):
            reason = Dropped.ASKED_AGAIN
        elif not self._still_applies(plan):
            reason = Dropped.CHANGED
        if reason is None:
            return plan
        self._drop(call.group.key, reason)
        return None

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
        request is about its nominated node alone.
        """
        node = plan.node_of(call.info.uid)
        if node is None or call.is_about_nominated_node:
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
            self._plans[plan.group.key] = plan
            self._plans.move_to_end(plan.group.key)
            if len(self._plans) > MOST_PLANS:
                self._plans.popitem(last=False)
        self._telemetry.group_planned("placed" if plan.refusal is None else "refused")

    def _drop(self, key: str, reason: Dropped) -> None:
        with self._lock:
            self._plans.pop(key, None)
        self._telemetry.plan_dropped(reason.value)

    # ---- planning

    def _plan(self, call: MemberCall) -> Plan | None:
        """Plans nodes for all waiting members of the group, starting with the member that this call is about."""
        state = self._cache.groups.get(call.group.key)
        others = [info for info in state.ready() if info.uid != call.info.uid]
        return self._make_plan(call, state, [[call.info, *others]], None)

    def _plan_around(self, before: Plan, call: MemberCall) -> Plan | None:
        """Plans another node for the member of the call; all others keep theirs.

        If there is no such node, plans nodes again for all members that have no answer yet.
        """
        self._telemetry.plan_dropped(Dropped.NODE.value)
        state = self._cache.groups.get(call.group.key)
        waiting = (state.unscheduled.get(uid) for uid in before.members if uid not in before.answered)
        others = [info for info in waiting if info is not None and info.uid != call.info.uid]
        alone = [call.info]
        return self._make_plan(call, state, [alone, [*alone, *others]] if others else [alone], before)

    def _make_plan(
        self, call: MemberCall, state: GroupState, attempts: Sequence[Sequence[PodInfo]], before: Plan | None
    ) -> Plan | None:
        """Plans nodes for the first of `attempts`, or for the next if that gives the call's member no node.

        Members that have got a node since `state` was read count as scheduled. Returns None if the call's member is one
        of them. If the last plan refuses the group, ends its members' nominations.
        """
        cursor = self._cache.cursor()  # The cursor is read before the table, so that no change is missed.
        with self._cache.snapshot("groups", call.deadline) as table:
            if call.info.uid in table.pods.slot_of:
                return None
            scheduled = [uid for uid in (*state.unscheduled, *state.scheduled) if uid in table.pods.slot_of]
            for members in attempts:
                waiting = [info for info in members if info.uid not in table.pods.slot_of]
                request = PlanRequest(call, waiting, scheduled, before)
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


def _is_as_planned(plan: Plan, update: Update) -> bool:
    """Returns True if the member waits, or is on its planned node."""
    if isinstance(update.current, PodPlacement):
        return update.current.node_name == plan.node_of(update.key)
    return isinstance(update.current, PodInfo)
