"""What is known of each pod without its place: what the watch told, what was decided since, what a scheduler told."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from extender.table import PodInfo

MOST_PODS = 4096
MOST_BYTES = 64 * 1024 * 1024


class RememberedPods:
    """Pods by UID; ever new or ever larger pods push the oldest out, and take up no more room."""

    def __init__(self) -> None:
        self._pods: OrderedDict[str, tuple[PodInfo, int]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._pods)

    def put(self, info: PodInfo, size_bytes: int) -> None:
        """Adds or replaces the pod; `size_bytes`: in memory."""
        self.drop(info.uid)
        self._pods[info.uid] = info, size_bytes
        self._bytes += size_bytes
        while len(self._pods) > MOST_PODS or self._bytes > MOST_BYTES:
            self.drop(next(iter(self._pods)))

    def get(self, uid: str) -> PodInfo | None:
        """Returns the pod as it was last described."""
        found = self._pods.get(uid)
        return found[0] if found else None

    def drop(self, uid: str) -> None:
        _, size_bytes = self._pods.pop(uid, (None, 0))
        self._bytes -= size_bytes


class _Nomination(NamedTuple):
    """The pod with the nomination that was decided, and what its status said at the time."""

    info: PodInfo
    status: str


class KnownPods:
    """Pods by UID.

    Attributes:
        watched: as the watch describes them, or will once it tells of their eviction.
        uid_of: the UID of the pod that has a `namespace/name` now.
        remembered: as a scheduler has described them, till the watch tells of them.
    """

    def __init__(self) -> None:
        self.watched: dict[str, PodInfo] = {}
        self.uid_of: dict[str, str] = {}
        self.remembered = RememberedPods()
        self._evicted_at: dict[str, float] = {}
        self._nominations: dict[str, _Nomination] = {}

    def find(self, uid: str) -> PodInfo | None:
        """Returns the pod as the watch, or else the scheduler, has last described it."""
        return self.described(uid) or self.remembered.get(uid)

    def described(self, uid: str) -> PodInfo | None:
        """Returns the pod as the watch has described it, with the nomination that counts."""
        nomination = self._nominations.get(uid)
        return nomination.info if nomination else self.watched.get(uid)

    def put(self, info: PodInfo) -> PodInfo:
        """Takes in how the watch describes the pod now; returns it as terminating if it was evicted.

        A nomination that was decided stands until the pod's status says something else than it did.
        """
        uid = info.uid
        if info.pod.terminating:
            self._evicted_at.pop(uid, None)
        if uid in self._evicted_at and (deleted_at := self.watched[uid].pod.metadata.deletion_timestamp):
            info = PodInfo(info.pod.preempted(deleted_at.timestamp()))
        self.watched[uid], self.uid_of[info.pod.key] = info, uid
        self.remembered.drop(uid)
        nomination = self._nominations.pop(uid, None)
        if nomination and not info.pod.node_name and info.pod.status.nominated_node_name == nomination.status:
            self._nominate(info, nomination.info.pod.status.nominated_node_name)
        return info

    def remove(self, uid: str) -> None:
        info = self.watched.pop(uid, None)
        if info is not None and self.uid_of.get(info.pod.key) == uid:
            del self.uid_of[info.pod.key]
        self._evicted_at.pop(uid, None)
        self._nominations.pop(uid, None)
        self.remembered.drop(uid)

    def nominate(self, uid: str, node_name: str) -> str:
        """Nominates the pod to the node ("": to none) if it waits; returns the node that it was nominated to."""
        info, before = self.watched.get(uid), self.nominated_node(uid)
        if info is None or info.pod.node_name:
            return ""
        self._nominate(info, node_name)
        return before

    def nominated_node(self, uid: str) -> str:
        """Returns the node that the pod is nominated to; "" for none."""
        info = self.described(uid)
        return info.pod.status.nominated_node_name if info is not None else ""

    def _nominate(self, info: PodInfo, node_name: str) -> None:
        status = info.pod.status.nominated_node_name
        self._nominations[info.uid] = _Nomination(PodInfo(info.pod.nominated_to(node_name)), status)

    def evict(self, uid: str, now: float, evicted_at: float) -> PodInfo | None:
        """Marks the pod as terminating until the watch shows it so; returns it, None if there is nothing to mark.

        `now` is the time of its deletion in seconds since the epoch, `evicted_at` the same in monotonic seconds.
        """
        info = self.watched.get(uid)
        if info is None or info.pod.terminating:
            return None
        terminating = PodInfo(info.pod.preempted(now))
        self.watched[uid] = terminating
        self._evicted_at[uid] = evicted_at
        return terminating

    def spare(self, uid: str, asked_at: float) -> bool:
        """Returns whether a list that was asked for then knows of all evictions of the pod, and forgets them."""
        evicted_at = self._evicted_at.get(uid)
        if evicted_at is not None and evicted_at >= asked_at:
            return False
        self._evicted_at.pop(uid, None)
        return True
