"""Counts how many more pods of some templates fit, or how many whole gangs of them, where, and what runs out first."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from extender.errors import ConfigurationError
from extender.framework.topology import ZONE
from extender.groups import Leaf
from extender.model.devices import DeviceClass
from extender.model.pod import Pod, PodSchedulingGroup
from extender.model.pod_groups import PodGroup, PodGroupStatus
from extender.offline import remarks, rendering
from extender.offline.answers import Documented, frame
from extender.offline.claims import (
    add_claims_like,
    create_companions,
    is_of_stateful_set,
    missing_templates,
    precomputed,
    replica,
    replica_infos,
    with_claims,
    without_group,
)
from extender.offline.explain.explanation import Explanation, Reason, reason_table
from extender.offline.fresh_nodes import daemon_on, nodes_of_daemons
from extender.offline.groups import fitting_placed, nodes_in
from extender.offline.manifests.admission import Admitted
from extender.offline.manifests.templates import Workload
from extender.offline.nodes import LeftOver, left_over
from extender.offline.remarks import remarks_on
from extender.offline.state import ClusterState
from extender.offline.what_if.simulation import Progress, Simulation
from extender.offline.workloads import replicas_of
from extender.runtime.clock import known_so_far
from extender.runtime.text import MOST_ROWS, counted, printable, section, whole_number
from extender.table import PodInfo
from extender.table.podinfo import twin

if TYPE_CHECKING:
    import pandas as pd

ALONE = "its PodGroup is not a gang of this cluster, so its pods are counted one by one"
MOST_PODS = 100_000


class GangCapacity(Documented, frozen=True):
    """The number of whole gangs of one template that fit.

    Attributes:
        size: the number of pods of each gang.
        count: the number of whole gangs that fit.
        topology_key: the node label that all pods of a gang must share; None if there is no such constraint.
        by_domain: value of the label `topology_key` -> the number of gangs; empty if there is no constraint.
    """

    size: int
    count: int
    topology_key: str | None
    by_domain: Mapping[str, int]


def gang_capacity(state: ClusterState, gang: PodGroup, by_node: Mapping[str, int]) -> GangCapacity:
    """Returns how many gangs the pods in `by_node` form; with a topology constraint, each gang is in one domain."""
    key, size = gang.topology_key, gang.min_count
    pods: Counter[str] = Counter()
    if key is not None:
        for name, count in by_node.items():
            pods[state.node(name).labels[key]] += count
    by_domain = {domain: count // size for domain, count in sorted(pods.items())}
    return GangCapacity(size, sum(by_node.values()) // size, key, by_domain)


def gangs_of(state: ClusterState, pods: Mapping[str, Pod]) -> dict[str, PodGroup]:
    """Returns {template name: PodGroup} for the templates whose pods belong to a gang."""
    groups = {name: state.objects.get(PodGroup, pod.group_key) for name, pod in pods.items() if pod.group_key}
    return {name: group for name, group in groups.items() if group and group.is_gang and group.parent_key is None}


def copy_of_gang(state: ClusterState, gang: PodGroup, infos: Sequence[PodInfo], number: int) -> Leaf:
    """Adds a copy of the PodGroup `gang` to the cluster; returns the copy with these pods as its waiting members."""
    name = f"{gang.name}-{number}"
    metadata = replace(gang.metadata, name=name, uid=f"capacity/{gang.namespace}/{name}")
    copied = replace(gang, metadata=metadata, status=PodGroupStatus())
    state.add(copied)
    membership = PodSchedulingGroup(pod_group_name=name)
    return Leaf(copied, [twin(info, info.pod.with_spec(scheduling_group=membership)) for info in infos])


def lacking(state: ClusterState, leaf: Leaf) -> list[Reason]:
    """Returns the reasons why nodes refuse the first member that does not fit; empty if all members fit."""
    with fitting_placed(state, state.engine.decide_group(leaf, enforces_gangs=False)) as refused:
        if refused is None:
            return []
        pod = without_group(refused.info.pod, state.table)
        return Explanation(state, pod, nodes=nodes_in(state, refused.domains)).reasons


class Capacity(Documented, frozen=True):
    """The number of pods of the given templates that a cluster can still take.

    Attributes:
        pods: template -> how many of its pods fit.
        by_node: template -> node -> how many of its pods fit on the node.
        by_zone: zone ("" for nodes without one) -> how many pods of all templates fit in the zone.
        exhausted: template -> why one more pod does not fit, the most frequent reason first. Templates of which more
            pods would fit are left out.
        gangs: template -> how many whole gangs of its pods fit; empty for templates whose pods are in no gang.
        limited: True if the search ended at its limit, so that more pods may fit.
        notes: remarks on the templates, such as defaults that were filled in.
        left_over: what no typical claim can use on shared devices, once the pods are in place.
    """

    pods: Mapping[str, int]
    by_node: Mapping[str, Mapping[str, int]]
    by_zone: Mapping[str, int]
    exhausted: Mapping[str, Sequence[Reason]]
    limited: bool
    notes: Sequence[str]
    gangs: Mapping[str, GangCapacity] = {}
    left_over: Sequence[LeftOver] = ()

    def __repr__(self) -> str:
        return f"Capacity({_summary(self)})"

    @property
    def total(self) -> int:
        """The number of pods that fit, added up over all templates."""
        return sum(self.pods.values())

    def to_frame(self) -> pd.DataFrame:
        """Returns a DataFrame with a row for each template and node: template, node, pods.

        Raises ExtenderError if pandas is not installed.
        """
        rows = [
            {"template": template, "node": node, "pods": pods}
            for template, nodes in self.by_node.items()
            for node, pods in nodes.items()
        ]
        return frame(rows, ("template", "node", "pods"))

    def _repr_html_(self) -> str:
        return rendering.part("capacity.html", self.to_dict())

    def to_html(self) -> str:
        """Returns the answer as a web page in one self-contained file."""
        return rendering.file("capacity.html", self.to_dict())


def capacity(
    state: ClusterState,
    templates: Sequence[Workload | str],
    weights: Sequence[int] = (),
    most: int = MOST_PODS,
    progress: Progress | None = None,
) -> Capacity:
    """Fills a copy of the cluster with pods of the templates until the next pod does not fit.

    A template may be NAMESPACE/KIND/NAME of a workload in the cluster. Pods that are being deleted leave first.

    A DaemonSet comes first, with one pod on each of its nodes. Several other templates take turns: in each round as
    many pods of each template are added as its weight says (1 by default), until no pod of any template fits. Pods that
    are pending already are ignored, and no pod is preempted.

    Raises:
        MalformedCluster: the API server would refuse a template.
        ConfigurationError: two templates have the same kind, namespace and name, or a template names no workload.
        UnknownPod: a workload has no pods in the cluster.
    """
    existing = {each: replicas_of(state, each).template for each in templates if isinstance(each, str)}
    copied = state.copy()
    Simulation(copied).settle()
    for info in copied.pending:
        copied.remove_pod(info)
    admitted = admitted_templates(copied, templates, existing, most)
    pods = {
        name: each.pod.with_spec(preemption_policy="Never", scheduling_gates=None) for name, each in admitted.items()
    }
    gangs = gangs_of(copied, pods)
    pods = {name: pod if name in gangs else pod.with_spec(scheduling_group=None) for name, pod in pods.items()}
    simulation = Simulation(copied, progress=progress)
    by_node: dict[str, Mapping[str, int]] = {name: {} for name in pods}
    exhausted: dict[str, Sequence[Reason]] = {}
    for name in _daemon_sets(templates):
        # The reasons are found before the simulation adds pods of the DaemonSet.
        exhausted[name] = _reasons(copied, pods[name], None)
        by_node[name] = _on_each_node(simulation, pods[name], most)
    others = {name: pod for name, pod in pods.items() if name not in exhausted}
    turns = dict(zip(pods, weights or [1] * len(pods), strict=True))
    with known_so_far(lambda: f"at least {counted(len(simulation.log.placements), 'pod')} would fit"):
        filled, with_room = _filled(simulation, others, gangs, turns, most)
    by_node.update(filled)
    exhausted |= {name: _reasons(copied, pod, gangs.get(name)) for name, pod in others.items() if name not in with_room}
    for name, each in admitted.items():
        each.notes += remarks_on(copied, [each.pod])
        if each.pod.group_key is not None:
            whole = f"its pods are counted in whole gangs of {gangs[name].min_count}" if name in gangs else ALONE
            each.notes.append(whole)
        if remarks.names_its_node(each.pod, copied):
            text = f"spec.nodeName binds it to {each.pod.node_name} without a scheduler"
            each.notes.append(f"{text}, so pods are counted only on that node")
        if each.pod.spec.scheduling_gates:
            each.notes.append("its scheduling gates are ignored")
        each.notes += missing_templates(each.pod, copied.objects)
    left = left_over(copied)
    return Capacity(
        pods={name: sum(nodes.values()) for name, nodes in by_node.items()},
        by_node=by_node,
        by_zone=_zones(copied, by_node),
        exhausted=exhausted,
        limited=bool(with_room),
        notes=[*(f"{name}: {note}" for name, each in admitted.items() for note in each.notes), *map(str, left)],
        gangs={name: gang_capacity(copied, gang, by_node[name]) for name, gang in gangs.items()},
        left_over=left,
    )


def _daemon_sets(templates: Sequence[Workload | str]) -> list[str]:
    """Returns the names of the DaemonSets among the templates: the manifests without a number of replicas."""
    return [each.source for each in templates if isinstance(each, Workload) and each.replicas is None]


def _on_each_node(simulation: Simulation, pod: Pod, most: int) -> dict[str, int]:
    """Adds a pod of a DaemonSet to each of its nodes that can take the pod; returns {node: 1} for these nodes."""
    names = nodes_of_daemons(simulation.state, pod)[: most - len(simulation.log.placements)]
    daemons = [daemon_on(name, pod) for name in names]
    infos = [PodInfo(replica(each, each.name, f"capacity/{each.key}")) for each in daemons]
    simulation.add(infos)
    simulation.run()
    counts: dict[str, int] = {}
    for info in infos:
        placement = simulation.log.placements.get(info.pod.key)
        if placement is None:
            simulation.remove(info)
        else:
            counts[placement.node] = 1
    return counts


def admitted_templates(
    state: ClusterState, templates: Sequence[Workload | str], existing: Mapping[str, Pod], most: int
) -> dict[str, Admitted]:
    """Returns {template name: one pod of the template, as the API server would store the pod}.

    If a template is the name of a workload in the cluster, its pod is taken from `existing`.
    """
    admitted: dict[str, Admitted] = {}
    for template in templates:
        name = template if isinstance(template, str) else template.source
        if name in admitted:
            raise ConfigurationError([f"{name} is given twice: give each template its own name"])
        if isinstance(template, str):
            pod = existing[name]
            admitted[name] = Admitted(replace(pod, metadata=replace(pod.metadata, uid=f"capacity/{name}")))
            continue
        create_companions(state, template, most)
        admitted[name] = state.admit(template.pod(*template.names(1)))
    return admitted


def copies_of(state: ClusterState, pod: Pod, placed: int, size: int = 1) -> list[Pod]:
    """Returns `size` copies of the pod under new names. For a StatefulSet, adds the volume claims of the copies.

    Copies of a StatefulSet's pod get the lowest free ordinals, so that they use the claims that its controller creates.

    Args:
        placed: the number of copies that have a node; the search for free names begins after them.
    """
    base, _, ordinal = pod.name.rpartition("-")
    first = whole_number(ordinal) if is_of_stateful_set(pod) else None
    numbers = itertools.count((1 if first is None else first) + placed)
    names = (f"{pod.name if first is None else base}-{number}" for number in numbers)
    free = (name for name in names if f"{pod.namespace}/{name}" not in state.infos)
    copies = [replica(pod, name, f"capacity/{pod.namespace}/{name}") for name in itertools.islice(free, size)]
    add_claims_like(state, pod, copies)
    return copies


def _is_independent(pod: Pod, state: ClusterState) -> bool:
    """Returns True if copies of the pod affect each other only by using up a node's resources."""
    info = PodInfo(pod)
    devices = pod.spec.resource_claims or state.objects.all(DeviceClass)
    return not (info.volumes or devices or state.table.nominated) and state.engine.depends_on_resources_only(info)


