"""Finds the pods that may be evicted, sorts them by importance, and picks the node where eviction costs least.

A unit is what preemption evicts together: one pod, or all pods of a group with `disruptionMode: all`. A pod's slot is
its index in the table's pod columns.

Source: upstream framework/preemption (NewPodVictim, getHighestAllAncestor, MoreImportantVictim).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.model.pod_groups import MAX_TREE_DEPTH, CompositePodGroup, GroupName, PodGroup
from extender.model.workloads import PodDisruptionBudget
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, IntColumn, Rows, mask_of
from extender.table.podinfo import lazy_attribute

_FEW_PODS = 200  # reading this many pods takes no longer than reading all groups
_ROWS_IN_16_BITS = 2**16
# Added to every priority before summing, so that more victims of negative priority do not cost less.
_PRIORITY_OFFSET = 2**31


class UnitKind(IntEnum):
    """The kind of a unit of pods that are evicted together: a single pod, or the pods of a group.

    If two units have the same priority, the one whose kind has the larger number is more important.
    """

    POD = 1
    POD_GROUP = 2
    """The pods of a PodGroup, or one pod of it."""
    COMPOSITE_POD_GROUP = 3

    @property
    def entity(self) -> str:
        """The kind as metrics have it: pod, podgroup or compositepodgroup."""
        return self.name.replace("_", "").lower()


def groups_above(info: PodInfo, table: Table) -> Sequence[PodGroup | CompositePodGroup]:
    """Returns the groups of the pod from its PodGroup up to the root, or up to the first group that does not exist."""
    key = info.pod.group_key if table.features.generic_workload else None
    group: PodGroup | CompositePodGroup | None = None if key is None else table.objects.get(PodGroup, key)
    groups: list[PodGroup | CompositePodGroup] = []
    while group is not None and len(groups) < MAX_TREE_DEPTH:  # also ends in a cycle
        groups.append(group)
        parent = group.parent_key if table.features.composites else None
        group = None if parent is None else table.objects.get(CompositePodGroup, parent)
    return groups


class Disruption(NamedTuple):
    """The cost of evicting a pod, which depends on the pod's groups.

    Attributes:
        priority: the pod's own priority; before Kubernetes 1.38, that of its root group.
        whole: the highest group that is disrupted as a whole; None if the pod is evicted alone.
    """

    priority: int
    kind: UnitKind = UnitKind.POD
    whole: GroupName | None = None


def disruption_of(info: PodInfo, table: Table) -> Disruption:
    """Returns the cost of evicting the pod, and the group that is evicted together with the pod, if any."""
    groups, as_pod = groups_above(info, table), table.features.behaviours.members_are_evicted_as_pods
    if not groups:
        is_member = table.features.generic_workload and info.pod.spec.scheduling_group is not None and not as_pod
        return Disruption(info.priority, UnitKind.POD_GROUP if is_member else UnitKind.POD)
    priority = info.priority if as_pod else groups[-1].priority
    disrupted_whole = [group for group in groups if group.is_disrupted_whole]
    if not disrupted_whole:
        return Disruption(priority, UnitKind.POD if as_pod else UnitKind.POD_GROUP)
    name = GroupName.of(disrupted_whole[-1])
    kind = UnitKind.POD_GROUP if name.kind == PodGroup.__name__ else UnitKind.COMPOSITE_POD_GROUP
    return Disruption(priority, kind, name)


def evictable(table: Table, slots: Rows, priority: int) -> Rows:
    """Returns the slots, out of `slots`, of the pods that a preemptor of this priority may evict.

    For a pod in a group, the priority of the root group counts before Kubernetes 1.38 (upstream GetPodPriority).
    """
    is_lower = table.pods.priority[slots] < priority
    doubtful = _doubtful(table, is_lower, priority)
    for position, info in zip(doubtful.tolist(), table.pods.at(slots[doubtful]), strict=True):
        if info.pod.spec.scheduling_group is not None:
            is_lower[position] = disruption_of(info, table).priority < priority
    chosen: Rows = slots[is_lower]
    return chosen


def _doubtful(table: Table, is_lower: BoolColumn, priority: int) -> Rows:
    """Returns the positions of the pods whose groups must be looked up, because they may change `is_lower`.

    `is_lower`, bool[n], is True if the pod's own priority is below `priority`, but the priority of the pod's group
    decides. A cluster may have very many pods, so a pod is left out if no group's priority could change its value.
    """
    if not table.features.generic_workload or table.features.behaviours.members_are_evicted_as_pods:
        return np.zeros(0, np.intp)
    if len(is_lower) <= _FEW_PODS:
        return np.arange(len(is_lower))
    ranks = {group.priority for kind in (PodGroup, CompositePodGroup) for group in table.objects.all(kind).values()}
    differs = np.where(is_lower, max(ranks, default=priority - 1) >= priority, min(ranks, default=priority) < priority)
    return np.flatnonzero(differs)


class Unit(NamedTuple):
    """Pods that are evicted together to make room on one node.

    Attributes:
        row: the row of the node that the preemptor would use.
        slots: the slots of all pods of the unit; for a whole group also those on other nodes.
    """

    row: int
    slots: Sequence[int]
    priority: int
    kind: UnitKind

    def importance(self, table: Table) -> tuple[object, ...]:
        """Returns the key that sorts units: by node, then the most important first, then by the first pod's tie key."""
        started = float(table.pods.started[list(self.slots)].min())
        tie = tie_key(table.pods.info(self.slots[0]), table)
        return self.row, -self.priority, -self.kind, -len(self.slots), started, tie


