"""The cache from outside, as the comparer, the dump and the pages see it, and as the comparer puts it right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from extender.cache.changes import Reference, Updates
from extender.cache.placements import PodPlacement
from extender.cache.pod_states import PodState
from extender.cache.state import CacheState
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.table import PodInfo


@dataclass(frozen=True, slots=True)
class CacheSize:
    nodes: int
    pods: int
    assumed_pods: int


class Overview(NamedTuple):
    """Every pod: the assumed ones, those without a place, and the number of those that the watch has confirmed."""

    assumed: list[PodPlacement]
    unplaced: list[PodInfo]
    scheduled: int


class HeldPod(NamedTuple):
    """A pod as the cache holds it.

    Attributes:
        pod: as the watch told; None where it has not yet.
        node_name: where it counts, "" if nowhere.
        state: of its place.
        findable: it is found by its UID and name.
    """

    pod: Pod | None
    node_name: str
    state: PodState
    findable: bool


class CacheView:
    """A cache from outside; safe for any number of threads.

    Args:
        locked: takes the cache's lock, on behalf of the caller that it names, and tells the listener afterwards.
    """

    def __init__(self, state: CacheState, locked: Callable[..., AbstractContextManager[None]]) -> None:
        self._state, self._locked = state, locked

    def overview(self) -> Overview:
        """Returns all pods at one moment."""
        with self._locked("overview"):
            assumed = self._state.placements.unconfirmed()
            return Overview(assumed, self._state.unplaced(), len(self._state.placements) - len(assumed))

    def unconfirmed(self) -> Mapping[str, list[str]]:
        """Returns the UIDs of the pods that are counted though no watch has told of them there, by node."""
        uids: dict[str, list[str]] = {}
        with self._locked("unconfirmed"):
            for placement in self._state.placements.unconfirmed():
                uids.setdefault(placement.node_name, []).append(placement.info.uid)
        return uids

    def objects(self, kind: str) -> Mapping[str, Object]:
        """Returns the objects of a kind by key, as the watch told; pods are asked for by `pods`."""
        with self._locked("held"):
            return self._state.objects.of(kind).copy()

    def pods(self) -> Mapping[str, HeldPod]:
        """Returns every pod that is known or counts, by UID."""
        with self._locked("held"):
            pods, uids = self._state.pods.watched.copy(), self._state.pods.uid_of.copy()
            placements = self._state.placements.by_uid()
        return {uid: _held_pod(pods.get(uid), placements.get(uid), uids) for uid in pods.keys() | placements.keys()}

    def cursor(self) -> int:
        """Returns the present moment, for `told_since` and `put_right`."""
        with self._locked("cursor"):
            return self._state.changes.now

    def updates_since(self, cursor: int) -> tuple[Updates, int, bool]:
        """Returns what has changed since that moment, the present one, and whether the updates are of everything.

        They are where the moment is too long ago; then a reader begins anew.
        """
        with self._locked("updates"):
            updates = self._state.changes.since(cursor)
            everything = updates is None
            return self._state.changes.all() if updates is None else updates, self._state.changes.now, everything

    def told_since(self, cursor: int, reference: Reference) -> bool:
        """Returns whether the cache was told of the object after that moment; a list tells of all objects."""
        with self._locked("told_since"):
            return self._state.changes.told_since(cursor, reference)

    def listed_since(self, moment: float, kind: str) -> bool:
        """Returns whether a list was taken in that was asked for after `moment`, in monotonic seconds."""
        with self._locked("listed_since"):
            return self._state.listed_at.get(kind, moment) > moment

    def put_right(self, reference: Reference, right: Object | PodInfo | None, cursor: int) -> bool:
        """Makes an object what the API server's list says (None: it is not there), and every table with it.

        Does nothing and returns False where the cache was told of the object after `cursor`.
        """
        kind, key = reference
        with self._locked("put_right", kind):
            if self._state.changes.told_since(cursor, reference):
                return False
            self._state.remove(kind, key) if right is None else self._state.set(kind, right)
        return True


def _held_pod(info: PodInfo | None, placement: PodPlacement | None, uids: Mapping[str, str]) -> HeldPod:
    return HeldPod(
        info.pod if info else None,
        placement.node_name if placement else "",
        placement.state if placement else PodState.INITIAL,
        info is not None and uids.get(info.pod.key) == info.uid,
    )
