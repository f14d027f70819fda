"""Reads a pod's volumes: the claims that it uses, the disks that pods cannot share, and the volumes to attach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from extender.model.csi_migration import CSIVolume, Fault, migrated_volume
from extender.model.pod import Pod, Volume
from extender.model.storage import PersistentVolumeClaim


class ClaimUse(NamedTuple):
    """A pod's use of a claim.

    Attributes:
        owner: for the claim of an ephemeral volume, the only pod that may use the claim; None for other claims.
    """

    namespace: str
    name: str
    owner: Owner | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def objection(self, claim: PersistentVolumeClaim) -> str | None:
        """Returns an error if the claim of an ephemeral volume was not created for this pod, else None."""
        if self.owner is None or (claim.controller is not None and claim.controller.uid == self.owner.uid):
            return None
        return f"PVC {self.key} was not created for pod {self.owner.key} (pod is not owner)"


class Owner(NamedTuple):
    """A pod for which a claim was created, because the pod has an ephemeral volume."""

    uid: str
    key: str


class Disk(NamedTuple):
    """A disk that a pod's volume names directly, without a claim; equal values mean the same disk."""

    kind: str
    identity: tuple[str, ...]


class Mount(NamedTuple):
    """A pod's use of a disk. Two uses of a disk clash unless both are read-only."""

    disk: Disk
    read_only: bool


class InlineVolume(NamedTuple):
    """An in-tree volume that a pod names directly, without a claim.

    `volume` is its translation for a CSI driver, or a Fault that says why it cannot be translated.
    """

    volume: CSIVolume | Fault


Attachable = ClaimUse | InlineVolume


def claims_of(pod: Pod) -> tuple[ClaimUse, ...]:
    """Returns the claims that the pod uses, in the order of its volumes, including those of ephemeral volumes."""
    return tuple(use for volume in pod.spec.volumes or () if (use := _claim(pod, volume)))


def attachables_of(pod: Pod) -> tuple[Attachable, ...]:
    """Returns the volumes that may have to be attached for the pod, in the order of its spec."""
    attachables: list[Attachable] = []
    for volume in pod.spec.volumes or ():
        if use := _claim(pod, volume):
            attachables.append(use)
        elif inline := migrated_volume(volume):
            attachables.append(InlineVolume(_with_volume_name(volume, inline)))
    return tuple(attachables)


def mounts_of(pod: Pod) -> tuple[Mount, ...]:
    """Returns the mounts of GCE, AWS, iSCSI and RBD disks, which may clash with other pods (isVolumeConflict)."""
    return tuple(mount for volume in pod.spec.volumes or () for mount in _mounts(volume))


def clash(mounts: Sequence[Mount], others: Sequence[Mount]) -> bool:
    """Returns True if pods with these mounts cannot share a node."""
    return any(
        mount.disk == other.disk and not (mount.read_only and other.read_only) for mount in mounts for other in others
    )


def _claim(pod: Pod, volume: Volume) -> ClaimUse | None:
    if volume.persistent_volume_claim is not None:
        return ClaimUse(pod.namespace, volume.persistent_volume_claim.claim_name)
    if volume.ephemeral is not None:
        return ClaimUse(pod.namespace, f"{pod.name}-{volume.name}", Owner(pod.uid, pod.key))
    return None


def _with_volume_name(volume: Volume, inline: CSIVolume | Fault) -> CSIVolume | Fault:
    if isinstance(inline, CSIVolume):
        return inline
    return Fault(f"converting volume({volume.name}) from inline to csi: {inline.message}")


def _mounts(volume: Volume) -> Iterator[Mount]:
    if (gce := volume.gce_persistent_disk) is not None:
        yield Mount(Disk("gcePersistentDisk", (gce.pd_name,)), gce.read_only)
    if (aws := volume.aws_elastic_block_store) is not None:
        yield Mount(Disk("awsElasticBlockStore", (aws.volume_id,)), False)
    if (iscsi := volume.iscsi) is not None:
        yield Mount(Disk("iscsi", (iscsi.iqn,)), iscsi.read_only)
    if (rbd := volume.rbd) is not None:
        for monitor in rbd.monitors or ():  # two RBD images are the same if they have a monitor in common
            yield Mount(Disk("rbd", (monitor, rbd.pool, rbd.image)), rbd.read_only)
