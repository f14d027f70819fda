"""Finds the volumes and storage pools that a claim may get on each node, and picks the best one for each node.

The capacity of a pool is what its CSI driver reports (KEP-1472).

Source: component-helpers volume.FindMatchingVolume, upstream volumeBinder.hasEnoughCapacity.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from extender.framework.node_selectors import nodes_in_term
from extender.framework.rules import Scores
from extender.model.meta import LabelSelector, NodeSelector
from extender.model.quantity import Quantity, nano, units
from extender.model.selectors import compile_selector
from extender.model.storage import FILESYSTEM, CSIDriver, CSIStorageCapacity, PersistentVolumeClaim, StorageClass
from extender.table import Table
from extender.table.journal import FREE_VOLUMES, TOPOLOGY, Cursor
from extender.table.labels import BoolColumn, Rows
from extender.table.volume_usage import UnboundVolume, VolumeTraits

NONE = -1
_MAX_SELECTORS = 65536

Picked = NDArray[np.intp]
_UNKNOWN = -1


class Accessibility:
    """Knows which nodes can access each item of a list that is sorted best first.

    An item is a volume or a storage pool. Items that can be accessed by the same nodes share a group.
    """

    def __init__(self, group: NDArray[np.intp], rows: Sequence[Rows]) -> None:
        """Stores the groups of items, and the nodes that can access each group.

        Args:
            group: intp[item]: the index of the item's group.
            rows: for each group, the rows of the nodes that can access its items.
        """
        self._group = group
        self._groups = len(rows)
        self._edge_group = np.repeat(np.arange(len(rows)), [len(of_group) for of_group in rows])
        self._edge_row: Rows = np.concatenate(rows) if rows else np.zeros(0, np.intp)

    def pick(self, suitable: BoolColumn, taken: Sequence[Picked], capacity: int) -> Picked:
        """Returns, for each node, the first suitable item that the node can access.

        Args:
            suitable: bool[item]: the items to choose from.
            taken: the results of earlier calls. For each node, an item that was picked before is not picked again.
            capacity: the number of rows.

        Returns:
            intp[capacity]: the index of each row's item, or NONE.
        """
        nothing = len(suitable)
        ranked = self._ranked(suitable, len(taken) + 1)
        depth = np.zeros(len(self._edge_row), np.intp)
        for _ in taken:
            candidate = ranked[self._edge_group, depth]
            depth += np.logical_or.reduce([candidate == picked[self._edge_row] for picked in taken])
        best = np.full(capacity, nothing, np.intp)
        np.minimum.at(best, self._edge_row, ranked[self._edge_group, depth])
        best[best == nothing] = NONE
        return best

    def _ranked(self, suitable: BoolColumn, depth: int) -> NDArray[np.intp]:
        """Returns the first `depth` suitable items of each group: intp[group, depth].

        If a group has fewer suitable items, its remaining entries are len(suitable), which is not the index of an item.
        """
        ranked = np.full((self._groups, depth), len(suitable), np.intp)
        items = np.flatnonzero(suitable)
        items = items[np.argsort(self._group[items], kind="stable")]
        groups = self._group[items]
        rank = np.arange(len(items)) - np.searchsorted(groups, groups)
        first = rank < depth
        ranked[groups[first], rank[first]] = items[first]
        return ranked


def values_picked(values: Scores, picked: Picked) -> Scores:
    """Returns the value of each row's item: int64[n]; 0 if the row has no item.

    Args:
        values: int64[item]: the value of each item.
        picked: intp[n]: the index of each row's item, as `Accessibility.pick` returns it.
    """
    return np.append(values, 0)[picked]  # an index of NONE (-1) selects the last element, which is 0


def nodes_with_access(selector: NodeSelector | None, table: Table, rows: Rows) -> BoolColumn:
    """Returns bool[len(rows)]: True if a volume's node affinity selects the node.

    Only labels count: a term that has only a node's name selects all nodes (upstream CheckNodeAffinity).
    """
    if selector is None:
        return np.ones(len(rows), np.bool_)
    selected = np.zeros(len(rows), np.bool_)
    for term in selector.node_selector_terms or ():
        if term.match_fields and not term.match_expressions:
            return np.ones(len(rows), np.bool_)
        selected |= nodes_in_term(msgspec.structs.replace(term, match_fields=None), table, rows)
    return selected


def nodes_labelled(selector: LabelSelector, table: Table, rows: Rows) -> BoolColumn:
    labelled = np.ones(len(rows), np.bool_)
    for requirement in compile_selector(selector).requirements:
        labelled &= table.nodes.labels.satisfying(requirement, rows)
    return labelled


def _no_rows(_table: Table) -> dict[Hashable, Rows]:
    """Returns a new cache for the rows that each selector selects."""
    return {}


def _accessibility(
    selections: Sequence[tuple[Hashable, Callable[[Table, Rows], BoolColumn]]], table: Table
) -> Accessibility:
    """Returns which nodes can access each volume or storage pool.

    `selections`: for each volume or pool, a cache key, and a function that returns which of the given rows can access
    it. Equal keys must belong to functions that select the same rows, because they share one result.
    """
    rows_by_key = table.derived(_no_rows, TOPOLOGY)
    if len(rows_by_key) > _MAX_SELECTORS:  # selectors of deleted volumes stay until a node changes
        rows_by_key.clear()
    index: dict[Hashable, int] = {}
    group = np.zeros(len(selections), np.intp)
    for item, (key, select) in enumerate(selections):
        if key not in rows_by_key:
            rows_by_key[key] = table.nodes.rows[select(table, table.nodes.rows)]
        group[item] = index.setdefault(key, len(index))
    return Accessibility(group, [rows_by_key[key] for key in index])


class FreeVolumes:
    """The volumes of a storage class that have no claimRef, smallest first.

    Attributes:
        bytes: int64[volume]: the size of each volume.
        access: which nodes can access each volume.
    """

    def __init__(self, class_name: str, table: Table) -> None:
        self.volumes = sorted(table.storage.unbound.free(class_name), key=lambda volume: volume.nanos)
        self.bytes: Scores = np.array([volume.size_bytes for volume in self.volumes], np.int64)
        selections = [
            (("volume", volume.selector_key), partial(nodes_with_access, volume.volume.node_selector))
            for volume in self.volumes
        ]
        self.access: Accessibility = _accessibility(selections, table)
        self._nanos = [volume.nanos for volume in self.volumes]
        index: dict[VolumeTraits, int] = {}
        self._traits_id = np.array([index.setdefault(v.traits, len(index)) for v in self.volumes], np.intp)
        self._traits = list(index)

    def suitable(self, claim: PersistentVolumeClaim) -> BoolColumn:
        """Returns which volumes the claim could be bound to, regardless of the node: bool[volume]."""
        suitable: BoolColumn = np.array([_suits(traits, claim) for traits in self._traits], np.bool_)[self._traits_id]
        suitable[: bisect_left(self._nanos, claim.requested_nanos)] = False
        if claim.spec.selector is not None:
            selector = compile_selector(claim.spec.selector)
            for index in np.flatnonzero(suitable):
                suitable[index] = selector.matches(self.volumes[index].volume.labels)
        return suitable


class _FreeVolumesByClass:
    """The free volumes of each storage class, cached until a volume of the class or a node changes."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._nodes = Cursor(table.journal, TOPOLOGY)
        self._volumes = Cursor(table.journal, FREE_VOLUMES)
        self._by_class: dict[str, FreeVolumes] = {}

    def of(self, class_name: str) -> FreeVolumes:
        changed = self._volumes.read()
        if self._nodes.advance() or changed is None:
            self._by_class.clear()
        for name in changed or ():
            self._by_class.pop(name, None)
        if class_name not in self._by_class:
            self._by_class[class_name] = FreeVolumes(class_name, self._table)
        return self._by_class[class_name]


