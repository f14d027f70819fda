"""The scheduling loop over a cache, composed in one place, and its rules: a scheduling cycle for each schedulerName.

Tests compose it of fakes in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from random import Random

from extender.app.housekeeping import settle
from extender.app.policies import held_by, refuse_changes
from extender.cache.cache import Cache
from extender.cluster.http.http_extender import HttpExtender
from extender.devices.pod_claims import NAME as DYNAMIC_RESOURCES
from extender.errors import ConfigurationError
from extender.framework.permit import Permits
from extender.framework.profile import Profile, Profiles
from extender.model.devices.claims import ResourceClaim
from extender.model.extender_config import ExtenderConfig
from extender.model.node import Node
from extender.model.pod import Pod
from extender.plugins.dynamic_resources import ClaimsExist
from extender.plugins.registry import interests_of
from extender.plugins.scheduling_gates import SchedulingGates
from extender.plugins.users import put_in_force
from extender.policy.extenders import ignoring
from extender.policy.policy import Policy
from extender.queue.backoff import Backoff
from extender.queue.priority_queue import MAX_UNSCHEDULABLE_SECONDS, PriorityQueue
from extender.queue.queued_pod import Tier
from extender.runtime.clock import NO_LIMIT, Clock, TimeLimit
from extender.runtime.ports import Binder
from extender.scheduler.binding.device_reservations import DeviceClaims
from extender.scheduler.binding.volume_reservations import Volumes
from extender.scheduler.binding.waiting import WaitingPods
from extender.scheduler.event_router import EventRouter, QueueSweep
from extender.scheduler.other_extenders import Extender, Extenders
from extender.scheduler.ports import ClaimWriter, Events, Evictor, SchedulerTelemetry, Statuses, VolumeWriter, Workers
from extender.scheduler.preemption import EvictionsInProgress, Nominations, PreemptionExecutor, VictimEvictor
from extender.scheduler.schedule_one import BindingCycle, FailureHandler, Scheduler
from extender.scheduler.scheduling_cycle import AttemptObserver, SchedulingCycle
from extender.scheduler.startup_recovery import StartupRecovery
from extender.scheduler.timing import ProfileTimer
from extender.table import PodInfo
from extender.table.features import FeatureGates


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
    sweep: QueueSweep


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
        limit: for an attempt to find a node, and for users' rules of Reserve and Permit.
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
        clock, limit,
    )  # fmt: skip
    sweep = QueueSweep(cache, queue, cycles)
    recovery = StartupRecovery(cache, cycles, devices, nominations)
    return Loop(queue, scheduler, waiting, devices, permits, recovery, lambda: settle(permits, cache), sweep)


def activate(queue: PriorityQueue, namespace: str, labels: Mapping[str, str]) -> None:
    """Has the pods with these labels tried at once that wait for an event, or for their backoff.

    Those in flight are tried again after their backoff if they come back: the decision may be out of date by now.
    """
    in_flight, pods = queue.pods_in_flight(), queue.pods()  # in this order: one that comes back meanwhile is seen
    known = (*in_flight, *pods[Tier.BACKOFF], *pods[Tier.UNSCHEDULABLE])
    wanted = [info for info in known if info.pod.namespace == namespace]
    queue.activate([info.uid for info in wanted if labels.items() <= info.pod.labels.items()])


class LoopRules:
    """The rules that the loop decides by.

    Attributes:
        cycles: by schedulerName; a pod is decided on by the one that it meets, from beginning to end.
        profiles: theirs.
    """

    def __init__(
        self, policy: Policy, features: FeatureGates, make_cycles: Callable[[Policy], Mapping[str, SchedulingCycle]]
    ) -> None:
        self._policy, self._make_cycles = policy, make_cycles
        self.cycles = dict(make_cycles(policy))
        self.profiles = Profiles(_profiles_of(self.cycles), features)

    def adopt(self, policy: Policy, queue: PriorityQueue, permits: Permits) -> None:
        """Decides by this policy from the next pod on, and has all pods tried again that were refused.

        So are those that wait at Permit for a rule which is none any more: nobody is left to allow them.

        Raises:
            ConfigurationError: it needs a restart, or `cycles_of` refuses it.
        """
        cycles = self._make_cycles(policy)
        refuse_changes(_fixed(self._policy, self.cycles), _fixed(policy, cycles))
        before = self.profiles.all
        self.cycles.update(cycles)
        self.profiles.replace(_profiles_of(cycles))
        self._policy = policy
        put_in_force(self.profiles.all, queue.wake, before)
        for rule in sorted(_permit_rules_of(before) - _permit_rules_of(self.profiles.all)):
            for waiting in permits.pending(rule):
                waiting.reject(rule, f"{rule} is in force no more")
        queue.rules_changed(interests_of(self.profiles.all))


def cycles_of(
    policy: Policy,
    scheduler_name: str | None,
    random: Random,
    extenders: Extenders,
    observers: Sequence[AttemptObserver] = (),
    timer: ProfileTimer | None = None,
) -> Mapping[str, SchedulingCycle]:
    """Returns the scheduling cycles by schedulerName.

    Args:
        scheduler_name: given to the only profile, or choosing one of several; None: the profiles' own names.

    Raises:
        ConfigurationError: there is no such profile, or one switches off what the loop does all the same.
    """
    left_to_extenders = frozenset().union(*(each.ignored_resources for each in policy.extenders))
    profiles = [ignoring(each, left_to_extenders) for each in _chosen(policy, scheduler_name)]
    if unsupported := [text for each in profiles for text in each.unsupported]:
        raise ConfigurationError(unsupported)
    return {each.name: SchedulingCycle(each, random, extenders, timer, observers) for each in profiles}


def _chosen(policy: Policy, scheduler_name: str | None) -> list[Profile]:
    if scheduler_name is None:
        return list(policy.profiles)
    if len(policy.profiles) == 1:
        return [replace(policy.profiles[0], name=scheduler_name)]
    named = [profile for profile in policy.profiles if profile.name == scheduler_name]
    if not named:
        names = ", ".join(profile.name for profile in policy.profiles)
        raise ConfigurationError([f"--scheduler-name {scheduler_name}: the policy has profiles for {names}"])
    return named


def _profiles_of(cycles: Mapping[str, SchedulingCycle]) -> list[Profile]:
    return [cycle.profile for cycle in cycles.values()]


def _permit_rules_of(profiles: Iterable[Profile]) -> set[str]:
    return {rule.name for profile in profiles for rule in profile.permit}


def _fixed(policy: Policy, cycles: Mapping[str, SchedulingCycle]) -> Mapping[str, object]:
    """Returns what the queue, the cache and the connections of a loop were made for, by its path in a policy."""
    return {
        "profiles: schedulerName": sorted(cycles),
        "extenders": policy.extenders,
        "featureGates": policy.features,
        "podInitialBackoffSeconds": policy.pod_initial_backoff_seconds,
        "podMaxBackoffSeconds": policy.pod_max_backoff_seconds,
        **held_by(policy.profiles),
    }


def extenders_of(configs: Sequence[ExtenderConfig]) -> Extenders:
    """Returns the extenders, each over HTTP. Raises ConfigurationError where certificates cannot be read."""
    extenders = [Extender(config, HttpExtender(config).post) for config in configs]
    asked = sum(bool(config.prioritize_verb) for config in configs)
    map_calls = ThreadPoolExecutor(asked, "prioritize").map if asked > 1 else map
    return Extenders(extenders, map_calls)


def sent_whole(configs: Iterable[ExtenderConfig]) -> frozenset[str]:
    """Returns the kinds of objects that the extenders are sent whole, and not by name."""
    by_name = [config.node_cache_capable for config in configs]
    kinds = [Pod, Node] if not all(by_name) else [Pod] if by_name else []
    return frozenset(kind.__name__ for kind in kinds)
