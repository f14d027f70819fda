"""Tracks which pods are members of which pod group, and whether they wait or have a node.

    a member's PodState in the cache     its place in the group
    --------------------------------     ----------------------
    INITIAL                              unscheduled
    ASSUMED, FINISHED                    assumed
    ADDED                                assigned
    (the pod is gone or has ended)       not in the group

The cache calls `update` for each change of a pod while it holds its lock, so groups and placements always agree.
Source: upstream backend/cache/podgroupstate.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum

from extender.cache.pod_states import PodState
from extender.table import PodInfo


class MemberState(Enum):
    UNSCHEDULED = "unscheduled"
    ASSUMED = "assumed"
    ASSIGNED = "assigned"


MEMBER_STATES: Mapping[PodState, MemberState] = {
    PodState.INITIAL: MemberState.UNSCHEDULED,
    PodState.ASSUMED: MemberState.ASSUMED,
    PodState.FINISHED: MemberState.ASSUMED,
    PodState.ADDED: MemberState.ASSIGNED,
}


@dataclass(frozen=True, slots=True)
class GroupState:
    """The members of one group by UID, grouped by whether they have a node. Terminating members count."""

    unscheduled: Mapping[str, PodInfo] = field(default_factory=dict)
    assumed: Mapping[str, PodInfo] = field(default_factory=dict)
    assigned: Mapping[str, PodInfo] = field(default_factory=dict)

    @property
    def scheduled(self) -> Mapping[str, PodInfo]:
        """The members that have a node, assumed or bound."""
        return {**self.assumed, **self.assigned}


class GroupStates:
    """The members of all groups, by the group's `namespace/name`. `get` and `count` are thread-safe.

    Args:
        locked: takes the cache's lock, given the caller's name.
    """

    def __init__(self, locked: Callable[[str], AbstractContextManager[None]]) -> None:
        self._locked = locked
        self._groups: dict[str, dict[str, tuple[MemberState, PodInfo]]] = {}
        self._group_of: dict[str, str] = {}

    def update(self, uid: str, info: PodInfo | None, state: PodState) -> None:
        """Records the pod's present version and state; None if the pod is gone. The caller holds the lock."""
        key = info.pod.group_key if info is not None else None
        before = self._group_of.get(uid)
        if before is not None and before != key:
            self._remove(uid, before)
        if info is not None and key is not None:
            self._group_of[uid] = key
            self._groups.setdefault(key, {})[uid] = MEMBER_STATES[state], info

    def count(self, key: str) -> int:
        """Returns the number of members that are known, with and without a node."""
        with self._locked("group_count"):
            return len(self._groups.get(key, ()))

    def has(self, key: str, uid: str, at_least: int) -> bool:
        """Returns True if the pod is a known member, and the group has at least so many."""
        with self._locked("group_has"):
            members = self._groups.get(key, {})
            return uid in members and len(members) >= at_least

    def get(self, key: str) -> GroupState:
        """Returns a copy of the group's present state."""
        by_state: dict[MemberState, dict[str, PodInfo]] = {state: {} for state in MemberState}
        with self._locked("group"):
            for uid, (state, info) in self._groups.get(key, {}).items():
                by_state[state][uid] = info
        return GroupState(*(by_state[state] for state in MemberState))

    def _remove(self, uid: str, key: str) -> None:
        del self._group_of[uid]
        members = self._groups[key]
        del members[uid]
        if not members:
            del self._groups[key]