def free_volumes(class_name: str, table: Table) -> FreeVolumes:
    return table.reader(_FreeVolumesByClass).of(class_name)


def reserved_volume(claim: PersistentVolumeClaim, table: Table) -> UnboundVolume | None:
    """Returns the volume whose claimRef names the claim; None if there is no such volume, or it does not fit."""
    reserved = table.storage.unbound.reserved(claim.key)
    return next((volume for volume in reserved if _is_for(volume, claim)), None)


def _is_for(volume: UnboundVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        volume.volume.is_bound_to(claim)
        and volume.volume.class_name == claim.class_name
        and volume.nanos >= claim.requested_nanos
        and _same_form(volume.traits, claim)
        and not volume.volume.terminating
    )


def _suits(traits: VolumeTraits, claim: PersistentVolumeClaim) -> bool:
    has_modes = traits.access_modes.issuperset(claim.spec.access_modes or ())
    return traits.available and _same_form(traits, claim) and has_modes


def _same_form(traits: VolumeTraits, claim: PersistentVolumeClaim) -> bool:
    form = claim.spec.volume_mode or FILESYSTEM, claim.spec.volume_attributes_class_name or ""
    return (traits.volume_mode, traits.attributes_class) == form


class StoragePools:
    """The storage pools (CSIStorageCapacity objects) of a storage class.

    Attributes:
        bytes: int64[pool]: the capacity of each pool.
    """

    def __init__(self, capacities: Sequence[CSIStorageCapacity], table: Table) -> None:
        accessible = [capacity for capacity in capacities if capacity.node_topology is not None]
        self.bytes: Scores = np.array([units(capacity.capacity) for capacity in accessible], np.int64)
        limits = [capacity.volume_limit for capacity in accessible]
        self._limits = limits
        self._is_exact = table.features.behaviours.exact_storage_capacity
        self._largest: Scores = np.array([_UNKNOWN if limit is None else units(limit) for limit in limits], np.int64)
        selectors = [capacity.node_topology for capacity in accessible if capacity.node_topology is not None]
        selections = [(("pool", msgspec.msgpack.encode(each)), partial(nodes_labelled, each)) for each in selectors]
        self._access: Accessibility = _accessibility(selections, table)

    def pick(self, size: Quantity, nodes: int) -> Picked:
        """Returns, for each row, a pool that the node can access and that has room for a volume of this size.

        The result is intp[nodes]: the index of the pool, or NONE.
        """
        size_bytes = units(size)
        fits = self._largest >= size_bytes
        if self._is_exact:  # rounded up, or capped, the two may be equal although the volume is larger
            for pool in np.flatnonzero(self._largest == size_bytes).tolist():
                fits[pool] = nano(self._limits[pool]) >= nano(size)
        return self._access.pick(fits, (), nodes)


def pools_for(claim: PersistentVolumeClaim, storage_class: StorageClass, table: Table) -> StoragePools | None:
    """Returns the storage pools for the claim's volume; None if free space does not matter.

    Free space does not matter if the driver does not report capacity, or if the claim requests no size.
    """
    driver = table.objects.get(CSIDriver, storage_class.provisioner)
    if claim.requested_storage is None or driver is None or not driver.spec.storage_capacity:
        return None
    pools = table.derived(_pools_by_class, CSIStorageCapacity.__name__, TOPOLOGY)
    return pools.get(storage_class.name) or StoragePools((), table)


def _pools_by_class(table: Table) -> dict[str, StoragePools]:
    by_class: defaultdict[str, list[CSIStorageCapacity]] = defaultdict(list)
    for capacity in table.objects.all(CSIStorageCapacity).values():
        by_class[capacity.storage_class_name].append(capacity)
    return {name: StoragePools(capacities, table) for name, capacities in by_class.items()}
