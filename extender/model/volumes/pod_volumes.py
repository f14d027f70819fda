"""A pod's volumes: the claims that it uses, the disks that clash, the volumes that are attached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from extender.model.pod import Pod, Volume
from extender.model.volumes.csi_migration import CSIVolume, Fault, migrated_volume
from extender.model.volumes.storage import PersistentVolumeClaim


class ClaimUse(NamedTuple):
    """A claim as a pod uses it. `owner` is the pod of an ephemeral volume, the only one that may use the claim."""

    namespace: str
    name: str
    owner: Owner | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def objection(self, claim: PersistentVolumeClaim) -> str | None:
        """Returns why the pod may not use the claim: it is an ephemeral volume's and was made for something else."""
        if self.owner is None or (claim.controller is not None and claim.controller.uid == self.owner.uid):
            return None
        return f"PVC {self.key} was not created for pod {self.owner.key} (pod is not owner)"


class Owner(NamedTuple):
    """The pod that an ephemeral volume's claim was made for."""

    uid: str
    key: str


class Disk(NamedTuple):
    """A disk that pods name inline; equal ones are the same disk."""

    kind: str
    identity: tuple[str, ...]


class Mount(NamedTuple):
    """The use of a disk by a pod. Two mounts of one disk clash unless both only read."""

    disk: Disk
    read_only: bool


class InlineVolume(NamedTuple):
    """An in-tree volume that a pod names itself and a CSI driver attaches, or why that cannot be told."""

    volume: CSIVolume | Fault


Attachable = ClaimUse | InlineVolume


def claims_of(pod: Pod) -> tuple[ClaimUse, ...]:
    """The claims that the pod uses, in the order of its volumes, those of its ephemeral volumes included."""
    return tuple(use for volume in pod.spec.volumes or () if (use := _claim(pod, volume)))


def attachables_of(pod: Pod) -> tuple[Attachable, ...]:
    """Returns the volumes that may have to be attached for the pod, in the order of its volumes."""
    found: list[Attachable] = []
    for volume in pod.spec.volumes or ():
        if use := _claim(pod, volume):
            found.append(use)
        elif inline := migrated_volume(volume):
            found.append(InlineVolume(_in_words(volume, inline)))
    return tuple(found)


def mounts_of(pod: Pod) -> tuple[Mount, ...]:
    """The inline disks that not every two pods may share (upstream isVolumeConflict)."""
    return tuple(mount for volume in pod.spec.volumes or () for mount in _mounts(volume))


def clash(mounts: Sequence[Mount], others: Sequence[Mount]) -> bool:
    """Returns True if pods with these mounts cannot be on one node together."""
    return any(
        mount.disk == other.disk and not (mount.read_only and other.read_only) for mount in mounts for other in others
    )


def _claim(pod: Pod, volume: Volume) -> ClaimUse | None:
    if volume.persistent_volume_claim is not None:
        return ClaimUse(pod.namespace, volume.persistent_volume_claim.claim_name)
    if volume.ephemeral is not None:
        return ClaimUse(pod.namespace, f"{pod.name}-{volume.name}", Owner(pod.uid, pod.key))
    return None


def _in_words(volume: Volume, inline: CSIVolume | Fault) -> CSIVolume | Fault:
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
        for monitor in rbd.monitors or ():  # images are the same if any monitor is
            yield Mount(Disk("rbd", (monitor, rbd.pool, rbd.image)), rbd.read_only)
