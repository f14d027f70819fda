"""Runs a simulation, and presents its outcome, with the members of each group, as values, JSON, text or a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from extender.framework.profile import Profiles
from extender.framework.topology import ZONE
from extender.model.pod import Pod
from extender.offline import rendering
from extender.offline.answers import Documented, frame
from extender.offline.nodes import LeftOver, all_nodes, left_over, names
from extender.offline.remarks import remarks_on
from extender.offline.state import ClusterState
from extender.offline.what_if.budgets import NOT_ALLOWED
from extender.offline.what_if.scenario import Scenario, apply
from extender.offline.what_if.simulation import Eviction, Placement, Progress, Simulation
from extender.offline.workloads import in_order
from extender.runtime.text import MOST_ROWS, Cells, counted, cut, listed, printable, section

if TYPE_CHECKING:
    import pandas as pd

_MEASURED = ("cpu", "memory")
MEASURES = {
    "utilisation": "utilisation",
    "imbalance": "deviation between nodes",
    "zoneImbalance": "deviation between zones",
    "fragmentation": "fragmentation",
}
"""The title of each measure in the document of a `Balance`, for people."""

Amounts = NDArray[np.float64]


class GroupPlace(StrEnum):
    """Says whether all, some or none of a group's members have a node."""

    WHOLE = "whole"
    PART = "part"
    NONE = "none"


class GroupCount(Documented, frozen=True):
    """The members of one PodGroup at the end of a simulation.

    Attributes:
        group: the PodGroup, as `namespace/name`.
        placed: the number of members on a node.
        waiting: the number of members without a node.
        lost: the number of members that were evicted and that no controller recreates.
        place: says if all members of the group have a node, some of them, or none.
    """

    group: str
    placed: int
    waiting: int
    lost: int
    place: GroupPlace

    def __str__(self) -> str:
        return f"{self.placed} of {self.placed + self.waiting + self.lost}"


def group_count(group: str, placed: int = 0, waiting: int = 0, lost: int = 0) -> GroupCount:
    some = GroupPlace.PART if waiting or lost else GroupPlace.WHOLE
    return GroupCount(group, placed, waiting, lost, some if placed else GroupPlace.NONE)


def group_counts(pods: Mapping[str, Pod], lost: Mapping[str, int]) -> list[GroupCount]:
    """Returns the counts of each group. `lost` maps the keys of groups to their numbers of lost members."""
    placed = Counter(pod.group_key for pod in pods.values() if pod.node_name)
    waiting = Counter(pod.group_key for pod in pods.values() if not pod.node_name)
    keys = {key for key in (*placed, *waiting, *lost) if key is not None}
    return [group_count(key, placed[key], waiting[key], lost.get(key, 0)) for key in sorted(keys)]


def by_place(groups: Sequence[GroupCount]) -> dict[GroupPlace, int]:
    """Returns the number of groups with all, with some and with no members on a node."""
    places = Counter(group.place for group in groups)
    return {place: places[place] for place in GroupPlace}


def as_sentence(groups: Sequence[GroupCount]) -> str:
    places = by_place(groups)
    return (
        f"pod groups: {places[GroupPlace.WHOLE]} with all members on a node, {places[GroupPlace.PART]} with some, "
        f"{places[GroupPlace.NONE]} with none"
    )


class Balance(Documented, frozen=True):
    """Measures of how fully and evenly the nodes are used; each is a share between 0 and 1, by resource.

    Attributes:
        utilisation: the share of all nodes' resources that pods request.
        imbalance: the standard deviation of the nodes' utilisation.
        zone_imbalance: the standard deviation of the zones' utilisation.
        fragmentation: the share of the free resources that is on nodes without room for one more pod of average size.
        by_node: the utilisation of each node.
    """

    utilisation: dict[str, float]
    imbalance: dict[str, float]
    zone_imbalance: dict[str, float]
    fragmentation: dict[str, float]
    by_node: dict[str, dict[str, float]] = msgspec.field(name="nodes")


def balance_of(state: ClusterState) -> Balance:
    """Measures how fully and evenly the nodes are used now. All measures of an empty cluster are 0."""
    resources = state.resources()
    allocatable = {name: resources[name][0].astype(float) for name in _MEASURED}
    requested = {name: resources[name][1].astype(float) for name in _MEASURED}
    zones = _zone_of_each_node(state)
    by_node = {
        node.name: {name: _share(requested[name][row], allocatable[name][row]) for name in _MEASURED}
        for row, node in enumerate(state.nodes())
    }
    return Balance(
        {name: _share(requested[name].sum(), allocatable[name].sum()) for name in _MEASURED},
        {name: _deviation(requested[name], allocatable[name]) for name in _MEASURED},
        {name: _deviation(_by_zone(zones, requested[name]), _by_zone(zones, allocatable[name])) for name in _MEASURED},
        fragmentation_of(state),
        dict(sorted(by_node.items())),
    )


