"""Implements a heap of pods and groups, and the queue of pods and groups that back off.

Source: upstream backend/queue/backoff_queue.go (KEP-5142: ordering windows, popping while idle).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from extender.queue.entries import Entity

Order = Callable[[Entity], tuple[Any, ...]]
"""Returns the sort key of a pod or group; the keys must be comparable with each other."""
_SLACK = 64
WINDOW_SECONDS = 1.0
"""The length of a window. Backoffs that end in the same window end together: the queue is flushed once per window."""
_ENOUGH_DOUBLINGS = 62
COST_TIMES = 9.0
MAX_COST_SECONDS = 60.0


def priority_sort(pod: Entity) -> tuple[Any, ...]:
    """Returns the sort key of upstream's PrioritySort: higher priority first, then earlier timestamp."""
    return -pod.priority, pod.timestamp


class _Member(NamedTuple):
    """A pod or group in a heap, with the number of its latest push; heap entries with an older number are outdated."""

    push: int
    pod: Entity


class Heap:
    """Pods and groups sorted by `order`. Pods with the same key are sorted by their arrival.

    Removing a pod leaves its entry in the heap, and `peek` skips the entry later. This is cheaper than sorting the heap
    again.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._entries: list[tuple[tuple[Any, ...], int, str]] = []
        self._pods: dict[str, _Member] = {}
        self._pushes = 0

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[Entity]:
        return (member.pod for member in self._pods.values())

    def get(self, uid: str) -> Entity | None:
        member = self._pods.get(uid)
        return member.pod if member else None

    def add(self, pod: Entity) -> None:
        """Adds the pod or group. If the heap contains it already, sorts it again by its current key.

        If `order` raises an error, this method raises it too, and leaves the heap unchanged.
        """
        order = self._order(pod)
        self._pushes += 1
        self._pods[pod.uid] = _Member(self._pushes, pod)
        heapq.heappush(self._entries, (order, self._pushes, pod.uid))
        if len(self._entries) > 2 * len(self._pods) + _SLACK:
            self._compact()

    def remove(self, uid: str) -> Entity | None:
        member = self._pods.pop(uid, None)
        return member.pod if member else None

    def peek(self) -> Entity | None:
        """Returns the first pod or group without removing it; None if the heap is empty."""
        while self._entries:
            _, push, uid = self._entries[0]
            member = self._pods.get(uid)
            if member and member.push == push:
                return member.pod
            heapq.heappop(self._entries)
        return None

    def pop(self) -> Entity | None:
        """Removes and returns the first pod or group; returns None if the heap is empty."""
        pod = self.peek()
        return self.remove(pod.uid) if pod else None

    def _compact(self) -> None:
        """Removes the entries of pods and groups that were removed or pushed again."""
        self._entries = [
            (order, push, uid)
            for order, push, uid in self._entries
            if (member := self._pods.get(uid)) and member.push == push
        ]
        heapq.heapify(self._entries)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Computes a pod's backoff, which doubles with each rejection, or with each consecutive error.

    The longest backoff of a group grows with the square root of its size. After a costly attempt (see `costs`), the
    backoff lasts at least COST_TIMES as long as the attempt. If `max_seconds` is 0, no pod backs off.
    """

    initial_seconds: float = 1.0
    max_seconds: float = 10.0

    def duration_seconds(self, count: int, size: int = 1) -> float:
        """Returns how long a group of `size` pods backs off after `count` rejections or errors."""
        if not count:
            return 0.0
        return min(self.max_seconds * math.sqrt(size), self.initial_seconds * 2.0 ** min(count - 1, _ENOUGH_DOUBLINGS))

    def expires_at(self, pod: Entity) -> float:
        """Returns when the backoff ends, rounded down to the start of a window; -inf if there is no backoff."""
        count = pod.consecutive_errors or pod.unschedulable_count
        if not count or not self.max_seconds:
            return -math.inf
        seconds = self.duration_seconds(count, pod.backoff_size)
        return _window(pod.timestamp + max(seconds, min(COST_TIMES * pod.cost_seconds, MAX_COST_SECONDS)))

    def is_over(self, pod: Entity, now: float) -> bool:
        """Returns True if the backoff ended in an earlier window than `now`."""
        return self.expires_at(pod) < _window(now)


class BackoffQueue:
    """The pods and groups that back off. Pods whose attempt ended in an error have a separate heap.

    A rejected pod may be popped before its backoff ends, if no pod is active. After an error, a pod must wait until its
    backoff ends, because the error may come from an overloaded server. After a costly attempt it must wait, too.
    """

    def __init__(self, backoff: Backoff, order: Order = priority_sort) -> None:
        self._backoff = backoff
        self._rejected = Heap(lambda pod: (backoff.expires_at(pod), *order(pod)))
        self._failed = Heap(lambda pod: (backoff.expires_at(pod),))

    def __len__(self) -> int:
        return len(self._rejected) + len(self._failed)

    def __iter__(self) -> Iterator[Entity]:
        return chain(self._rejected, self._failed)

    def get(self, uid: str) -> Entity | None:
        return self._rejected.get(uid) or self._failed.get(uid)

    def add(self, pod: Entity) -> None:
        """Adds the pod or group. If the queue contains it already, sorts it again by its current backoff."""
        (self._rejected if pod.rejection.rules and not pod.cost_seconds else self._failed).add(pod)

    def remove(self, uid: str) -> Entity | None:
        return self._rejected.remove(uid) or self._failed.remove(uid)

    @property
    def can_pop(self) -> bool:
        """True if there is a pod or group that may be tried before its backoff ends."""
        return bool(self._rejected)

    def pop(self) -> Entity | None:
        """Removes and returns the rejected pod or group whose backoff ends first; returns None if there is none."""
        return self._rejected.pop()

    def pop_completed(self, now: float) -> Iterator[Entity]:
        """Removes and yields each pod or group whose backoff has ended."""
        for heap in (self._rejected, self._failed):
            while (pod := heap.peek()) and self._backoff.is_over(pod, now):
                heap.pop()
                yield pod


def _window(seconds: float) -> float:
    return seconds // WINDOW_SECONDS * WINDOW_SECONDS
