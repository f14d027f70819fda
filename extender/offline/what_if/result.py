"""The outcome of a simulation: as values, as JSON, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from extender.framework.profile import Profiles
from extender.framework.topology import ZONE
from extender.offline.html import rendering
from extender.offline.nodes import all_nodes
from extender.offline.state import ClusterState
from extender.offline.text import MOST_ROWS, Cells, aligned, cut, listed, printable
from extender.offline.what_if.budgets import NOT_ALLOWED
from extender.offline.what_if.scenario import Scenario, apply
from extender.offline.what_if.simulation import Eviction, Placement, Progress, Simulation, in_order
from extender.table.labels import ABSENT, Rows

_MEASURED = ("cpu", "memory")
_MEASURES = {
    "utilisation": "utilisation",
    "imbalance": "deviation of nodes",
    "zoneImbalance": "deviation of zones",
    "fragmentation": "fragmentation",
}


@dataclass(frozen=True, slots=True)
class Balance:
    """Measures over all nodes, each a share between 0 and 1, by resource.

    Attributes:
        utilisation: what is requested of all that is offered.
        imbalance: the standard deviation of the nodes' utilisation.
        zone_imbalance: the same of the zones'.
        fragmentation: the part of what is free that lies on nodes which cannot take one more pod of mean size.
        nodes: the nodes themselves, see `offline.nodes.all_nodes`; for maps, and not in `to_dict`.
    """

    utilisation: dict[str, float]
    imbalance: dict[str, float]
    zone_imbalance: dict[str, float]
    fragmentation: dict[str, float]
    nodes: Mapping[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """{"utilisation", "imbalance", "zoneImbalance", "fragmentation"}, each {resource: share}."""
        return {
            "utilisation": self.utilisation,
            "imbalance": self.imbalance,
            "zoneImbalance": self.zone_imbalance,
            "fragmentation": self.fragmentation,
        }


def balance_of(state: ClusterState) -> Balance:
    """The measures of the cluster as it is; empty clusters measure 0."""
    nodes, rows = state.table.nodes, state.table.nodes.rows
    offered = {name: nodes.allocatable[nodes.resources[name]][rows].astype(float) for name in _MEASURED}
    asked = {name: nodes.requested[nodes.resources[name]][rows].astype(float) for name in _MEASURED}
    free = {name: np.maximum(offered[name] - asked[name], 0) for name in _MEASURED}
    pods = max(int(nodes.requested[nodes.resources["pods"]][rows].sum()), 1)
    mean = {name: asked[name].sum() / pods for name in _MEASURED}
    full = np.zeros(len(rows), np.bool_)
    for name in _MEASURED:
        full |= free[name] < mean[name]
    full |= (nodes.allocatable - nodes.requested)[nodes.resources["pods"]][rows] < 1
    return Balance(
        {name: _share(asked[name].sum(), offered[name].sum()) for name in _MEASURED},
        {name: _spread(asked[name], offered[name]) for name in _MEASURED},
        {name: _spread(*_by_zone(state, rows, asked[name], offered[name])) for name in _MEASURED},
        {name: _share(free[name][full].sum(), free[name].sum()) for name in _MEASURED},
        all_nodes(state),
    )


def _by_zone(state: ClusterState, rows: Rows, *columns: Any) -> list[Any]:
    zone = state.table.nodes.labels[ZONE].ids[rows]
    return [np.bincount(zone[zone != ABSENT], weights=column[zone != ABSENT]) for column in columns]


def _spread(asked: Any, offered: Any) -> float:
    some = offered > 0
    return round(float(np.std(asked[some] / offered[some])), 4) if some.any() else 0.0


def _share(part: float, whole: float) -> float:
    return round(float(part / whole), 4) if whole else 0.0


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The outcome for every pod that was to be placed.

    Attributes:
        placements: pods that found a node, in the order in which they did.
        remaining: pods that found none -> the reason, as the scheduler words it.
        evictions: pods that had to leave, in order; those with a new home are among `placements`.
        lost: evicted pods that nobody makes again.
        kept: pods that stay on a drained node, for no PodDisruptionBudget lets them go -> the node.
        notes: what was filled in.
        before, after: the balance of the cluster.
        zones: node -> zone, of the nodes of `placements`.
    """

    placements: Sequence[Placement]
    remaining: Mapping[str, str]
    evictions: Sequence[Eviction]
    kept: Mapping[str, str]
    notes: Sequence[str]
    before: Balance
    after: Balance
    zones: Mapping[str, str]

    @property
    def lost(self) -> list[str]:
        return [each.pod for each in self.evictions if not each.comes_back]

    @property
    def complete(self) -> bool:
        """True if every pod has a node, and none is lost."""
        return not self.remaining and not self.lost

    def to_dict(self) -> dict[str, Any]:
        """The documented form: see docs/what-if.md. It is ready for JSON."""
        return {
            "placements": [{"pod": p.pod, "node": p.node, "previous": p.previous or None} for p in self.placements],
            "remaining": dict(self.remaining),
            "evictions": [
                {"pod": e.pod, "node": e.node, "cause": e.cause, "comesBack": e.comes_back} for e in self.evictions
            ],
            "lost": self.lost,
            "kept": dict(self.kept),
            "notes": list(self.notes),
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
        }

    def maps(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The nodes at both moments, for maps of them on a page."""
        return [("before", self.before.nodes), ("after", self.after.nodes)]

    def _repr_html_(self) -> str:
        return rendering.part("simulation.html", self.to_dict(), maps=())

    def to_html(self) -> str:
        """Returns the page in one file that needs no other."""
        return rendering.file("simulation.html", self.to_dict(), maps=self.maps())


def simulate(
    state: ClusterState,
    scenario: Scenario,
    seed: int = 0,
    profiles: Profiles | None = None,
    progress: Progress | None = None,
) -> SimulationResult:
    """Places what waits, and what the scenario makes wait, on a copy of the cluster, until nothing moves.

    Raises:
        UnknownNode, UnknownPod, MalformedCluster, ConfigurationError: the scenario asks for what is not possible.
        RuleFailed: a rule of the user's raised.
    """
    simulation = Simulation(state.copy(profiles), seed, progress)
    before = balance_of(simulation.state)
    simulation.add(in_order(simulation.state.pending))
    notes = apply(scenario, simulation)
    simulation.run()
    return result_of(simulation, before, notes)


def result_of(simulation: Simulation, before: Balance, notes: Sequence[str] = ()) -> SimulationResult:
    """The outcome so far."""
    state, log = simulation.state, simulation.log
    nodes = {each.node for each in log.placements.values()}
    zones = {name: state.node(name).labels.get(ZONE, "") for name in nodes if state.table.nodes.has(name)}
    remaining = {info.pod.key: log.reasons.get(info.pod.key, "") for info in in_order(state.pending)}
    placements = list(log.placements.values())
    return SimulationResult(
        placements, remaining, list(log.evictions), log.kept, notes, before, balance_of(state), zones
    )


def summary(result: SimulationResult) -> str:
    told = f"{len(result.placements)} pods placed, {len(result.remaining)} left over, {len(result.evictions)} evicted"
    return f"{told}, {len(result.lost)} lost" if result.lost else told


def as_text(result: SimulationResult, *, every: bool = False) -> Iterator[str]:
    """Placements, what is left with reasons, evictions with new homes, and the balance; `every`: uncut."""
    yield summary(result)
    yield from (printable(f"note: {note}") for note in result.notes)
    most = None if every else MOST_ROWS
    moved = [each for each in result.placements if not each.previous]
    if moved:
        yield ""
        yield from cut([("POD", "NODE"), *((each.pod, each.node) for each in moved)], most)
        by_zone = Counter(result.zones.get(each.node) or "no zone" for each in moved)
        yield printable("by zone: " + ", ".join(f"{zone} {count}" for zone, count in sorted(by_zone.items())))
    if result.remaining:
        reasons = Counter(result.remaining.values())
        examples = {reason: [pod for pod, its in result.remaining.items() if its == reason] for reason in reasons}
        lines = [(str(count), listed(examples[reason], 2), reason) for reason, count in reasons.most_common()]
        yield ""
        yield from cut([("LEFT OVER", "PODS", "REASON"), *lines], most)
    if result.evictions:
        homes = {each.pod: each.node for each in result.placements}
        left = [(e.pod, e.node, e.cause, _home(e, homes)) for e in result.evictions]
        yield ""
        yield from cut([("EVICTED", "FROM", "BY", "NEW HOME"), *left], most)
    if result.kept:
        yield ""
        yield from cut([("STAYS", "ON", "FOR"), *((pod, node, NOT_ALLOWED) for pod, node in result.kept.items())], most)
    yield from _balance(result)


def _home(eviction: Eviction, homes: Mapping[str, str]) -> str:
    return homes.get(eviction.pod, "none yet") if eviction.comes_back else "lost: no controller makes it again"


def _balance(result: SimulationResult) -> Iterator[str]:
    before, after = result.before.to_dict(), result.after.to_dict()
    lines: list[Cells] = [("", "CPU BEFORE", "AFTER", "MEMORY BEFORE", "AFTER")]
    for key, name in _MEASURES.items():
        lines.append((name, *(f"{at[key][resource]:.1%}" for resource in ("cpu", "memory") for at in (before, after))))
    yield ""
    yield from aligned(lines)