def _at_once(state: ClusterState, pod: Pod, most: int) -> dict[str, int]:
    """Returns the number of pods that fit on each node, and adds their requests to the nodes in `state`.

    To place the pods one by one would take minutes in a large cluster. Instead, the number for each node is doubled
    while the filters accept that many pods, and then increased by ever smaller steps.
    """
    info = PodInfo(pod)
    accepted = dict.fromkeys(state.engine.decide(info).feasible, 1)
    step, growing = 1, list(accepted)
    while growing and step < most:
        step *= 2
        growing = _accepting(state, info, dict.fromkeys(growing, step))
        accepted.update(dict.fromkeys(growing, step))
    while step > 1:
        step //= 2
        # A node that accepts n pods has refused 2 * n, so fewer than n can be added.
        for name in _accepting(state, info, {name: n + step for name, n in accepted.items() if step < n}):
            accepted[name] += step
    counts = _cut(accepted, most)
    state.request(info, counts)
    return counts


def _accepting(state: ClusterState, info: PodInfo, counts: Mapping[str, int]) -> list[str]:
    """Returns the nodes that can take `counts[node]` copies of the pod."""
    others = {name: count - 1 for name, count in counts.items()}
    state.request(info, others)
    try:
        return state.engine.feasible(info, counts)
    finally:
        state.request(info, {name: -count for name, count in others.items()})


