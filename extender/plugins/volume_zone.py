"""VolumeZone: a pod must run in the zones and regions that its volumes' labels name. Source: upstream volumezone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from extender.framework.cluster_events import Action, Change, Resource
from extender.framework.plugin import Arguments, Plugin
from extender.framework.queueing_hints import NAMED_CLAIMS, Interest, Interests, changes, claim_of, names_claim
from extender.framework.rules import Check, PerNode, Verdict
from extender.framework.status import Refusal, unresolvable
from extender.model.pod_volumes import BETA_REGION, BETA_ZONE, REGION, ZONE, ZONE_DELIMITER, ClaimUse
from extender.model.storage import WAIT_FOR_FIRST_CONSUMER, PersistentVolume, PersistentVolumeClaim, StorageClass
from extender.table import PodInfo, Table
from extender.table.labels import ABSENT, BoolColumn, Rows
from extender.volumes.node_volumes import CLAIM, not_found

NAME = "VolumeZone"
REFUSAL = unresolvable(NAME, "node(s) had no available volume zone")
TOPOLOGY_LABELS = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_GA_LABEL = {BETA_ZONE: ZONE, BETA_REGION: REGION}


class Topology(NamedTuple):
    """A zone or region label of a volume: nodes must have one of `values` in their label `key`."""

    key: str
    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class VolumeZone(PerNode):
    """Refuses nodes outside the zones and regions of the pod's volumes."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        if not pod.claims:
            return None
        topologies = _topologies_of(pod, table)
        if isinstance(topologies, Refusal):
            return topologies
        return _VolumeZoneCheck(topologies, table) if topologies else None


class _VolumeZoneCheck(Check):
    def __init__(self, topologies: list[Topology], table: Table) -> None:
        self._topologies = topologies
        self._labels = table.nodes.labels

    def refuse(self, rows: Rows) -> Verdict:
        outside = np.zeros(len(rows), np.bool_)
        for topology in self._topologies:
            outside |= ~self._inside(topology, rows)
        # A node without any of the labels belongs to a cluster with a single zone.
        labelled = np.logical_or.reduce([self._labels[key].ids[rows] != ABSENT for key in TOPOLOGY_LABELS])
        return [(outside & labelled, REFUSAL)]

    def _inside(self, topology: Topology, rows: Rows) -> BoolColumn:
        inside = self._having(topology.key, topology.values, rows)
        ga_label = _GA_LABEL.get(topology.key)
        if ga_label is not None:
            unlabelled = self._labels[topology.key].ids[rows] == ABSENT
            inside |= unlabelled & self._having(ga_label, topology.values, rows)
        return inside

    def _having(self, key: str, values: frozenset[str], rows: Rows) -> BoolColumn:
        column = self._labels[key]
        ids = [value_id for value in values if (value_id := column.find(value)) is not None]
        return np.isin(column.ids[rows], ids)


def _topologies_of(pod: PodInfo, table: Table) -> list[Topology] | Refusal:
    """Returns the zone and region labels of the pod's volumes, or a Refusal if a volume is missing (getPVbyPod).

    Claims of ephemeral volumes do not count.
    """
    topologies: list[Topology] = []
    for use in pod.claims:
        if use.owner is not None:
            continue
        volume = _volume(use, table)
        if isinstance(volume, Refusal):
            return volume
        if volume is not None:
            topologies.extend(_topologies(volume))
    return topologies


def _volume(use: ClaimUse, table: Table) -> PersistentVolume | Refusal | None:
    """Returns the claim's volume, or None if the claim is bound only after the pod has a node."""
    if not use.name:
        return unresolvable(NAME, "PersistentVolumeClaim had no name")
    claim = table.objects.get(PersistentVolumeClaim, use.key)
    if claim is None:
        return unresolvable(NAME, not_found(CLAIM, use.name))
    if not claim.spec.volume_name:
        return _unbound(claim, table)
    volume = table.objects.get(PersistentVolume, claim.spec.volume_name)
    missing = not_found("persistentvolume", claim.spec.volume_name)
    return unresolvable(NAME, missing) if volume is None else volume


def _unbound(claim: PersistentVolumeClaim, table: Table) -> Refusal | None:
    """Returns the refusal for an unbound claim, or None if it is bound only after the pod has a node."""
    if not claim.class_name:
        return unresolvable(NAME, "PersistentVolumeClaim had no pv name and storageClass name")
    storage_class = table.objects.get(StorageClass, claim.class_name)
    if storage_class is None:
        return unresolvable(NAME, not_found("storageclass.storage.k8s.io", claim.class_name))
    if storage_class.volume_binding_mode is None:
        return unresolvable(NAME, f'VolumeBindingMode not set for StorageClass "{claim.class_name}"')
    if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
        return None
    return unresolvable(NAME, "PersistentVolume had no name")


def _topologies(volume: PersistentVolume) -> Iterator[Topology]:
    for key in TOPOLOGY_LABELS:
        if key in volume.labels:
            values = frozenset(value.strip() for value in volume.labels[key].split(ZONE_DELIMITER))
            if "" not in values:  # a label with an empty zone is malformed, and ignored
                yield Topology(key, values)


def class_waits(_pod: PodInfo, change: Change) -> bool:
    """Returns True if the new storage class binds claims only after the pod has a node."""
    mode: str | None = change.new.volume_binding_mode
    return mode == WAIT_FOR_FIRST_CONSUMER


def _zones(volume: PersistentVolume) -> list[str | None]:
    return [volume.labels.get(key) for key in TOPOLOGY_LABELS]


PLUGIN = Plugin(
    NAME,
    Arguments,
    lambda _: VolumeZone(),
    interests=Interests(
        (
            Interest(Resource.STORAGE_CLASS, Action.ADD, class_waits),
            Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            Interest(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD | Action.UPDATE, names_claim, NAMED_CLAIMS, claim_of),
            Interest(Resource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE, changes(_zones)),
        )
    ),
)
