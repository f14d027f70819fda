"""The room that there is for more pods of some templates, and what runs out first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from extender.errors import ConfigurationError
from extender.framework.topology import ZONE
from extender.model.devices.slices import DeviceClass
from extender.model.pod import Pod
from extender.offline.claims.making import missing_templates, replica, with_claims
from extender.offline.explain.explanation import Explanation, Reason
from extender.offline.html import rendering
from extender.offline.manifests.templates import Workload
from extender.offline.state import ClusterState
from extender.offline.text import MOST_ROWS, aligned, cut, printable
from extender.offline.what_if.simulation import Progress, Simulation
from extender.plugins.inter_pod_affinity import terms_against
from extender.plugins.pod_topology_spread.spread import DO_NOT_SCHEDULE
from extender.plugins.registry import IN_TREE
from extender.table import PodInfo
from extender.table.nodes.columns import NONZERO_CPU, NONZERO_MEMORY

MOST_PODS = 100_000


class Capacity(msgspec.Struct, frozen=True, rename="camel"):
    """The room that a cluster has for some templates at once.

    Attributes:
        pods: template -> how many of its pods fit.
        by_node: template -> node -> how many of them there.
        by_zone: zone ("" for nodes without one) -> pods of all templates there.
        exhausted: template -> the reasons why one more does not fit, the most frequent first; those with room left out.
        limited: the search ended at its limit, and more may fit.
        notes: what was filled in.
    """

    pods: Mapping[str, int]
    by_node: Mapping[str, Mapping[str, int]]
    by_zone: Mapping[str, int]
    exhausted: Mapping[str, Sequence[Reason]]
    limited: bool
    notes: Sequence[str]

    @property
    def total(self) -> int:
        """The pods of all templates."""
        return sum(self.pods.values())

    def to_dict(self) -> dict[str, Any]:
        """{"pods", "byNode", "byZone", "exhausted": {template: [reason, ...]}, "limited", "notes"}."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return told

    def _repr_html_(self) -> str:
        return rendering.part("capacity.html", self.to_dict())

    def to_html(self) -> str:
        """Returns the page in one file that needs no other."""
        return rendering.file("capacity.html", self.to_dict())


def capacity(
    state: ClusterState,
    workloads: Sequence[Workload],
    weights: Sequence[int] = (),
    most: int = MOST_PODS,
    progress: Progress | None = None,
) -> Capacity:
    """Fills a copy of the cluster with pods of the templates until the next one does not fit.

    Several templates take turns: in each round every one gets as many pods as its weight (1 unless given), until none
    has room. Nobody is preempted, and pods that wait already are left aside.

    Raises:
        MalformedCluster: a template would be refused by the API server.
        ConfigurationError: two templates are of one kind, namespace and name.
    """
    copied = state.copy()
    for info in copied.pending:
        copied.remove_pod(info)
    admitted = {}
    for workload in workloads:
        if workload.source in admitted:
            raise ConfigurationError([f"{workload.source} is given twice: give each template a name of its own"])
        if workload.owner is not None:
            copied.add(workload.owner)
        admitted[workload.source] = copied.admit(workload.pod(*workload.names(1)))
    pods = {
        name: each.pod.with_spec(preemption_policy="Never", scheduling_gates=None) for name, each in admitted.items()
    }
    only = next(iter(pods.values()))
    counts = _by_arithmetic(copied, only, most) if len(pods) == 1 and _independent(only, copied) else None
    if counts is None:
        turns = dict(zip(pods, weights or [1] * len(pods), strict=True))
        filled, roomy = _in_turns(copied, pods, turns, most, progress)
    else:
        filled, roomy = dict.fromkeys(pods, counts), list(pods) if sum(counts.values()) == most else []
    names = {name: sum(nodes.values()) for name, nodes in filled.items()}
    exhausted = {
        name: Explanation(copied, with_claims(copied, _nth(pod, -1))).reasons
        for name, pod in pods.items()
        if name not in roomy
    }
    for each in admitted.values():
        each.notes += missing_templates(each.pod, copied.table.objects)
    notes = [f"{name}: {note}" for name, each in admitted.items() for note in each.notes]
    return Capacity(names, filled, _zones(copied, filled), exhausted, bool(roomy), notes)


def _nth(pod: Pod, number: int) -> Pod:
    name = f"{pod.name}-{number}"
    return replica(pod, name, f"capacity/{pod.namespace}/{name}")


