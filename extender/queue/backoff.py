"""The pods that have to wait a while before they are tried again.

Source: upstream backend/queue/backoff_queue.go (KEP-5142: ordering windows, popping while idle).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from extender.queue.heap import Heap
from extender.queue.queued_pod import QueuedPod

WINDOW_SECONDS = 1.0
"""Backoffs that end within one window end together, the highest priority first: so often they are to be flushed."""
_ENOUGH_DOUBLINGS = 62


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a pod waits: doubled with each refusal, or with each error in a row after an error.

    `max_seconds` 0: not at all.
    """

    initial_seconds: float = 1.0
    max_seconds: float = 10.0

    def duration_seconds(self, count: int) -> float:
        """The wait after `count` refusals or errors."""
        if not count:
            return 0.0
        return min(self.max_seconds, self.initial_seconds * 2.0 ** min(count - 1, _ENOUGH_DOUBLINGS))

    def expires_at(self, pod: QueuedPod) -> float:
        """The window in which the pod's wait ends; minus infinity where it need not wait."""
        count = pod.consecutive_errors or pod.unschedulable_count
        if not count or not self.max_seconds:
            return -math.inf
        return _window(pod.timestamp + self.duration_seconds(count))

    def is_over(self, pod: QueuedPod, now: float) -> bool:
        """Whether the window in which the wait ends has passed."""
        return self.expires_at(pod) < _window(now)


class BackoffQueue:
    """Pods that were refused, and apart from them those whose attempt ended in an error.

    The first may be popped early when there is nothing else to do; the others spare a server that is in trouble.
    """

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._refused = Heap(lambda pod: (backoff.expires_at(pod), *pod.order))
        self._erred = Heap(lambda pod: (backoff.expires_at(pod),))

    def __len__(self) -> int:
        return len(self._refused) + len(self._erred)

    def __iter__(self) -> Iterator[QueuedPod]:
        return chain(self._refused, self._erred)

    def get(self, uid: str) -> QueuedPod | None:
        return self._refused.get(uid) or self._erred.get(uid)

    def add(self, pod: QueuedPod) -> None:
        """Adds the pod, or puts it where it belongs now."""
        (self._refused if pod.rejection.rules else self._erred).add(pod)

    def remove(self, uid: str) -> QueuedPod | None:
        """Takes the pod out, if it is in."""
        return self._refused.remove(uid) or self._erred.remove(uid)

    @property
    def can_pop(self) -> bool:
        """Whether a pod may be tried before its time."""
        return bool(self._refused)

    def pop(self) -> QueuedPod | None:
        """Takes out the pod whose wait ends first, of those that were refused."""
        return self._refused.pop()

    def pop_completed(self, now: float) -> list[QueuedPod]:
        """Takes out all pods whose wait is over."""
        return [pod for heap in (self._refused, self._erred) for pod in self._completed(heap, now)]

    def _completed(self, heap: Heap, now: float) -> Iterator[QueuedPod]:
        while (pod := heap.peek()) and self._backoff.is_over(pod, now):
            heap.pop()
            yield pod


def _window(seconds: float) -> float:
    return seconds // WINDOW_SECONDS * WINDOW_SECONDS
