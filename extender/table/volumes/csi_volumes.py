"""Resolves claims, inline volumes and VolumeAttachments to CSI volumes. Source: upstream CSILimits.getCSIDriverInfo."""

from __future__ import annotations

from typing import NamedTuple

from extender.model.volumes.csi_migration import (
    MIGRATED_PLUGINS,
    UNCOUNTED_PLUGINS,
    CSIVolume,
    Fault,
    migrated_volume,
)
from extender.model.volumes.pod_volumes import Attachable, ClaimUse, InlineVolume
from extender.model.volumes.storage import PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from extender.table.objects import Objects

ObjectKey = tuple[str, str]  # kind, key
READ_KINDS = (PersistentVolumeClaim.__name__, PersistentVolume.__name__, StorageClass.__name__)


class MissingClaim(NamedTuple):
    """The claim of this key does not exist."""

    use: ClaimUse


Found = CSIVolume | Fault | MissingClaim | None


class ResolvedVolume(NamedTuple):
    """The volume of a claim, an inline volume or an attachment.

    Attributes:
        found: the volume, or the fault that hides it; None: nothing that a driver attaches.
        migrated: it is an in-tree volume, attached by a driver only where the node has a CSINode.
        read: kind and key of the objects that it depends on, existing or not.
    """

    found: Found
    migrated: bool = False
    read: tuple[ObjectKey, ...] = ()


def csi_volume_of(source: Attachable, objects: Objects) -> ResolvedVolume:
    """The volume of a claim or an inline volume."""
    if isinstance(source, InlineVolume):
        return ResolvedVolume(_countable(source.volume), migrated=True)
    read = (("PersistentVolumeClaim", source.key),)
    if not source.name:
        return ResolvedVolume(Fault("PersistentVolumeClaim had no name"), read=read)
    claim = objects.get(PersistentVolumeClaim, source.key)
    if claim is None:
        return ResolvedVolume(MissingClaim(source), read=read)
    if objection := source.objection(claim):
        return ResolvedVolume(Fault(objection), read=read)
    return _of_claim(claim, objects, read)


def attached_volume(attachment: VolumeAttachment, objects: Objects) -> ResolvedVolume:
    """The volume that a VolumeAttachment attaches."""
    name = attachment.spec.source.persistent_volume_name
    if not attachment.spec.attacher or name is None:
        return ResolvedVolume(None)
    read = (("PersistentVolume", name),)
    volume = objects.get(PersistentVolume, name)
    if volume is None or volume.spec.csi is None:
        return ResolvedVolume(None, read=read)
    return ResolvedVolume(CSIVolume(attachment.spec.attacher, volume.spec.csi.volume_handle), read=read)


def _of_claim(claim: PersistentVolumeClaim, objects: Objects, read: tuple[ObjectKey, ...]) -> ResolvedVolume:
    if claim.spec.volume_name:
        read = (*read, ("PersistentVolume", claim.spec.volume_name))
        volume = objects.get(PersistentVolume, claim.spec.volume_name)
        if volume is not None:
            return _of_volume(volume, read)
    # Not bound yet, or bound to a volume that is gone: the class names the driver that will provision one.
    if not claim.class_name:
        return ResolvedVolume(None, read=read)
    read = (*read, ("StorageClass", claim.class_name))
    storage_class = objects.get(StorageClass, claim.class_name)
    if storage_class is None or storage_class.provisioner in UNCOUNTED_PLUGINS:
        return ResolvedVolume(None, read=read)
    provisioner = storage_class.provisioner
    volume_to_be = CSIVolume(MIGRATED_PLUGINS.get(provisioner, provisioner), f"to be made for {claim.key}")
    return ResolvedVolume(_countable(volume_to_be), provisioner in MIGRATED_PLUGINS, read)


def _of_volume(volume: PersistentVolume, read: tuple[ObjectKey, ...]) -> ResolvedVolume:
    if volume.spec.csi is not None:
        return ResolvedVolume(_countable(CSIVolume(volume.spec.csi.driver, volume.spec.csi.volume_handle)), read=read)
    migrated = migrated_volume(volume.spec, volume.labels)
    return ResolvedVolume(None if isinstance(migrated, Fault) else _countable(migrated), migrated=True, read=read)


def _countable(found: CSIVolume | Fault | None) -> CSIVolume | Fault | None:
    return None if isinstance(found, CSIVolume) and not (found.driver and found.handle) else found
