"""Keeps room for the waiting members of split gangs, so that other pods do not take the last places that fit.

A gang is split if some of its members are bound, but fewer than it needs. That can happen if the API server or this
process fails in the middle of the gang's binds, or if a member no longer fits then. The other members are tried again
later, and until then other pods could get their places. So they are nominated to nodes in the cache, where pods of the
same or a lower priority leave them room. Once the Binding of a member is sent, all members that have a node count as
bound, because other pods would not wait for the answer. The webhook and the scheduler's loop both use this.

No room is kept if the waiting members do not all fit, or for members that are created later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock

import numpy as np

from extender.cache.cache import Cache
from extender.cache.groups import GroupState
from extender.cache.pod_states import PodState
from extender.errors import DeadlineExceeded
from extender.framework.find_fit import find_fit
from extender.framework.profile import Profile
from extender.groups import Leaf
from extender.model.pod import Pod
from extender.model.pod_groups import PodGroup
from extender.runtime.clock import NO_LIMIT, Clock, Deadline, TimeLimit
from extender.table import PodInfo, Table
from extender.verbs.group_planning import Judge, MemberCall, Planner, PlanRequest

RETRY_SECONDS = 1.0
"""How long after a plan for a gang has failed the next is made. This doubles with each failure."""
MOST_RETRY_SECONDS = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A gang that may be split.

    Attributes:
        due: when it may be planned, in monotonic seconds.
        pause: how long to wait after the next plan that fails, in seconds.
        nominations: UID of a member -> the node that it was nominated to here.
        places: UID of a member -> the node that it is nominated to and fits on; empty if no room is kept.
        cursor: the position in the cache's journal up to which the members are known to fit on `places`.
    """

    due: float = 0.0
    pause: float = RETRY_SECONDS
    nominations: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    cursor: int = 0