def fragmentation_of(state: ClusterState) -> dict[str, float]:
    """Returns the share of the free resources that is on nodes without room for one more pod of average size."""
    resources = state.resources()
    allocatable_pods, placed_pods = resources["pods"]
    pods = max(int(placed_pods.sum()), 1)
    full = allocatable_pods - placed_pods < 1
    free: dict[str, Amounts] = {}
    for name in _MEASURED:
        allocatable, requested = (amounts.astype(float) for amounts in resources[name])
        free[name] = np.maximum(allocatable - requested, 0)
        full |= free[name] < requested.sum() / pods
    return {name: _share(free[name][full].sum(), free[name].sum()) for name in _MEASURED}


def _zone_of_each_node(state: ClusterState) -> Sequence[int]:
    """Returns a zone number for each node: the same number for nodes of one zone, -1 for nodes without a zone."""
    numbers: dict[str, int] = {}
    zones = (node.labels.get(ZONE) for node in state.nodes())
    return [-1 if zone is None else numbers.setdefault(zone, len(numbers)) for zone in zones]


def _by_zone(zones: Sequence[int], amounts: Amounts) -> Amounts:
    zone = np.array(zones, np.intp)
    return np.bincount(zone[zone >= 0], weights=amounts[zone >= 0]).astype(float)


def _deviation(requested: Amounts, allocatable: Amounts) -> float:
    offering = allocatable > 0
    return round(float(np.std(requested[offering] / allocatable[offering])), 4) if offering.any() else 0.0


def _share(part: float, whole: float) -> float:
    return round(float(part / whole), 4) if whole else 0.0


class DrainEffect(Documented, frozen=True):
    """The effect of a drain: the differences between two simulations, with and without the drain.

    Attributes:
        evicted: the pods that are evicted only with the drain.
        remaining: the pods that are pending at the end only with the drain.
        lost: the pods that are lost only with the drain.
        remaining_without: the pods that are pending at the end without the drain.
        summary: the numbers of these pods as a sentence.
    """

    evicted: Sequence[str]
    remaining: Sequence[str]
    lost: Sequence[str]
    remaining_without: Sequence[str]
    summary: str


class Simulated(Documented, frozen=True, kw_only=True):
    """The outcome of a simulation, as commands print it.

    Attributes:
        placements: the pods that got a node, in the order in which they were placed.
        remaining: the pods that got no node, and why, in the scheduler's words.
        evictions: the evicted pods in order of eviction; pods that were placed again are also in `placements`.
        lost: the evicted pods that no controller recreates.
        kept: pods that stay on a drained node because no PodDisruptionBudget allows their eviction -> the node.
        notes: remarks for people, such as defaults that were filled in.
        before, after: how fully and evenly the nodes are used before and after the simulation.
        groups: the members of each PodGroup that have a node, wait or are lost.
        drain: what the drain does, compared with the same scenario without it; None if nothing is drained.
        left_over: what no typical claim can use on shared devices, after the simulation.
    """

    placements: Sequence[Placement]
    remaining: Mapping[str, str]
    evictions: Sequence[Eviction]
    lost: Sequence[str]
    kept: Mapping[str, str]
    groups: Sequence[GroupCount]
    drain: DrainEffect | None
    notes: Sequence[str]
    before: Balance
    after: Balance
    left_over: Sequence[LeftOver] = ()


