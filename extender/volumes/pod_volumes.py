"""The volumes a pod would get on each node: bound ones, matching ones, provisioned ones.

Source: upstream volumeBinder.FindPodVolumes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from extender.framework.node_affinity import nodes_in_term
from extender.framework.rules import Scores
from extender.model.meta import NodeSelectorRequirement, NodeSelectorTerm
from extender.model.quantity import units
from extender.model.volumes.csi_migration import Fault, in_tree_plugin, migrated_node_selector
from extender.model.volumes.storage import PersistentVolume, PersistentVolumeClaim, StorageClass, TopologySelectorTerm
from extender.table import Table
from extender.table.labels import BoolColumn, Rows
from extender.table.volumes.storage import UnboundVolume
from extender.volumes.accessibility import NONE, Picked, nodes_with_access, values_picked
from extender.volumes.candidates import free_volumes, pools_for, reserved_volume
from extender.volumes.claims import PodVolumeClaims


@dataclass(frozen=True, slots=True)
class StaticBinding:
    """A claim and the volume it would be bound to on each row.

    Attributes:
        volumes: those to pick from.
        picked: intp[n]: an index into `volumes`, or NONE.
        bytes: int64[n]: the size of that volume, 0 where there is none.
    """

    claim: PersistentVolumeClaim
    volumes: Sequence[UnboundVolume]
    picked: Picked
    bytes: Scores


@dataclass(frozen=True, slots=True)
class DynamicProvision:
    """A claim whose volume would be provisioned.

    Attributes:
        needed: bool[n]: the rows where.
        bytes_left: int64[n]: the capacity of the pool; None: the driver does not publish it.
    """

    claim: PersistentVolumeClaim
    needed: BoolColumn
    bytes_left: Scores | None


class PodVolumes:
    """The outcome for each of `rows`.

    Attributes:
        node_conflict: bool[n]: a bound volume cannot be accessed from the node.
        volume_missing: bool[n]: a claim is bound to a volume that does not exist.
        bind_conflict: bool[n]: a claim matches no volume, and none can be provisioned for it there.
        not_enough_space: bool[n]: no pool has the room for a volume to be provisioned.
        errors: the rows, bool[n], that fail with a message.
        static_bindings, dynamic_provisions: to be done where none of the above holds.
    """

    def __init__(self, claims: PodVolumeClaims, table: Table, rows: Rows) -> None:
        self.rows = rows
        self._table = table
        self.node_conflict, self.volume_missing, self.bind_conflict, self.not_enough_space = np.zeros(
            (4, len(rows)), np.bool_
        )
        self.errors: list[tuple[BoolColumn, str]] = []
        self.static_bindings: list[StaticBinding] = []
        self.dynamic_provisions: list[DynamicProvision] = []
        self._taken: defaultdict[str, list[Picked]] = defaultdict(list)
        self._given: set[str] = set()
        self._check_bound(claims.bound)
        if claims.delayed:
            self._check_delayed(claims.delayed)

    def _check_bound(self, claims: Sequence[PersistentVolumeClaim]) -> None:
        standing = np.ones(len(self.rows), np.bool_)
        for claim in claims:
            volume = self._table.objects.get(PersistentVolume, claim.spec.volume_name)
            if volume is None:
                self.volume_missing |= standing
                return
            accessible = self._accessible(volume, standing)
            self.node_conflict |= standing & ~accessible
            standing &= accessible

    def _accessible(self, volume: PersistentVolume, asked: BoolColumn) -> BoolColumn:
        """Tells the rows that can access the volume, by its CSI driver's view on nodes migrated to that: bool[n]."""
        accessible = nodes_with_access(volume.node_selector, self._table, self.rows)
        plugin = in_tree_plugin(volume.spec)
        if plugin is None:
            return accessible
        migrated = self._table.storage.csi_nodes.migrated(plugin)[self.rows]
        selector = migrated_node_selector(volume, plugin)
        if isinstance(selector, Fault):
            self.errors.append((asked & migrated, f"could not translate pv: {selector.message}"))
            return accessible
        return np.where(migrated, nodes_with_access(selector, self._table, self.rows), accessible)

    def _check_delayed(self, claims: Sequence[PersistentVolumeClaim]) -> None:
        chosen = [claim for claim in claims if claim.selected_node is not None]
        for claim in chosen:
            self.bind_conflict |= self.rows != self._table.nodes.row_of.get(claim.selected_node or "", NONE)
        standing = ~self.bind_conflict
        needed = [(claim, standing) for claim in chosen]
        # The smallest claims choose first, so that each gets the smallest volume that fits.
        for claim in sorted((c for c in claims if c.selected_node is None), key=lambda c: c.requested_nanos):
            binding = self._bind(claim)
            self.static_bindings.append(binding)
            needed.append((claim, standing & (binding.picked == NONE)))
        self._check_provisions(needed, standing)

    def _bind(self, claim: PersistentVolumeClaim) -> StaticBinding:
        reserved = reserved_volume(claim, self._table)
        if reserved is None:
            return self._bind_free(claim)
        accessible = nodes_with_access(reserved.volume.node_selector, self._table, self.rows)
        if reserved.volume.name not in self._given:
            self._given.add(reserved.volume.name)
            return StaticBinding(
                claim, (reserved,), np.where(accessible, 0, NONE), np.where(accessible, reserved.size_bytes, 0)
            )
        free = self._bind_free(claim)  # the pod names its claim twice: the second time its volume is taken
        return replace(free, picked=np.where(accessible, free.picked, NONE), bytes=np.where(accessible, free.bytes, 0))

    def _bind_free(self, claim: PersistentVolumeClaim) -> StaticBinding:
        free = free_volumes(claim.class_name, self._table)
        taken = self._taken[claim.class_name]
        picked = free.access.pick(free.suitable(claim), taken, self._table.nodes.capacity)
        taken.append(picked)
        here = picked[self.rows]
        return StaticBinding(claim, free.volumes, here, values_picked(free.bytes, here))

    def _check_provisions(
        self, needed: Sequence[tuple[PersistentVolumeClaim, BoolColumn]], standing: BoolColumn
    ) -> None:
        for claim, rows in needed:
            here = rows & standing
            if not here.any():
                continue
            storage_class = self._table.objects.get(StorageClass, claim.class_name)
            assert storage_class is not None  # else the claim would not wait
            allowed = self._allowed(storage_class)
            self.bind_conflict |= here & ~allowed
            here &= allowed
            provision, has_room = self._provision(claim, storage_class, here)
            self.dynamic_provisions.append(provision)
            self.not_enough_space |= here & ~has_room
            standing = standing & ~self.bind_conflict & ~self.not_enough_space

    def _allowed(self, storage_class: StorageClass) -> BoolColumn:
        if not storage_class.provisions:
            return np.zeros(len(self.rows), np.bool_)
        terms = storage_class.allowed_topologies
        if not terms:
            return np.ones(len(self.rows), np.bool_)
        allowed = np.zeros(len(self.rows), np.bool_)
        for term in terms:
            allowed |= nodes_in_term(node_term(term), self._table, self.rows)
        return allowed

    def _provision(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, here: BoolColumn
    ) -> tuple[DynamicProvision, BoolColumn]:
        pools = pools_for(claim, storage_class, self._table)
        if pools is None:
            return DynamicProvision(claim, here, None), np.ones(len(self.rows), np.bool_)
        picked = pools.pick(units(claim.requested_storage), self._table.nodes.capacity)[self.rows]
        return DynamicProvision(claim, here, values_picked(pools.bytes, picked)), picked != NONE


def node_term(term: TopologySelectorTerm) -> NodeSelectorTerm:
    """Returns the term of a StorageClass's allowed topologies as one that selects nodes."""
    expressions = [
        NodeSelectorRequirement(key=expression.key, operator="In", values=expression.values)
        for expression in term.match_label_expressions or ()
    ]
    return NodeSelectorTerm(match_expressions=expressions)
