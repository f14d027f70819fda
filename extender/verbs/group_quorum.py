"""Keeps the members of a gang together at bind: posts no Binding before enough members can be bound.

kube-scheduler binds the members of a gang in separate calls and never undoes a bind. So each call assumes its member
and then waits here. The calls go on once as many members as the gang needs are bound or waiting. If that has become
impossible, or takes too long, all waiting members are refused together, and kube-scheduler tries the gang again.

If the gang has a parent, the calls about the whole tree of groups wait in one round. A call goes on once every group
above its member has what it needs: a PodGroup its members, and a CompositePodGroup its child groups. So the round stays
open when one child group is bound or refused while the members of another go on waiting.

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
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from extender.cache.cache import Cache
from extender.cache.pod_states import PodState
from extender.errors import BindingFailed
from extender.groups import Leaf, Tree
from extender.groups.group_tree import leaves, path_to, reaching, scheduled_members, shortfall, waiting_members
from extender.model.pod_groups import GroupName, PodGroup
from extender.runtime.ports import Telemetry
from extender.table import PodInfo
from extender.verbs.group_plans import GroupPlans
from extender.verbs.split_gangs import SplitGangs

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
    """The bind calls of one tree of groups that wait for each other.

    Attributes:
        waiting: the calls, by the UID of their member.
        failed: the UIDs of the members that could not be bound in this round.
    """

    root: GroupName
    waiting: dict[str, _Call] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)


class GroupQuorum:
    """Makes the bind calls of each gang wait for each other. Thread-safe.

    The owner calls `end_deleted` several times a second.

    Args:
        most_seconds: how long a call waits for the other members. If it is 0, no call waits, and gangs may be split.
        most_waiting: how many calls of one gang, or tree of groups, may wait. If it needs more members than this, the
            members of its whole gangs are bound as soon as `most_waiting` wait, or all if no gang is whole.
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
        self._rounds: dict[GroupName, _Round] = {}
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
        if self._root_of(info) is None:
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
        root = self._root_of(info)
        if root is None:
            return
        with self._lock:
            its_round, call = self._join(root, info)
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
        root = self._root_of(info)
        if root is None:
            return
        with self._lock:
            its_round = self._rounds.get(root)
            if its_round is not None:
                its_round.failed.add(info.uid)
                self._settle(its_round)

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
                    call.end(_deleted(call))
                if deleted:
                    self._leave(its_round, *(call.info for call in deleted))

    # ---- helpers

    def _join(self, root: GroupName, info: PodInfo) -> tuple[_Round, _Call]:
        """Adds the member to its tree's round; ends the calls whose outcome is certain. The caller holds the lock."""
        its_round = self._rounds.setdefault(root, _Round(root))
        call = its_round.waiting[info.uid] = _Call(info)
        its_round.failed.discard(info.uid)
        self._settle(its_round)
        return its_round, call

    def _leave(self, its_round: _Round, *infos: PodInfo) -> None:
        """Removes members from the round, because they were deleted or must not wait. The caller holds the lock."""
        for info in infos:
            its_round.waiting.pop(info.uid, None)
            its_round.failed.add(info.uid)
        self._settle(its_round)

    def _await(self, its_round: _Round, call: _Call, seconds: float) -> None:
        """Waits until the call has ended. After `seconds`, refuses all calls of the round."""
        if not call.is_over.wait(seconds):
            with self._lock:
                if not call.is_over.is_set():
                    self._settle(its_round)  # a group may need less than before
                if not call.is_over.is_set():
                    tree = self._cache.groups.tree(its_round.root)
                    self._refuse(its_round, tree, list(its_round.waiting), TIMEOUT, f"after {seconds:.3g} s")
                    self._settle(its_round)

    def _root_of(self, info: PodInfo) -> GroupName | None:
        """Returns the root of the pod's tree if the pod must be bound together with others; otherwise None."""
        key = self._cache.groups.key_of(info.pod)
        if key is None or not self.most_seconds or self._cache.groups.find(key) is None:
            return None
        path = self._cache.groups.path(key)
        if path and all(group.min_count <= 1 for group in path):
            return None
        return self._cache.groups.root_of(key)  # even if a group above is missing; then the pod waits for it

    def _settle(self, its_round: _Round) -> None:
        """Ends the calls that may be bound, and those that can no longer be. The caller holds the lock."""
        tree = self._cache.groups.tree(its_round.root) if its_round.waiting else None
        if tree is not None:
            self._end(its_round, self._bindable(its_round, tree), None)
            members = _members(tree)
            able = {*reaching(tree, lambda leaf: _members(leaf) - its_round.failed)}
            lost = [uid for uid in its_round.waiting if uid not in able and (uid in members or not able)]
            self._refuse(its_round, tree, lost, UNFIT, "because others cannot be bound")
            for leaf in leaves(tree):
                if not _members(leaf).isdisjoint(lost):  # kube-scheduler tries the group again
                    its_round.failed -= _members(leaf)
            for uid in its_round.waiting.keys() - members:
                self._end(its_round, [uid], _deleted(its_round.waiting[uid]))
        if not its_round.waiting:
            self._rounds.pop(its_round.root, None)

    def _bindable(self, its_round: _Round, tree: Tree) -> Sequence[str]:
        """Returns the waiting members that may be bound, because every group above them has what it needs.

        If too many wait, returns the members of whole gangs, or all of them if no gang is whole.
        """
        counted = self._counted(its_round)
        bindable = [uid for uid in reaching(tree, counted) if uid in its_round.waiting]
        present = [uid for uid in scheduled_members(tree) if uid in its_round.waiting]
        if bindable or len(present) < self._most_waiting:
            return bindable
        whole = (leaf for leaf in leaves(tree) if len(counted(leaf)) >= leaf.group.min_count)
        return [uid for leaf in whole for uid in leaf.scheduled if uid in its_round.waiting] or present

    def _counted(self, its_round: _Round) -> Callable[[Leaf], Collection[str]]:
        """Returns a function that returns the members of a group that wait in the round or certainly have a node."""

        def is_counted(uid: str) -> bool:
            if uid in its_round.waiting:
                return True
            placement = self._cache.placement(uid)
            if placement is None:
                return False
            return placement.state is PodState.ADDED or (placement.certain and uid not in self._undecided)

        return lambda leaf: [uid for uid in leaf.scheduled if is_counted(uid)]

    def _refuse(self, its_round: _Round, tree: Tree | None, uids: Sequence[str], reason: str, because: str) -> None:
        """Refuses calls of the round. The caller holds the lock."""
        if not uids:
            return
        counted = self._counted(its_round)
        keys = {uid: self._cache.groups.key_of(its_round.waiting[uid].info.pod) or "" for uid in uids}
        texts = {key: _shortage(tree, key, counted) for key in {*keys.values()}}
        self._telemetry.quorum_refused(reason, len(uids))
        for uid, key in keys.items():
            self._end(its_round, [uid], f"{texts[key]} {because}")

    def _end(self, its_round: _Round, uids: Sequence[str], refusal: str | None) -> None:
        """Ends the wait of calls. If `refusal` is None, they may bind; otherwise they are refused.

        The caller holds the lock.
        """
        if refusal is None:
            self._undecided.difference_update(uids)
        for uid in uids:
            its_round.waiting.pop(uid).end(refusal)


def _members(tree: Tree) -> Set[str]:
    """Returns the UIDs of all members, with and without a node."""
    return {*scheduled_members(tree), *(info.uid for info in waiting_members(tree))}


def _deleted(call: _Call) -> str:
    return f"pod {call.info.pod.key} no longer exists"


def _shortage(tree: Tree | None, key: str, counted: Callable[[Leaf], Collection[str]]) -> str:
    """Returns what the PodGroup, or the lowest group above it that is short of something, lacks."""
    if tree is None or not path_to(tree, key):
        return f"pod group {key} or a group above it does not exist"
    group, missing = shortfall(tree, key, counted)
    if isinstance(group, PodGroup):
        return f"{missing} of {group.min_count} members that pod group {group.key} needs are missing"
    return f"{missing} of {group.min_count} child groups that composite pod group {group.key} needs are missing"
