"""The scheduling queue for threads: a lock, a clock and somebody who waits for a pod, around the pure PriorityQueue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from extender.framework.events.cluster_events import ASSIGNED_POD_DELETE, Change
from extender.queue.priority_queue import PriorityQueue
from extender.queue.queued_pod import QueuedPod, Rejection, Tier
from extender.runtime.clock import Clock
from extender.table import PodInfo

T = TypeVar("T")


class SchedulingQueue:
    """What the watches, the scheduling loop and the binding threads share. What its methods do says PriorityQueue.

    Whoever makes it must call `flush_backoff` every second and `flush_leftovers` every 30.
    """

    def __init__(self, queue: PriorityQueue, clock: Clock) -> None:
        self._queue, self._clock = queue, clock
        self._changed = threading.Condition()
        self._closed = False

    def add(self, info: PodInfo) -> None:
        with self._locked():
            self._queue.add(info, self._clock.monotonic())

    def update(self, info: PodInfo) -> None:
        with self._locked():
            self._queue.update(info, self._clock.monotonic())

    def delete(self, uid: str) -> None:
        with self._locked():
            self._queue.delete(uid)

    def pop(self, timeout_seconds: float | None = None) -> QueuedPod | None:
        """The pod to try next; waits until there is one. None: the queue was closed, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._queue.ready, timeout_seconds)
            return None if self._closed else self._queue.pop()

    def stop_recording_events(self, uid: str) -> None:
        with self._locked():
            self._queue.stop_recording_events(uid)

    def done(self, uid: str) -> None:
        with self._locked():
            self._queue.done(uid)

    def add_unschedulable(self, pod: QueuedPod, rejection: Rejection) -> Tier | None:
        with self._locked():
            return self._queue.add_unschedulable(pod, rejection, self._clock.monotonic())

    def activate(self, uids: Iterable[str]) -> None:
        with self._locked():
            self._queue.activate(uids, self._clock.monotonic())

    def move(self, change: Change, *, up_to_priority: int | None = None) -> int:
        with self._locked():
            return self._queue.move(change, self._clock.monotonic(), up_to_priority=up_to_priority)

    def nomination_ended(self, info: PodInfo) -> None:
        """Room was kept where the pod is nominated, from those of the same or a lower priority: it is free for them."""
        if info.pod.status.nominated_node_name:
            self.move(Change(ASSIGNED_POD_DELETE, info), up_to_priority=info.priority)

    def flush_backoff(self) -> None:
        with self._locked():
            self._queue.flush_backoff(self._clock.monotonic())

    def flush_leftovers(self) -> int:
        with self._locked():
            return self._queue.flush_leftovers(self._clock.monotonic())

    def nominate(self, info: PodInfo, node_name: str) -> None:
        with self._locked():
            self._queue.nominate(info, node_name)

    def nominated_on(self, node_name: str) -> list[PodInfo]:
        """The pods nominated to run there."""
        with self._locked():
            return self._queue.nominator.on_node(node_name)

    def nominated_node(self, uid: str) -> str:
        """The node that the pod is nominated to, "" if none."""
        with self._locked():
            return self._queue.nominator.node_of(uid)

    def nominations(self) -> Mapping[str, str]:
        """UID -> node, of all nominated pods."""
        with self._locked():
            return dict(self._queue.nominator.nodes)

    @property
    def scheduling_cycle(self) -> int:
        with self._locked():
            return self._queue.scheduling_cycle

    def pods(self) -> dict[Tier, list[PodInfo]]:
        with self._locked():
            return self._queue.pods()

    def pods_in_flight(self) -> list[PodInfo]:
        with self._locked():
            return self._queue.pods_in_flight()

    def look(self, look: Callable[[PriorityQueue], T]) -> T:
        """What `look` makes of the queue at one moment; nothing moves meanwhile."""
        with self._locked():
            return look(self._queue)

    def pending(self) -> dict[str, int]:
        with self._locked():
            return self._queue.pending()

    def close(self) -> None:
        """Lets everybody go who waits in `pop`, for good."""
        with self._locked():
            self._closed = True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._changed:
            try:
                yield
            finally:
                if self._closed or self._queue.ready:
                    self._changed.notify_all()
