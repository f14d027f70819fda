"""The binding cycle: from an assumed pod to a bound one; every path ends in finish or forget.

    run ---- nothing reserved, no rules of Permit ---------------------------> bind --> finish
     '-- wait on Permit --> pre-bind: write --> volumes and devices ready ------^ |
               |                        |                                         '--> refused
               '------------------------'--> failed --> undo, unreserve, forget <--------'

Source: upstream schedule_one.go, bindingCycle, handleBindingCycleError.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from extender.cache.cache import Cache
from extender.errors import BindingFailed, ClusterError, ExtenderError, IllegalTransition, OutcomeUnknown
from extender.framework.permit import Permit, Permits
from extender.queue.priority_queue import PriorityQueue
from extender.queue.queued_pod import ERROR as NO_RULE
from extender.queue.queued_pod import QueuedPod, Rejection
from extender.runtime.clock import Clock
from extender.runtime.ports import Binder, Binding
from extender.scheduler.binding.reservations import Awaited, Reservation, undo
from extender.scheduler.binding.waiting import WaitingPods
from extender.scheduler.ports import ERROR, SCHEDULED, Attempt, Events, SchedulerTelemetry, Statuses
from extender.scheduler.scheduling_cycle import Unfit
from extender.scheduler.timing import BIND, DEFAULT_BINDER, PRE_BIND, UNTIMED, PodTimer

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class AssumedPod:
    """A pod on its way to its node.

    Attributes:
        began_at: the start of the attempt, in monotonic seconds.
        reservations: what is reserved for the pod there, in the order in which it was taken.
        permit: what users' rules of Reserve and Permit have said; None: there are none.
    """

    pod: QueuedPod
    node_name: str
    began_at: float
    reservations: Sequence[Reservation] = ()
    permit: Permit | None = None
    timer: PodTimer = UNTIMED

    @property
    def needs_nothing(self) -> bool:
        """Returns whether there is nothing to do for the pod but to bind it."""
        return not self.reservations and self.permit is None


@dataclass(frozen=True, slots=True)
class BindingCycle:
    """Brings assumed pods to their nodes; many at once, for no thread waits with a pod.

    Attributes:
        handle_failure: takes a pod whose place was given back.
        waiting: the pods that wait, or could be cancelled.
        permits: users' rules of Reserve and Permit.
    """

    cache: Cache
    queue: PriorityQueue
    binder: Binder
    events: Events
    statuses: Statuses
    telemetry: SchedulerTelemetry
    clock: Clock
    handle_failure: Callable[[QueuedPod, Unfit, float], object]
    waiting: WaitingPods
    permits: Permits

    def run(self, assumed: AssumedPod) -> None:
        """Binds the pod: now or, where it waits at Permit, for volumes or devices, later and in another thread."""
        if assumed.needs_nothing:
            self._bind(assumed)
            return
        self.waiting.enter(assumed.pod.info)
        if assumed.permit is None:
            self._pre_bind(assumed)
        else:  # events are recorded on: a pod that is rejected here may have missed the one that helps it
            self._wait(assumed, (assumed.permit,), self._pre_bind)

    def _pre_bind(self, assumed: AssumedPod) -> None:
        """Writes what is reserved for the pod, and binds it once the controllers and drivers have done their part."""
        self.queue.stop_recording_events(assumed.pod.uid)  # a failure from here on is no rule's refusal
        try:
            for reservation in assumed.reservations:
                with assumed.timer.plugin(PRE_BIND, reservation.plugin):
                    reservation.write()
        except Exception as error:  # whatever it was, nothing must stay reserved
            self._fail(assumed, error)
        else:
            self._wait(assumed, assumed.reservations, self._leave)

    def _wait(self, assumed: AssumedPod, awaited: Sequence[Awaited], go_on: Callable[[AssumedPod], object]) -> None:
        info = assumed.pod.info

        def begin() -> None:  # others, such as the cluster autoscaler, learn which node the pod goes to (KEP-5278)
            self.statuses.nominate(info.pod, assumed.node_name)

        def end(error: Exception | None) -> None:
            self._fail(assumed, error) if error else go_on(assumed)

        try:
            ready = self.waiting.wait(info, awaited, begin, end)
        except Exception as error:
            self._fail(assumed, error)
            return
        if ready:
            go_on(assumed)

    def _leave(self, assumed: AssumedPod) -> None:
        try:
            self.waiting.leave(assumed.pod.info)
        except BindingFailed as cancelled:
            self._fail(assumed, cancelled)
        else:
            self._bind(assumed)

    def _bind(self, assumed: AssumedPod) -> None:
        pod, node_name = assumed.pod.info.pod, assumed.node_name
        assumed.timer.passed(PRE_BIND)
        try:
            self.statuses.withdraw(pod)  # a bound pod must not be said to be unschedulable
            with assumed.timer.plugin(BIND, DEFAULT_BINDER):
                self.binder.bind(Binding(pod.namespace, pod.name, pod.uid, node_name))
        except OutcomeUnknown as error:
            _log.warning("bind of %s to %s: %s", pod.key, node_name, error)
            self._leave_to_watch(assumed, error)
        except ExtenderError as error:
            self._fail(assumed, error, "binding rejected: ")
        except Exception as error:  # a defect: nobody knows how far the call came
            _log.exception("bind of %s to %s", pod.key, node_name)
            self._leave_to_watch(assumed, error)
        else:
            self._finish(assumed.pod, certain=True)
            note = f"Successfully assigned {pod.namespace}/{pod.name} to {node_name}"
            self.events.record(pod, "Normal", "Scheduled", "Binding", note)
            self._count(assumed, "bound", SCHEDULED)

    def _leave_to_watch(self, assumed: AssumedPod, error: Exception) -> None:
        """Keeps the pod's place: the watch will tell of the pod or, by telling nothing, let it expire."""
        self._finish(assumed.pod, certain=False)
        self._count(assumed, "unknown", ERROR, str(error))

    def _finish(self, pod: QueuedPod, *, certain: bool) -> None:
        with suppress(IllegalTransition):  # the pod was deleted meanwhile
            self.cache.finish_binding(pod.uid, certain=certain)
        self.permits.finish(pod.uid, certain=certain)
        self.queue.done(pod.uid)

    def _fail(self, assumed: AssumedPod, error: Exception, prefix: str = "") -> None:
        """Undoes what was done for the pod, in reverse order, and gives it back to the queue."""
        pod = assumed.pod
        if not isinstance(error, (ClusterError, BindingFailed)):
            _log.error("bind of %s to %s", pod.info.pod.key, assumed.node_name, exc_info=error)
        self.queue.stop_recording_events(pod.uid)  # that the pod leaves its place does not help the pod itself
        with suppress(BindingFailed):  # it fails anyway
            self.waiting.leave(pod.info)
        self.permits.unreserve(pod.uid)
        undo(assumed.reservations)
        with suppress(IllegalTransition):  # the watch has shown the pod on a node, or its deletion
            self.cache.forget(pod.uid)
        self.handle_failure(pod, unfit_by(error, prefix), assumed.began_at)
        self.telemetry.bound("refused")
        assumed.timer.tell()

    def _count(self, assumed: AssumedPod, bind_result: str, result: str, message: str = "") -> None:
        pod, now = assumed.pod, self.clock.monotonic()
        self.telemetry.bound(bind_result)
        assumed.timer.tell()
        seconds = now - assumed.began_at
        self.telemetry.attempted(Attempt(pod.info.pod, result, seconds, pod.attempts, assumed.node_name, message))
        if result == SCHEDULED and pod.first_attempt_at is not None:
            self.telemetry.scheduled(pod.attempts, now - pod.first_attempt_at)


def unfit_by(error: Exception, prefix: str = "") -> Unfit:
    """Returns what the error means for the pod: refused by a plugin, or tried again after its backoff."""
    plugin = error.plugin if isinstance(error, BindingFailed) else ""
    if not plugin:
        return Unfit(f"{prefix}{error}", NO_RULE)
    return Unfit(f"0/1 nodes are available: 1 {error}.", Rejection(unschedulable=frozenset((plugin,))))
