"""Finds the volumes that a pod would get on each node: bound, matching or newly provisioned volumes.

It begins with the claims of the pod's volumes, and the CSI volumes that must be attached for the pod.

Source: upstream volumeBinder.FindPodVolumes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from extender.framework.node_selectors import nodes_in_term
from extender.framework.rules import Scores
from extender.framework.status import Refusal, failed, unresolvable
from extender.model.meta import NodeSelectorRequirement, NodeSelectorTerm
from extender.model.pod_volumes import ClaimUse, CSIVolume, Fault, in_tree_plugin, migrated_node_selector
from extender.model.storage import (
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
)
from extender.table import PodInfo, Table
from extender.table.csi import MissingClaim, csi_volume_of
from extender.table.labels import BoolColumn, Rows
from extender.table.volume_usage import UnboundVolume
from extender.volumes import accessibility
from extender.volumes.accessibility import NONE, Picked


@dataclass(frozen=True, slots=True)
class StaticBinding:
    """An unbound claim, and the existing volume that it would be bound to on each of n rows.

    Attributes:
        volumes: the free volumes to choose from.
        picked: intp[n]: the index in `volumes` of each row's volume; NONE if no volume can be used there.
        bytes: int64[n]: the size of each row's volume; 0 if there is none.
    """

    claim: PersistentVolumeClaim
    volumes: Sequence[UnboundVolume]
    picked: Picked
    bytes: Scores


@dataclass(frozen=True, slots=True)
class DynamicProvision:
    """An unbound claim for which a new volume would be provisioned on some of n rows.

    Attributes:
        needed: bool[n]: the rows where the claim needs a new volume.
        bytes_left: int64[n]: the capacity of each row's storage pool; None if the driver does not report capacity.
    """

    claim: PersistentVolumeClaim
    needed: BoolColumn
    bytes_left: Scores | None


class PodVolumes:
    """The volumes that the pod would get on each of n rows, or the reasons why it cannot get them.

    Attributes:
        node_conflict: bool[n]: a bound volume cannot be accessed from the node.
        volume_missing: bool[n]: a claim is bound to a volume that does not exist.
        bind_conflict: bool[n]: a claim matches no volume, and no volume can be provisioned for it.
        not_enough_space: bool[n]: no pool has enough capacity for a new volume that the pod needs.
        errors: pairs of the rows with an error, bool[n], and its message.
        static_bindings: the claims to bind to existing volumes. Ignore them on rows with a problem above.
        dynamic_provisions: the claims to provision volumes for. Ignore them on rows with a problem above.
    """

    def __init__(self, claims: PodVolumeClaims, table: Table, rows: Rows) -> None:
        self.rows = rows
        self._table = table
        self.node_conflict = np.zeros(len(rows), np.bool_)
        self.volume_missing = np.zeros(len(rows), np.bool_)
        self.bind_conflict = np.zeros(len(rows), np.bool_)
        self.not_enough_space = np.zeros(len(rows), np.bool_)
        self.errors: list[tuple[BoolColumn, str]] = []
        self.static_bindings: list[StaticBinding] = []
        self.dynamic_provisions: list[DynamicProvision] = []
        self._picks_by_class: defaultdict[str, list[Picked]] = defaultdict(list)
        self._bound_reserved: set[str] = set()
        self._check_bound(claims.bound)
        if claims.delayed:
            self._check_delayed(claims.delayed)

    def _check_bound(self, claims: Sequence[PersistentVolumeClaim]) -> None:
        accessible = np.ones(len(self.rows), np.bool_)  # bool[n]: the node can access all volumes checked so far
        for claim in claims:
            volume = self._table.objects.get(PersistentVolume, claim.spec.volume_name)
            if volume is None:
                self.volume_missing |= accessible
                return
            can_access = self._can_access(volume, accessible)
            self.node_conflict |= accessible & ~can_access
            accessible &= can_access

    def _can_access(self, volume: PersistentVolume, to_check: BoolColumn) -> BoolColumn:
        """Returns bool[n]: True if the node can access the volume.

        An in-tree volume may be handled by a CSI driver on some nodes. There, the volume's node affinity is translated
        to the driver's labels. If the translation fails, these nodes get an error if they are in `to_check`, bool[n].
        """
        can_access = accessibility.nodes_with_access(volume.node_selector, self._table, self.rows)
        plugin = in_tree_plugin(volume.spec)
        if plugin is None:
            return can_access
        migrated = self._table.storage.csi_nodes.migrated(plugin)[self.rows]
        selector = migrated_node_selector(volume, plugin)
        if isinstance(selector, Fault):
            self.errors.append((to_check & migrated, f"could not translate pv: {selector.message}"))
            return can_access
        return np.where(migrated, accessibility.nodes_with_access(selector, self._table, self.rows), can_access)

    def _check_delayed(self, claims: Sequence[PersistentVolumeClaim]) -> None:
        with_node = [claim for claim in claims if claim.selected_node is not None]
        for claim in with_node:
            self.bind_conflict |= self.rows != self._table.nodes.row_of.get(claim.selected_node or "", NONE)
        possible = ~self.bind_conflict
        to_provision = [(claim, possible) for claim in with_node]
        # The smallest claims choose first, so that each gets the smallest volume that fits.
        others = [claim for claim in claims if claim.selected_node is None]
        for claim in sorted(others, key=lambda claim: claim.requested_nanos):
            binding = self._bind(claim)
            self.static_bindings.append(binding)
            to_provision.append((claim, possible & (binding.picked == NONE)))
        self._check_provisions(to_provision, possible)

    def _bind(self, claim: PersistentVolumeClaim) -> StaticBinding:
        reserved = accessibility.reserved_volume(claim, self._table)
        if reserved is None:
            return self._bind_free(claim)
        can_access = accessibility.nodes_with_access(reserved.volume.node_selector, self._table, self.rows)
        if reserved.volume.name not in self._bound_reserved:
            self._bound_reserved.add(reserved.volume.name)
            picked = np.where(can_access, 0, NONE)
            return StaticBinding(claim, (reserved,), picked, np.where(can_access, reserved.size_bytes, 0))
        # The pod names the claim twice, and this loop has already chosen its reserved volume.
        free = self._bind_free(claim)
        return replace(free, picked=np.where(can_access, free.picked, NONE), bytes=np.where(can_access, free.bytes, 0))

    def _bind_free(self, claim: PersistentVolumeClaim) -> StaticBinding:
        free = accessibility.free_volumes(claim.class_name, self._table)
        earlier_picks = self._picks_by_class[claim.class_name]
        picked = free.access.pick(free.suitable(claim), earlier_picks, self._table.nodes.capacity)
        earlier_picks.append(picked)
        picked_here = picked[self.rows]
        return StaticBinding(claim, free.volumes, picked_here, accessibility.values_picked(free.bytes, picked_here))

    def _check_provisions(
        self, to_provision: Sequence[tuple[PersistentVolumeClaim, BoolColumn]], possible: BoolColumn
    ) -> None:
        for claim, rows in to_provision:
            here = rows & possible
            if not here.any():
                continue
            storage_class = self._table.objects.get(StorageClass, claim.class_name)
            assert storage_class is not None, "only a claim with a StorageClass may be bound after its pod has a node"
            allowed = self._allowed(storage_class)
            self.bind_conflict |= here & ~allowed
            here &= allowed
            provision, has_room = self._provision(claim, storage_class, here)
            self.dynamic_provisions.append(provision)
            self.not_enough_space |= here & ~has_room
            possible = possible & ~self.bind_conflict & ~self.not_enough_space

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
        pools = accessibility.pools_for(claim, storage_class, self._table)
        if pools is None:
            return DynamicProvision(claim, here, None), np.ones(len(self.rows), np.bool_)
        picked = pools.pick(claim.requested_storage, self._table.nodes.capacity)[self.rows]
        return DynamicProvision(claim, here, accessibility.values_picked(pools.bytes, picked)), picked != NONE


def node_term(term: TopologySelectorTerm) -> NodeSelectorTerm:
    """Converts a term of a StorageClass's allowed topologies to a node selector term."""
    expressions = [
        NodeSelectorRequirement(key=expression.key, operator="In", values=expression.values)
        for expression in term.match_label_expressions or ()
    ]
    return NodeSelectorTerm(match_expressions=expressions)


