"""The failure of a pod's attempt, from either cycle. Source: upstream handleSchedulingFailure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from extender.model.devices.claims import ResourceClaim
from extender.queue.priority_queue import PriorityQueue
from extender.queue.queued_pod import QueuedPod
from extender.runtime.clock import Clock
from extender.scheduler.nominations import Nominations
from extender.scheduler.ports import ERROR, UNSCHEDULABLE, Attempt, Events, SchedulerTelemetry, Statuses, Workers
from extender.scheduler.preemption import PreemptionExecutor
from extender.scheduler.scheduling_cycle import Unfit

_NOTE_LIMIT = 1024  # bytes of an event's note that the API server takes
_ELLIPSIS = " ..."


@dataclass(frozen=True, slots=True)
class FailureHandler:
    """Gives pods back to the queue, makes room for them, and says why they wait.

    Attributes:
        deallocate: takes the devices away from a claim that nobody uses; called by `workers`.
    """

    queue: PriorityQueue
    nominations: Nominations
    preemption: PreemptionExecutor
    statuses: Statuses
    events: Events
    telemetry: SchedulerTelemetry
    clock: Clock
    workers: Workers
    deallocate: Callable[[ResourceClaim], object]

    def handle(self, pod: QueuedPod, unfit: Unfit, began_at: float) -> None:
        """Ends the attempt; of a pod that was deleted meanwhile, or bound by another, nothing else comes."""
        if unfit.preemption is not None and self.preemption.has_to_wait(pod.info):
            unfit = replace(unfit, preemption=None, nominated_node=None)
        if unfit.preemption is not None:
            self.preemption.begin(pod.info, unfit.preemption)
        if self.queue.add_unschedulable(pod, unfit.rejection) is not None:
            self._report(pod, unfit)
            self._make_room(pod, unfit)
        elif unfit.preemption is not None:
            self.preemption.cancel(pod.info)
        result = UNSCHEDULABLE if unfit.rejection.rules else ERROR
        seconds = self.clock.monotonic() - began_at
        self.telemetry.attempted(Attempt(pod.info.pod, result, seconds, pod.attempts, message=unfit.message))

    def _report(self, pod: QueuedPod, unfit: Unfit) -> None:
        described = pod.info.pod
        if unfit.nominated_node is not None:
            self.nominations.nominate(pod.info, unfit.nominated_node)
        self.events.record(described, "Warning", "FailedScheduling", "Scheduling", shortened(unfit.message))
        self.statuses.failed(described, unfit.reason, unfit.message, unfit.nominated_node)

    def _make_room(self, pod: QueuedPod, unfit: Unfit) -> None:
        if unfit.preemption is not None:
            self.preemption.carry_out(pod.info, unfit.preemption)
        if (claim := unfit.idle_claim) is not None:
            self.workers.submit(lambda: self.deallocate(claim))


def shortened(text: str) -> str:
    """Returns the text, cut to what an event can hold."""
    data = text.encode()
    if len(data) <= _NOTE_LIMIT:
        return text
    return data[: _NOTE_LIMIT - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS
