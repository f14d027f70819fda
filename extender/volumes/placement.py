"""What would become of a pod's claims on each node: which volumes they would be bound to, which would be made.

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
from extender.table.volumes.unbound import Offer
from extender.volumes.capacity import pools_for
from extender.volumes.claims import PodClaims
from extender.volumes.free_volumes import free_volumes, reserved_volume
from extender.volumes.reach import NONE, Picked, nodes_reaching, values_picked


@dataclass(frozen=True, slots=True)
class Binding:
    """A claim and the volume it would be bound to on each row.

    Attributes:
        picked: intp[n]: an index into `offers`, or NONE.
        bytes: int64[n]: the size of that volume, 0 where there is none.
    """

    claim: PersistentVolumeClaim
    offers: Sequence[Offer]
    picked: Picked
    bytes: Scores


@dataclass(frozen=True, slots=True)
class Provision:
    """A claim whose volume would be made, on which rows (bool[n]) and from how much (int64[n]; None: nobody tells)."""

    claim: PersistentVolumeClaim
    needed: BoolColumn
    bytes_left: Scores | None


class Placement:
    """The outcome for each of `rows`.

    Attributes:
        out_of_reach: bool[n]: a bound volume is not reached from the node.
        volume_gone: bool[n]: a claim is bound to a volume that does not exist.
        unbindable: bool[n]: a claim finds no volume, and none can be made for it there.
        no_space: bool[n]: a volume could be made, had its pool the room.
        faults: what could not be told, and where: bool[n].
        bindings, provisions: what would be done; to be read where none of the above holds.
    """

    def __init__(self, claims: PodClaims, table: Table, rows: Rows) -> None:
        self.rows = rows
        self._table = table
        self.out_of_reach, self.volume_gone, self.unbindable, self.no_space = np.zeros((4, len(rows)), np.bool_)
        self.faults: list[tuple[BoolColumn, str]] = []
        self.bindings: list[Binding] = []
        self.provisions: list[Provision] = []
        self._taken: defaultdict[str, list[Picked]] = defaultdict(list)
        self._given: set[str] = set()
        self._check_bound(claims.bound)
        if claims.waiting:
            self._check_waiting(claims.waiting)

    def _check_bound(self, claims: Sequence[PersistentVolumeClaim]) -> None:
        standing = np.ones(len(self.rows), np.bool_)
        for claim in claims:
            volume = self._table.objects.get(PersistentVolume, claim.spec.volume_name)
            if volume is None:
                self.volume_gone |= standing
                return
            reached = self._reached(volume, standing)
            self.out_of_reach |= standing & ~reached
            standing &= reached

    def _reached(self, volume: PersistentVolume, asked: BoolColumn) -> BoolColumn:
        """Which rows reach the volume, as its CSI driver sees it where that has taken over."""
        reached = nodes_reaching(volume.node_selector, self._table, self.rows)
        plugin = in_tree_plugin(volume.spec)
        if plugin is None:
            return reached
        migrated = self._table.storage.csi_nodes.migrated(plugin)[self.rows]
        selector = migrated_node_selector(volume, plugin)
        if isinstance(selector, Fault):
            self.faults.append((asked & migrated, f"could not translate pv: {selector.message}"))
            return reached
        return np.where(migrated, nodes_reaching(selector, self._table, self.rows), reached)

    def _check_waiting(self, claims: Sequence[PersistentVolumeClaim]) -> None:
        chosen = [claim for claim in claims if claim.selected_node is not None]
        for claim in chosen:
            self.unbindable |= self.rows != self._table.nodes.row_of.get(claim.selected_node or "", NONE)
        standing = ~self.unbindable
        needed = [(claim, standing) for claim in chosen]
        # The smallest claims choose first, so that each gets the smallest volume that fits.
        for claim in sorted((c for c in claims if c.selected_node is None), key=lambda c: c.requested_nanos):
            binding = self._bind(claim)
            self.bindings.append(binding)
            needed.append((claim, standing & (binding.picked == NONE)))
        self._check_provisions(needed, standing)

    def _bind(self, claim: PersistentVolumeClaim) -> Binding:
        reserved = reserved_volume(claim, self._table)
        if reserved is None:
            return self._bind_free(claim)
        reached = nodes_reaching(reserved.volume.node_selector, self._table, self.rows)
        if reserved.volume.name not in self._given:
            self._given.add(reserved.volume.name)
            return Binding(claim, (reserved,), np.where(reached, 0, NONE), np.where(reached, reserved.size_bytes, 0))
        free = self._bind_free(claim)  # the pod names its claim twice: the second time its volume is taken
        return replace(free, picked=np.where(reached, free.picked, NONE), bytes=np.where(reached, free.bytes, 0))

    def _bind_free(self, claim: PersistentVolumeClaim) -> Binding:
        free = free_volumes(claim.class_name, self._table)
        taken = self._taken[claim.class_name]
        picked = free.reach.pick(free.suitable(claim), taken, self._table.nodes.capacity)
        taken.append(picked)
        here = picked[self.rows]
        return Binding(claim, free.offers, here, values_picked(free.bytes, here))

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
            self.unbindable |= here & ~allowed
            here &= allowed
            provision, has_room = self._provision(claim, storage_class, here)
            self.provisions.append(provision)
            self.no_space |= here & ~has_room
            standing = standing & ~self.unbindable & ~self.no_space

    def _allowed(self, storage_class: StorageClass) -> BoolColumn:
        if not storage_class.provisions:
            return np.zeros(len(self.rows), np.bool_)
        terms = storage_class.allowed_topologies
        if not terms:
            return np.ones(len(self.rows), np.bool_)
        allowed = np.zeros(len(self.rows), np.bool_)
        for term in terms:
            allowed |= nodes_in_term(_as_node_term(term), self._table, self.rows)
        return allowed

    def _provision(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, here: BoolColumn
    ) -> tuple[Provision, BoolColumn]:
        pools = pools_for(claim, storage_class, self._table)
        if pools is None:
            return Provision(claim, here, None), np.ones(len(self.rows), np.bool_)
        picked = pools.pick(units(claim.requested_storage), self._table.nodes.capacity)[self.rows]
        return Provision(claim, here, values_picked(pools.bytes, picked)), picked != NONE


def _as_node_term(term: TopologySelectorTerm) -> NodeSelectorTerm:
    expressions = [
        NodeSelectorRequirement(key=expression.key, operator="In", values=expression.values)
        for expression in term.match_label_expressions or ()
    ]
    return NodeSelectorTerm(match_expressions=expressions)
