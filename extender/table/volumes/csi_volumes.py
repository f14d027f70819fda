"""Which CSI volume is behind a claim, and what that answer was read from.

Source: upstream nodevolumelimits CSILimits.getCSIDriverInfo.
"""

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

Key = tuple[str, str]
READ_KINDS = (PersistentVolumeClaim.__name__, PersistentVolume.__name__, StorageClass.__name__)


class Missing(NamedTuple):
    """The claim of this key does not exist."""

    use: ClaimUse


Found = CSIVolume | Fault | Missing | None


class Answer(NamedTuple):
    """What is behind an attachable.

    Attributes:
        found: the volume; None: nothing that a driver would attach.
        migrated: it is an in-tree volume, attached by a driver only where the node has a CSINode.
        read: kind and key of the objects that the answer depends on, existing or not.
    """

    found: Found
    migrated: bool = False
    read: tuple[Key, ...] = ()


def look_up(source: Attachable, objects: Objects) -> Answer:
    """What is behind a claim or an inline volume."""
    if isinstance(source, InlineVolume):
        return Answer(_countable(source.volume), migrated=True)
    read = (("PersistentVolumeClaim", source.key),)
    if not source.name:
        return Answer(Fault("PersistentVolumeClaim had no name"), read=read)
    claim = objects.get(PersistentVolumeClaim, source.key)
    if claim is None:
        return Answer(Missing(source), read=read)
    if objection := source.objection(claim):
        return Answer(Fault(objection), read=read)
    return _of_claim(claim, objects, read)


def look_up_attached(attachment: VolumeAttachment, objects: Objects) -> Answer:
    """What a VolumeAttachment says is attached."""
    name = attachment.spec.source.persistent_volume_name
    if not attachment.spec.attacher or name is None:
        return Answer(None)
    read = (("PersistentVolume", name),)
    volume = objects.get(PersistentVolume, name)
    if volume is None or volume.spec.csi is None:
        return Answer(None, read=read)
    return Answer(CSIVolume(attachment.spec.attacher, volume.spec.csi.volume_handle), read=read)


def _of_claim(claim: PersistentVolumeClaim, objects: Objects, read: tuple[Key, ...]) -> Answer:
    if claim.spec.volume_name:
        read = (*read, ("PersistentVolume", claim.spec.volume_name))
        volume = objects.get(PersistentVolume, claim.spec.volume_name)
        if volume is not None:
            return _of_volume(volume, read)
    # Not bound yet, or bound to a volume that is gone: the class tells which driver will make one.
    if not claim.class_name:
        return Answer(None, read=read)
    read = (*read, ("StorageClass", claim.class_name))
    storage_class = objects.get(StorageClass, claim.class_name)
    if storage_class is None or storage_class.provisioner in UNCOUNTED_PLUGINS:
        return Answer(None, read=read)
    provisioner = storage_class.provisioner
    volume_to_be = CSIVolume(MIGRATED_PLUGINS.get(provisioner, provisioner), f"to be made for {claim.key}")
    return Answer(_countable(volume_to_be), provisioner in MIGRATED_PLUGINS, read)


def _of_volume(volume: PersistentVolume, read: tuple[Key, ...]) -> Answer:
    if volume.spec.csi is not None:
        return Answer(_countable(CSIVolume(volume.spec.csi.driver, volume.spec.csi.volume_handle)), read=read)
    migrated = migrated_volume(volume.spec, volume.labels)
    return Answer(None if isinstance(migrated, Fault) else _countable(migrated), migrated=True, read=read)


def _countable(found: CSIVolume | Fault | None) -> CSIVolume | Fault | None:
    return None if isinstance(found, CSIVolume) and not (found.driver and found.handle) else found
