"""A relaxed form of the question which pods to evict: integers and linear constraints only.

Whatever plan exists satisfies the relaxed problem: only the node's name, cordon, taints and node affinity say where a
pod may go, and only requests and host ports limit what a node can hold at the end. So the fewest evictions of the
relaxed problem are a lower bound for every plan, and if it has no solution, no plan exists. What it leaves out, such as
spreading, affinity between pods, volumes and users' rules, the trial of each plan decides.

Pods that the scheduler treats alike are one `PodClass`, and the problem counts them instead of naming them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from extender.devices.extended_resources import class_behind, may_be_backed
from extender.framework.topology import ZONE
from extender.model.pod import Pod
from extender.model.requests import is_counted, is_extended
from extender.offline.controllers.replicas import is_ready
from extender.offline.controllers.workloads import as_created
from extender.offline.state import ClusterState
from extender.plugins import node_affinity, node_name, node_ports, node_unschedulable, taint_toleration
from extender.plugins.node_resources_fit import NodeResourcesFitFilter
from extender.runtime.text import distinguishable, listed, rounded
from extender.table import PodInfo
from extender.table.podinfo import HostPort, of_one_template

_STATIC = (node_name.NAME, node_unschedulable.NAME, node_affinity.NAME, taint_toleration.NAME)
"""The filters whose verdict about a node does not depend on other pods."""
_EVERY_IP = "0.0.0.0"  # noqa: S104  the API's own default

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
        targets: the number of pods of the class that the plan is to place.
    """

    first: PodInfo
    takes: Ints
    frees: Ints
    allowed: Places
    movers: dict[int, list[PodInfo]] = field(default_factory=dict)
    targets: int = 0

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
        rows = columns.rows
        self.nodes = state.node_names()
        self._place_of = {name: place for place, name in enumerate(self.nodes)}
        self.resources = [name for name in columns.resources if self._limits(name)]
        self._indices = [columns.resources[name] for name in self.resources]
        requested = columns.requested[self._indices][:, rows]
        self.free: Ints = np.maximum(columns.allocatable[self._indices][:, rows] - requested, 0)
        self.ports: dict[tuple[HostPort, int], int] = {}
        self._allowed: dict[bytes, Places] = {}
        self.classes: list[PodClass] = []
        self._by_key: dict[object, list[PodClass]] = {}
        for info in targets:
            self._class_of(info).targets += 1
        for info in sorted(movable, key=lambda each: each.pod.key):
            self._class_of(info).movers.setdefault(self._place_of[info.pod.node_name], []).append(info)
        self._count_ports()

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

    # ---- proofs without a solver

    def shortage(self) -> str | None:
        """Returns why no arrangement of the movable pods places all targets; None if simple sums do not show it.

        Compares what the pods to place need with the room if every movable pod goes: on each node alone, and on all
        nodes together that one of the pods may use.
        """
        freed = self.freed()
        for each in self.classes:
            if each.targets and (text := self._too_large(each, freed)) is not None:
                return text
        for each in self.classes:
            if each.targets and (text := self._too_many(each, freed)) is not None:
                return text
        return None

    def freed(self) -> Ints:
        """Returns what every node has free if all movable pods go: int64[resource, node]."""
        freed = self.free.copy()
        for each in self.classes:
            for place, infos in each.movers.items():
                freed[:, place] += each.frees * len(infos)
        return freed

    def _too_large(self, pods: PodClass, freed: Ints) -> str | None:
        """Returns the reason if no node has room for one pod of the class even if all movable pods go."""
        name = pods.first.pod.key
        if missing := self._offered_nowhere(PodInfo(as_created(pods.first.pod))):
            return f"no node offers {listed(missing)}, which pod {name} requests"
        if not len(pods.allowed):
            return f"no node accepts pod {name}: its node affinity, the taints or cordons exclude every node"
        room = freed[:, pods.allowed]
        if (room >= pods.takes[:, np.newaxis]).all(axis=0).any():
            return None
        for index, resource in enumerate(self.resources):
            best = int(room[index].argmax())
            if (most := int(room[index, best])) < (need := int(pods.takes[index])):
                needed, offered = distinguishable(resource, need, most)
                where = self.nodes[pods.allowed[best]]
                return (
                    f"pod {name} requests {needed} {resource}, but the most that a node which accepts it can have free,"
                    f" even if every movable pod goes, is {offered} on {where}"
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


def _ignores(rule: NodeResourcesFitFilter, resource: str) -> bool:
    named = resource in rule.ignored_resources or resource.split("/")[0] in rule.ignored_resource_groups
    return named and is_extended(resource)
