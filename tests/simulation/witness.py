"""Stand-ins for parts of the extender that do what the real ones do, and tell the judge of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from extender.cache.cache import Cache, NodeCheck
from extender.cache.pod_states import PodState
from extender.cluster.election.election import Election
from extender.cluster.election.elector import LeaderElector
from extender.cluster.election.lease import LeaseClient
from extender.framework.status import Refusal
from extender.model.kinds import KINDS
from extender.model.meta import Object
from extender.runtime.clock import NO_DEADLINE, Clock, Deadline
from extender.runtime.ports import LONG_AGO, Annotations
from extender.runtime.unsettled import Settlement
from extender.table import PodInfo, Table
from extender.web.metrics import Metrics, SchedulerMetrics
from tests.simulation.judge import Judge, Knowledge
from tests.simulation.tasks import Process, ProcessClock, Simulation, Task


class WitnessedCache(Cache):
    """Reports to the judge what it knew when it took a place for a pod: then, or at its task's last snapshot."""

    simulation: Simulation
    judge: Judge

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert self.simulation.current is not None
        self.process: Process = self.simulation.current.process
        self.process.facts["cache"] = self
        self._versions: dict[str, int] = {}
        self._at_snapshot: dict[Task | None, Knowledge] = {}

    def changed(self, kind: str, obj: Object) -> None:
        super().changed(kind, obj)
        self._seen(kind, (obj,))

    def deleted(self, kind: str, obj: Object) -> None:
        super().deleted(kind, obj)
        self._seen(kind, (obj,))

    def replaced(self, kind: str, objects: Sequence[Object], asked_at: float = LONG_AGO) -> None:
        super().replaced(kind, objects, asked_at)
        self.process.facts.get("gaps", {}).pop(KINDS[kind].path, None)
        self._versions.pop(kind, None)  # it may be older than what was seen, where the server was restored
        self._seen(kind, objects)

    def knowledge(self) -> Knowledge:
        return Knowledge(self._known_version("Node"), self._known_version("Pod"))

    def _known_version(self, kind: str) -> int:
        """Returns the version up to which no event of the kind is missing."""
        lost = self.process.facts.get("gaps", {}).get(KINDS[kind].path)
        newest = self._versions.get(kind, 0)
        return newest if lost is None else min(newest, lost - 1)

    @contextmanager
    def snapshot(self, reader: str, deadline: Deadline = NO_DEADLINE) -> Iterator[Table]:
        self._at_snapshot[self.simulation.current] = self.knowledge()
        with super().snapshot(reader, deadline) as table:
            yield table

    def assume(
        self, info: PodInfo, node_name: str, check: NodeCheck | None = None, annotations: Annotations = ()
    ) -> Refusal | None:
        at_snapshot = self._at_snapshot.get(self.simulation.current) if check is None else None
        knowledge = at_snapshot or self.knowledge()
        refusal = super().assume(info, node_name, check, annotations)
        if refusal is None:
            self.judge.known[self.process.name, info.uid] = knowledge
        return refusal

    def check(self, binding: Callable[[str], bool]) -> None:
        """Checks what must hold at every moment; `binding`: whether a task is about to bind the pod of this UID."""
        require, name = self.judge.require, self.process.name
        for placement in self.overview().assumed:
            leaked = placement.state is PodState.ASSUMED and not binding(placement.info.uid)
            require(not leaked, f"{name}: {placement.info.pod.key} is assumed, and no task binds it")
        with self.snapshot("check") as table:
            rows = {uid: table.pods.row[slot] for uid, slot in table.pods.slot_of.items()}
            counted = {uid: table.nodes.names[row] for uid, row in rows.items() if row >= 0}
        placed = {uid: held.node_name for uid, held in self.pods().items() if held.node_name}
        require(placed == counted, f"{name}: the pods counted are not those that hold a place: {counted} {placed}")

    def check_knowledge(self) -> None:
        """Checks that a ready process is not blind for long, whatever its watches do."""
        pods = {uid: held.pod.metadata.resource_version for uid, held in self.pods().items() if held.pod}
        nodes = {node.uid: node.metadata.resource_version for node in self.objects("Node").values()}
        for kind, versions in (("Pod", pods), ("Node", nodes)):
            self.judge.require_knowledge(self.process.name, KINDS[kind].path, versions)

    def _seen(self, kind: str, objects: Sequence[Object]) -> None:
        newest = max((int(obj.metadata.resource_version) for obj in objects), default=0)
        self._versions[kind] = max(self._versions.get(kind, 0), newest)


class WitnessedElector(LeaderElector):
    """Lets the judge ask if its process leads."""

    simulation: Simulation

    def __init__(
        self, lease: LeaseClient, election: Election, eligible: Callable[[], bool], settlement: Settlement, clock: Clock
    ) -> None:
        super().__init__(lease, election, eligible, settlement, clock)
        assert self.simulation.current is not None
        process = self.simulation.current.process
        clock_of_process = ProcessClock(self.simulation, process)
        process.facts["leads"] = lambda: election.leading(clock_of_process.moment())


class Alarm:
    """A Metrics that fails on what must not happen."""

    simulation: Simulation
    judge: Judge

    def cache_differed(self, kind: str, key: str, how: str) -> None:
        """An object that is gone, and the watch does not say so for ten seconds, the comparer may well take away."""
        if self.judge.lenient or self.judge.silent or (how == "is cached, but not listed" and not self.judge.at_peace):
            return
        self.simulation.fail(f"the cache differs: {kind} {key} {how}")

    def unreadable(self, kind: str, key: str, why: str) -> None:
        self.simulation.fail(f"{kind} {key} cannot be read: {why}")

    def rule_failed(self, rule: str) -> None:
        self.simulation.fail(f"rule {rule} failed")

    def called(self, verb: str, result: str, seconds: float) -> None:
        if result in ("failed", "malformed"):
            self.simulation.fail(f"{verb}: {result}")


class AlarmingMetrics(Alarm, Metrics):
    """Of an extender."""


class AlarmingSchedulerMetrics(Alarm, SchedulerMetrics):
    """Of a scheduler of the project's own."""