NAME = "VolumeBinding"
CLAIM = "persistentvolumeclaim"
UNBOUND = unresolvable(NAME, "pod has unbound immediate PersistentVolumeClaims")


@dataclass(frozen=True, slots=True)
class PodVolumeClaims:
    """The pod's claims, in the order of its volumes.

    Attributes:
        bound: the claims that are bound.
        delayed: the claims that are bound only after the pod has a node (WaitForFirstConsumer).
    """

    bound: tuple[PersistentVolumeClaim, ...]
    delayed: tuple[PersistentVolumeClaim, ...]


def pod_volume_claims(pod: PodInfo, table: Table) -> PodVolumeClaims | Refusal | None:
    """Returns the pod's claims, or None if it has none. Returns a Refusal as `volume_claims` does."""
    return volume_claims(pod.claims, table) if pod.claims else None


def volume_claims(uses: Iterable[ClaimUse], table: Table) -> PodVolumeClaims | Refusal:
    """Returns the claims that a pod with these volumes uses.

    Returns a Refusal if the pod cannot use a claim, or if a claim is not bound and its class does not wait until the
    pod has a node (WaitForFirstConsumer).
    """
    claims: list[PersistentVolumeClaim] = []
    for use in uses:
        claim = _usable(use, table)
        if isinstance(claim, Refusal):
            return claim
        claims.append(claim)
    return _by_state(claims, table)


