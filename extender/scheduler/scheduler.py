"""The scheduler's loop. Source: upstream schedule_one.go, ScheduleOne."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from extender.cache.cache import Cache
from extender.errors import ExtenderError, IllegalTransition
from extender.model.devices.claims import ResourceClaim
from extender.queue.priority_queue import PriorityQueue
from extender.queue.queued_pod import QueuedPod
from extender.runtime.clock import Clock
from extender.scheduler.binding.cycle import ERROR, UNSCHEDULABLE, Attempt, BindingCycle
from extender.scheduler.failures import Failures
from extender.scheduler.ports import Events, SchedulerTelemetry, Workers
from extender.scheduler.preemption import Preemptions
from extender.scheduler.scheduling_cycle import Chosen, SchedulingCycle, Unfit
from extender.table import PodInfo

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Takes pods from the queue one by one, assumes each on its node, and leaves the binding to others.

    One thread at a time may call `schedule_one`: what it has assumed is what the next pod sees.

    Attributes:
        cycles: by schedulerName.
        binders: threads for binding cycles; that they take no more than a few at once keeps decisions fresh.
        give_up: takes the devices away from a claim that nobody uses.
    """

    cycles: Mapping[str, SchedulingCycle]
    cache: Cache
    queue: PriorityQueue
    binding: BindingCycle
    failures: Failures
    preemptions: Preemptions
    events: Events
    telemetry: SchedulerTelemetry
    clock: Clock
    binders: Workers
    give_up: Callable[[ResourceClaim], object]

    def schedule_one(self, timeout_seconds: float | None = None) -> bool:
        """Tries one pod; waits for it that long. False: there was none, or the queue was closed."""
        pod = self.queue.pop(timeout_seconds)
        if pod is None:
            return False
        if self._is_to_be_skipped(pod):
            self.queue.done(pod.uid)
        else:
            self._attempt(pod)
        return True

    def _is_to_be_skipped(self, pod: QueuedPod) -> bool:
        described = pod.info.pod
        if described.terminating:
            note = f"skip schedule deleting pod: {described.key}"
            self.events.record(described, "Warning", "FailedScheduling", "Scheduling", note)
            return True
        return self.cache.placement(pod.uid) is not None

    def _attempt(self, pod: QueuedPod) -> None:
        began_at = self.clock.monotonic()
        try:
            decided = self._decide(pod, began_at)
            self.telemetry.decided(self.clock.monotonic() - began_at)
        except Exception as error:  # one pod that cannot be judged must not keep the others waiting
            _log.exception("%s cannot be judged", pod.info.pod.key)
            decided = Unfit(f"{type(error).__name__}: {error}")
        if isinstance(decided, Attempt):
            attempt = decided
            self.binders.submit(lambda: self.binding.run(attempt))
        else:
            self._give_back(pod, decided, began_at)

    def _decide(self, pod: QueuedPod, began_at: float) -> Attempt | Unfit:
        """Decides, and assumes the pod where it was decided for a node, with all that it needs there."""
        cycle = self.cycles[pod.info.pod.spec.scheduler_name]
        with self.cache.snapshot("schedule") as table:
            decided = cycle.decide(self._as_nominated(pod.info), table)
        return self._keep(pod, decided, began_at) if isinstance(decided, Chosen) else decided

    def _as_nominated(self, info: PodInfo) -> PodInfo:
        """The pod with its latest nomination: its status may not tell of that yet, and it would evict others again."""
        node_name = self.queue.nominator.node_of(info.uid)
        told = info.pod.status.nominated_node_name
        return info if node_name == told else PodInfo(info.pod.nominated_to(node_name))

    def _keep(self, pod: QueuedPod, chosen: Chosen, began_at: float) -> Attempt | Unfit:
        try:
            self.cache.assume(pod.info, chosen.node_name)
        except ExtenderError as error:  # the node, or the pod, has gone in this moment
            return Unfit(f"assume: {error}")
        attempt = self.binding.reserve(pod, chosen, began_at)
        if isinstance(attempt, Unfit):
            with suppress(IllegalTransition):  # the pod has gone in this moment
                self.cache.forget(pod.uid)
        else:
            self.queue.nominate(pod.info, "")  # its place is kept by the cache from now on
        return attempt

    def _give_back(self, pod: QueuedPod, unfit: Unfit, began_at: float) -> None:
        candidate, preemptor = unfit.make_room, pod.info
        if candidate:
            self.preemptions.begin(preemptor, candidate)
        waits = self.failures.handle(pod, unfit)
        if candidate and waits:
            self.preemptions.carry_out(preemptor, candidate)
        elif candidate:
            self.preemptions.cancel(preemptor)
        if (idle := unfit.idle_claim) is not None and waits:
            self.preemptions.workers.submit(lambda: self.give_up(idle))
        result = UNSCHEDULABLE if unfit.rejection.rules else ERROR
        name = pod.info.pod.spec.scheduler_name
        self.telemetry.attempted(result, name, self.clock.monotonic() - began_at)