class SimulationResult(Simulated, frozen=True, kw_only=True):
    """The outcome of a simulation for every pod that was to be placed; the attributes of `Simulated`, and more.

    Attributes:
        zones: node -> zone, for the nodes in `placements`.
        pods: every pod of the cluster at the end, by `namespace/name`; pods without a node are pending.
        moments: the nodes before and after the simulation, as `offline.nodes.all_nodes` describes them, for maps.
    """

    zones: Mapping[str, str]
    pods: Mapping[str, Pod]
    moments: tuple[Mapping[str, Any], Mapping[str, Any]]

    def __repr__(self) -> str:
        return f"SimulationResult({summary(self)})"

    @property
    def complete(self) -> bool:
        """True if every pod has a node, and no evicted pod is lost."""
        return not self.remaining and not self.lost

    @property
    def succeeds(self) -> bool:
        """True if the command exits with 0: the result is complete, or the drain causes none of what is missing."""
        if self.drain is None:
            return self.complete
        return not (self.kept or self.drain.remaining or self.drain.lost)

    def to_dict(self) -> dict[str, Any]:
        """Returns the documented form, ready for JSON: see docs/what-if.md."""
        return msgspec.convert(self, Simulated, from_attributes=True).to_dict()

    def to_frame(self) -> pd.DataFrame:
        """Returns a DataFrame with a row for each pod that was to be placed: pod, node, previous and reason.

        `node` is None for a pod that is still pending, and `reason` says why. Raises ExtenderError without pandas.
        """
        placed = [{"pod": each.pod, "node": each.node, "previous": each.previous or ""} for each in self.placements]
        remaining = [{"pod": pod, "node": None, "reason": reason} for pod, reason in self.remaining.items()]
        return frame([*placed, *remaining], ("pod", "node", "previous", "reason"))

    def maps(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Returns (title, nodes) for the maps on a page: the nodes before and after the simulation."""
        return list(zip(("before", "after"), self.moments, strict=True))

    def _repr_html_(self) -> str:
        return rendering.part("simulation.html", self.to_dict(), maps=())

    def to_html(self) -> str:
        """Returns the result as a web page in one self-contained file."""
        return rendering.file("simulation.html", self.to_dict(), maps=self.maps())


def simulate(
    state: ClusterState,
    scenario: Scenario,
    seed: int = 0,
    profiles: Profiles | None = None,
    progress: Progress | None = None,
) -> SimulationResult:
    """Applies the scenario to a copy of the cluster, and tries to place all pending pods until nothing changes.

    If nodes are drained, the scenario is simulated again without the drain, to find which effects the drain causes.

    Raises:
        UnknownNode, UnknownPod, MalformedCluster, ConfigurationError: the scenario is not possible.
        RuleFailed: a user's rule raised.
    """
    result = simulate_once(state, scenario, seed, profiles, progress)
    if not scenario.drain:
        return result
    without = simulate_once(state, replace(scenario, drain=()), seed, profiles)
    return msgspec.structs.replace(result, drain=_effect(result, without))


def _effect(result: SimulationResult, without: SimulationResult) -> DrainEffect:
    evicted_without = {eviction.pod for eviction in without.evictions}
    evicted = [each.pod for each in result.evictions if each.pod not in evicted_without]
    remaining = [pod for pod in result.remaining if pod not in without.remaining]
    lost = [pod for pod in result.lost if pod not in without.lost]
    text = (
        f"because of the drain: {len(evicted)} evicted, {len(remaining)} pending"
        f"{f', {len(lost)} lost' if lost else ''}; without it: {len(without.remaining)} pending"
    )
    return DrainEffect(evicted, remaining, lost, list(without.remaining), text)


def simulate_once(
    state: ClusterState,
    scenario: Scenario,
    seed: int,
    profiles: Profiles | None = None,
    progress: Progress | None = None,
) -> SimulationResult:
    """Does the same as `simulate`, but does not compute the effect of a drain."""
    simulation = Simulation(state.copy(profiles), seed, progress)
    state, log = simulation.state, simulation.log
    before, nodes_before = balance_of(state), all_nodes(state)
    simulation.add(in_order(state.pending))
    notes = apply(scenario, simulation)
    simulation.settle()
    left = left_over(state)
    notes += [*remarks_on(state, list(simulation.tried.values())), *map(str, left)]
    nodes = {placement.node for placement in log.placements.values()}
    pods = {key: info.pod for key, info in state.infos.items()}
    return SimulationResult(
        placements=list(log.placements.values()),
        remaining={info.pod.key: log.reasons.get(info.pod.key, "") for info in in_order(state.pending)},
        evictions=list(log.evictions),
        lost=[eviction.pod for eviction in log.evictions if not eviction.comes_back],
        kept=log.kept,
        groups=group_counts(pods, log.lost_members),
        drain=None,
        notes=notes,
        before=before,
        after=balance_of(state),
        left_over=left,
        zones={name: state.node(name).labels.get(ZONE, "") for name in nodes if state.has_node(name)},
        pods=pods,
        moments=(nodes_before, all_nodes(state)),
    )


def summary(result: SimulationResult) -> str:
    """Returns a line such as `12 pods placed, 1 pending, 3 evicted`; lost pods are added if there are any."""
    placed = counted(len(result.placements), "pod")
    lost = f", {len(result.lost)} lost" if result.lost else ""
    return f"{placed} placed, {len(result.remaining)} pending, {len(result.evictions)} evicted{lost}"


def as_text(result: SimulationResult, *, every: bool = False) -> Iterator[str]:
    """Yields lines of text: placements, pending pods, evictions and balance. Long lists are cut unless `every`."""
    yield summary(result)
    if result.drain:
        yield result.drain.summary
    yield from (printable(f"note: {note}") for note in result.notes)
    most = None if every else MOST_ROWS
    if placed := result.placements:
        yield ""
        yield from cut(_placed_rows(placed), most, " pods")
        by_zone = Counter(result.zones.get(each.node) or "<no zone>" for each in placed)
        yield printable("by zone: " + ", ".join(f"{zone} {count}" for zone, count in sorted(by_zone.items())))
    if result.groups:
        yield ""
        yield as_sentence(result.groups)
        incomplete = [
            (each.group, str(each.placed), str(each.waiting), str(each.lost))
            for each in result.groups
            if each.place is not GroupPlace.WHOLE
        ]
        if incomplete:
            yield from cut([("POD GROUP", "ON A NODE", "WAITING", "LOST"), *incomplete], most, " groups")
    head, *pending = _pending_rows(result.remaining, every=every)
    yield from section(head, pending, most, " reasons")
    nodes = {placement.pod: placement.node for placement in placed}
    evicted = [(each.pod, each.node, each.cause, _new_node(each, nodes)) for each in result.evictions]
    yield from section(("EVICTED POD", "FROM", "BECAUSE OF", "NEW NODE"), evicted, most, " pods")
    kept = [(pod, node, NOT_ALLOWED) for pod, node in result.kept.items()]
    yield from section(("POD THAT STAYS", "ON", "BECAUSE"), kept, most, " pods")
    head = ("", "CPU BEFORE", "AFTER", "MEMORY BEFORE", "AFTER")
    yield from section(head, _balance(result))
    if every:
        yield from section(("NODE", *head[1:]), _by_node(result))


def _placed_rows(placements: Sequence[Placement]) -> list[Cells]:
    """Returns a table of the placed pods, with columns for devices and for the previous nodes if there are any."""
    columns = [("POD", [each.pod for each in placements]), ("NODE", [each.node for each in placements])]
    columns.append(("DEVICES", [", ".join(names(each.devices)) for each in placements]))
    columns.append(("EVICTED FROM", [each.previous or "" for each in placements]))
    shown = [(title, cells) for title, cells in columns if any(cells)]
    return [tuple(title for title, _ in shown), *zip(*(cells for _, cells in shown), strict=True)]


def _pending_rows(remaining: Mapping[str, str], *, every: bool) -> list[Cells]:
    """Returns a table of the pending pods: one row for each reason, or one for each pod if `every` is True."""
    if every:
        return [("PENDING POD", "REASON"), *remaining.items()]
    pods: dict[str, list[str]] = {}
    for pod, reason in remaining.items():
        pods.setdefault(reason, []).append(pod)
    most_first = sorted(pods.items(), key=lambda item: -len(item[1]))
    return [
        ("PENDING", "PODS", "REASON"),
        *((str(len(names)), listed(names, 2), reason) for reason, names in most_first),
    ]


def _new_node(eviction: Eviction, nodes: Mapping[str, str]) -> str:
    return nodes.get(eviction.pod, "none yet") if eviction.comes_back else "lost: no controller recreates it"


def _balance(result: Simulated) -> Iterator[Cells]:
    before, after = result.before.to_dict(), result.after.to_dict()
    for key, title in MEASURES.items():
        shares = [f"{moment[key][resource]:.1%}" for resource in _MEASURED for moment in (before, after)]
        yield title, *shares


def _by_node(result: SimulationResult) -> Iterator[Cells]:
    """Yields a row for each node: its utilisation before and after. A cell is empty if the node did not exist."""
    moments = (result.before.by_node, result.after.by_node)
    for name in sorted(moments[0].keys() | moments[1].keys()):
        shares = [nodes[name][resource] if name in nodes else None for resource in _MEASURED for nodes in moments]
        yield name, *("" if share is None else f"{share:.1%}" for share in shares)