def tie_key(info: PodInfo, table: Table) -> str:
    """Returns the key that sorts victims of equal importance (upstream MoreImportantVictim).

    Since Kubernetes 1.38 it is the UID. Before, upstream took any of them; by name, answers can be reproduced.
    """
    return info.uid if table.features.behaviours.victims_by_uid else info.sort_key


def has_members(table: Table, slots: Rows) -> bool:
    """Returns True if any of the pods in these slots is in a group."""
    if not (table.features.generic_workload and table.objects.all(PodGroup)):
        return False
    return any(info.pod.spec.scheduling_group is not None for info in table.pods.at(slots))


def units_on(table: Table, slots: Rows) -> list[Unit]:
    """Returns the units of the pods in these slots, sorted by importance; the pods of a unit are evicted together."""
    alone: list[Unit] = []
    whole: dict[tuple[int, GroupName], Disruption] = {}
    for slot, info in zip(slots.tolist(), table.pods.at(slots), strict=True):
        row, of = int(table.pods.row[slot]), disruption_of(info, table)
        if of.whole is None:
            alone.append(Unit(row, [slot], of.priority, of.kind))
        else:
            whole[row, of.whole] = of
    members = _members(table, {name for _, name in whole})
    together = [Unit(row, members[name], of.priority, of.kind) for (row, name), of in whole.items()]
    return sorted([*alone, *together], key=lambda unit: unit.importance(table))


def _members(table: Table, names: set[GroupName]) -> dict[GroupName, list[int]]:
    """Returns, for each group in `names`, the slots of its placed pods in the table, sorted by pod name."""
    members: dict[GroupName, list[int]] = {name: [] for name in names}
    placed = np.flatnonzero(table.pods.row >= 0) if names else np.zeros(0, np.intp)
    by_name = sorted(zip(table.pods.at(placed), placed.tolist(), strict=True), key=lambda pair: pair[0].sort_key)
    for info, slot in by_name:
        if info.pod.spec.scheduling_group is not None and (name := disruption_of(info, table).whole) in members:
            members[name].append(slot)
    return members


def by_importance(table: Table, slots: Rows) -> tuple[Rows, IntColumn]:
    """Sorts pods by row, then by descending priority, then by ascending start time (upstream MoreImportantPod).

    Since Kubernetes 1.38, of two such pods the one with the lower UID is more important. Before, they are equally
    important, and are sorted by namespace and name: upstream leaves their order to chance, because its sort is not
    stable (docs/differences.md).

    Returns:
        The sorted slots, intp[n], and their ranks, int64[n]. Two ranks are equal only if the pods are equally important
        and on one node.
    """
    pods = table.pods
    rows, priority, started = pods.row[slots], pods.priority[slots], pods.started[slots]
    # Ten times as fast as np.lexsort, because numbers of 16 bits are sorted by their digits.
    order = np.argsort(started)
    for key in (-priority, rows.astype(np.uint16) if table.nodes.capacity <= _ROWS_IN_16_BITS else rows):
        order = order[np.argsort(key[order], kind="stable")]
    slots, rows, priority, started = slots[order], rows[order], priority[order], started[order]
    tied = (rows[1:] == rows[:-1]) & (started[1:] == started[:-1]) & (priority[1:] == priority[:-1])
    if not tied.any():
        return slots, np.arange(len(slots))
    rank = np.concatenate(([0], np.cumsum(~tied)))
    _sort_ties(table, slots, rank)
    return slots, np.arange(len(slots)) if table.features.behaviours.victims_by_uid else rank


