"""Keeps room for the waiting members of split gangs, so that other pods do not take the last places that fit.

A gang is split if some of its members are bound, but fewer than it needs. That can happen only if the API server or
this process fails in the middle of the gang's binds. The other members are tried again later, and until then other pods
could get their places. So they are nominated to nodes in the cache, where pods of the same or a lower priority leave
them room. The webhook and the scheduler's loop both use this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from extender.cache.cache import Cache
from extender.cache.groups import GroupState
from extender.cache.pod_states import PodState
from extender.framework.profile import Profile
from extender.model.pod import Pod
from extender.model.scheduling.pod_groups import PodGroup
from extender.runtime.clock import Clock
from extender.table import PodInfo
from extender.verbs.pod_groups.group_planning import Judge, MemberCall, Planner, PlanRequest
from extender.verbs.pod_groups.members import find_group

RETRY_SECONDS = 1.0  # the time between two plans for a gang whose waiting members do not fit


class SplitGangs:
    """Finds split gangs, and nominates their waiting members in the cache. Thread-safe.

    Groups in a tree and groups with claims of their own are left out, because no single group can be planned for them.

    Args:
        profile_of: returns the profile that decides about a pod; None if its gang is not to be kept together.
        judge: decides about one member; only this object may use it.
    """

    def __init__(self, cache: Cache, profile_of: Callable[[Pod], Profile | None], judge: Judge, clock: Clock) -> None:
        self._cache = cache
        self._profile_of = profile_of
        self._planner = Planner(judge, scheduler_filters=False)
        self._clock = clock
        self._lock = Lock()
        # Key of a gang that may be split -> when it may be planned, in monotonic seconds.
        self._suspects: dict[str, float] = {}
        self._is_searched = False  # An earlier process may have split gangs.

    def search_again(self) -> None:
        """Makes the next `keep_room` look at all gangs. Call it while another process binds pods."""
        self._is_searched = False

    def suspect(self, pod: Pod) -> None:
        """Records that the bind of this pod has failed or got no answer, which may split its gang."""
        key = self._cache.groups.key_of(pod)
        if key is not None:
            with self._lock:
                self._suspects[key] = 0.0

    def keep_room(self) -> None:
        """Nominates the waiting members of split gangs. Call it before each decision about another pod."""
        if self._is_searched and not self._suspects:
            return
        with self._lock:
            if not self._is_searched:
                self._is_searched = True
                groups = self._cache.objects(PodGroup.__name__).values()
                self._suspects.update((group.key, 0.0) for group in groups)
            now = self._clock.monotonic()
            for key, due in list(self._suspects.items()):
                group, state = find_group(self._cache, key), self._cache.groups.get(key)
                bound = sum(map(self._is_bound, state.scheduled))
                if group is None or not group.is_self_contained or not _can_be_split(group, state, bound):
                    del self._suspects[key]
                elif bound and now >= due and not self._nominate(group, state):
                    self._suspects[key] = now + RETRY_SECONDS

    def _is_bound(self, uid: str) -> bool:
        placement = self._cache.placement(uid)
        return placement is not None and placement.certain and placement.state is not PodState.ASSUMED

    def _nominate(self, group: PodGroup, state: GroupState) -> bool:
        """Nominates as many waiting members as the gang still needs; returns False if they do not fit."""
        waiting = state.ready()
        needed = group.min_count - len(state.scheduled)
        nominated = sum(bool(info.pod.status.nominated_node_name) for info in waiting)
        if nominated >= min(needed, len(waiting)):
            return True
        profile = self._profile_of(waiting[0].pod)
        if profile is None:
            return True
        placed = self._plan(group, profile, waiting, state)
        for info, node_name in placed[:needed]:
            self._cache.nominate(info.uid, node_name)
        return bool(placed)

    def _plan(
        self, group: PodGroup, profile: Profile, waiting: Sequence[PodInfo], state: GroupState
    ) -> list[tuple[PodInfo, str]]:
        """Returns the waiting members that would get a node, each with that node; none if the gang does not fit."""
        with self._cache.snapshot("groups") as table:
            names = table.nodes.names_of(table.nodes.rows)
            scheduled = [uid for uid in state.scheduled if uid in table.pods.slot_of]
            plan = self._planner.plan(
                PlanRequest(MemberCall(waiting[0], names, profile, group), waiting, scheduled), table
            )
        nodes = ((info, plan.node_of(info.uid)) for info in waiting)
        return [(info, node_name) for info, node_name in nodes if node_name is not None]


def _can_be_split(group: PodGroup, state: GroupState, bound: int) -> bool:
    """Returns True if the gang is split, or will be if no further bind succeeds. `bound`: its bound members."""
    is_settled = bound == len(state.scheduled)
    return bool(state.scheduled) and bound < group.min_count and not (is_settled and not state.unscheduled)
