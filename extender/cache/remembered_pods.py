"""The pods that a scheduler has asked about last, bounded in number and size."""

from __future__ import annotations

from collections import OrderedDict

from extender.table import PodInfo

MOST_PODS = 4096
MOST_BYTES = 16 * 1024 * 1024  # as JSON; in memory a pod takes several times as much


class RememberedPods:
    """Pods by UID; ever new or ever larger pods push the oldest out, and take up no more room."""

    def __init__(self) -> None:
        self._pods: OrderedDict[str, tuple[PodInfo, int]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._pods)

    def put(self, info: PodInfo, size_bytes: int) -> None:
        """Adds or replaces the pod; `size_bytes`: of its JSON."""
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
        """Removes the pod, if it is known."""
        _, size_bytes = self._pods.pop(uid, (None, 0))
        self._bytes -= size_bytes
