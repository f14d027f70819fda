"""A relaxed form of the question which pods to evict: integers and linear constraints only.

Whatever plan exists satisfies the relaxed problem: only the node's name, cordon, taints and node affinity say where a
pod may go, and only requests and host ports limit what a node can hold at the end. So the fewest evictions of the
relaxed problem are a lower bound for every plan, and if it has no solution, no plan exists. What it leaves out, such as
spreading, affinity between pods, volumes and users' rules, the trial of each plan decides.

Pods that the scheduler treats alike are one `PodClass`, and the problem counts them instead of naming them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from math import comb

import msgspec
import numpy as np
from numpy.typing import NDArray

from extender.devices.pod_claims import class_behind, may_be_backed
from extender.framework.topology import ZONE
from extender.model.pod import Pod
from extender.model.requests import is_counted, is_extended
from extender.offline.replicas import is_ready
from extender.offline.state import ClusterState
from extender.offline.workloads import as_created
from extender.plugins import node_affinity, node_name, node_ports, node_unschedulable, taint_toleration
from extender.plugins.node_resources_fit import NodeResourcesFitFilter
from extender.runtime.text import distinguishable, listed, rounded
from extender.table import PodInfo
from extender.table.podinfo import HostPort, of_one_template

_STATIC = (node_name.NAME, node_unschedulable.NAME, node_affinity.NAME, taint_toleration.NAME)
"""The filters whose verdict about a node does not depend on other pods."""
_EVERY_IP = "0.0.0.0"  # noqa: S104  the API's own default

UNREACHABLE = 10**9
_MOST_SETS = 5000
MOST_SETS_COMPARED = 20_000
_MOST_SIZES = 64

Ints = NDArray[np.int64]
Places = NDArray[np.intp]


@dataclass(slots=True)
class PodClass:
    """Pods that the scheduler treats alike: replicas of one template. Nodes are numbered as in `RelaxedProblem.nodes`.

    Attributes:
        first: one of the pods.
        takes: what a new pod of the class takes on its node: int64[resource].
        frees: what becomes free on its node if a pod of the class leaves.
        allowed: the nodes on which a new pod may be placed, as far as other pods do not matter.
        movers: node -> the pods of the class on this node that may be evicted.
        waiting: the pods of the class that the plan is to place.
    """

    first: PodInfo
    takes: Ints
    frees: Ints
    allowed: Places
    movers: dict[int, list[PodInfo]] = field(default_factory=dict)
    waiting: list[PodInfo] = field(default_factory=list)

    @property
    def targets(self) -> int:
        """The number of pods that the plan is to place."""
        return len(self.waiting)

    @property
    def all_movers(self) -> Iterator[tuple[int, PodInfo]]:
        """The pods that may be evicted, each with its node."""
        return ((node, info) for node, infos in self.movers.items() for info in infos)


class RelaxedProblem:
    """The relaxed problem.

    Attributes:
        nodes: the names of all nodes.
        resources: the names of the resources that limit how many pods a node can hold.
        free: int64[resource, node]: what is free. It is 0 if more is requested than the node has.
        ports: (host port, node) -> how many pods use it there; only ports on all addresses of a node.
        classes: the pods to place, and those that may be evicted.
    """

    def __init__(self, state: ClusterState, targets: Sequence[PodInfo], movable: Sequence[PodInfo]) -> None:
        self._state = state
        columns = state.table.nodes
        self.nodes = state.node_names()
        self._place_of = {name: place for place, name in enumerate(self.nodes)}
        self.resources = [name for name in columns.resources if self._limits(name)]
        self._indices = [columns.resources[name] for name in self.resources]
        self.free = self._free_now()
        self.ports: dict[tuple[HostPort, int], int] = {}
        self._allowed: dict[bytes, Places] = {}
        self.classes: list[PodClass] = []
        self._by_key: dict[object, list[PodClass]] = {}
        self._sums: Ints | None = None
        self._on_node: dict[int, list[tuple[PodClass, PodInfo]]] | None = None
        for info in targets:
            self._class_of(info).waiting.append(info)
        for info in sorted(movable, key=lambda each: each.pod.key):
            self._class_of(info).movers.setdefault(self._place_of[info.pod.node_name], []).append(info)
        self._count_ports()

    def _free_now(self) -> Ints:
        columns = self._state.table.nodes
        requested = columns.requested[self._indices][:, columns.rows]
        free: Ints = np.maximum(columns.allocatable[self._indices][:, columns.rows] - requested, 0)
        return free

    def after(self, evicted: Iterable[str], placed: Iterable[str]) -> RelaxedProblem:
        """Returns the rest of the problem: in the cluster as it is now, with fewer pods to evict and to place."""
        gone = {*evicted, *placed}
        classes = [
            replace(
                each,
                movers={
                    place: left
                    for place, infos in each.movers.items()
                    if (left := [info for info in infos if info.pod.key not in gone])
                },
                waiting=[info for info in each.waiting if info.pod.key not in gone],
            )
            for each in self.classes
        ]
        return self._with(classes, self._free_now())

    def within(self, places: Sequence[int], waiting: PodInfo) -> RelaxedProblem:
        """Returns the part of the problem in which only one pod is to be placed, and only these nodes may be used."""
        is_inside = np.zeros(len(self.nodes), np.bool_)
        is_inside[list(places)] = True
        classes = [
            replace(
                each,
                allowed=each.allowed[is_inside[each.allowed]],
                movers={place: infos for place, infos in each.movers.items() if is_inside[place]},
                waiting=[info for info in each.waiting if info is waiting],
            )
            for each in self.classes
            if waiting in each.waiting or any(is_inside[place] for place in each.movers)
        ]
        return self._with(classes, self.free)

    def _with(self, classes: list[PodClass], free: Ints) -> RelaxedProblem:
        twin = copy(self)
        twin.classes = classes
        twin.free = free
        twin._sums = twin._on_node = None
        return twin

    def _limits(self, resource: str) -> bool:
        """Returns True if every profile refuses nodes that are short of the resource."""
        if resource != "pods" and not is_counted(resource):
            return False
        if may_be_backed(resource) and class_behind(resource, self._state.table):
            return False
        filters = [
            [each for each in profile.predicates if isinstance(each, NodeResourcesFitFilter)]
            for profile in self._state.profiles.all
        ]
        return all(each and not any(_ignores(one, resource) for one in each) for each in filters)

    def _class_of(self, info: PodInfo) -> PodClass:
        pod = info.pod
        key = (info.group, info.priority, info.footprint, info.host_ports, is_ready(pod), bool(pod.node_name))
        similar = self._by_key.setdefault(key, [])
        is_single = bool(info.volumes or pod.spec.resource_claims or pod.spec.scheduling_group)
        waiting = pod.placed_on("")
        for each in similar if not is_single else ():
            if not each.first.volumes and of_one_template(each.first.pod.placed_on(""), waiting):
                return each
        new = PodInfo(as_created(pod))
        vector = self._state.table.nodes.vector
        takes, frees = vector(new.footprint)[self._indices], vector(info.footprint)[self._indices]
        made = PodClass(info, takes, frees, self._allowed_for(new))
        self.classes.append(made)
        similar.append(made)
        return made

    def _allowed_for(self, info: PodInfo) -> Places:
        """Returns the nodes that the filters in `_STATIC` accept, and that offer every resource that the pod needs."""
        spec = info.pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        terms = (spec.node_name, spec.node_selector, affinity, spec.tolerations, spec.scheduler_name)
        key = msgspec.msgpack.encode(terms)
        if key not in self._allowed:
            refused: set[str] = set()
            for plugin in _STATIC:
                refused.update(self._state.engine.filter_by(plugin, info.pod, self.nodes))
            self._allowed[key] = np.array(
                [place for place, name in enumerate(self.nodes) if name not in refused], np.intp
            )
        return self._allowed[key][:0] if self._offered_nowhere(info) else self._allowed[key]

    def _offered_nowhere(self, info: PodInfo) -> list[str]:
        """Returns the requested resources that no node offers, although every profile's filter demands them."""
        known = self._state.table.nodes.resources
        return [name for name, amount in info.requests.items() if amount and name not in known and self._limits(name)]

    def _count_ports(self) -> None:
        if not all(any(each.name == node_ports.NAME for each in one.predicates) for one in self._state.profiles.all):
            return
        wanted = {port for each in self.classes for port in each.first.host_ports if port.ip == _EVERY_IP}
        for info in self._state.infos.values():
            place = self._place_of.get(info.pod.node_name)
            for port in info.host_ports:
                if port in wanted and place is not None:
                    self.ports[port, place] = self.ports.get((port, place), 0) + 1
        for port in wanted:
            for place in range(len(self.nodes)):
                self.ports.setdefault((port, place), 0)

    # ---- the fewest evictions, as far as one node after another shows it

    def fewest(self, pods: PodClass, count: int = 1) -> Ints:
        """Returns a lower bound of the evictions that make room for some pods of the class: int64[node].

        It is `UNREACHABLE` for a node on which they have no room even if every movable pod goes. Each resource is
        looked at alone: so many pods have to go as would be enough if those that free the most of it went first.
        """
        needed = np.full(len(self.nodes), UNREACHABLE)
        short = pods.takes[:, np.newaxis] * count - self.free[:, pods.allowed]
        if self._sums is None:
            self._sums = self._summed()
        sums = self._sums[:, pods.allowed]
        most = (sums < short[:, :, np.newaxis]).sum(axis=2).max(axis=0, initial=0)
        needed[pods.allowed] = np.where(most < sums.shape[2], most, UNREACHABLE)
        return needed

    def improve(self, fewest: Ints, places: Iterable[int], pods: PodClass, most: int, count: int) -> None:
        """Improves what `fewest` has returned for some nodes, if all sets of up to `most` pods can be tried."""
        most = min(most, UNREACHABLE - 1)
        for place in places:
            while 0 < fewest[place] <= most and self._is_enough(pods, place, int(fewest[place]), count) is False:
                fewest[place] += 1

    def _is_enough(self, pods: PodClass, place: int, size: int, count: int) -> bool | None:
        """Returns True if so many evictions make room for `count` pods on the node; None if too many sets do."""
        frees = self.freed_by_sets(place, size, MOST_SETS_COMPARED)
        if frees is None:
            return None
        return bool((frees >= pods.takes * count - self.free[:, place]).all(axis=1).any())

    def movers_on(self, place: int) -> list[tuple[PodClass, PodInfo]]:
        """Returns the pods of a node that may be evicted, each with its class."""
        if self._on_node is None:
            self._on_node = {}
            for each in self.classes:
                for node, infos in each.movers.items():
                    self._on_node.setdefault(node, []).extend((each, info) for info in infos)
        return self._on_node.get(place, [])

    def freed_by_sets(self, place: int, size: int, most: int = _MOST_SETS) -> Ints | None:
        """Returns what each set of so many pods of a node frees: int64[set, resource]; None if there are too many."""
        movers = self.movers_on(place)
        if comb(len(movers), size) > most:
            return None
        frees = np.array([each.frees for each, _ in movers], np.int64).reshape(len(movers), len(self.resources))
        freed: Ints = frees[sets_of(len(movers), size)].sum(axis=1)
        return freed

    def _summed(self) -> Ints:
        """Returns how much of a resource the first k evictions free at most: int64[resource, node, k]."""
        frees = [(place, each.frees) for each in self.classes for place, infos in each.movers.items() for _ in infos]
        places = np.array([place for place, _ in frees], np.intp)
        longest = int(np.bincount(places, minlength=1).max(initial=0))
        sums = np.zeros((len(self.resources), len(self.nodes), longest + 1), np.int64)
        if frees:
            amounts = np.array([amount for _, amount in frees]).T
            for index in range(len(self.resources)):
                order = np.lexsort((-amounts[index], places))
                ordered = places[order]
                ranks = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
                sums[index, ordered, ranks + 1] = amounts[index, order]
        cumulated: Ints = sums.cumsum(axis=2)
        return cumulated

    def places_with_room(self, pods: PodClass) -> int:
        """Returns the number of nodes on which a pod of the class has room without any eviction; 0 if it has ports."""
        if pods.first.host_ports:
            return 0
        return len(self.with_room(pods))

    def with_room(self, pods: PodClass) -> Places:
        """Returns the nodes on which requests leave room for a pod of the class without any eviction."""
        return pods.allowed[np.flatnonzero((self.free[:, pods.allowed] >= pods.takes[:, np.newaxis]).all(axis=0))]

    def victims(self, pods: PodClass, place: int, size: int) -> list[list[PodInfo]] | None:
        """Returns the sets of so many pods whose eviction makes room for one pod of the class on the node.

        The sets with pods of low priority come first. None if there are too many sets to look at.
        """
        freed = self.freed_by_sets(place, size)
        if freed is None:
            return None
        enough = (freed >= pods.takes - self.free[:, place]).all(axis=1)
        movers = self.movers_on(place)
        found = [[movers[number][1] for number in one] for one in sets_of(len(movers), size)[enough].tolist()]
        return sorted(found, key=lambda one: (sorted((info.priority for info in one), reverse=True), _keys(one)))

    # ---- proofs without a solver

    def shortage(self) -> str | None:
        """Returns why no arrangement of the movable pods places all targets; None if simple sums do not show it.

        Compares what the pods to place need with the room if every movable pod goes: on each node alone, and on all
        nodes together that one of the pods may use.
        """
        freed = self.freed()
        for each in self.classes:
            if each.targets and (text := self.too_large(each, freed)) is not None:
                return text
        for each in self.classes:
            if each.targets and (text := self._too_many(each, freed)) is not None:
                return text
        return None

    def most_placed(self, levels: Iterable[int]) -> list[int]:
        """Returns how many pods have room at most, by priority in the order of `levels`, as far as sums show it.

        Compares what all nodes together have free with the smallest pods of each priority, each resource alone.
        """
        left = self.freed().sum(axis=1)
        for each in self.classes:
            left -= np.minimum(each.takes, each.frees) * sum(map(len, each.movers.values()))
        most: list[int] = []
        for level in levels:
            takes = [each.takes for each in self.classes for info in each.waiting if info.priority == level]
            sums = np.sort(np.array(takes, np.int64).reshape(-1, len(self.resources)), axis=0).cumsum(axis=0)
            count = int((sums <= left).sum(axis=0).min(initial=len(takes)))
            most.append(count)
            left -= sums[count - 1] if count else 0
        return most

    def freed(self) -> Ints:
        """Returns what every node has free if all movable pods go: int64[resource, node]."""
        freed = self.free.copy()
        for each in self.classes:
            for place, infos in each.movers.items():
                freed[:, place] += each.frees * len(infos)
        return freed

    def too_large(self, pods: PodClass, freed: Ints) -> str | None:
        """Returns the reason if no node has room for one pod of the class even if all movable pods go."""
        name = pods.first.pod.key
        if missing := self._offered_nowhere(PodInfo(as_created(pods.first.pod))):
            return f"no node offers {listed(missing)}, which pod {name} requests"
        if not len(pods.allowed):
            return f"no node accepts pod {name}: its node affinity, the taints or cordons exclude every node"
        room = freed[:, pods.allowed]
        if (room >= pods.takes[:, np.newaxis]).all(axis=0).any():
            return None
        columns = self._state.table.nodes
        sizes = columns.allocatable[self._indices][:, columns.rows][:, pods.allowed]
        for index, resource in enumerate(self.resources):
            need = int(pods.takes[index])
            is_too_small = int(sizes[index].max()) < need
            amounts = sizes[index] if is_too_small else room[index]
            best = int(amounts.argmax())
            if (most := int(amounts[best])) < need:
                needed, offered = distinguishable(resource, need, most)
                where = self.nodes[pods.allowed[best]]
                if is_too_small:
                    return (
                        f"pod {name} requests {needed} {resource}, but the largest node that accepts it, {where}, has"
                        f" only {offered}"
                    )
                return (
                    f"pod {name} requests {needed} {resource}, but even if every movable pod goes, no node that accepts"
                    f" it has more than {offered} free ({where})"
                )
        return f"no node has room for all requests of pod {name} together, even if every movable pod goes"

    def _too_many(self, pods: PodClass, freed: Ints) -> str | None:
        """Returns the reason if the nodes that accept the class are too few for all pods that can go nowhere else."""
        inside = np.zeros(len(self.nodes), np.bool_)
        inside[pods.allowed] = True
        need = np.zeros(len(self.resources), np.int64)
        for each in self.classes:
            if inside[each.allowed].all():
                confined = sum(len(infos) for place, infos in each.movers.items() if inside[place])
                need += each.takes * each.targets + np.minimum(each.takes, each.frees) * confined
        short = need - freed[:, inside].sum(axis=1)
        index = next((index for index, amount in enumerate(short.tolist()) if amount > 0), None)
        if index is None:
            return None
        resource = self.resources[index]
        where = self._described(inside, pods.first.pod)
        return f"{where} short of {rounded(resource, int(short[index]))} {resource} even if every movable pod goes"

    def _described(self, inside: NDArray[np.bool_], pod: Pod) -> str:
        """Returns words for a set of nodes, with their verb: `zone b is`, `the 3 nodes that accept pod a/b are`."""
        if inside.all():
            return "the cluster is"
        zones = [self._state.node(name).labels.get(ZONE) for name in self.nodes]
        chosen = {zone for zone, is_inside in zip(zones, inside.tolist(), strict=True) if is_inside}
        whole = {zone for zone in chosen if zone is not None}
        if whole == chosen and not any(
            zone in whole and not is_inside for zone, is_inside in zip(zones, inside.tolist(), strict=True)
        ):
            names = sorted(whole)
            return f"zone {names[0]} is" if len(names) == 1 else f"zones {listed(names)} are"
        count = int(inside.sum())
        if count == 1:
            return f"the only node that accepts pod {pod.key}, {self.nodes[int(inside.argmax())]}, is"
        return f"the {count} nodes that accept pod {pod.key} are"


@lru_cache(_MOST_SIZES)
def sets_of(count: int, size: int) -> NDArray[np.int16]:
    """Returns all sets of so many of the numbers below `count`: int16[set, size]."""
    return np.array(list(combinations(range(count), size)), np.int16).reshape(-1, size)


def _keys(infos: Iterable[PodInfo]) -> list[str]:
    return [info.pod.key for info in infos]


def _ignores(rule: NodeResourcesFitFilter, resource: str) -> bool:
    named = resource in rule.ignored_resources or resource.split("/")[0] in rule.ignored_resource_groups
    return named and is_extended(resource)
