"""Finds plans whose goal is not given pods: room for the most pods of a shape, or nodes to empty with few moves.

For room, `search` finds the fewest moves that make room for each number of pods, or whole groups, of the shape, or
proves that there are none. The more pods, the more moves are needed, so the largest number within the limit is found by
bisection.

Every pod that may leave a node to be emptied has to, so the number of these pods is a lower bound for the moves of a
set of nodes. The sets are tried in the order of this bound, until the bound of the next set is not below the best plan.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from extender.errors import ConfigurationError, MalformedQuantity
from extender.model.formats import container_resource
from extender.model.pod import Pod
from extender.model.pod_groups import PodGroup
from extender.model.quantity import nano
from extender.offline.answers import Documented
from extender.offline.claims import precomputed, replica_infos
from extender.offline.manifests.templates import Workload, required_workload
from extender.offline.plan.attempts import Findings, SearchOptions, movers_on
from extender.offline.plan.search import Search
from extender.offline.plan.trial import PlanTrial, obstacle, settle
from extender.offline.state import ClusterState
from extender.offline.what_if.capacity import admitted_templates, copies_of, copy_of_gang, gangs_of
from extender.offline.what_if.scenario import selected_nodes
from extender.offline.workloads import replicas_of
from extender.runtime.clock import INTERRUPTIONS
from extender.runtime.text import counted
from extender.table import PodInfo

MOST_ROOM = 500
_AMOUNT = re.compile(r"(?P<amount>[0-9.]+[A-Za-z]*)\s*x\s+(?P<resource>[\w./-]+)")
_ON_ONE_NODE = " on one node"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


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


def make_room(state: ClusterState, shape: Shape, options: SearchOptions) -> tuple[Room, Sequence[str], Findings]:
    """Returns how much room the best plan makes, the copies that then have room, and the plan or why there is none.

    The cluster is changed, so pass a copy.
    """
    return _Defrag(state, shape, options, options.now()).run()


@dataclass(slots=True)
class _Defrag:
    state: ClusterState
    shape: Shape
    options: SearchOptions
    now: datetime
    copies: list[PodInfo] = field(default_factory=list)

    def run(self) -> tuple[Room, Sequence[str], Findings]:
        left_seconds = self.options.begin()
        preempted = settle(self.state, self.options.seed, self.now)
        before = after = self._fitting()
        best: Findings | None = None
        more = Findings()  # what is known about one more than `after`
        too_many: int | None = None
        proved: int | None = None
        step = 1
        try:
            while after < MOST_ROOM and (too_many is None or after + 1 < too_many):
                if (left := left_seconds()) <= 0:
                    break
                number = min(after + step, MOST_ROOM) if too_many is None else (after + too_many) // 2
                found = self._search(number, left)
                if found.places_all:
                    after, best, step = number, found, 2 * step
                    continue
                too_many, more = number, found
                if found.is_complete or found.bound > self.options.moves:
                    proved = number
        except INTERRUPTIONS:
            if best is None:
                raise
            best.is_interrupted = True
        most = None if proved is None else proved - 1
        room = Room(self.shape.name, len(self.shape.pods), before, after, most, self.options.moves)
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
        return Search(self.state, [], self._first(count), replace(self.options, seconds=seconds)).run()

    def _fitting(self) -> int:
        """Returns how many copies have room without a move, at most MOST_ROOM."""
        count = 1
        while True:
            pods = self._first(count)
            ended = PlanTrial(self.state.copy(), self.options.seed, self.now)
            ended.finish(pods)
            keys = [info.pod.key for info in pods]
            missing = [keys.index(key) for key in ended.unplaced(keys)]
            if missing or count == MOST_ROOM:
                return missing[0] // len(self.shape.pods) if missing else count
            count = min(2 * count, MOST_ROOM)


def nodes_to_choose_from(state: ClusterState, selections: Sequence[str], count: int | None) -> list[str]:
    """Returns the nodes that the selections name, by name or label; without any, those outside the control plane.

    Raises:
        UnknownNode: the cluster has no node of this name or label.
        ConfigurationError: there are fewer nodes than are to be chosen.
    """
    if selections:
        names = selected_nodes(state, selections)
    else:
        names = [node.name for node in state.nodes() if _CONTROL_PLANE not in node.labels]
    if count is not None and count > len(names):
        raise ConfigurationError([f"{counted(count, 'node')} cannot be chosen from {counted(len(names), 'node')}"])
    return names


def empty(
    state: ClusterState, names: Sequence[str], count: int, options: SearchOptions
) -> tuple[Sequence[str], Findings]:
    """Returns those `count` of the nodes that can be emptied with the fewest moves, and the plan or why there is none.

    Without a plan, the nodes are those that were tried first.
    """
    if count == len(names):
        return names, Search(state, [], [], options, names).run()
    return _Choice(state, options).run(names, count)


class _Choice:
    """Tries sets of nodes until no other set can be emptied with fewer moves."""

    def __init__(self, state: ClusterState, options: SearchOptions) -> None:
        self._options = options
        self._left_seconds = options.begin()
        self._base = state.copy()
        self._preempted = settle(self._base, options.seed, options.now())
        self._best: tuple[Sequence[str], Findings] | None = None
        self._first: tuple[Sequence[str], Findings] | None = None
        self._open: list[int] = []
        """The lower bounds of the moves for the sets that were not tried to the end."""
        self._hopeless: dict[str, bool] = {}
        """Node -> it is proved that the node cannot be emptied even alone."""

    def run(self, names: Sequence[str], count: int) -> tuple[Sequence[str], Findings]:
        pods = self._pods_to_move(names)
        if len(pods) >= count:
            chosen, found = self._try_sets(pods, count)
        else:
            chosen = sorted(names, key=lambda name: name in pods)[:count]
            found = self._find(chosen)
            found.proof = (
                f"only {len(pods)} of {counted(len(names), 'node')} can be emptied; for example, {found.proof}"
            )
        found.preempted = self._preempted
        return chosen, found

    def _pods_to_move(self, names: Sequence[str]) -> dict[str, int]:
        """Returns how many pods have to leave each node; nodes with a pod that has to stay are left out."""
        movers = {name: movers_on(self._base, [name]) for name in names}
        return {
            name: len(infos)
            for name, infos in movers.items()
            if all(obstacle(info, self._base, self._options.rules) is None for info in infos)
        }

    def _find(self, chosen: Sequence[str]) -> Findings:
        return Search(self._base, [], [], replace(self._options, seconds=max(self._left_seconds(), 0.0)), chosen).run()

    def _try_sets(self, pods: Mapping[str, int], count: int) -> tuple[Sequence[str], Findings]:
        """Returns the set with the best plan, and the plan; without a plan, the first set and why it has none."""
        is_interrupted = False
        try:
            for chosen in _sets(pods, count):
                least = sum(pods[name] for name in chosen)
                if self._is_enough(least):
                    break
                if not any(self._hopeless.get(name) for name in chosen):
                    self._try(chosen, least)
        except INTERRUPTIONS:
            if self._best is None:
                raise
            is_interrupted = True
        return self._concluded(is_interrupted=is_interrupted)

    def _is_enough(self, least: int) -> bool:
        """Returns True if the sets that need at least so many moves are not to be tried."""
        if self._best is not None and least >= len(self._best[1].moves):
            return True
        if self._first is None or (least <= self._options.moves and self._left_seconds() > 0):
            return False
        self._open.append(least)
        return True

    def _try(self, chosen: Sequence[str], least: int) -> None:
        found = self._find(chosen)
        self._first = self._first or (chosen, found)
        if not found.is_complete:
            self._open.append(max(found.bound, least))
        if found.places_all and (self._best is None or len(found.moves) < len(self._best[1].moves)):
            self._best = chosen, found
        elif found.proof is not None and len(chosen) > 1:
            # No set with a node that cannot be emptied even alone can be.
            for name in chosen:
                if name not in self._hopeless:
                    self._hopeless[name] = self._find([name]).proof is not None

    def _concluded(self, *, is_interrupted: bool) -> tuple[Sequence[str], Findings]:
        """Returns the best set, or the first one if there is no plan, with what is known about all sets."""
        concluded = self._best or self._first
        assert concluded is not None, "there are at least `count` nodes"
        chosen, found = concluded
        found.is_interrupted = is_interrupted
        if self._best is not None:
            found.bound = min([*self._open, len(found.moves)])
            found.is_complete = not is_interrupted and found.bound == len(found.moves)
        elif self._open:
            found.bound = min(self._open)
            found.is_complete = False
            found.proof = None
        elif found.proof is not None:
            found.proof = f"no set of so many nodes can be emptied; for example, {found.proof}"
        return chosen, found


def _sets(pods: Mapping[str, int], count: int) -> Iterator[Sequence[str]]:
    """Yields all sets of `count` nodes, those with the smallest sum of pods first."""
    names = sorted(pods, key=lambda name: (pods[name], name))
    amounts = [pods[name] for name in names]
    start = tuple(range(count))
    heap = [(sum(amounts[:count]), start)]
    while heap:
        total, places = heapq.heappop(heap)
        yield [names[place] for place in places]
        # A place moves on only while all places before it are at the start, so each set is reached once.
        for index, place in enumerate(places):
            following = place + 1
            if following == (places[index + 1] if index + 1 < count else len(names)):
                continue
            if places[:index] == start[:index]:
                moved = (*places[:index], following, *places[index + 1 :])
                heapq.heappush(heap, (total - amounts[place] + amounts[following], moved))