def _sort_ties(table: Table, slots: Rows, rank: IntColumn) -> None:
    """Sorts pods of equal rank, which are adjacent in `slots`, by their tie key; changes `slots`."""
    tied = np.flatnonzero(np.bincount(rank)[rank] > 1)
    keys = [tie_key(info, table) for info in table.pods.at(slots[tied])]
    order = sorted(range(len(tied)), key=lambda i: (rank[tied[i]], keys[i]))
    slots[tied] = slots[tied[order]]


class VictimColumns(NamedTuple):
    """The pods to evict for each of several nodes. Pods for one node are adjacent, the most important first.

    Pods that are evicted together are adjacent. A pod may be on another node than the one for which it is evicted.

    Attributes:
        slots: intp[n]: the slots of the pods, which are indices into the table's pod columns.
        rows: intp[n]: the rows of the nodes for which the pods are evicted; a pod on another node frees nothing there.
        violating: bool[n]: True if evicting the pod would violate a PodDisruptionBudget.
        rank: int64[n]: smaller for more important pods; equal only for equally important pods on one node.
        unit: int64[n]: equal only for pods that are evicted together; None if each pod is evicted alone, from its node,
            and after `joined`, whose result only `Candidates` may read.
    """

    slots: Rows
    rows: Rows
    violating: BoolColumn
    rank: IntColumn
    unit: IntColumn | None = None

    def only(self, chosen: BoolColumn | Rows) -> VictimColumns:
        """Returns the chosen pods: `chosen` is a bool mask of the pods, or their positions in the desired order."""
        return VictimColumns._make(None if column is None else column[chosen] for column in self)

    def joined(self, others: VictimColumns) -> VictimColumns:
        """Returns these pods followed by those of `others`, without their units. No node may have victims in both."""
        return VictimColumns(*(np.concatenate(columns) for columns in zip(self[:-1], others[:-1], strict=True)))

    def unit_begins(self) -> Rows:
        """Returns the position of each unit's first pod, followed by the number of all pods: intp[units + 1].

        A unit is a set of pods that are evicted together.
        """
        if self.unit is None:
            return np.arange(len(self.rows) + 1)
        differs = (self.rows[1:] != self.rows[:-1]) | (self.unit[1:] != self.unit[:-1])
        first = [0] if len(self.rows) else []
        return np.concatenate((first, np.flatnonzero(differs) + 1, [len(self.rows)])).astype(np.intp)

    def whole_units(self, chosen: BoolColumn) -> BoolColumn:
        """Returns bool[n]: True for the pods in `chosen` and for pods that are evicted together with a chosen pod."""
        if self.unit is None or not chosen.any():
            return chosen
        begins = self.unit_begins()
        return np.repeat(np.logical_or.reduceat(chosen, begins[:-1]), np.diff(begins))

    def on_own_node(self, table: Table) -> BoolColumn:
        """Returns bool[n]: True for the pods that run on the node for which they are evicted."""
        if self.unit is None:
            return np.ones(len(self.slots), np.bool_)
        own: BoolColumn = table.pods.row[self.slots] == self.rows
        return own

    def begins(self) -> Rows:
        """Returns the position of each node's first victim, followed by the number of all victims: intp[nodes + 1]."""
        changes = np.flatnonzero(self.rows[1:] != self.rows[:-1]) + 1
        return np.concatenate(([0], changes, [len(self.rows)])) if len(self.rows) else np.zeros(1, np.intp)

    @property
    def num_nodes(self) -> int:
        """The number of nodes for which pods are evicted."""
        return len(self.begins()) - 1

    def without(self, reprieved: BoolColumn) -> VictimColumns:
        """Returns the pods that are still to be evicted, because `reprieved`, bool[n], is False for them.

        Of equally important pods, those whose eviction violates a PodDisruptionBudget come first, as upstream.
        """
        victims = self.only(~reprieved)
        if not victims.violating.any():
            return victims
        return victims.only(np.lexsort((~victims.violating, victims.rank)))


