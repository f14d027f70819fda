"""Puts the scheduling loop together from its parts, and creates a scheduling cycle for each schedulerName.

Tests build a loop of fakes with the same function, `compose_loop`. `Writers` are the writers to the API server and
their threads.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from extender.app.policies import refuse_changes, unreserves_of, watched
from extender.app.upkeep import settle
from extender.cache.cache import Cache
from extender.cluster.binder import ApiClaims, ApiVolumes
from extender.cluster.election.lease import Fence, LeaderClient
from extender.cluster.events import ApiEvents
from extender.cluster.http_extender import HttpExtender
from extender.cluster.kube_client import Caller
from extender.cluster.outbox import TokenBucket, YieldingBucket
from extender.cluster.statuses import ApiEvictor, ApiGroupStatuses, ApiStatuses
from extender.devices.pod_claims import NAME as DYNAMIC_RESOURCES
from extender.engine.decide import SchedulingCycle
from extender.engine.group_members import MemberJudge
from extender.errors import ConfigurationError
from extender.framework.permit import Permits
from extender.framework.profile import PreEnqueueRules, Profile, Profiles
from extender.model.devices import ResourceClaim
from extender.model.extender_config import ExtenderConfig
from extender.model.kinds import Kind
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.pod_groups import PodGroup
from extender.plugins.dynamic_resources import ClaimsExist
from extender.plugins.gang_scheduling import GroupComplete
from extender.plugins.registry import interests_of
from extender.plugins.users.function import put_in_force
from extender.plugins.users.handle import RunningProcess
from extender.policy.policy import Policy
from extender.queue.entries import Entity, Tier
from extender.queue.heaps import Backoff, Order, priority_sort
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import NO_LIMIT, Clock, TimeLimit
from extender.runtime.fibers import FiberPool
from extender.runtime.ports import Binder
from extender.runtime.threads import OnError, WorkerPool
from extender.scheduler.event_router import EventRouter, QueueSweep
from extender.scheduler.group_scheduling import GroupScheduler
from extender.scheduler.other_extenders import Extender, Extenders, log_passed_over
from extender.scheduler.preemption import (
    EvictionsInProgress,
    Nominations,
    PreemptionExecutor,
    VictimEvictor,
)
from extender.scheduler.reservations import DeviceClaims, StartupRecovery, Volumes
from extender.scheduler.schedule_one import BindingCycle, FailureHandler, Placing, PodScheduler, Scheduler
from extender.scheduler.scheduler_ports import (
    AttemptObserver,
    ClaimWriter,
    Events,
    Evictor,
    GroupStatuses,
    Preemptors,
    SchedulerTelemetry,
    Statuses,
    VolumeWriter,
    Workers,
)
from extender.scheduler.timing import ProfileTimer, TimedPreEnqueue, sample
from extender.scheduler.waiting_pods import OpenBinds, WaitingPods
from extender.table import PodInfo
from extender.table.features import DEFAULT_FEATURES, FeatureGates
from extender.verbs.split_gangs import SplitGangs


@dataclass(frozen=True, slots=True)
class LoopPorts:
    """The objects through which the loop writes to the API server, and the threads that run its tasks.

    Attributes:
        binders: run the binding cycles that only wait for the API server.
        pre_binders: run the binding cycles with users' rules, and the end of those that waited.
        preemptors: carry out preemptions, and undo what was done for pods that waited in vain.
    """

    binder: Binder
    statuses: Statuses
    group_statuses: GroupStatuses
    events: Events
    evictor: Evictor
    volumes: VolumeWriter
    claims: ClaimWriter
    binders: Workers
    pre_binders: Workers
    preemptors: Preemptors


@dataclass(frozen=True, slots=True)
class Loop:
    """The parts of the scheduling loop that the process calls."""

    queue: PriorityQueue
    scheduler: Scheduler
    waiting: WaitingPods
    device_claims: DeviceClaims
    permits: Permits
    recovery: StartupRecovery
    settle_binds: Callable[[], None]
    sweep: QueueSweep


def compose_loop(
    cycles: Mapping[str, SchedulingCycle],
    cache: Cache,
    ports: LoopPorts,
    telemetry: SchedulerTelemetry,
    clock: Clock,
    backoff: Backoff = Backoff(),  # noqa: B008  frozen
    limit: TimeLimit = NO_LIMIT,
    features: FeatureGates = DEFAULT_FEATURES,
    random: Random | None = None,
) -> Loop:
    """Creates the loop and connects its queue to the cache. Call it before the cache is filled.

    Args:
        cycles: schedulerName -> scheduling cycle.
        backoff: see PriorityQueue.
        limit: the time limit of the search for a node, and of users' rules at Reserve and Permit.
        features: the feature gates; without GenericWorkload, pod groups are ignored.
        random: chooses between topology domains that are equally good for a pod group.
    """
    statuses = ports.statuses
    events = ports.events
    preemptors = ports.preemptors

    def exists(pod: PodInfo) -> bool:
        return cache.find_pod(pod.uid, pod.pod.key) is not None

    def claims_devices(pod: PodInfo) -> bool:
        cycle = cycles.get(pod.pod.spec.scheduler_name)
        return cycle is not None and DYNAMIC_RESOURCES in cycle.profile.reserving

    def find_claim(key: str) -> ResourceClaim | None:
        claim = cache.effective(ResourceClaim.__name__, key)
        return claim if isinstance(claim, ResourceClaim) else None

    def group_with_claims(pod: PodInfo) -> PodGroup | None:
        key = pod.pod.group_key if features.group_claims else None
        return None if key is None else cache.groups.find(key)

    def group_shortage(pod: PodInfo, key: str) -> str | None:
        profile = cycles[pod.pod.spec.scheduler_name].profile
        return cache.groups.shortage(key, enforces_gangs=profile.enforces_gangs)

    def gang_profile(pod: Pod) -> Profile | None:
        cycle = cycles.get(pod.spec.scheduler_name) if features.generic_workload else None
        return cycle.profile if cycle is not None and cycle.profile.enforces_gangs else None

    evictions = EvictionsInProgress(cache)
    interests = interests_of((cycle.profile for cycle in cycles.values()), features.behaviours)
    groups = (GroupComplete(group_shortage),) if features.generic_workload else ()
    admission = PreEnqueueRules(lambda pod: cycles[pod.spec.scheduler_name].profile)
    rules = (*groups, admission, ClaimsExist(find_claim, claims_devices, group_with_claims), evictions)
    pre_enqueue = TimedPreEnqueue(rules, clock, telemetry, sample())
    order = order_of(cycles)
    queue = PriorityQueue(
        telemetry, clock, interests, (pre_enqueue,), backoff, order,
        root_of=cache.groups.root_of if features.generic_workload else None,
    )  # fmt: skip
    judge = MemberJudge(Random(0))  # noqa: S311  it breaks ties
    split = SplitGangs(cache, gang_profile, judge, clock, limit, queue.nomination_ended)
    cache.listen(EventRouter(cache, queue, cycles, split.suspect))
    permits = Permits(cache.snapshot, lambda namespace, labels: activate(queue, namespace, labels), limit)
    nominations = Nominations(cache, statuses, queue.nomination_ended)
    waiting = WaitingPods(clock, exists, ports.pre_binders, preemptors)
    volumes = Volumes(cache, ports.volumes)
    devices = DeviceClaims(cache, ports.claims, events, clock)
    victim_evictor = VictimEvictor(cache, ports.evictor, events, waiting)
    preemption = PreemptionExecutor(
        evictions, cache, queue, nominations, victim_evictor, telemetry, clock, preemptors
    )  # fmt: skip
    failures = FailureHandler(
        queue, nominations, preemption, statuses, events, telemetry, clock, preemptors, devices.deallocate
    )  # fmt: skip
    open_binds = OpenBinds(cache, statuses, events)
    binding = BindingCycle(
        cache, queue, ports.binder, events, statuses, telemetry, clock, failures.handle, waiting, permits, open_binds
    )  # fmt: skip
    placing = Placing(cycles, cache, queue, (volumes, devices), permits, telemetry, clock, sample())
    pods = PodScheduler(placing, binding, ports.binders, ports.pre_binders, failures, events, limit)
    group_scheduler = GroupScheduler(
        pods, ports.group_statuses, random or Random(), devices.unreserve,  # noqa: S311  ties between domains
    )  # fmt: skip
    scheduler = Scheduler(queue, pods, group_scheduler.try_group, split.keep_room)
    sweep = QueueSweep(cache, queue, cycles, telemetry.set_aside)
    recovery = StartupRecovery(cache, cycles, devices, nominations)

    def settle_binds() -> None:
        settle(permits, cache)
        open_binds.settle()

    return Loop(queue, scheduler, waiting, devices, permits, recovery, settle_binds, sweep)


def order_of(cycles: Mapping[str, SchedulingCycle]) -> Order:
    """Returns the sort key of the queue: by the user's QueueSort rule, if there is one, then by PrioritySort."""

    def order(pod: Entity) -> tuple[Any, ...]:
        # The profile is looked up each time, because a reload of the policy may replace it.
        rule = next(iter(cycles.values())).profile.queue_sort
        return priority_sort(pod) if rule is None else (rule.key(pod.info), *priority_sort(pod))

    return order