def _cut(counts: dict[str, int], most: int) -> dict[str, int]:
    """Returns the counts, limited to a total of `most`: the last counts are lowered or left out."""
    cut_counts: dict[str, int] = {}
    for name, count in counts.items():
        if most > 0:
            cut_counts[name] = min(count, most)
            most -= cut_counts[name]
    return cut_counts


def _filled(
    simulation: Simulation,
    pods: Mapping[str, Pod],
    gangs: Mapping[str, PodGroup],
    weights: Mapping[str, int],
    most: int,
) -> tuple[Mapping[str, Mapping[str, int]], list[str]]:
    """Adds pods in rounds until no further pod fits, or until there are `most` pods.

    In each round, a template adds as many pods as its weight says.

    Returns how many pods of each template are on each node, and the templates of which more would fit.
    """
    state, remaining = simulation.state, most - len(simulation.log.placements)
    if len(pods) == 1 and not gangs and _is_independent(first := next(iter(pods.values())), state):
        counts = _at_once(state, first, remaining)
        return dict.fromkeys(pods, counts), list(pods) if sum(counts.values()) == remaining else []
    by_node: dict[str, Counter[str]] = {name: Counter() for name in pods}
    templates = {name: precomputed(pod) for name, pod in pods.items()}
    with_room = list(pods)
    while with_room:
        for name in list(with_room):
            for _ in range(weights[name]):
                infos = _next(simulation, templates[name], gangs.get(name), by_node[name].total())
                if len(simulation.log.placements) + len(infos) > most:
                    return by_node, with_room
                simulation.add(infos)
                simulation.run()
                placements = [simulation.log.placements.get(info.pod.key) for info in infos]
                if None in placements:
                    for info in infos:
                        simulation.remove(info)
                    with_room.remove(name)
                    break
                by_node[name].update(placement.node for placement in placements if placement is not None)
    return by_node, with_room