_NO_ROWS = np.zeros(0, np.intp)
NO_VICTIMS = VictimColumns(_NO_ROWS, _NO_ROWS, np.zeros(0, np.bool_), np.zeros(0, np.int64))


def potential_victims(pod: PodInfo, table: Table, rows: Rows) -> VictimColumns:
    """Returns all pods on `rows` with a lower priority than `pod`, and the pods that are evicted with them."""
    pods = table.pods
    slots = evictable(
        table, np.flatnonzero((pods.row >= 0) & mask_of(table.nodes.capacity, rows)[pods.row]), pod.priority
    )
    if has_members(table, slots):
        return _in_units(table, units_on(table, slots))
    slots, rank = by_importance(table, slots)
    rows = pods.row[slots]
    return VictimColumns(slots, rows, violating(table, slots, rows), rank)


def _in_units(table: Table, units: Sequence[Unit]) -> VictimColumns:
    """Returns all pods of these units as victims. `units` must be sorted by importance."""
    sizes = [len(unit.slots) for unit in units]
    slots = np.array([slot for unit in units for slot in unit.slots], np.intp)
    rows = np.repeat(np.array([unit.row for unit in units], np.intp), sizes)
    tie_keys = None if table.features.behaviours.victims_by_uid else -1
    importance = [unit.importance(table)[:tie_keys] for unit in units]
    differs = [this != before for this, before in zip(importance[1:], importance, strict=False)]
    rank = np.repeat(np.concatenate(([0], np.cumsum(differs)))[: len(units)], sizes).astype(np.int64)
    unit = np.repeat(np.arange(len(units)), sizes)
    return VictimColumns(slots, rows, violating(table, slots, rows), rank, unit)


def violating(table: Table, slots: Rows, rows: Rows) -> BoolColumn:
    """Returns bool[n]: True if evicting the pod would violate a budget (upstream FilterVictimsWithPDBViolation).

    Each node is considered alone. A budget allows some evictions, and the most important pods use them up first. A pod
    that violates one budget does not use up an eviction that a later budget allows.

    Args:
        slots: intp[n]: the slots of the pods, sorted by `rows` and then by importance.
        rows: intp[n]: the rows of the nodes for which the pods would be evicted.
    """
    violating = np.zeros(len(slots), np.bool_)
    covered = _covered_by_budget(table, slots)
    for key, budget in table.objects.all(PodDisruptionBudget).items():
        if key in covered:
            positions = np.sort(np.concatenate(covered[key]))
            positions = _not_disrupted(table, budget, slots, positions[~violating[positions]])
            nodes = rows[positions]
            nth_on_node = np.arange(len(positions)) - np.searchsorted(nodes, nodes)
            violating[positions[nth_on_node >= budget.status.disruptions_allowed]] = True
    return violating


def _covered_by_budget(table: Table, slots: Rows) -> dict[str, list[Rows]]:
    """Returns a dict: key of a budget -> the positions in `slots` of the pods that the budget covers."""
    covered: dict[str, list[Rows]] = defaultdict(list)
    if len(slots) and table.objects.all(PodDisruptionBudget):
        groups = table.pods.group[slots]
        order = np.argsort(groups, kind="stable")
        begins = np.flatnonzero(np.diff(groups[order])) + 1
        for positions in np.split(order, begins):
            group = table.pods.info(int(slots[positions[0]])).group
            for key in table.budgets.covering(group):
                covered[key].append(positions)
    return covered


