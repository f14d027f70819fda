"""The whole loop in one thread: cache, queue and engine are real; the API server, its watch and the threads are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from extender.app.loop import LoopPorts, compose_loop
from extender.app.observation import Observation
from extender.app.upkeep import create_cache
from extender.cache.expiry import Expiry
from extender.config.settings import Settings
from extender.engine.decide import SchedulingCycle
from extender.errors import Conflict, NotFound
from extender.framework.profile import Profile
from extender.model.kinds import KINDS
from extender.model.meta import Condition, Object
from extender.model.pod import Pod
from extender.model.pod_groups import CompositePodGroup, PodGroup, SchedulingGroup
from extender.plugins.registry import default_profile
from extender.policy.policy import by_name
from extender.runtime.clock import NO_LIMIT, ManualClock, TimeLimit
from extender.runtime.ports import Binding, Check, NominatedNode, Nominating, always
from extender.scheduler.scheduler_ports import Attempt, GroupResult, SchedulerTelemetry, Workers
from extender.scheduler.timing import BIND, ProfileTimer
from extender.table.features import VERSIONS, FeatureGates
from extender.web.metrics import Metrics
from tests.builders import Builder
from tests.scheduler.writers import ClaimWrites, VolumeWrites

NAME = "default-scheduler"


class Telemetry(SchedulerTelemetry):
    """The loop's metrics, as lists."""

    def __init__(self) -> None:
        self.results: list[str] = []
        self.binds: list[str] = []
        self.decisions: list[float] = []
        self.victims: list[int] = []
        self.costs: list[tuple[str, float]] = []
        self.disruptions: list[Mapping[str, int]] = []
        self.group_results: list[str] = []
        self.group_preemptions: list[tuple[str, float | None]] = []
        self.moves: list[tuple[str, str, str, str]] = []
        self.searches = 0
        self.after_flush = 0
        self.permit_waits: list[tuple[str, float]] = []
        self.attempts: list[int] = []
        self.points: list[tuple[str, str]] = []
        self.bind_seconds: list[float] = []
        self.plugins: list[tuple[str, str, str]] = []
        self.evictions: list[tuple[str, str, float]] = []
        self.placements: list[tuple[str, str, float]] = []
        self.aside: list[str] = []

    def set_aside(self, task: str, item: str, error: Exception) -> None:
        self.aside.append(f"{task} {item.rpartition('/')[2]}: {error}")

    def bound(self, result: str) -> None:
        self.binds.append(result)

    def incoming(self, queue: str, event: str) -> None:
        pass

    def entity_incoming(self, queue: str, event: str, entity: str) -> None:
        pass

    def moved(self, pod_key: str, origin: str, tier: str, event: str) -> None:
        self.moves.append((pod_key, origin, tier, event))

    def attempted(self, attempt: Attempt) -> None:
        self.results.append(attempt.result)

    def decided(self, seconds: float) -> None:
        self.decisions.append(seconds)

    def spent(self, cost: str, seconds: float) -> None:
        self.costs.append((cost, seconds))

    def scheduled(self, attempts: int, seconds: float) -> None:
        self.attempts.append(attempts)

    def extension_point(self, point: str, status: str, profile: str, seconds: float) -> None:
        self.points.append((point, status))
        if point == BIND:
            self.bind_seconds.append(seconds)

    def plugin_executed(self, plugin: str, point: str, status: str, seconds: float) -> None:
        self.plugins.append((plugin, point, status))

    def scheduled_after_flush(self) -> None:
        self.after_flush += 1

    def waited_at_permit(self, status: str, seconds: float) -> None:
        self.permit_waits.append((status, seconds))

    def preemption_tried(self, status: str, seconds: float) -> None:
        self.searches += 1

    def group_decided(self, profile: str, entity: str, seconds: float) -> None:
        pass

    def group_attempted(self, result: GroupResult, profile: str, entity: str, seconds: float) -> None:
        self.group_results.append(result.value)

    def group_preemption_tried(self, entity: str, status: str, seconds: float | None) -> None:
        self.group_preemptions.append((status, seconds))

    def preempted(self, preemptor: str, victims: int, pdb_violations: int, disruptions: Mapping[str, int]) -> None:
        self.victims.append(victims)
        self.disruptions.append(disruptions)

    def evictions_ended(self, preemptor: str, result: str, seconds: float) -> None:
        self.evictions.append((preemptor, result, seconds))

    def placements_generated(self, profile: str, entity: str, count: int) -> None:
        pass

    def placement_evaluated(self, result: str, profile: str, entity: str, seconds: float) -> None:
        self.placements.append((result, entity, seconds))


