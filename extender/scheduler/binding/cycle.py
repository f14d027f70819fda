"""From a chosen node to a bound pod; every path ends in finish or forget. Source: upstream bindingCycle."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from extender.cache.cache import Cache
from extender.errors import BindingFailed, ClusterError, IllegalTransition, OutcomeUnknown, Outdated, Refused
from extender.queue.priority_queue import PriorityQueue
from extender.queue.queued_pod import ERROR as NO_RULE
from extender.queue.queued_pod import QueuedPod, Rejection
from extender.runtime.clock import Clock
from extender.runtime.ports import Binder
from extender.scheduler.binding.reservations import Awaited, Permit, Reservation, Reserver
from extender.scheduler.binding.waiting import WaitingPods
from extender.scheduler.ports import Events, SchedulerTelemetry, Statuses
from extender.scheduler.scheduling_cycle import Chosen, Unfit

SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """An assumed pod on its way to its node.

    Attributes:
        began_at: when the attempt began, in monotonic seconds.
        reservations: what is kept for the pod there, in the order in which it was taken.
        permissions: what rules want it to wait for before anything is written.
    """

    pod: QueuedPod
    node_name: str
    began_at: float
    reservations: Sequence[Reservation] = ()
    permissions: Sequence[Awaited] = ()


@dataclass(frozen=True, slots=True)
class BindingCycle:
    """Brings assumed pods to their nodes; many at once, for none of its threads waits for what others have to do.

    Attributes:
        failed: takes a pod whose place was given back.
        reservers: what pods may need besides room; written, and where that fails undone in reverse order.
        waiting: the pods that wait, or could be called off.
        leading: whether this process may write; asked right before it begins to.
    """

    cache: Cache
    queue: PriorityQueue
    binder: Binder
    events: Events
    statuses: Statuses
    telemetry: SchedulerTelemetry
    clock: Clock
    failed: Callable[[QueuedPod, Unfit], object]
    waiting: WaitingPods
    reservers: Sequence[Reserver] = ()
    permits: Sequence[Permit] = ()
    leading: Callable[[], bool] = lambda: True

    # ---- in the loop's thread

    def reserve(self, pod: QueuedPod, chosen: Chosen, began_at: float) -> Attempt | Unfit:
        """Keeps what the pod, which is assumed, needs; the next decision must know of it. Unfit: nothing is kept."""
        reservations: list[Reservation] = []
        try:
            for reserver in self.reservers:
                if (reservation := reserver.reserve(pod.info, chosen)) is not None:
                    reservations.append(reservation)
                    reservation.take()
            permissions = [permit.permit(pod.info, chosen.node_name) for permit in self.permits]
        except Exception as error:  # whatever it was, nothing must stay kept
            if not isinstance(error, (Outdated, BindingFailed)):
                _log.exception("what %s needs on %s cannot be kept", pod.info.pod.key, chosen.node_name)
            self.queue.stop_recording_events(pod.uid)
            _undo(reservations)
            return unfit(error)
        awaited = [permission for permission in permissions if permission is not None]
        return Attempt(pod, chosen.node_name, began_at, reservations, awaited)

    # ---- in a worker's thread

    def run(self, attempt: Attempt) -> None:
        """Binds the pod, now or, by another thread, when it has to wait no more."""
        if not attempt.reservations and not attempt.permissions:
            self._bind(attempt)
            return
        self.waiting.enter(attempt.pod.info)
        self._await(attempt, attempt.permissions, self._write)

    def _write(self, attempt: Attempt) -> None:
        self.queue.stop_recording_events(attempt.pod.uid)  # what goes wrong from here on is no rule's refusal
        try:
            if not self.leading():
                raise Refused("this scheduler is not the leader: another one binds", 503)
            for reservation in attempt.reservations:
                reservation.write()
        except Exception as error:  # whatever it was, nothing must stay taken
            self._fail(attempt, error)
            return
        if not self._await(attempt, attempt.reservations, self._leave_and_bind):
            # Others, such as the cluster autoscaler, get to know where the pod will be (KEP-5278).
            self.statuses.nominate(attempt.pod.info.pod, attempt.node_name)

    def _leave_and_bind(self, attempt: Attempt) -> None:
        try:
            self.waiting.leave(attempt.pod.info)
        except BindingFailed as error:
            self._fail(attempt, error)
        else:
            self._bind(attempt)

    def _await(self, attempt: Attempt, awaited: Sequence[Awaited], then: Callable[[Attempt], None]) -> bool:
        """Goes on with `then`, or to the pod's failure: at once, or (False) later and in another thread."""

        def go_on(error: Exception | None) -> None:
            then(attempt) if error is None else self._fail(attempt, error)

        try:
            there = self.waiting.wait(attempt.pod.info, awaited, go_on)
        except Exception as error:
            self._fail(attempt, error)
            return True
        if there:
            then(attempt)
        return there

    def _bind(self, attempt: Attempt) -> None:
        bound, node_name = attempt.pod.info.pod, attempt.node_name
        try:
            self.binder.bind(bound.namespace, bound.name, bound.uid, node_name)
        except OutcomeUnknown as error:
            # The watch will tell of the pod or, by telling nothing, let it expire; then it is tried again.
            _log.warning("bind of %s to %s: %s", bound.key, node_name, error)
            self._finish(attempt.pod, certain=False)
            self._told(attempt, "unknown", ERROR)
        except Exception as error:
            self._fail(attempt, error, "binding rejected: ")
        else:
            self._finish(attempt.pod, certain=True)
            note = f"Successfully assigned {bound.namespace}/{bound.name} to {node_name}"
            self.events.record(bound, "Normal", "Scheduled", "Binding", note)
            self._told(attempt, "bound", SCHEDULED)

    def _finish(self, pod: QueuedPod, *, certain: bool) -> None:
        with suppress(IllegalTransition):  # the pod was deleted meanwhile
            self.cache.finish_binding(pod.uid, certain=certain)
        self.queue.done(pod.uid)

    def _fail(self, attempt: Attempt, error: Exception, doing: str = "") -> None:
        """Undoes what was done for the pod, in reverse order, and gives it back."""
        pod = attempt.pod
        if not isinstance(error, (ClusterError, BindingFailed)):
            _log.error("bind of %s to %s", pod.info.pod.key, attempt.node_name, exc_info=error)
        self.queue.stop_recording_events(pod.uid)  # that it leaves its place is no news to the pod itself
        with suppress(BindingFailed):  # it fails anyway
            self.waiting.leave(pod.info)
        _undo(attempt.reservations)
        with suppress(IllegalTransition):  # the watch knows better: the pod stands on a node, or is gone
            self.cache.forget(pod.uid)
        why = unfit(error, doing)
        self.failed(pod, why)
        self._told(attempt, "refused", UNSCHEDULABLE if why.rejection.rules else ERROR)

    def _told(self, attempt: Attempt, bind_result: str, result: str) -> None:
        pod, now = attempt.pod, self.clock.monotonic()
        self.telemetry.bound(bind_result)
        self.telemetry.attempted(result, pod.info.pod.spec.scheduler_name, now - attempt.began_at)
        if result == SCHEDULED and pod.first_attempt_at is not None:
            self.telemetry.scheduled(pod.attempts, now - pod.first_attempt_at)


def unfit(error: Exception, doing: str = "") -> Unfit:
    """What the error means for the pod: a rule has turned it away, or it is tried again after its backoff."""
    plugin = error.plugin if isinstance(error, BindingFailed) else ""
    rejection = Rejection(unschedulable=frozenset((plugin,))) if plugin else NO_RULE
    return Unfit(f"{doing}{error}", rejection)


def _undo(reservations: Sequence[Reservation]) -> None:
    for reservation in reversed(reservations):
        try:
            reservation.undo()
        except Exception:  # the others, and the pod itself, must be given back all the same
            _log.exception("%s cannot be undone", type(reservation).__name__)