def _not_disrupted(table: Table, budget: PodDisruptionBudget, slots: Rows, positions: Rows) -> Rows:
    """Returns the positions of pods that the budget does not list as already evicted."""
    disrupted = budget.status.disrupted_pods
    if not disrupted:
        return positions
    is_undisrupted = [info.pod.name not in disrupted for info in table.pods.at(slots[positions])]
    return positions[np.array(is_undisrupted, np.bool_)]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that can take the preemptor once `victims` have left. The victims are in upstream's order.

    `num_pdb_violations` is the number of victims that a PodDisruptionBudget protects.
    """

    node: str
    victims: tuple[PodInfo, ...]
    num_pdb_violations: int


class Candidates(Mapping[str, Candidate]):
    """The nodes on which preemption helps: node name -> Candidate. It stays valid when the table changes."""

    def __init__(self, table: Table, victims: VictimColumns, num_pdb_violations: IntColumn | None = None) -> None:
        """Builds the candidates. `num_pdb_violations`: int64[nodes]; by default, the number of violating victims."""
        begins = victims.begins()
        if num_pdb_violations is None:
            num_pdb_violations = _sums(victims.violating, begins)
        self._node_names = table.nodes.names.copy()
        self._rows = victims.rows[begins[:-1]]
        self._begins = begins
        self._slots = victims.slots
        # There may be tens of thousands of victims. In the order of slots, they mostly lie side by side in memory.
        self._ordered_slots = np.flatnonzero(mask_of(len(table.pods.infos), victims.slots))
        self._infos = table.pods.infos.take(self._ordered_slots)
        self._num_pdb_violations = num_pdb_violations
        self._best_index = _pick_one_node(table, victims, begins, num_pdb_violations) if len(self) else -1
        self.best = self._node_names[self._rows[self._best_index]] if len(self) else None
        """The node to nominate, the first if several cost the same; None if there are no candidates."""

    @lazy_attribute
    def _index(self) -> Mapping[str, int]:
        return {name: index for index, name in enumerate(self)}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[str]:
        return (self._node_names[row] for row in self._rows.tolist())

    def __getitem__(self, node: str) -> Candidate:
        index = self._best_index if node == self.best else self._index[node]
        slots = self._slots[self._begins[index] : self._begins[index + 1]]
        victims = self._infos[np.searchsorted(self._ordered_slots, slots)]
        return Candidate(node, tuple(victims), int(self._num_pdb_violations[index]))


def candidates_of(table: Table, chosen: Mapping[str, Candidate]) -> Candidates:
    """Returns the candidates that another extender accepted; their nodes and victims must be in the table."""
    uids = [victim.uid for candidate in chosen.values() for victim in candidate.victims]
    slots = np.array([table.pods.slot_of[uid] for uid in uids], np.intp)
    rows = [table.nodes.row_of[candidate.node] for candidate in chosen.values() for _ in candidate.victims]
    victims = VictimColumns(slots, np.array(rows, np.intp), np.zeros(len(slots), np.bool_), np.arange(len(slots)))
    violations = [candidate.num_pdb_violations for candidate in chosen.values()]
    return Candidates(table, victims, np.array(violations, np.int64))


def _pick_one_node(table: Table, victims: VictimColumns, begins: Rows, num_pdb_violations: IntColumn) -> int:
    """Returns the index of the node where preemption costs least (upstream pickOneNodeForPreemption).

    If nodes are equal by one cost, the next cost decides. If they are equal by all costs, the first node is picked.
    """
    priority, sizes = table.pods.priority[victims.slots], np.diff(begins)
    cheapest = np.arange(len(sizes))
    for cost in (num_pdb_violations, priority[begins[:-1]], _sums(priority + _PRIORITY_OFFSET, begins), sizes):
        cheapest = cheapest[cost[cheapest] == cost[cheapest].min()]
    is_cheapest = mask_of(table.nodes.capacity, victims.rows[begins[cheapest]])
    remaining = victims.only(is_cheapest[victims.rows])
    return int(cheapest[_starts(table, remaining).argmax()])


def _starts(table: Table, victims: VictimColumns) -> NDArray[np.float64]:
    """Returns the start of each node's most important victim, the earliest if several are: float64[nodes]."""
    priority, begins = table.pods.priority[victims.slots], victims.begins()
    highest = np.repeat(np.maximum.reduceat(priority, begins[:-1]), np.diff(begins))
    started = np.where(priority == highest, table.pods.started[victims.slots], np.inf)
    starts: NDArray[np.float64] = np.minimum.reduceat(started, begins[:-1])
    return starts


def _sums(numbers: NDArray[np.generic], begins: Rows) -> IntColumn:
    """Returns the sum of `numbers` over each node's victims: int64[nodes]."""
    sums = np.concatenate(([0], np.cumsum(numbers, dtype=np.int64)))
    return np.diff(sums[begins])
