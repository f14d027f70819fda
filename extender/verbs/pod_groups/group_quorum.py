"""Keeps the members of a gang together at bind: posts no Binding before enough members can be bound.

kube-scheduler binds the members of a gang in separate calls and never undoes a bind. So each call assumes its member
and then waits here. The calls go on once as many members as the gang needs are bound or waiting. If that has become
impossible, or takes too long, all waiting members are refused together, and kube-scheduler tries the gang again.

    a round of a gang     event                                              next
    -----------------     -----------------------------------------------    ----------------------------------------
    (none)                a member is assumed, too few have a node           OPEN: the call waits
    OPEN                  a member is assumed, and now enough can be bound   (none): all waiting members are bound
    OPEN                  a member cannot be bound, and too few are left     (none): all waiting members are refused
    OPEN                  a call has waited too long                         (none): all waiting members are refused
    OPEN                  a waiting member is deleted, enough are left       OPEN: its call is refused
    OPEN                  a waiting member is deleted, too few are left      (none): all waiting members are refused
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from extender.cache.cache import Cache
from extender.errors import BindingFailed
from extender.model.scheduling.pod_groups import PodGroup
from extender.runtime.ports import Telemetry
from extender.table import PodInfo
from extender.verbs.pod_groups.group_plans import GroupPlans
from extender.verbs.pod_groups.split_gangs import SplitGangs

UNFIT, TIMEOUT = "unfit", "timeout"


@dataclass(slots=True, eq=False)
class _Call:
    """The bind call of a member that is assumed and waits.

    Attributes:
        is_over: set once the wait has ended.
        refusal: why the call is refused; None if the member is bound.
    """

    info: PodInfo
    is_over: threading.Event = field(default_factory=threading.Event)
    refusal: str | None = None

    def end(self, refusal: str | None) -> None:
        self.refusal = refusal
        self.is_over.set()


@dataclass(slots=True, eq=False)
class _Round:
    """The bind calls of one gang that wait for each other.

    Attributes:
        waiting: the calls, by the UID of their member.
        failed: the UIDs of the members that could not be bound in this round.
    """

    gang: PodGroup
    waiting: dict[str, _Call] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)


class GroupQuorum:
    """Makes the bind calls of each gang wait for each other. Thread-safe.

    The owner calls `end_deleted` several times a second.

    Args:
        most_seconds: how long a call waits for the other members. If it is 0, no call waits, and gangs may be split.
        most_waiting: how many calls of one gang may wait. If a gang needs more members than this, its members are bound
            as soon as `most_waiting` of them wait.
        free: a semaphore that limits how many calls wait at once, of all gangs together; None means that `most_waiting`
            calls may wait.
        plans: the plans of filter; a plan is dropped if a member is bound to another node than the planned one.
        split: keeps room for the other members if the bind of one member fails or gets no answer.
    """

    def __init__(
        self,
        cache: Cache,
        telemetry: Telemetry,
        most_seconds: float,
        most_waiting: int,
        plans: GroupPlans | None = None,
        free: threading.Semaphore | None = None,
        split: SplitGangs | None = None,
    ) -> None:
        self._cache = cache
        self._telemetry = telemetry
        self.most_seconds = most_seconds
        self._most_waiting = most_waiting
        self._plans = plans
        self._split = split
        self._free = free or threading.Semaphore(most_waiting)
        self._lock = threading.Lock()
        self._rounds: dict[str, _Round] = {}
        self._undecided: set[str] = set()

    def keep_room(self) -> None:
        """Keeps room for split gangs, see SplitGangs. Call it before the check of a pod that is to be bound."""
        if self._split is not None:
            self._split.keep_room()

    @contextmanager
    def uncounted(self, info: PodInfo, node_name: str) -> Iterator[None]:
        """Keeps the pod from counting as a placed member, until `wait` allows the bind or the `with` block ends.

        The pod is already assumed on its node, but its bind may still be refused. If the pod counted, the waiting
        members of its gang would be bound too early.
        """
        if self._plans is not None:
            self._plans.bound(info.pod, node_name)
        if self._gang_of(info) is None:
            yield
            return
        with self._lock:
            self._undecided.add(info.uid)
        try:
            yield
        finally:
            with self._lock:
                self._undecided.discard(info.uid)

    def is_undecided(self, uid: str) -> bool:
        """Returns True while the pod is assumed, but its Binding must not be sent yet."""
        return uid in self._undecided

    def wait(self, info: PodInfo, seconds_left: float = inf) -> None:
        """Waits until enough members of the pod's gang can be bound, but not longer than `seconds_left`.

        Raises BindingFailed if too few members can be bound; the pod then stays assumed.
        """
        gang = self._gang_of(info)
        if gang is None:
            return
        with self._lock:
            its_round, call = self._join(gang, info)
            waits = not call.is_over.is_set()
            if waits and not self._free.acquire(blocking=False):
                self._leave(its_round, info)
                raise BindingFailed("too many members are waiting for their gangs")
        if waits:
            try:
                self._await(its_round, call, max(0.0, min(self.most_seconds, seconds_left)))
            finally:
                self._free.release()
        if call.refusal is not None:
            raise BindingFailed(call.refusal)

    def failed(self, info: PodInfo) -> None:
        """Records that the member cannot be bound now; refuses the waiting members if too few can still be bound."""
        if self._split is not None:
            self._split.suspect(info.pod)
        gang = self._gang_of(info)
        if gang is None:
            return
        with self._lock:
            its_round = self._rounds.get(gang.key)
            if its_round is not None:
                its_round.gang = gang
                its_round.failed.add(info.uid)
                self._end_if_out_of_reach(its_round)

    def suspect(self, uid: str) -> None:
        """Reports to SplitGangs that the bind of an assumed pod failed or got no answer, so its gang may be split."""
        placement = self._cache.placement(uid)
        if self._split is not None and placement is not None:
            self._split.suspect(placement.info.pod)

    def end_deleted(self) -> None:
        """Refuses the waiting bind call of each deleted member, so that its node is free again at once."""
        with self._lock:
            for its_round in list(self._rounds.values()):
                calls = list(its_round.waiting.values())
                deleted = [call for call in calls if self._cache.find_pod(call.info.uid, call.info.pod.key) is None]
                for call in deleted:
                    call.end(f"pod {call.info.pod.key} no longer exists")
                if deleted:
                    self._leave(its_round, *(call.info for call in deleted))

    # ---- helpers

    def _join(self, gang: PodGroup, info: PodInfo) -> tuple[_Round, _Call]:
        """Adds the member to its gang's round; ends the round if the outcome is certain. The caller holds the lock."""
        its_round = self._rounds.setdefault(gang.key, _Round(gang))
        its_round.gang = gang
        call = its_round.waiting[info.uid] = _Call(info)
        its_round.failed.discard(info.uid)
        if self._missing(its_round) <= 0:
            self._end(its_round, None)
        else:
            self._end_if_out_of_reach(its_round)
        return its_round, call

    def _leave(self, its_round: _Round, *infos: PodInfo) -> None:
        """Removes members from the round, because they were deleted or must not wait. The caller holds the lock."""
        for info in infos:
            its_round.waiting.pop(info.uid, None)
            its_round.failed.add(info.uid)
        if its_round.waiting:
            self._end_if_out_of_reach(its_round)
        else:
            del self._rounds[its_round.gang.key]

    def _await(self, its_round: _Round, call: _Call, seconds: float) -> None:
        """Waits until the round of the call has ended. After `seconds`, refuses all calls of the round."""
        if not call.is_over.wait(seconds):
            with self._lock:
                if not call.is_over.is_set():
                    self._refuse(its_round, TIMEOUT, f"after {seconds:.3g} s")

    def _gang_of(self, info: PodInfo) -> PodGroup | None:
        """Returns the pod's group if the group's members must be bound together; otherwise None."""
        key = self._cache.groups.key_of(info.pod)
        group = self._cache.groups.find(key) if key is not None and self.most_seconds else None
        return group if group is not None and group.min_count > 1 else None

    def _missing(self, its_round: _Round) -> int:
        """Returns how many more members must wait or have a node before the gang can be bound."""
        gang, waiting = its_round.gang, its_round.waiting.keys()
        state = self._cache.groups.get(gang.key)
        certain = (uid for uid in state.assumed if uid not in self._undecided and self._is_certain(uid))
        have_node = {*state.assigned, *certain} - waiting
        needed = min(gang.min_count - len(have_node), self._most_waiting)
        return needed - len(waiting & {*state.assumed, *state.assigned})  # a waiting member may have been deleted

    def _is_certain(self, uid: str) -> bool:
        placement = self._cache.placement(uid)
        return placement is not None and placement.certain

    def _end_if_out_of_reach(self, its_round: _Round) -> None:
        """Refuses the round's calls if too few members are left that can be bound. The caller holds the lock."""
        state = self._cache.groups.get(its_round.gang.key)
        members = {*state.unscheduled, *state.assumed, *state.assigned}
        if len(members - its_round.failed) < its_round.gang.min_count:
            self._refuse(its_round, UNFIT)

    def _refuse(self, its_round: _Round, reason: str, because: str = "because others cannot be bound") -> None:
        gang, missing = its_round.gang, self._missing(its_round)
        text = f"{missing} of {gang.min_count} members that pod group {gang.key} needs are missing {because}"
        self._telemetry.quorum_refused(reason, len(its_round.waiting))
        self._end(its_round, text)

    def _end(self, its_round: _Round, refusal: str | None) -> None:
        """Ends the wait of all calls in the round. If `refusal` is None, they may bind; otherwise they are refused.

        The caller holds the lock.
        """
        del self._rounds[its_round.gang.key]
        if refusal is None:
            self._undecided.difference_update(its_round.waiting)
        for call in its_round.waiting.values():
            call.end(refusal)
