"""A heap from which any pod can be taken out, and the pods that back off before they are tried again.

Source: upstream backend/queue/backoff_queue.go (KEP-5142: ordering windows, popping while idle).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from extender.queue.queued_pod import QueuedPod

Order = Callable[[QueuedPod], tuple[float, ...]]
_SLACK = 64
WINDOW_SECONDS = 1.0
"""Backoffs that end within one window end together, the highest priority first; the queue is flushed as often."""
_ENOUGH_DOUBLINGS = 62


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


@dataclass(frozen=True, slots=True)
class Backoff:
    """The duration of a pod's wait: doubled with each refusal, or with each error in a row after an error.

    With `max_seconds` 0 no pod backs off.
    """

    initial_seconds: float = 1.0
    max_seconds: float = 10.0

    def duration_seconds(self, count: int) -> float:
        """Returns the wait after `count` refusals or errors."""
        if not count:
            return 0.0
        return min(self.max_seconds, self.initial_seconds * 2.0 ** min(count - 1, _ENOUGH_DOUBLINGS))

    def expires_at(self, pod: QueuedPod) -> float:
        """Returns the start of the window in which the pod's wait ends; minus infinity where it need not wait."""
        count = pod.consecutive_errors or pod.unschedulable_count
        if not count or not self.max_seconds:
            return -math.inf
        return _window(pod.timestamp + self.duration_seconds(count))

    def is_over(self, pod: QueuedPod, now: float) -> bool:
        """Returns whether the window in which the wait ends has passed."""
        return self.expires_at(pod) < _window(now)


class BackoffQueue:
    """The pods that were refused, and apart from them those whose attempt ended in an error.

    The refused may be popped early while no pod is active; the others spare a server that is in trouble.
    """

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._refused = Heap(lambda pod: (backoff.expires_at(pod), *pod.order))
        self._failed = Heap(lambda pod: (backoff.expires_at(pod),))

    def __len__(self) -> int:
        return len(self._refused) + len(self._failed)

    def __iter__(self) -> Iterator[QueuedPod]:
        return chain(self._refused, self._failed)

    def get(self, uid: str) -> QueuedPod | None:
        return self._refused.get(uid) or self._failed.get(uid)

    def add(self, pod: QueuedPod) -> None:
        """Adds the pod, or moves it to its present place in the order."""
        (self._refused if pod.rejection.rules else self._failed).add(pod)

    def remove(self, uid: str) -> QueuedPod | None:
        return self._refused.remove(uid) or self._failed.remove(uid)

    @property
    def can_pop(self) -> bool:
        """True while a pod may be tried before its time."""
        return bool(self._refused)

    def pop(self) -> QueuedPod | None:
        """Takes out the pod whose wait ends first, of those that were refused."""
        return self._refused.pop()

    def pop_completed(self, now: float) -> Iterator[QueuedPod]:
        """Takes out the pods whose wait is over, one after the other."""
        for heap in (self._refused, self._failed):
            while (pod := heap.peek()) and self._backoff.is_over(pod, now):
                heap.pop()
                yield pod


def _window(seconds: float) -> float:
    return seconds // WINDOW_SECONDS * WINDOW_SECONDS