class Later:
    """Workers without threads: what was submitted is done when the test says so."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], object]] = []

    def submit(self, task: Callable[[], object]) -> None:
        self.tasks.append(task)

    def run_all(self, calls: Sequence[Callable[[], object]]) -> None:
        for call in calls:
            call()

    def work(self) -> None:
        while self.tasks:
            self.tasks.pop(0)()


class Survey:
    """The versions of the pods that the API server has now; a cache.expiry.PodSurvey."""

    def __init__(self, world: World) -> None:
        self._world = world
        pods = [obj for obj in world.objects.values() if isinstance(obj, Pod)]
        self._versions = {pod.uid: int(pod.metadata.resource_version) for pod in pods}

    def confirmed(self) -> bool:
        return not self._world.untold

    def shows_newer(self, uid: str, pod: Pod | None) -> bool:
        version = self._versions.get(uid)
        return version is not None and (pod is None or version > int(pod.metadata.resource_version))


def _gates(features: FeatureGates) -> str:
    return ",".join(f"{name}={str(is_on).lower()}" for name, is_on in by_name(features).items())


class World:
    """An API server's objects, whose changes reach the cache when `watch` is called, and the loop on top.

    Attributes:
        faults: what the next binds, or evictions, raise.
        withdrawn: (pod, whether it was bound) as statuses were withdrawn.
        conditions: (pod, reason, message, nominated node) in the order in which they were written.
        actions: the type and the action of the last event with this reason.
        group_conditions: (group, reason, message) in the order in which they were written.
    """

    def __init__(
        self,
        *built: Builder | dict[str, Any],
        seed: int = 0,
        profile: Profile | None = None,
        record: Path | None = None,
        telemetry: Any = None,  # a SchedulerTelemetry
        limit: TimeLimit = NO_LIMIT,
        features: FeatureGates = VERSIONS["1.37"].features,
        settings: Settings = Settings(settle_seconds=0.0),  # noqa: B008  frozen
        clock: ManualClock | None = None,
        pre_binders: Workers | None = None,
    ) -> None:
        """`record`: the file to record everything to. `limit`: for each attempt, and for users' rules."""
        self.clock, self.telemetry = clock or ManualClock(), Telemetry()
        self.observed = Observation(
            Settings(record=record, feature_gates=_gates(features)), "schedule", Metrics(self.clock, ""), self.clock
        )
        recorded = telemetry or self.telemetry
        self.cache = create_cache(settings, self.clock, recorded, features, self.observed.changes)
        self.expiry = Expiry(self.cache, lambda: Survey(self), self.clock)
        self.objects: dict[tuple[str, str], Object] = {}
        self.untold: list[partial[None]] = []
        self.faults: list[Exception] = []
        self.conditions: list[tuple[str, str, str, str | None]] = []
        self.events: list[tuple[str, str, str]] = []
        self.actions: dict[str, tuple[str, str]] = {}
        self.group_conditions: list[tuple[str, str, str]] = []
        self.withdrawn: list[tuple[str, bool]] = []
        self.binders, self.preemptors = Later(), Later()
        self._version = 0
        self.volumes, self.claims = VolumeWrites(self), ClaimWrites(self)
        events = self.observed.events(self)
        ports = LoopPorts(
            self, self, self, events, self, self.volumes, self.claims, self.binders, pre_binders or self.binders,
            self.preemptors,
        )  # fmt: skip
        rules, random = profile or default_profile(), self.observed.random(seed)
        timer, observers = ProfileTimer(self.clock, recorded), self.observed.observers
        cycles = {NAME: SchedulingCycle(rules, random, None, timer, observers)}
        loop = compose_loop(
            cycles, self.cache, ports, recorded, self.clock, limit=limit, features=features, random=random
        )
        self.cycles = cycles
        self.queue, self.scheduler, self.waiting = loop.queue, loop.scheduler, loop.waiting
        self.device_claims, self.permits, self.leftovers = loop.device_claims, loop.permits, loop.recovery
        self.sweep, self.settle_binds = loop.sweep, loop.settle_binds
        for each in built:
            self.put(each)
        self.watch()

    # ---- the API server

    def put(self, built: Builder | dict[str, Any]) -> None:
        """Creates or changes an object."""
        obj = built.obj() if isinstance(built, Builder) else built
        self.put_object(msgspec.convert(obj, KINDS[obj["kind"]].type))

    def delete(self, kind: str, key: str) -> None:
        gone = self.objects.pop((kind, key))
        self.untold.append(partial(self.cache.deleted, kind, gone))

    def pod(self, name: str) -> Pod:
        pod = self.objects["Pod", f"default/{name}"]
        assert isinstance(pod, Pod)
        return pod

    def node_of(self, name: str) -> str:
        return self.pod(name).node_name

    def watch(self) -> None:
        """The cache gets everything that has happened."""
        while self.untold:
            self.untold.pop(0)()

    def delete_node_at_each_decision(self, name: str) -> None:
        """Lets the cache lose the node after each decision about a group's member, before the member is assumed."""
        decide = self.cycles[NAME].decide_member

        def deletes_the_node(*args: Any, **named: Any) -> Any:
            decided = decide(*args, **named)
            self.cache.deleted("Node", self.objects["Node", name])
            return decided

        self.cycles[NAME].decide_member = deletes_the_node  # type: ignore[method-assign]

    def put_object(self, obj: Object) -> Object:
        """Stores the object in its next version."""
        self._version += 1
        version = msgspec.structs.replace(obj.metadata, resource_version=str(self._version))
        obj = msgspec.structs.replace(obj, metadata=version)
        kind = type(obj).__name__
        self.objects[kind, obj.key] = obj
        self.untold.append(partial(self.cache.changed, kind, obj))
        return obj

    def restore(self, copy: Mapping[tuple[str, str], Object]) -> None:
        """The API server is back with what it held some time ago, and everything is listed again."""
        self.objects, self.untold = dict(copy), []
        self.clock.advance(1)
        for kind in KINDS:
            listed = [obj for (of_kind, _), obj in copy.items() if of_kind == kind]
            self.cache.replaced(kind, listed, self.clock.monotonic())

    def nominations(self) -> dict[str, str]:
        """The node of each nominated pod of ours, by the pod's UID."""
        unplaced = (info for info in self.cache.overview().unplaced if info.pod.spec.scheduler_name == NAME)
        return {info.uid: node for info in unplaced if (node := info.pod.status.nominated_node_name)}

    def _existing(self, pod: Pod) -> Pod:
        if ("Pod", pod.key) not in self.objects:
            raise NotFound(f"pods {pod.name} not found", 404)
        return self.pod(pod.name)

    # ---- what the loop calls (ports.Binder, scheduler.scheduler_ports)

    def bind(self, binding: Binding, check: Check = always) -> None:
        if self.faults:
            raise self.faults.pop(0)
        pod = self.objects.get(("Pod", binding.key))
        if not isinstance(pod, Pod) or pod.uid != binding.uid:
            raise NotFound(f"pods {binding.name} not found", 404)
        if pod.node_name:
            raise Conflict(f"pod {binding.name} is already assigned", 409)
        bound = pod.placed_on(binding.node)
        self.put_object(bound.annotated(binding.annotations) if binding.annotations else bound)

    def failed(self, pod: Pod, reason: str, message: str, nominated_node: NominatedNode) -> None:
        node_name = "" if nominated_node is Nominating.CLEAR else nominated_node
        nominated = None if isinstance(node_name, Nominating) else node_name
        self.conditions.append((pod.name, reason, message, nominated))
        if nominated is not None:
            self.nominate(pod, nominated)

    def failed_unless_bound(self, pod: Pod, reason: str, message: str) -> None:
        if not self.node_of(pod.name):
            self.failed(pod, reason, message, Nominating.KEEP)

    def scheduled(self, group: SchedulingGroup) -> None:
        self._write_condition(group, "Scheduled", "")

    def unscheduled(self, group: SchedulingGroup, reason: str, message: str) -> None:
        self._write_condition(group, reason, message)

    def _write_condition(self, group: SchedulingGroup, reason: str, message: str) -> None:
        self.group_conditions.append((group.name, reason, message))
        known = self.objects.get((type(group).__name__, group.key))
        if isinstance(known, PodGroup | CompositePodGroup):
            condition = Condition(known.initially_scheduled, str(reason == "Scheduled"), reason, message)
            status = msgspec.structs.replace(known.status, conditions=[condition])
            self.put_object(msgspec.structs.replace(known, status=status))

    def nominate(self, pod: Pod, nominated_node: str) -> None:
        known = self.objects.get(("Pod", pod.key))
        if isinstance(known, Pod) and known.status.nominated_node_name != nominated_node:
            self.put_object(self._existing(pod).nominated_to(nominated_node))

    def withdraw(self, pod: Pod) -> None:
        known = self.objects.get(("Pod", pod.key))
        self.withdrawn.append((pod.name, isinstance(known, Pod) and known.uid == pod.uid and bool(known.node_name)))

    def record(self, pod: Pod, kind: str, reason: str, action: str, note: str, related: Pod | None = None) -> None:
        self.events.append((pod.name, reason, note))
        self.actions[reason] = kind, action

    def mark_victim(self, victim: Pod, message: str) -> bool:
        return ("Pod", victim.key) in self.objects

    def delete_victim(self, victim: Pod) -> bool:
        if self.faults:
            raise self.faults.pop(0)
        marked = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
        pod = self._existing(victim)
        status = msgspec.structs.replace(pod.status, conditions=[marked])
        metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=datetime.now(UTC))
        self.put_object(msgspec.structs.replace(pod, status=status, metadata=metadata))
        return True

    # ---- what the tests do

    def attempt(self) -> bool:
        """One scheduling cycle, if a pod is ready; binding waits for `settle`."""
        return self.scheduler.schedule_one(0)

    def settle(self) -> None:
        """Everything happens that needs no time to pass."""
        while True:
            self.watch()
            self.waiting.poll()
            self.binders.work()
            self.preemptors.work()
            if not (self.untold or self.attempt()):
                return

    def pass_time(self, seconds: float) -> None:
        """Second by second, with all that is due in each."""
        for _ in range(int(seconds)):
            self.clock.advance(1)
            self.expiry.sweep()
            self.queue.flush_backoff()
            self.queue.flush_unschedulable()
            self.device_claims.resolve()
            self.settle_binds()
            self.settle()
