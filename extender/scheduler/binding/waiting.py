"""The pods between decision and Binding: each may have to wait, and may still be called off.

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

GoOn = Callable[[Exception | None], object]
"""Called once: None: everything is there; else why it is not to be."""


@dataclass(slots=True)
class _Waiting:
    """One pod. `go_on` is None while a thread is busy with it: it does not wait."""

    pod: PodInfo
    since: float = 0.0
    awaited: Sequence[Awaited] = ()
    go_on: GoOn | None = None
    called_off: BindingFailed | None = None


class WaitingPods:
    """Knows a pod from `enter` to `leave`.

    Args:
        exists: whether the pod is still there.
        workers: where pods go on that need not wait any more.
    """

    def __init__(self, clock: Clock, exists: Callable[[PodInfo], bool], workers: Workers) -> None:
        self._clock, self._exists, self._workers = clock, exists, workers
        self._lock = threading.Lock()
        self._pods: dict[str, _Waiting] = {}

    def enter(self, pod: PodInfo) -> None:
        """The pod may be called off from now on."""
        with self._lock:
            self._pods[pod.uid] = _Waiting(pod)

    def wait(self, pod: PodInfo, awaited: Sequence[Awaited], go_on: GoOn) -> bool:
        """Whether all is there already; else `go_on` is called later, by another thread.

        Raises:
            BindingFailed: it never will be, or the pod was called off.
        """
        waiting = self._pods[pod.uid]
        waiting.since, waiting.awaited = self._clock.monotonic(), awaited
        if self._ready(waiting):
            return True
        with self._lock:
            if waiting.called_off is not None:
                raise waiting.called_off
            waiting.go_on = go_on
        return False

    def leave(self, pod: PodInfo) -> None:
        """The pod cannot be called off any more; nothing happens where it is not known.

        Raises:
            BindingFailed: it was.
        """
        with self._lock:
            waiting = self._pods.pop(pod.uid, None)
        if waiting is not None and waiting.called_off is not None:
            raise waiting.called_off

    def call_off(self, uid: str, message: str) -> bool:
        """The pod is not to be bound now, but is tried again later; False: it is not known, or too late.

        A pod that waits goes on, to its failure, in this very call.
        """
        error = BindingFailed(message)
        with self._lock:
            waiting = self._pods.get(uid)
            if waiting is None:
                return False
            waiting.called_off = error
            go_on, waiting.go_on = waiting.go_on, None
        if go_on is not None:
            go_on(error)
        return True

    def poll(self) -> None:
        """Has every pod go on that waits for nothing any more, or in vain; to be called several times a second."""
        with self._lock:
            waiting = [each for each in self._pods.values() if each.go_on is not None]
        for each in waiting:
            try:
                if not self._ready(each):
                    continue
                error = None
            except Exception as fault:  # a fault in one pod's affairs must not hold up the others
                error = fault
            self._go_on(each, error)

    def uids(self) -> list[str]:
        """The pods that are known."""
        with self._lock:
            return list(self._pods)

    def _go_on(self, waiting: _Waiting, error: Exception | None) -> None:
        with self._lock:
            go_on, waiting.go_on = waiting.go_on, None
        if go_on is not None:  # else it was called off in this moment
            self._workers.submit(lambda: go_on(error))

    def _ready(self, waiting: _Waiting) -> bool:
        if not self._exists(waiting.pod):
            raise BindingFailed(f"pod {waiting.pod.pod.key} does not exist any more")
        if all([each.ready() for each in waiting.awaited]):  # noqa: C419  each is asked: a later one may have failed
            return True
        elapsed = self._clock.monotonic() - waiting.since
        for each in waiting.awaited:
            if elapsed >= each.timeout_seconds and not each.ready():
                raise each.overdue()
        return False
