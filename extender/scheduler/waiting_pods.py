"""Holds pods between the decision and the Binding, and reports Bindings that got no answer.

A pod may wait at Permit or for its reservations of volumes and devices, and blocks no thread. Its wait at Permit begins
in the scheduling cycle. Reservations are made with the decision, and written later. Source: upstream waitingPodsMap,
podsInPreBindMap; the extension points Reserve, PreBind, Unreserve.

kube-scheduler reports a bind without an answer as failed, and tries the pod again. Here the pod keeps its place until
the cache shows the outcome, so its event and its condition say this too. They have kube-scheduler's reasons, and begin
with its words.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from extender.cache.cache import Cache
from extender.cache.pod_states import is_bound
from extender.engine.decision import POD_SCHEDULER_ERROR, Chosen
from extender.errors import BindingFailed, Preempted
from extender.framework.plugin import error_prefix
from extender.model.pod import Pod
from extender.runtime.clock import Clock
from extender.scheduler.scheduler_ports import Events, Statuses, Workers
from extender.scheduler.timing import PRE_BIND
from extender.table import PodInfo

OnEnd = Callable[[Exception | None], object]
"""Called once when the wait has ended, with the error, or with None if the pod can go on."""


_PREEMPTED = "preempted by DefaultPreemption"
_PREEMPTED_AT_PERMIT = "waiting on permit for pod: preempted"


class Awaited(Protocol):
    """Something that a pod may have to wait for before it is bound, such as volumes or devices."""

    @property
    def timeout_seconds(self) -> float:
        """The longest time, in seconds, that the pod may wait until `ready` returns True."""

    def ready(self) -> bool:
        """Returns True if the pod need not wait any longer. Called repeatedly, by one thread at a time.

        Raises:
            BindingFailed: the pod would wait in vain.
        """

    def overdue(self) -> BindingFailed:
        """Returns the error for a pod that has waited longer than `timeout_seconds`."""


class Reservation(Awaited, Protocol):
    """Volumes or devices reserved for one pod on one node. Only this process knows them until `write`.

    Attributes:
        plugin: the name of the upstream plugin that makes such reservations.
    """

    plugin: str

    def take(self) -> None:
        """Makes the reservation in the cache.

        Raises Outdated if something is no longer available. The caller then calls `undo`, because a part may be
        reserved.
        """

    def write(self) -> None:
        """Writes the reservation to the API server. If it raises ClusterError, a part may have been written."""

    def undo(self) -> None:
        """Releases the reservation, and reverts its writes as far as possible. It must not raise."""


class Reserver(Protocol):
    """Makes reservations of one kind, such as volumes or devices."""

    def reserve(self, pod: PodInfo, chosen: Chosen) -> Reservation | None:
        """Returns the reservation that the pod needs, or None. The reservation takes effect when `take` is called."""


def pre_bind_failed(plugin: str, message: str) -> BindingFailed:
    """Returns the error for a pod whose reservation by this plugin can no longer be completed."""
    return BindingFailed(error_prefix(PRE_BIND, plugin) + message)


def undo(reservations: Sequence[Reservation]) -> None:
    """Undoes all reservations in reverse order, even if one of them raises; then raises the first error.

    After an error, something may stay reserved, so the caller leaves the pod on its node until it expires.
    """
    errors: list[Exception] = []
    for reservation in reversed(reservations):
        try:
            reservation.undo()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


@dataclass(slots=True)
class _WaitingPod:
    """One pod in WaitingPods. `on_end` is None if the pod is not waiting.

    `preempted` is the message if the pod is preempted now, in upstream's words.
    """

    pod: PodInfo
    preempted: str = _PREEMPTED
    since: float = 0.0
    awaited: Sequence[Awaited] = ()
    on_end: OnEnd | None = None
    cancelled: Preempted | None = None


class WaitingPods:
    """The pods between `enter` and `leave`, which may wait and can be cancelled. Thread-safe.

    Args:
        exists: returns True if the pod still exists.
        workers: call `on_end` for the pods whose wait has succeeded.
        undoers: call `on_end` for the pods whose wait has failed. They are not busy with users' PreBind rules, so a pod
            whose time is up gives its room back at once.
    """

    def __init__(self, clock: Clock, exists: Callable[[PodInfo], bool], workers: Workers, undoers: Workers) -> None:
        self._clock = clock
        self._exists = exists
        self._workers = workers
        self._undoers = undoers
        self._lock = threading.Lock()
        self._pods: dict[str, _WaitingPod] = {}

    def enter(self, pod: PodInfo) -> None:
        """Adds the pod, so that it can wait and be cancelled."""
        with self._lock:
            self._pods[pod.uid] = _WaitingPod(pod)

    def wait_at_permit(self, pod: PodInfo, awaited: Sequence[Awaited], on_end: OnEnd) -> None:
        """Adds the pod, and makes it wait from now on. `poll` notices that everything in `awaited` is ready."""
        with self._lock:
            self._pods[pod.uid] = _WaitingPod(pod, _PREEMPTED_AT_PERMIT, self._clock.monotonic(), awaited, on_end)

    def wait(self, pod: PodInfo, awaited: Sequence[Awaited], on_begin: Callable[[], object], on_end: OnEnd) -> bool:
        """Returns True if everything in `awaited` is ready. Otherwise makes the pod wait, and returns False.

        If the pod waits, calls `on_begin` now, and calls `on_end` in a worker when the wait has ended.

        Raises:
            BindingFailed: something awaited will never be ready, or the pod was cancelled.
        """
        waiting = self._pods[pod.uid]
        if waiting.cancelled is not None:
            raise waiting.cancelled
        waiting.since = self._clock.monotonic()
        waiting.awaited = awaited
        if self._ready(waiting):
            return True
        on_begin()  # called before `on_end` is set, because another thread may then end the wait
        with self._lock:
            if waiting.cancelled is not None:
                raise waiting.cancelled
            waiting.on_end = on_end
        return False

    def leave(self, pod: PodInfo) -> None:
        """Removes the pod, if `enter` has added it. Raises BindingFailed if the pod was cancelled."""
        with self._lock:
            waiting = self._pods.pop(pod.uid, None)
        if waiting is not None and waiting.cancelled is not None:
            raise waiting.cancelled

    def preempt(self, uid: str, _preemptor: str) -> bool:
        """Makes the pod fail instead of being bound; returns False if the pod is not between `enter` and `leave`.

        If the pod is waiting, this method calls its `on_end`, which handles the failure.
        """
        with self._lock:
            waiting = self._pods.get(uid)
            if waiting is None:
                return False
            error = waiting.cancelled = Preempted(waiting.preempted)
            on_end = waiting.on_end
            waiting.on_end = None
        if on_end is not None:
            on_end(error)
        return True

    def poll(self) -> None:
        """Resumes the pods whose wait has ended. The owner calls it several times a second."""
        with self._lock:
            pods = [waiting for waiting in self._pods.values() if waiting.on_end is not None]
        for waiting in pods:
            try:
                if not self._ready(waiting):
                    continue
                error = None
            except Exception as failure:  # the failure of one pod must not delay the others
                error = failure
            self._end(waiting, error)

    def uids(self) -> list[str]:
        with self._lock:
            return list(self._pods)

    def _end(self, waiting: _WaitingPod, error: Exception | None) -> None:
        with self._lock:
            on_end = waiting.on_end
            waiting.on_end = None
            waiting.preempted = _PREEMPTED
        if on_end is not None:  # None if another thread has just ended the wait
            workers = self._workers if error is None else self._undoers
            workers.submit(lambda: on_end(error))

    def _ready(self, waiting: _WaitingPod) -> bool:
        if not self._exists(waiting.pod):
            raise BindingFailed(f"pod {waiting.pod.pod.key} no longer exists")
        if all([awaited.ready() for awaited in waiting.awaited]):  # noqa: C419  calls all of them: a later one may raise
            return True
        elapsed = self._clock.monotonic() - waiting.since
        for awaited in waiting.awaited:
            if elapsed >= awaited.timeout_seconds and not awaited.ready():
                raise awaited.overdue()
        return False


class _OpenBind(NamedTuple):
    pod: Pod
    node_name: str
    on_bound: Callable[[], object]


class OpenBinds:
    """The binds whose outcome is unknown, by the UID of the pod. Thread-safe. Call `settle` about once a second."""

    def __init__(self, cache: Cache, statuses: Statuses, events: Events) -> None:
        self._cache = cache
        self._statuses = statuses
        self._events = events
        self._open: dict[str, _OpenBind] = {}

    def add(self, pod: Pod, node_name: str, error: str, on_bound: Callable[[], object]) -> None:
        """Reports that the bind got no answer. If the pod turns out to be bound, `on_bound` is called once.

        Reports nothing if the cache shows the outcome already. `error` says why there is no answer.
        """
        bind = _OpenBind(pod, node_name, on_bound)
        self._open[pod.uid] = bind
        if self._ends(bind):
            return
        message = f"{error}; the pod may be bound, and keeps its place on node {node_name} until this is known"
        self._events.record(pod, "Warning", "FailedScheduling", "Scheduling", message)
        self._statuses.failed_unless_bound(pod, POD_SCHEDULER_ERROR, message)

    def drop(self, uid: str) -> None:
        """Forgets the pod's bind, because its outcome is known, or because the pod is bound again."""
        self._open.pop(uid, None)

    def settle(self) -> None:
        """Ends the binds whose outcome the cache shows."""
        for bind in list(self._open.values()):
            self._ends(bind)

    def _ends(self, bind: _OpenBind) -> bool:
        bound = is_bound(self._cache.placement(bind.pod.uid), bind.node_name)
        if bound is None:
            return False
        is_current = self._open.get(bind.pod.uid) is bind  # the pod may have been tried again in the meantime
        if is_current and self._open.pop(bind.pod.uid, None) is bind and bound:
            bind.on_bound()
        return True
