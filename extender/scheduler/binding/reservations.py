"""Reservations of what a pod needs besides room: taken with the decision, written and awaited before the Binding.

And the pods between decision and Binding: each may wait at Permit and for its reservations, and may be cancelled. No
thread waits with them. Source: upstream extension points Reserve, PreBind, Unreserve; waitingPodsMap, podsInPreBindMap.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from extender.errors import BindingFailed
from extender.runtime.clock import Clock
from extender.scheduler.ports import Workers
from extender.scheduler.scheduling_cycle import Chosen
from extender.table import PodInfo

_log = logging.getLogger(__name__)


class Awaited(Protocol):
    """Something that a pod may have to wait for before it is bound."""

    @property
    def timeout_seconds(self) -> float:
        """The longest time until it is ready."""

    def ready(self) -> bool:
        """Returns whether the pod need not wait for it; asked now and then, by one thread at a time.

        Raises:
            BindingFailed: it never will be.
        """

    def overdue(self) -> BindingFailed:
        """Returns the error for a pod that has waited longer than `timeout_seconds`."""


class Reservation(Awaited, Protocol):
    """Something that is reserved for one pod on one node, known to nobody else until it is written.

    Attributes:
        plugin: the plugin whose part this is upstream.
    """

    plugin: str

    def take(self) -> None:
        """Reserves it.

        Raises:
            Outdated: it can be had no more; a part of it may be taken until `undo`.
        """

    def write(self) -> None:
        """Writes it to the API server.

        Raises:
            ClusterError: it is not, or perhaps not, or partly written.
        """

    def undo(self) -> None:
        """Gives it up, and takes back what was written as far as that may be. Raises nothing."""


class Reserver(Protocol):
    """Reserves one kind of thing for pods."""

    def reserve(self, pod: PodInfo, chosen: Chosen) -> Reservation | None:
        """Returns what is to be reserved for the pod, not taken yet; None: it needs nothing of that kind."""


def undo(reservations: Sequence[Reservation]) -> None:
    """Undoes them all, the last first."""
    for reservation in reversed(reservations):
        try:
            reservation.undo()
        except Exception:  # the others, and the pod itself, must be given back all the same
            _log.exception("%s cannot be undone", type(reservation).__name__)


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

    def wait(self, pod: PodInfo, awaited: Sequence[Awaited], on_end: OnEnd) -> bool:
        """Returns whether all of it is ready; else `on_end` is called later, in another thread.

        Raises:
            BindingFailed: it never will be, or the pod was cancelled.
        """
        waiting = self._pods[pod.uid]
        waiting.since, waiting.awaited = self._clock.monotonic(), awaited
        if self._ready(waiting):
            return True
        with self._lock:
            if waiting.cancelled is not None:
                raise waiting.cancelled
            waiting.on_end = on_end
        return False

    def leave(self, pod: PodInfo) -> None:
        """Ends what `enter` began; unknown pods are ignored.

        Raises:
            BindingFailed: the pod was cancelled.
        """
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
        """Returns the pods that are known."""
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
