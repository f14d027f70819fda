"""The pods between decision and Binding: each may wait at Permit and for its reservations, and may be cancelled.

No thread waits with them. Source: upstream waitingPodsMap, podsInPreBindMap.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from extender.errors import BindingFailed
from extender.runtime.clock import Clock
from extender.scheduler.binding.reservations import Awaited
from extender.scheduler.ports import Workers
from extender.table import PodInfo

OnEnd = Callable[[Exception | None], object]
"""Called once: with None where the pod can be bound, else with the reason why it cannot."""


@dataclass(slots=True)
class _WaitingPod:
    """One pod. `on_end` is None while a thread is busy with it: it does not wait."""

    pod: PodInfo
    since: float = 0.0
    awaited: Sequence[Awaited] = ()
    on_end: OnEnd | None = None
    cancelled: BindingFailed | None = None


class WaitingPods:
    """Knows a pod from `enter` to `leave`.

    Args:
        exists: returns whether the pod is still there.
        workers: threads in which pods go on that need not wait any more.
    """

    def __init__(self, clock: Clock, exists: Callable[[PodInfo], bool], workers: Workers) -> None:
        self._clock, self._exists, self._workers = clock, exists, workers
        self._lock = threading.Lock()
        self._pods: dict[str, _WaitingPod] = {}

    def enter(self, pod: PodInfo) -> None:
        """Lets the pod be cancelled from now on."""
        with self._lock:
            self._pods[pod.uid] = _WaitingPod(pod)

    def wait(self, pod: PodInfo, awaited: Sequence[Awaited], on_begin: Callable[[], object], on_end: OnEnd) -> bool:
        """Returns whether all of it is ready; else `on_begin` is called, and `on_end` later, in another thread.

        Raises:
            BindingFailed: it never will be, or the pod was cancelled.
        """
        waiting = self._pods[pod.uid]
        waiting.since, waiting.awaited = self._clock.monotonic(), awaited
        if self._ready(waiting):
            return True
        on_begin()  # first, for the wait may be over as soon as others know of it
        with self._lock:
            if waiting.cancelled is not None:
                raise waiting.cancelled
            waiting.on_end = on_end
        return False

    def leave(self, pod: PodInfo) -> None:
        """Ends what `enter` began; unknown pods are ignored. Raises BindingFailed: the pod was cancelled."""
        with self._lock:
            waiting = self._pods.pop(pod.uid, None)
        if waiting is not None and waiting.cancelled is not None:
            raise waiting.cancelled

    def cancel(self, uid: str, message: str) -> bool:
        """Has the pod tried again later instead of bound now; returns False where it is not known, or bound already.

        A pod that waits goes on, to its failure, in this very call.
        """
        error = BindingFailed(message)
        with self._lock:
            waiting = self._pods.get(uid)
            if waiting is None:
                return False
            waiting.cancelled = error
            on_end, waiting.on_end = waiting.on_end, None
        if on_end is not None:
            on_end(error)
        return True

    def poll(self) -> None:
        """Has every pod go on whose wait is over; to be called several times a second."""
        with self._lock:
            waiting = [each for each in self._pods.values() if each.on_end is not None]
        for each in waiting:
            try:
                if not self._ready(each):
                    continue
                error = None
            except Exception as failure:  # one pod's failure must not hold up the others
                error = failure
            self._end(each, error)

    def uids(self) -> list[str]:
        with self._lock:
            return list(self._pods)

    def _end(self, waiting: _WaitingPod, error: Exception | None) -> None:
        with self._lock:
            on_end, waiting.on_end = waiting.on_end, None
        if on_end is not None:  # else it was cancelled in this moment
            self._workers.submit(lambda: on_end(error))

    def _ready(self, waiting: _WaitingPod) -> bool:
        if not self._exists(waiting.pod):
            raise BindingFailed(f"pod {waiting.pod.pod.key} does not exist any more")
        if all([each.ready() for each in waiting.awaited]):  # noqa: C419  each is asked: a later one may raise
            return True
        elapsed = self._clock.monotonic() - waiting.since
        for each in waiting.awaited:
            if elapsed >= each.timeout_seconds and not each.ready():
                raise each.overdue()
        return False