def _independent(pod: Pod, state: ClusterState) -> bool:
    """Returns True if one such pod changes nothing for another, but for the resources of its own node."""
    info, spec, table = PodInfo(pod), pod.spec, state.table
    hard = any(each.when_unsatisfiable == DO_NOT_SCHEDULE for each in spec.topology_spread_constraints or ())
    terms = info.required_affinity or info.required_anti_affinity or terms_against(info, table)
    rules_of_users = any(each.name not in IN_TREE for each in state.profile(pod).predicates)
    devices = spec.resource_claims or table.objects.all(DeviceClass)
    return not (hard or terms or info.host_ports or info.volumes or devices or table.nominated or rules_of_users)


def _by_arithmetic(state: ClusterState, pod: Pod, most: int) -> dict[str, int] | None:
    """Returns how often the request goes into what is free on each node, and makes the nodes that full.

    None where the profile overlooks a resource, so that it cannot be worked out.
    """
    nodes, rows = state.table.nodes, state.fit(pod).feasible
    footprint = nodes.vector(PodInfo(pod).footprint)
    counted = footprint > 0
    counted[[NONZERO_CPU, NONZERO_MEMORY]] = False
    free = (nodes.allocatable - nodes.requested)[: len(footprint)][:, rows]
    room = (free[counted] // footprint[counted][:, np.newaxis]).min(axis=0)
    if (room < 1).any():
        return None
    counts = _cut({nodes.names[row]: count for row, count in zip(rows.tolist(), room.tolist(), strict=True)}, most)
    for name, count in counts.items():
        nodes.request(nodes.row_of[name], footprint * count)
    return counts


def _cut(counts: dict[str, int], most: int) -> dict[str, int]:
    left, kept = most, dict[str, int]()
    for name, count in counts.items():
        if left > 0:
            kept[name] = min(count, left)
            left -= kept[name]
    return kept


def _in_turns(
    state: ClusterState, pods: Mapping[str, Pod], weights: Mapping[str, int], most: int, progress: Progress | None
) -> tuple[Mapping[str, Mapping[str, int]], Sequence[str]]:
    """Returns template -> node -> pods, and the templates that had room still when there were so many pods."""
    simulation = Simulation(state, progress=progress)
    filled: dict[str, Counter[str]] = {name: Counter() for name in pods}
    open_names = list(pods)
    while open_names:
        for name in list(open_names):
            for _ in range(weights[name]):
                if len(simulation.log.placements) == most:
                    return filled, open_names
                info = PodInfo(_nth(pods[name], simulation.log.attempts + 1))
                simulation.add([info])
                simulation.run()
                placed = simulation.log.placements.get(info.pod.key)
                if placed is None:
                    simulation.remove(info)
                    open_names.remove(name)
                    break
                filled[name][placed.node] += 1
    return filled, open_names


def _zones(state: ClusterState, filled: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    zones: Counter[str] = Counter()
    for nodes in filled.values():
        for name, count in nodes.items():
            zones[state.node(name).labels.get(ZONE, "")] += count
    return dict(sorted(zones.items()))


def as_text(found: Capacity, *, every: bool = False) -> Iterator[str]:
    """Pods by template, zone and node, and what runs out; `every`: uncut."""
    yield f"room for {'at least ' if found.limited else ''}{found.total} more pods"
    yield from (printable(f"note: {note}") for note in found.notes)
    yield ""
    yield from aligned(
        [("TEMPLATE", "PODS", "NODES"), *((n, str(c), str(len(found.by_node[n]))) for n, c in found.pods.items())]
    )
    if found.by_zone:
        yield printable(
            "by zone: " + ", ".join(f"{zone or 'no zone'} {count}" for zone, count in found.by_zone.items())
        )
    for name, reasons in found.exhausted.items():
        if reasons:
            yield ""
            yield printable(f"one more of {name} does not fit:")
            yield from aligned([("NODES", "REASON", "DETAIL"), *((str(r.nodes), r.reason, r.detail) for r in reasons)])
    for name, nodes in found.by_node.items() if every or len(found.pods) == 1 else ():
        ranked = sorted(nodes.items(), key=lambda each: (-each[1], each[0]))
        if ranked:
            yield ""
            lines = [("NODE", f"PODS OF {name}"), *((node, str(count)) for node, count in ranked)]
            yield from cut(lines, None if every else MOST_ROWS, " nodes")