def _usable(use: ClaimUse, table: Table) -> PersistentVolumeClaim | Refusal:
    """Returns the claim, or a Refusal if the pod cannot use it."""
    claim = table.objects.get(PersistentVolumeClaim, use.key)
    if claim is None and use.owner is not None:
        waiting = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
        return unresolvable(NAME, waiting)
    if claim is None:
        return unresolvable(NAME, not_found(CLAIM, use.name))
    if claim.lost:
        volume = f'persistentvolume "{claim.spec.volume_name}"'
        return unresolvable(NAME, f'persistentvolumeclaim "{use.name}" bound to non-existent {volume}')
    if claim.terminating:
        return unresolvable(NAME, f'persistentvolumeclaim "{use.name}" is being deleted')
    objection = use.objection(claim)
    return claim if objection is None else unresolvable(NAME, objection)


def _by_state(claims: list[PersistentVolumeClaim], table: Table) -> PodVolumeClaims | Refusal:
    bound: list[PersistentVolumeClaim] = []
    delayed: list[PersistentVolumeClaim] = []
    immediate = False
    for claim in claims:
        if claim.fully_bound:
            bound.append(claim)
            continue
        mode = _binding_mode(claim, table)
        if isinstance(mode, Refusal):
            return mode
        if mode == WAIT_FOR_FIRST_CONSUMER and not claim.spec.volume_name:
            delayed.append(claim)
        else:
            immediate = True
    return UNBOUND if immediate else PodVolumeClaims(tuple(bound), tuple(delayed))


def _binding_mode(claim: PersistentVolumeClaim, table: Table) -> str | Refusal:
    """Returns the volumeBindingMode of the claim's class, or "" if the claim has no class or the class does not exist.

    Returns a Refusal if the class has no volumeBindingMode.
    """
    storage_class = table.objects.get(StorageClass, claim.class_name) if claim.class_name else None
    if storage_class is None:
        return ""
    if storage_class.volume_binding_mode is None:
        cause = f'VolumeBindingMode not set for StorageClass "{claim.class_name}"'
        return failed(NAME, f'running PreFilter plugin "{NAME}": {cause}')
    return storage_class.volume_binding_mode


def not_found(kind: str, name: str) -> str:
    """Returns the API server's message for a missing object, which kube-scheduler gives as a reason."""
    return f'{kind} "{name}" not found'


@dataclass(slots=True)
class AttachableVolumes:
    """The CSI volumes behind a pod's claims and inline volumes.

    Attributes:
        by_driver: the CSI volumes of each driver.
        native_drivers: the drivers of the volumes that are not migrated in-tree volumes.
        errors: (fault, everywhere) for each volume whose CSI volume cannot be found. If `everywhere` is True, the fault
            refuses all nodes. Otherwise, the volume is a migrated in-tree volume, and the fault refuses only nodes with
            a CSINode.
    """

    by_driver: defaultdict[str, set[CSIVolume]] = field(default_factory=lambda: defaultdict(set))
    native_drivers: set[str] = field(default_factory=set)
    errors: list[tuple[Fault | MissingClaim, bool]] = field(default_factory=list)


def attachable_volumes(pod: PodInfo, table: Table) -> AttachableVolumes:
    """Returns the CSI volumes behind the pod's claims and inline volumes.

    Source: upstream nodevolumelimits filterAttachableVolumes.
    """
    volumes = AttachableVolumes()
    for source in pod.attachables:
        resolved, migrated, _ = csi_volume_of(source, table.objects)
        if isinstance(resolved, CSIVolume):
            volumes.by_driver[resolved.driver].add(resolved)
            if not migrated:
                volumes.native_drivers.add(resolved.driver)
        elif resolved is not None:
            volumes.errors.append((resolved, not migrated))
    return volumes