class SplitGangs:
    """Finds split gangs, and nominates their waiting members in the cache. Thread-safe.

    Groups in a tree are left out, because a group cannot be planned without the others of its tree.

    Args:
        profile_of: returns the profile that decides about a pod; None if its gang is not to be kept together.
        judge: decides about one member; only this object may use it.
        limit: the time limit of a decision. Each call of `keep_room` may take half of it, because plans call users'
            rules, and the decision itself follows.
        on_end: called with a member whose nomination has just ended, as it was before that.
        is_undecided: returns True while this assumed pod (its UID) waits in bind, so that its Binding is not sent yet.
    """

    def __init__(
        self,
        cache: Cache,
        profile_of: Callable[[Pod], Profile | None],
        judge: Judge,
        clock: Clock,
        limit: TimeLimit = NO_LIMIT,
        on_end: Callable[[PodInfo], object] = lambda _: None,
        is_undecided: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._cache = cache
        self._profile_of = profile_of
        self._planner = Planner(judge, scheduler_filters=False)
        self._clock = clock
        self._limit = limit.half()
        self._on_end = on_end
        self._is_undecided = is_undecided
        self._planning = Lock()
        self._lock = Lock()  # guards what follows; a failed bind must not wait for a plan
        self._suspects: dict[str, _Suspect] = {}  # by the key of the gang
        self._is_searched = False  # An earlier process may have split gangs.

    def search_again(self) -> None:
        """Makes the next `keep_room` look at all gangs. Call it while another process binds pods."""
        with self._lock:
            self._is_searched = False

    def suspect(self, pod: Pod) -> None:
        """Records that the bind of this pod has failed or got no answer, which may split its gang."""
        key = self._cache.groups.key_of(pod)
        if key is not None:
            with self._lock:
                self._suspects[key] = _Suspect(nominations=self._suspects.get(key, _Suspect()).nominations)

    def keep_room(self) -> None:
        """Nominates the waiting members of split gangs. Call it before each decision about another pod.

        If the time limit ends before all gangs are checked, the next call checks the others.
        """
        if self._is_searched and not self._suspects:
            return
        with self._planning:
            self._search()
            deadline = self._limit.begin()
            for key, suspect in list(self._suspects.items()):
                if deadline.left_seconds <= 0:
                    break
                if self._clock.monotonic() >= suspect.due:
                    self._look(key, suspect, deadline)

    def _search(self) -> None:
        """Suspects all gangs, if an earlier process or another leader may have split them."""
        groups = () if self._is_searched else self._cache.objects(PodGroup.__name__).values()
        with self._lock:
            for group in groups:
                self._suspects.setdefault(group.key, _Suspect())
            self._is_searched = True

    def _look(self, key: str, suspect: _Suspect, deadline: Deadline) -> None:
        """Keeps room for one gang if it is split; forgets the gang if it cannot be."""
        group, state = self._cache.groups.find(key), self._cache.groups.get(key)
        bound = sum(map(self._is_bound, state.scheduled))
        if group is None or not self._cache.groups.is_root(group) or not _can_be_split(group, state, bound):
            self._end_nominations(suspect, state)
            self._replace(key, suspect, None)
        elif not all(map(self._is_undecided, state.scheduled)):
            self._replace(key, suspect, self._followed(suspect) or self._planned(group, state, suspect, deadline))

    def _replace(self, key: str, before: _Suspect, after: _Suspect | None) -> None:
        """Replaces or forgets a suspect, except if another bind of the gang has failed since it was read."""
        with self._lock:
            if self._suspects.get(key) is not before:
                return
            if after is None:
                del self._suspects[key]
            else:
                self._suspects[key] = after

    def _followed(self, suspect: _Suspect) -> _Suspect | None:
        """Returns the suspect with the current cursor; None if its members or their nodes may have changed."""
        if not suspect.places:
            return None
        updates, cursor, is_restart = self._cache.updates_since(suspect.cursor)
        nodes = {*suspect.places.values()}
        if is_restart or any(update.key in suspect.places or update.node_name in nodes for update in updates):
            return None
        return replace(suspect, cursor=cursor)

    def _planned(self, group: PodGroup, state: GroupState, suspect: _Suspect, deadline: Deadline) -> _Suspect:
        """Keeps room for a split gang; returns when to look at it again, which is later if the gang does not fit."""
        cursor = self._cache.cursor()  # The cursor is read before the table, so that no change is missed.
        try:
            places, nominations = self._nominate(group, state, deadline)
            if places:
                return _Suspect(nominations={**suspect.nominations, **nominations}, places=places, cursor=cursor)
        except DeadlineExceeded as error:
            _log.warning("no room kept for a split gang group=%s reason=%r", group.key, str(error))
        except Exception:  # one gang's error must not fail the decisions about all other pods
            _log.exception("no room kept for a split gang group=%s", group.key)
        due = self._clock.monotonic() + suspect.pause
        return _Suspect(due, min(2 * suspect.pause, MOST_RETRY_SECONDS), suspect.nominations)

    def _end_nominations(self, suspect: _Suspect, state: GroupState) -> None:
        """Ends the nominations made here, because the gang no longer needs room."""
        for uid, node_name in suspect.nominations.items():
            if (info := state.unscheduled.get(uid)) is not None:
                self._move(info, node_name, "")

    def _move(self, info: PodInfo, before: str, node_name: str) -> None:
        """Nominates the member to another node ("" for none), unless its nomination is no longer `before`."""
        if self._cache.nominate(info.uid, node_name, instead_of=before) == before and before:
            self._on_end(info)

    def _is_bound(self, uid: str) -> bool:
        placement = self._cache.placement(uid)
        return placement is not None and placement.certain and placement.state is not PodState.ASSUMED

    def _nominate(
        self, group: PodGroup, state: GroupState, deadline: Deadline
    ) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Nominates as many waiting members as the gang still needs.

        Returns the nodes of these members by UID, and those among them that were nominated now. Both are empty if the
        members do not fit, if none can be tried now, or if the gang is not to be kept together.
        """
        waiting = state.ready()
        needed = min(group.min_count - len(state.scheduled), len(waiting))
        profile = self._profile_of(waiting[0].pod) if waiting else None
        if profile is None:
            return {}, {}
        with self._cache.snapshot("groups", deadline) as table:
            fitting = [info for info in waiting if _has_room(info, profile, table)]
            if len(fitting) >= needed:
                return {info.uid: info.pod.status.nominated_node_name for info in fitting}, {}
            names = table.nodes.names_of(table.nodes.rows)
            placed = self._plan(MemberCall(waiting[0], names, profile), group, state, table)[:needed]
        for info, node_name in placed:
            self._move(info, info.pod.status.nominated_node_name, node_name)
        nominations = {info.uid: node_name for info, node_name in placed}
        return nominations, nominations

    def _plan(self, call: MemberCall, group: PodGroup, state: GroupState, table: Table) -> list[tuple[PodInfo, str]]:
        """Returns the waiting members that would get a node, each with that node; none if the gang does not fit."""
        waiting, scheduled = state.ready(), [uid for uid in state.scheduled if uid in table.pods.slot_of]
        plan = self._planner.plan(PlanRequest(call, Leaf(group, waiting, scheduled)), table)
        nodes = ((info, plan.node_of(info.uid)) for info in waiting)
        return [(info, node_name) for info, node_name in nodes if node_name is not None]


def _has_room(info: PodInfo, profile: Profile, table: Table) -> bool:
    """Returns True if the pod is nominated to a node where it still fits."""
    node_name = info.pod.status.nominated_node_name
    if not table.nodes.has(node_name):
        return False
    return len(find_fit(profile, info, table, np.array([table.nodes.row_of[node_name]])).feasible) > 0


def _can_be_split(group: PodGroup, state: GroupState, bound: int) -> bool:
    """Returns True if the gang is split, or will be if no further bind succeeds. `bound`: its bound members."""
    is_settled = bound == len(state.scheduled)
    return bool(state.scheduled) and bound < group.min_count and not (is_settled and not state.unscheduled)