def _next(simulation: Simulation, template: PodInfo, gang: PodGroup | None, placed: int) -> Sequence[PodInfo]:
    """Returns the next pod of a template, or the members of its next gang."""
    size = 1 if gang is None else _members_to_try(simulation.state, gang)
    copies = replica_infos(template, copies_of(simulation.state, template.pod, placed, size))
    if gang is None:
        return copies
    return copy_of_gang(simulation.state, gang, copies, simulation.log.attempts + 1).waiting


def _reasons(state: ClusterState, pod: Pod, gang: PodGroup | None) -> Sequence[Reason]:
    """Returns the reasons why one more pod of a template, or one more gang, does not fit."""
    if gang is None:
        (copied,) = copies_of(state, pod, 0)
        return Explanation(state, with_claims(state, copied)).reasons
    copies = replica_infos(precomputed(pod), copies_of(state, pod, 0, _members_to_try(state, gang)))
    copied_gang = copy_of_gang(state, gang, copies, -1)
    members = [PodInfo(with_claims(state, info.pod)) for info in copied_gang.waiting]
    return lacking(state, Leaf(copied_gang.group, members))


def _members_to_try(state: ClusterState, gang: PodGroup) -> int:
    """Returns `minCount`; if the nodes cannot hold so many pods, returns one more than they can hold.

    Such a gang does not fit, and the last of these members shows why. A `minCount` of two billion is then not built.
    """
    allocatable, requested = state.resources()["pods"]
    return min(max(gang.min_count, 1), int(np.maximum(allocatable - requested, 0).sum()) + 1, MOST_PODS + 1)


