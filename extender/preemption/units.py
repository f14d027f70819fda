"""Finds the pods that preemption evicts together: one pod, or all pods of a group with `disruptionMode: all`.

Source: upstream framework/preemption (NewPodVictim, getHighestAllAncestor, MoreImportantVictim).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from extender.model.pod_groups import MAX_TREE_DEPTH, CompositePodGroup, GroupName, PodGroup
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, Rows

_FEW_PODS = 200  # reading this many pods takes no longer than reading all groups


class UnitKind(IntEnum):
    """The kind of a unit of pods that are evicted together: a single pod, or the pods of a group.

    If two units have the same priority, the one whose kind has the larger number is more important.
    """

    POD = 1
    POD_GROUP = 2
    """The pods of a PodGroup, or one pod of it."""
    COMPOSITE_POD_GROUP = 3


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
        priority: the priority of the root group, or the pod's own.
        whole: the highest group that is disrupted as a whole; None if the pod is evicted alone.
    """

    priority: int
    kind: UnitKind = UnitKind.POD
    whole: GroupName | None = None


def disruption_of(info: PodInfo, table: Table) -> Disruption:
    """Returns the cost of evicting the pod, and the group that is evicted together with the pod, if any."""
    groups = groups_above(info, table)
    if not groups:
        is_member = table.features.generic_workload and info.pod.spec.scheduling_group is not None
        return Disruption(info.priority, UnitKind.POD_GROUP if is_member else UnitKind.POD)
    disrupted_whole = [group for group in groups if group.is_disrupted_whole]
    if not disrupted_whole:
        return Disruption(groups[-1].priority, UnitKind.POD_GROUP)
    name = GroupName.of(disrupted_whole[-1])
    kind = UnitKind.POD_GROUP if name.kind == PodGroup.__name__ else UnitKind.COMPOSITE_POD_GROUP
    return Disruption(groups[-1].priority, kind, name)


def evictable(table: Table, slots: Rows, priority: int) -> Rows:
    """Returns the slots, out of `slots`, of the pods that a preemptor of this priority may evict.

    For a pod in a group, the priority of the root group counts (upstream GetPodPriority).
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
    if not table.features.generic_workload:
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
