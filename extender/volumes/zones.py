"""Where a pod's volumes are, by the zone and region labels of their persistent volumes.

Source: upstream volumezone getPVbyPod.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from extender.model.volumes.csi_migration import BETA_REGION, BETA_ZONE, REGION, ZONE, ZONE_DELIMITER
from extender.model.volumes.pod_volumes import ClaimUse
from extender.model.volumes.storage import (
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from extender.table import PodInfo, Table
from extender.volumes.reasons import claim_not_found, class_not_found, volume_not_found

TOPOLOGY_LABELS = (BETA_ZONE, BETA_REGION, ZONE, REGION)


class Topology(NamedTuple):
    """A label of a volume: the nodes' label `key` must have one of `values`."""

    key: str
    values: frozenset[str]


def volume_topologies(pod: PodInfo, table: Table) -> list[Topology] | str:
    """The labels of the volumes of the pod's claims, those of ephemeral volumes left out; or why it has to wait."""
    topologies: list[Topology] = []
    for use in pod.claims:
        if use.owner is not None:
            continue
        volume = _volume(use, table)
        if isinstance(volume, str):
            return volume
        if volume is not None:
            topologies.extend(_topologies(volume))
    return topologies


def _volume(use: ClaimUse, table: Table) -> PersistentVolume | str | None:
    """The claim's volume; None where it is bound once the pod has a node."""
    if not use.name:
        return "PersistentVolumeClaim had no name"
    claim = table.objects.get(PersistentVolumeClaim, use.key)
    if claim is None:
        return claim_not_found(use.name)
    if not claim.spec.volume_name:
        return _unbound(claim, table)
    volume = table.objects.get(PersistentVolume, claim.spec.volume_name)
    return volume_not_found(claim.spec.volume_name) if volume is None else volume


def _unbound(claim: PersistentVolumeClaim, table: Table) -> str | None:
    if not claim.class_name:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    storage_class = table.objects.get(StorageClass, claim.class_name)
    if storage_class is None:
        return class_not_found(claim.class_name)
    if storage_class.volume_binding_mode is None:
        return f'VolumeBindingMode not set for StorageClass "{claim.class_name}"'
    if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
        return None
    return "PersistentVolume had no name"


def _topologies(volume: PersistentVolume) -> Iterator[Topology]:
    for key in TOPOLOGY_LABELS:
        if key in volume.labels:
            values = frozenset(value.strip() for value in volume.labels[key].split(ZONE_DELIMITER))
            if "" not in values:  # a label that cannot be read says nothing
                yield Topology(key, values)
