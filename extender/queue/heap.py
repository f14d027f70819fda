"""A heap of pods from which any pod can be taken out."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from extender.queue.queued_pod import QueuedPod

Order = Callable[[QueuedPod], tuple[float, ...]]
_SLACK = 64


class Heap:
    """Pods in the order of `order`; equal ones in the order of their arrival.

    A pod that is taken out leaves its entry behind, which is skipped later: that is cheaper than sifting the heap.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._entries: list[tuple[tuple[float, ...], int, str]] = []
        self._pods: dict[str, tuple[int, QueuedPod]] = {}
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return (pod for _, pod in self._pods.values())

    def get(self, uid: str) -> QueuedPod | None:
        held = self._pods.get(uid)
        return held[1] if held else None

    def add(self, pod: QueuedPod) -> None:
        """Adds the pod, or moves it to its present place in the order."""
        self._pushed += 1
        self._pods[pod.uid] = (self._pushed, pod)
        heapq.heappush(self._entries, (self._order(pod), self._pushed, pod.uid))
        if len(self._entries) > 2 * len(self._pods) + _SLACK:
            self._compact()

    def remove(self, uid: str) -> QueuedPod | None:
        held = self._pods.pop(uid, None)
        return held[1] if held else None

    def peek(self) -> QueuedPod | None:
        """Returns the pod that goes first."""
        while self._entries:
            _, pushed, uid = self._entries[0]
            held = self._pods.get(uid)
            if held and held[0] == pushed:
                return held[1]
            heapq.heappop(self._entries)
        return None

    def pop(self) -> QueuedPod | None:
        """Takes out the pod that goes first."""
        pod = self.peek()
        return self.remove(pod.uid) if pod else None

    def _compact(self) -> None:
        self._entries = [entry for entry in self._entries if (held := self._pods.get(entry[2])) and held[0] == entry[1]]
        heapq.heapify(self._entries)
