"""The scheduling loop over a cache, composed in one place. Tests compose it of fakes in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from extender.app.housekeeping import settle
from extender.cache.cache import Cache
from extender.devices.claims import NAME as DYNAMIC_RESOURCES
from extender.framework.permit import Permits
from extender.model.devices.claims import ResourceClaim
from extender.plugins.dynamic_resources import ClaimsExist
from extender.plugins.registry import interests_of
from extender.plugins.scheduling_gates import SchedulingGates
from extender.queue.backoff import Backoff
from extender.queue.priority_queue import MAX_UNSCHEDULABLE_SECONDS, PriorityQueue
from extender.queue.queued_pod import Tier
from extender.runtime.clock import NO_LIMIT, Clock, TimeLimit
from extender.runtime.ports import Binder
from extender.scheduler.binding.claims import DeviceClaims
from extender.scheduler.binding.cycle import BindingCycle
from extender.scheduler.binding.reservations import WaitingPods
from extender.scheduler.binding.volumes import Volumes
from extender.scheduler.event_router import EventRouter
from extender.scheduler.failures import FailureHandler
from extender.scheduler.nominations import Nominations
from extender.scheduler.ports import ClaimWriter, Events, Evictor, SchedulerTelemetry, Statuses, VolumeWriter, Workers
from extender.scheduler.preemption import EvictionsInProgress, PreemptionExecutor, VictimEvictor
from extender.scheduler.scheduler import Scheduler
from extender.scheduler.scheduling_cycle import SchedulingCycle
from extender.scheduler.startup_recovery import StartupRecovery
from extender.table import PodInfo


@dataclass(frozen=True, slots=True)
class LoopPorts:
    """The writers of the loop, and the threads that they work in.

    Attributes:
        binders: for pods that need nothing but their Binding.
        pre_binders: for pods that may have to wait, for users' rules among others.
    """

    binder: Binder
    statuses: Statuses
    events: Events
    evictor: Evictor
    volumes: VolumeWriter
    claims: ClaimWriter
    binders: Workers
    pre_binders: Workers
    preemptors: Workers


@dataclass(frozen=True, slots=True)
class Loop:
    """The parts that a process starts, asks and stops."""

    queue: PriorityQueue
    scheduler: Scheduler
    waiting: WaitingPods
    device_claims: DeviceClaims
    permits: Permits
    recovery: StartupRecovery
    settle_permits: Callable[[], None]


def compose_loop(
    cycles: Mapping[str, SchedulingCycle],
    cache: Cache,
    ports: LoopPorts,
    telemetry: SchedulerTelemetry,
    clock: Clock,
    backoff: Backoff = Backoff(),  # noqa: B008  frozen
    max_unschedulable_seconds: float = MAX_UNSCHEDULABLE_SECONDS,
    limit: TimeLimit = NO_LIMIT,
) -> Loop:
    """Makes the loop, and has the cache tell its queue; to be called before the cache is filled.

    Args:
        cycles: by schedulerName.
        backoff, max_unschedulable_seconds: see PriorityQueue.
        limit: of users' rules of Reserve and Permit; `cycles` have theirs.
    """
    statuses, events, evictor, claims = ports.statuses, ports.events, ports.evictor, ports.claims
    binders, pre_binders, preemptors = ports.binders, ports.pre_binders, ports.preemptors

    def is_there(pod: PodInfo) -> bool:
        return cache.find_pod(pod.uid, pod.pod.key) is not None

    def claims_devices(pod: PodInfo) -> bool:
        cycle = cycles.get(pod.pod.spec.scheduler_name)
        return cycle is not None and DYNAMIC_RESOURCES in cycle.profile.reserving

    def find_claim(key: str) -> ResourceClaim | None:
        claim = cache.effective(ResourceClaim.__name__, key)
        return claim if isinstance(claim, ResourceClaim) else None

    evictions, claims_exist = EvictionsInProgress(cache), ClaimsExist(find_claim, claims_devices)
    interests = interests_of(cycle.profile for cycle in cycles.values())
    pre_enqueue = (SchedulingGates(), claims_exist, evictions)
    queue = PriorityQueue(telemetry, clock, interests, pre_enqueue, backoff, max_unschedulable_seconds)
    cache.listen(EventRouter(cache, queue, cycles))
    permits = Permits(cache.snapshot, lambda namespace, labels: activate(queue, namespace, labels), limit)
    nominations = Nominations(cache, statuses, queue.nomination_ended)
    waiting = WaitingPods(clock, is_there, pre_binders)
    volumes, devices = Volumes(cache, ports.volumes), DeviceClaims(cache, claims, events, clock)
    preemption = PreemptionExecutor(
        evictions, cache, queue, nominations, VictimEvictor(cache, evictor, events), telemetry, preemptors, waiting
    )  # fmt: skip
    failures = FailureHandler(
        queue, nominations, preemption, statuses, events, telemetry, clock, preemptors, devices.deallocate
    )  # fmt: skip
    binding = BindingCycle(
        cache, queue, ports.binder, events, statuses, telemetry, clock, failures.handle, waiting, permits
    )  # fmt: skip
    scheduler = Scheduler(
        cycles, cache, queue, (volumes, devices), permits, binding, binders, pre_binders, failures, events, telemetry,
        clock,
    )  # fmt: skip
    recovery = StartupRecovery(cache, cycles, devices, nominations)
    return Loop(queue, scheduler, waiting, devices, permits, recovery, lambda: settle(permits, cache))


def activate(queue: PriorityQueue, namespace: str, labels: Mapping[str, str]) -> None:
    """Has the pods with these labels tried at once that wait for an event, or for their backoff."""
    pods = queue.pods()
    wanted = [info for info in (*pods[Tier.BACKOFF], *pods[Tier.UNSCHEDULABLE]) if info.pod.namespace == namespace]
    queue.activate([info.uid for info in wanted if labels.items() <= info.pod.labels.items()])