def _zones(state: ClusterState, by_node: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    zones: Counter[str] = Counter()
    for nodes in by_node.values():
        for name, count in nodes.items():
            zones[state.node(name).labels.get(ZONE, "")] += count
    return dict(sorted(zones.items()))


def _summary(capacity: Capacity) -> str:
    return f"{'at least ' if capacity.limited else ''}{counted(capacity.total, 'more pod')} would fit"


def _gangs_text(name: str, gangs: GangCapacity) -> str:
    text = f"{name}: {counted(gangs.count, 'whole gang')} of {counted(gangs.size, 'pod')}"
    by_domain = ", ".join(f"{domain or '<none>'} {count}" for domain, count in gangs.by_domain.items())
    return f"{text}; by {gangs.topology_key}: {by_domain}" if by_domain else text


def as_text(capacity: Capacity, *, every: bool = False) -> Iterator[str]:
    """Yields lines of text: the pods by template, zone and node, and what runs out. Lists are cut unless `every`."""
    yield _summary(capacity)
    yield from (printable(f"note: {note}") for note in capacity.notes)
    counts = [(name, str(pods), str(len(capacity.by_node[name]))) for name, pods in capacity.pods.items()]
    yield from section(("TEMPLATE", "PODS", "NODES"), counts)
    if capacity.by_zone:
        zones = ", ".join(f"{zone or '<no zone>'} {count}" for zone, count in capacity.by_zone.items())
        yield printable(f"by zone: {zones}")
    yield from (printable(_gangs_text(name, gangs)) for name, gangs in capacity.gangs.items())
    for name, reasons in capacity.exhausted.items():
        if reasons:
            yield ""
            more = "gang" if name in capacity.gangs else "pod"
            yield printable(f"one more {more} of {name} does not fit:")
            yield from reason_table(reasons)
    for name, nodes in capacity.by_node.items() if every or len(capacity.pods) == 1 else ():
        ranked = sorted(nodes.items(), key=lambda item: (-item[1], item[0]))
        rows = [(node, str(count)) for node, count in ranked]
        yield from section(("NODE", f"PODS OF {name}"), rows, None if every else MOST_ROWS, " nodes")
