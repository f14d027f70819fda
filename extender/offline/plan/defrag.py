"""Finds the moves that make room for the most pods, or whole groups, of one shape.

For each number of pods of the shape, `search` finds the fewest moves that make room for them, or proves that there are
none. The more pods, the more moves are needed, so the largest number within the limit is found by bisection.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from extender.errors import ConfigurationError, MalformedQuantity
from extender.model.formats import container_resource
from extender.model.pod import Pod
from extender.model.pod_groups import PodGroup
from extender.model.quantity import nano
from extender.offline.answers import Documented
from extender.offline.claims import precomputed, replica_infos
from extender.offline.manifests.templates import Workload, required_workload
from extender.offline.plan.attempts import Findings, SearchLimits
from extender.offline.plan.movable import KeepRules
from extender.offline.plan.search import search
from extender.offline.plan.trial import PlanTrial, settle
from extender.offline.state import ClusterState
from extender.offline.what_if.capacity import admitted_templates, copies_of, copy_of_gang, gangs_of
from extender.offline.workloads import replicas_of
from extender.runtime.clock import INTERRUPTIONS, Clock
from extender.table import PodInfo

MOST_ROOM = 500
_AMOUNT = re.compile(r"(?P<amount>[0-9.]+[A-Za-z]*)\s*x\s+(?P<resource>[\w./-]+)")
_ON_ONE_NODE = " on one node"


class Room(Documented, frozen=True):
    """The amount of a shape that has room.

    Attributes:
        shape: the pod, workload or group, or the amounts on one node.
        size: the number of pods of one: 1, or the members of the group.
        before: how many have room without a move.
        after: how many have room once the moves are done.
        most: no plan of the allowed moves makes room for more than this; null if that is not known.
        allowed_moves: the most moves of a plan.
    """

    shape: str
    size: int
    before: int
    after: int
    most: int | None
    allowed_moves: int


@dataclass(frozen=True, slots=True)
class Shape:
    """A pod or a group that is to have room.

    Attributes:
        pods: the pods of one: a single pod, or the members of a group.
        group: the group of which each copy gets a copy; None for a single pod.
    """

    name: str
    pods: Sequence[Pod]
    group: PodGroup | None = None

    def copies(self, state: ClusterState, first: int, count: int) -> list[PodInfo]:
        """Returns the pods of `count` copies; adds copies of the group to the cluster. `first` copies exist already."""
        distinct = {pod.key: pod for pod in self.pods}
        each = {key: sum(pod.key == key for pod in self.pods) for key in distinct}
        infos = {
            key: iter(replica_infos(precomputed(pod), copies_of(state, pod, first * each[key], count * each[key])))
            for key, pod in distinct.items()
        }
        copied: list[PodInfo] = []
        for number in range(first, first + count):
            members = [next(infos[pod.key]) for pod in self.pods]
            if self.group is not None:
                members = list(copy_of_gang(state, self.group, members, number + 1).waiting)
            copied += members
        return copied


def amounts(text: str) -> Workload | None:
    """Returns a pod for a text like `8x nvidia.com/gpu on one node` or `4x cpu, 16Gi x memory`; None for other texts.

    The pod tolerates taints with the names of its extended resources, as upstream's ExtendedResourceToleration does.

    Raises:
        ConfigurationError: a resource does not exist, or its amount is not a positive quantity.
    """
    parts = [_AMOUNT.fullmatch(part.strip()) for part in text.removesuffix(_ON_ONE_NODE).split(",")]
    requests = {part["resource"]: part["amount"] for part in parts if part is not None}
    if len(requests) < len(parts):
        return None
    if faults := [fault for item in requests.items() if (fault := _fault_of(*item))]:
        raise ConfigurationError([f"{text}: {fault}" for fault in faults])
    tolerations = [{"key": name, "operator": "Exists"} for name in requests if "/" in name]
    container = {"name": "shape", "image": "shape", "resources": {"requests": requests, "limits": requests}}
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "shape", "namespace": "default"},
        "spec": {"containers": [container], "tolerations": tolerations},
    }
    return replace(required_workload(manifest), source=text)


def _fault_of(resource: str, amount: str) -> str | None:
    if fault := container_resource(resource):
        return fault
    try:
        return None if nano(amount) > 0 else f"expected more than {amount} x {resource}"
    except MalformedQuantity as error:
        return str(error)


def shape_of(state: ClusterState, shape: Workload | str, notes: list[str]) -> Shape:
    """Returns the shape of a manifest, a workload or pod of the cluster, or PodGroup; adds its companions to `state`.

    Args:
        shape: a manifest; or NAMESPACE/KIND/NAME or NAMESPACE/NAME, where KIND may be `podgroup`; or amounts.

    Raises:
        UnknownPod: the cluster has no such workload or pod.
        ConfigurationError: the group has no members.
        MalformedCluster: the API server would refuse the manifest.
    """
    if isinstance(shape, str) and (on_one_node := amounts(shape)) is not None:
        shape = on_one_node
    if isinstance(shape, str) and shape.split("/")[1] == "podgroup":
        return _of_group(state, shape)
    existing = {shape: replicas_of(state, shape).template} if isinstance(shape, str) else {}
    ((name, admitted),) = admitted_templates(state, [shape], existing, MOST_ROOM).items()
    notes += [f"{name}: {note}" for note in admitted.notes]
    pod = _passive(admitted.pod)
    group = gangs_of(state, {name: pod}).get(name)
    if group is None:
        return Shape(name, [pod.with_spec(scheduling_group=None)])
    return Shape(name, [pod] * group.min_count, group)


def _of_group(state: ClusterState, name: str) -> Shape:
    namespace, _, own_name = name.split("/")
    group = state.objects.get(PodGroup, f"{namespace}/{own_name}")
    members = sorted(info.pod.key for info in state.infos.values() if info.pod.group_key == f"{namespace}/{own_name}")
    if group is None or not members:
        raise ConfigurationError([f"{name}: expected a PodGroup that has members"])
    return Shape(name, [_passive(state.infos[key].pod.placed_on("")) for key in members], group)


def _passive(pod: Pod) -> Pod:
    """Returns the pod without gates, and so that it does not preempt: room is to come from moves."""
    return pod.with_spec(preemption_policy="Never", scheduling_gates=None)


def make_room(
    state: ClusterState, shape: Shape, rules: KeepRules, limits: SearchLimits, clock: Clock, seed: int
) -> tuple[Room, Sequence[str], Findings]:
    """Returns how much room the best plan makes, the copies that then have room, and the plan or why there is none.

    The cluster is changed, so pass a copy.
    """
    return _Defrag(state, shape, rules, limits, clock, seed, datetime.fromtimestamp(clock.now(), UTC)).run()


@dataclass(slots=True)
class _Defrag:
    state: ClusterState
    shape: Shape
    rules: KeepRules
    limits: SearchLimits
    clock: Clock
    seed: int
    now: datetime
    copies: list[PodInfo] = field(default_factory=list)

    def run(self) -> tuple[Room, Sequence[str], Findings]:
        ends_at = self.clock.monotonic() + self.limits.seconds
        preempted = settle(self.state, self.seed, self.now)
        before = after = self._fitting()
        best: Findings | None = None
        more = Findings()  # what is known about one more than `after`
        too_many: int | None = None
        proved: int | None = None
        step = 1
        try:
            while after < MOST_ROOM and (too_many is None or after + 1 < too_many):
                if (left := ends_at - self.clock.monotonic()) <= 0:
                    break
                number = min(after + step, MOST_ROOM) if too_many is None else (after + too_many) // 2
                found = self._search(number, left)
                if found.places_all:
                    after, best, step = number, found, 2 * step
                    continue
                too_many, more = number, found
                if found.is_complete or found.bound > self.limits.moves:
                    proved = number
        except INTERRUPTIONS:
            if best is None:
                raise
            best.is_interrupted = True
        most = None if proved is None else proved - 1
        room = Room(self.shape.name, len(self.shape.pods), before, after, most, self.limits.moves)
        found = best or replace(more, plan=None)
        found.preempted = preempted
        return room, [info.pod.key for info in self._first(after)], found

    def _first(self, count: int) -> list[PodInfo]:
        """Returns the pods of the first copies."""
        size = len(self.shape.pods)
        if len(self.copies) < count * size:
            existing = len(self.copies) // size
            self.copies += self.shape.copies(self.state, existing, count - existing)
        return self.copies[: count * size]

    def _search(self, count: int, seconds: float) -> Findings:
        limits = replace(self.limits, seconds=seconds)
        return search(self.state, [], self._first(count), self.rules, limits, self.clock, self.seed)

    def _fitting(self) -> int:
        """Returns how many copies have room without a move, at most MOST_ROOM."""
        count = 1
        while True:
            pods = self._first(count)
            ended = PlanTrial(self.state.copy(), self.seed, self.now)
            ended.finish(pods)
            keys = [info.pod.key for info in pods]
            missing = [keys.index(key) for key in ended.unplaced(keys)]
            if missing or count == MOST_ROOM:
                return missing[0] // len(self.shape.pods) if missing else count
            count = min(2 * count, MOST_ROOM)