def activate(queue: PriorityQueue, namespace: str, labels: Mapping[str, str]) -> None:
    """Moves waiting pods with these labels to the active queue now (upstream Handle.Activate).

    If an attempt to place such a pod is in progress and fails, the pod is tried again after its backoff, because the
    attempt may have used outdated information.
    """
    # Read before the queue, because a pod in flight may return to the queue between the two reads.
    in_flight = queue.pods_in_flight()
    tiers = queue.pods()
    candidates = (*in_flight, *tiers[Tier.BACKOFF], *tiers[Tier.UNSCHEDULABLE])
    in_namespace = [info for info in candidates if info.pod.namespace == namespace]
    queue.activate([info.uid for info in in_namespace if labels.items() <= info.pod.labels.items()])


class LoopRules:
    """The rules that the loop currently uses. `adopt` replaces them.

    Attributes:
        cycles: schedulerName -> scheduling cycle. An attempt uses the same cycle until it ends, even if `adopt`
            replaces it in the meantime.
        profiles: the profiles of the cycles.
    """

    def __init__(
        self, policy: Policy, features: FeatureGates, create_cycles: Callable[[Policy], Mapping[str, SchedulingCycle]]
    ) -> None:
        self._policy = policy
        self._create_cycles = create_cycles
        self.cycles = dict(create_cycles(policy))
        self.profiles = Profiles(_profiles_of(self.cycles), features)

    def adopt(self, policy: Policy, queue: PriorityQueue, permits: Permits) -> None:
        """Uses this policy from the next pod on, and requeues all refused pods.

        If the new policy lacks a Permit rule, the pods that wait for this rule are rejected. No rule would allow them.

        Raises:
            ConfigurationError: the policy needs a restart, or is faulty for the loop. The earlier policy stays in use.
        """
        cycles = self._create_cycles(policy)
        refuse_changes(_fixed(self._policy, self.cycles), _fixed(policy, cycles))
        old_profiles = self.profiles.all
        self.cycles.update(cycles)
        self.profiles.replace(_profiles_of(cycles))
        self._policy = policy
        put_in_force(self.profiles.all, RunningProcess(queue.wake, permits), old_profiles)
        for rule in sorted(_permit_rules_of(old_profiles) - _permit_rules_of(self.profiles.all)):
            for waiting_pod in permits.pending(rule):
                waiting_pod.reject(rule, f"rule {rule} is no longer in the policy")
        self._requeue(queue)

    def follow(self, features: FeatureGates, queue: PriorityQueue) -> None:
        """Follows another version of Kubernetes from the next pod on, and requeues all refused pods."""
        self.profiles.features = features
        self._requeue(queue)

    def _requeue(self, queue: PriorityQueue) -> None:
        queue.rules_changed(interests_of(self.profiles.all, self.profiles.features.behaviours))


