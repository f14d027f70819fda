"""The scheduler's loop, and the scheduling cycle of one pod. Source: upstream schedule_one.go.

schedule_one            takes a pod from the queue
  scheduling cycle      finds a node (scheduling_cycle.py), assumes the pod there, reserves its volumes and devices, and
                        runs users' rules of Reserve and Permit (framework/permit)
  binding cycle         in a fiber, or a thread where it may be held up: waits at Permit, writes what is reserved, waits
                        for it, binds (binding/cycle.py)
  handle failure        from either cycle: preempts, gives the pod back to the queue, says why (failures.py)
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from extender.cache.cache import Cache
from extender.errors import BindingFailed, DeadlineExceeded, ExtenderError, IllegalTransition, Outdated
from extender.framework.permit import Permit, Permits, ReserveRule
from extender.queue.priority_queue import PriorityQueue
from extender.queue.queued_pod import QueuedPod
from extender.runtime.clock import NO_LIMIT, Clock, TimeLimit
from extender.scheduler.binding.cycle import AssumedPod, BindingCycle, unfit_by
from extender.scheduler.binding.reservations import Reservation, Reserver, undo
from extender.scheduler.failures import FailureHandler
from extender.scheduler.ports import Events, SchedulerTelemetry, Workers
from extender.scheduler.scheduling_cycle import Chosen, SchedulingCycle, Unfit
from extender.scheduler.timing import PERMIT, RESERVE, UNTIMED, SampledPodTimer, sample
from extender.table import PodInfo

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Takes pods from the queue one by one, assumes each on its node, and leaves the binding to others.

    One thread at a time may call `schedule_one`: the next pod is decided on by what this one has assumed.

    Attributes:
        cycles: by schedulerName.
        reservers: for what pods may need besides room.
        permits: users' rules of Reserve and Permit, which come after them.
        binders: for the binding cycles of pods that need nothing but their Binding.
        pre_binders: threads for the others', which may wait for users' rules.
        limit: for each attempt, from bringing its table up to date to the choice of a node or of victims.
    """

    cycles: Mapping[str, SchedulingCycle]
    cache: Cache
    queue: PriorityQueue
    reservers: Sequence[Reserver]
    permits: Permits
    binding: BindingCycle
    binders: Workers
    pre_binders: Workers
    failures: FailureHandler
    events: Events
    telemetry: SchedulerTelemetry
    clock: Clock
    limit: TimeLimit = NO_LIMIT
    sample: Iterator[bool] = field(default_factory=sample)

    def schedule_one(self, timeout_seconds: float | None = None) -> bool:
        """Tries one pod, waiting so long for it; returns False where there was none, or the queue was closed."""
        pod = self.queue.pop(timeout_seconds)
        if pod is None:
            return False
        if self._skips(pod):
            self.queue.done(pod.uid)
            return True
        began_at = self.clock.monotonic()
        assumed = self._scheduling_cycle(pod, began_at)
        if isinstance(assumed, Unfit):
            self.failures.handle(pod, assumed, began_at)
        else:
            workers = self.binders if assumed.needs_nothing else self.pre_binders
            workers.submit(lambda: self.binding.run(assumed))
        return True

    def _skips(self, pod: QueuedPod) -> bool:
        """Returns whether the pod is being deleted, or has a place already (upstream skipPodSchedule)."""
        described = pod.info.pod
        if described.terminating:
            note = f"skip schedule deleting pod: {described.key}"
            self.events.record(described, "Warning", "FailedScheduling", "Scheduling", note)
            return True
        return self.cache.placement(pod.uid) is not None

    def _scheduling_cycle(self, pod: QueuedPod, began_at: float) -> AssumedPod | Unfit:
        try:
            cycle = self.cycles[pod.info.pod.spec.scheduler_name]  # for the whole attempt: others may take its place
            decision = self._schedule_pod(pod.info, cycle)
        except DeadlineExceeded as error:
            return Unfit(str(error))
        except Exception as error:  # nothing has changed yet, and other pods must not wait because of this one
            _log.exception("scheduling %s", pod.info.pod.key)
            return Unfit(f"{type(error).__name__}: {error}")
        assumed = (
            self._assume_and_reserve(pod, decision, cycle.profile.permit, began_at)
            if isinstance(decision, Chosen)
            else decision
        )
        self.telemetry.decided(self.clock.monotonic() - began_at)
        return assumed

    def _schedule_pod(self, info: PodInfo, cycle: SchedulingCycle) -> Chosen | Unfit:
        """Finds a node for the pod as it is nominated by now; its status may not say so yet."""
        nominated_node = self.cache.nominated_node(info.uid)
        if nominated_node != info.pod.status.nominated_node_name:
            info = PodInfo(info.pod.nominated_to(nominated_node))
        with self.cache.snapshot("schedule", self.limit.begin()) as table:
            return cycle.schedule_pod(info, table)

    def _assume_and_reserve(
        self, pod: QueuedPod, chosen: Chosen, rules: Sequence[ReserveRule], began_at: float
    ) -> AssumedPod | Unfit:
        """Assumes the pod and reserves what it needs; undoes both if anything fails.

        An error in undoing is raised: it ends the process, since nothing else would give the place back.
        """
        try:
            self.cache.assume(pod.info, chosen.node_name)
        except ExtenderError as error:  # the node, or the pod, has gone in this moment
            return Unfit(f"assume: {error}")
        reservations: list[Reservation] = []
        profile = pod.info.pod.spec.scheduler_name
        timer = SampledPodTimer(self.clock, self.telemetry, profile) if next(self.sample) else UNTIMED
        try:
            for reserver in self.reservers:
                if (reservation := reserver.reserve(pod.info, chosen)) is not None:
                    reservations.append(reservation)
                    with timer.plugin(RESERVE, reservation.plugin):
                        reservation.take()
            permit = self.permits.run(rules, pod.info.pod, chosen.node_name, timer.plugin)
            timer.passed(RESERVE, PERMIT)
            if permit is not None:
                self._reject_if_outdated(permit)
        except Exception as error:  # whatever it was, nothing must stay reserved or assumed
            if not isinstance(error, (Outdated, BindingFailed)):
                _log.exception("reserving for %s on %s", pod.info.pod.key, chosen.node_name)
            self.queue.stop_recording_events(pod.uid)  # that it gives things back does not help the pod itself
            self.permits.unreserve(pod.uid)
            undo(reservations)
            with suppress(IllegalTransition):  # the pod has gone in this moment
                self.cache.forget(pod.uid)
            return unfit_by(error)
        finally:
            timer.tell()
        return AssumedPod(pod, chosen.node_name, began_at, reservations, permit, timer)

    def _reject_if_outdated(self, permit: Permit) -> None:
        """Rejects a pod that is to wait for a rule which has gone out of force since its attempt began.

        Pods that waited by then were rejected when the policy was adopted.
        """
        if waits_for := tuple(permit.pending):
            in_force = {rule.name for cycle in self.cycles.values() for rule in cycle.profile.permit}
            for rule in waits_for:
                if rule not in in_force:
                    permit.reject(rule, f"{rule} is in force no more")