def cycles_of(
    policy: Policy,
    scheduler_name: str | None,
    random: Random,
    extenders: Extenders,
    observers: Sequence[AttemptObserver] = (),
    timer: ProfileTimer | None = None,
) -> Mapping[str, SchedulingCycle]:
    """Returns one scheduling cycle for each schedulerName.

    Args:
        scheduler_name: None to use all profiles under their own names. Otherwise only one profile is used. A policy's
            only profile is renamed to `scheduler_name`; of several profiles, the one with this name is used.

    Raises:
        ConfigurationError: no profile has this name, or a profile disables something that the loop always does.
    """
    profiles = policy.scheduler_profiles(_chosen(policy, scheduler_name)).all
    if unsupported := [text for profile in profiles for text in profile.unsupported]:
        raise ConfigurationError(unsupported)
    return {
        profile.name: SchedulingCycle(profile, random, extenders, timer, observers, log_passed_over)
        for profile in profiles
    }


def _chosen(policy: Policy, scheduler_name: str | None) -> list[Profile]:
    if scheduler_name is None:
        return list(policy.profiles)
    if len(policy.profiles) == 1:
        return [replace(policy.profiles[0], name=scheduler_name)]
    matching = [profile for profile in policy.profiles if profile.name == scheduler_name]
    if not matching:
        names = ", ".join(profile.name for profile in policy.profiles)
        raise ConfigurationError([f"--scheduler-name {scheduler_name}: the policy has profiles for {names}"])
    return matching


def _profiles_of(cycles: Mapping[str, SchedulingCycle]) -> list[Profile]:
    return [cycle.profile for cycle in cycles.values()]


def _permit_rules_of(profiles: Iterable[Profile]) -> set[str]:
    return {rule.name for profile in profiles for rule in profile.permit}


def _fixed(policy: Policy, cycles: Mapping[str, SchedulingCycle]) -> Mapping[str, object]:
    """Returns the values that cannot change while the loop runs: path in the policy -> value.

    The queue, the cache and the connections were created from these values.
    """
    return {
        "profiles: schedulerName": sorted(cycles),
        "clientConnection": (policy.qps, policy.burst),
        "extenders": policy.extenders,
        "featureGates": policy.features,
        "watch": watched(policy),
        "podInitialBackoffSeconds": policy.pod_initial_backoff_seconds,
        "podMaxBackoffSeconds": policy.pod_max_backoff_seconds,
        **unreserves_of(policy.profiles),
    }


def extenders_of(configs: Sequence[ExtenderConfig]) -> Extenders:
    """Returns the extenders that the policy names. The loop calls them over HTTP.

    Raises:
        ConfigurationError: their certificates cannot be read.
    """
    extenders = [Extender(config, HttpExtender(config).post) for config in configs]
    prioritizing = sum(bool(config.prioritize_verb) for config in configs)
    map_calls = ThreadPoolExecutor(prioritizing, "prioritize").map if prioritizing > 1 else map
    return Extenders(extenders, map_calls)


def sent_whole(configs: Iterable[ExtenderConfig]) -> frozenset[str]:
    """Returns the kinds that extenders get as whole objects: pods, and also nodes unless all extenders cache nodes."""
    configs = list(configs)
    if not configs:
        return frozenset()
    caching = all(config.node_cache_capable for config in configs)
    return frozenset({Pod.__name__} if caching else {Pod.__name__, Node.__name__})


# The API server spends less time on each Binding if many arrive together. A Binding in flight needs no thread.
BINDINGS = 64
# More of these threads would only compete with the scheduling loop for the GIL.
PRE_BINDERS = 16
PREEMPTORS = 8
# The most writes per second. While pods wait in the active queue, a tenth as many Events are written.
STATUS_RATE = 100.0
EVENT_RATE = 200.0


class Writers:
    """All writers of `extender schedule`, and their threads.

    Args:
        served: returns a kind in the API version that the API server serves.
        fence: refuses writes while another process leads.
        dropped: called with "statuses" or "events" for each write that is dropped.
        on_error: receives the errors that tasks raise.
    """

    def __init__(
        self,
        client: Caller,
        served: Callable[[Kind], Kind],
        fence: Fence,
        clock: Clock,
        dropped: Callable[[str], None],
        on_error: OnError,
    ) -> None:
        client = LeaderClient(client, fence)
        self.statuses = ApiStatuses(client, TokenBucket(STATUS_RATE), clock, dropped)
        self.group_statuses = ApiGroupStatuses(client, served, TokenBucket(STATUS_RATE), clock, dropped)
        self._event_bucket = YieldingBucket(EVENT_RATE)
        self.events = ApiEvents(client, self._event_bucket, clock, instance(), dropped)
        self.evictor = ApiEvictor(client, clock, fence.has_unknown)
        self.volumes = ApiVolumes(client)
        self.claims = ApiClaims(client, clock)
        self.binders = FiberPool("binder", BINDINGS, on_error)
        self.pre_binders = WorkerPool("pre-binder", PRE_BINDERS, on_error)
        self.preemptors = WorkerPool("preemptor", PREEMPTORS, on_error)
        # Threads that hand over writes stop before the writers do, and start after them.
        tasks = (self.binders, self.pre_binders, self.preemptors)
        self._workers = (*tasks, self.statuses, self.group_statuses, self.events)

    def ports(self, binder: Binder, observed: Callable[[Events], Events]) -> LoopPorts:
        """Returns the writers and their threads as the LoopPorts of the scheduling loop.

        Args:
            binder: sends Bindings, after its own checks and at a limited rate.
            observed: wraps the writer of Events, so that observers receive the Events too.
        """
        return LoopPorts(
            binder, self.statuses, self.group_statuses, observed(self.events), self.evictor, self.volumes, self.claims,
            self.binders, self.pre_binders, self.preemptors,
        )  # fmt: skip

    def waiting(self) -> Mapping[str, int]:
        """Returns how many writes and tasks have not begun, by kind."""
        return {
            "statuses": self.statuses.waiting() + self.group_statuses.waiting(),
            "events": self.events.waiting(),
            "binds": self.binders.waiting(),
            "prebinds": self.pre_binders.waiting(),
            "preemptions": self.preemptors.waiting(),
        }

    def start(self, has_backlog: Callable[[], bool]) -> None:
        """Starts the threads. While `has_backlog()` returns True, because pods wait, fewer Events are written.

        The API server spends as much time on an Event as on a Binding.
        """
        self._event_bucket.is_urgent = has_backlog
        for worker in reversed(self._workers):
            worker.start()

    def stop(self, ends_at: float) -> None:
        """Waits for running tasks and then for writes in progress, until `ends_at` in monotonic seconds."""
        for worker in self._workers:
            worker.stop(max(0.0, ends_at - time.monotonic()))


def instance() -> str:
    """Returns a name for this process that no other process has."""
    return f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
