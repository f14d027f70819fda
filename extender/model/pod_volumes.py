"""Reads volumes: the claims that a pod uses, the disks that pods cannot share, and the volumes to attach.

In-tree volumes count as volumes of the CSI drivers that have replaced them. This covers the plugins whose migration the
scheduler considers: AWS EBS, GCE PD, Azure Disk, Cinder and Portworx. Source: k8s.io/csi-translation-lib; upstream
isCSIMigrationOn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from extender.model.meta import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from extender.model.pod import Pod, Volume
from extender.model.storage import (
    AWSElasticBlockStore,
    AzureDisk,
    MigratableSources,
    PersistentVolume,
    PersistentVolumeClaim,
)

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
ZONE_DELIMITER = "__"

AWS_EBS = "kubernetes.io/aws-ebs"
GCE_PD = "kubernetes.io/gce-pd"
AZURE_DISK = "kubernetes.io/azure-disk"
CINDER = "kubernetes.io/cinder"
PORTWORX = "kubernetes.io/portworx-volume"

# In-tree plugin -> the CSI driver that has replaced it.
MIGRATED_PLUGINS: Mapping[str, str] = {
    AWS_EBS: "ebs.csi.aws.com",
    GCE_PD: "pd.csi.storage.gke.io",
    AZURE_DISK: "disk.csi.azure.com",
    CINDER: "cinder.csi.openstack.org",
    PORTWORX: "pxd.portworx.com",
}
# The scheduler does not count the volumes of these plugins, although CSI drivers have replaced them, too.
UNCOUNTED_PLUGINS = frozenset(("kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"))

_TOPOLOGY_KEYS = {
    AWS_EBS: "topology.ebs.csi.aws.com/zone",
    GCE_PD: "topology.gke.io/zone",
    CINDER: "topology.cinder.csi.openstack.org/zone",
}
_EBS_VOLUME_ID = re.compile(r"vol-[^/]*")


class CSIVolume(NamedTuple):
    """A volume as its CSI driver identifies it."""

    driver: str
    handle: str


class Fault(NamedTuple):
    """The reason why a volume cannot be translated, in kube-scheduler's words."""

    message: str


def in_tree_plugin(source: MigratableSources) -> str | None:
    """Returns the in-tree plugin of the source; None if no CSI driver has replaced it."""
    sources = {
        AWS_EBS: source.aws_elastic_block_store,
        GCE_PD: source.gce_persistent_disk,
        AZURE_DISK: source.azure_disk,
        CINDER: source.cinder,
        PORTWORX: source.portworx_volume,
    }
    return next((plugin for plugin, disk in sources.items() if disk is not None), None)


def migrated_volume(source: MigratableSources, labels: Mapping[str, str] | None = None) -> CSIVolume | Fault | None:
    """Returns the CSI volume that replaces an in-tree volume; None if no driver has replaced the source.

    Returns a Fault if the volume cannot be translated. `labels` are the labels of the persistent volume.
    """
    if source.aws_elastic_block_store is not None:
        return _named(AWS_EBS, _ebs_volume_id(source.aws_elastic_block_store))
    if source.gce_persistent_disk is not None:
        place = _gce_place(labels or {})
        name = source.gce_persistent_disk.pd_name
        return _named(GCE_PD, place if isinstance(place, Fault) else f"projects/UNSPECIFIED/{place}/disks/{name}")
    if source.azure_disk is not None:
        return _named(AZURE_DISK, _azure_disk_uri(source.azure_disk))
    if source.cinder is not None:
        return _named(CINDER, source.cinder.volume_id)
    if source.portworx_volume is not None:
        return _named(PORTWORX, source.portworx_volume.volume_id)
    return None


def migrated_node_selector(pv: PersistentVolume, plugin: str) -> NodeSelector | Fault | None:
    """Returns the selector of the nodes that can reach the volume of a migrated plugin; None means all nodes.

    The CSI driver's topology key replaces the zone label.
    """
    volume = migrated_volume(pv.spec, pv.labels)
    if isinstance(volume, Fault):
        return volume
    key = _TOPOLOGY_KEYS.get(plugin)
    return pv.node_selector if key is None else _with_topology(pv, key)


def _named(plugin: str, handle: str | Fault) -> CSIVolume | Fault:
    return handle if isinstance(handle, Fault) else CSIVolume(MIGRATED_PLUGINS[plugin], handle)


def _ebs_volume_id(disk: AWSElasticBlockStore) -> str | Fault:
    """Returns the volume ID; `aws://zone/vol-1` and `vol-1` are the same volume."""
    if not disk.volume_id.startswith("aws://"):
        return disk.volume_id
    volume_id = urlsplit(disk.volume_id).path.strip("/")
    if _EBS_VOLUME_ID.fullmatch(volume_id):
        return volume_id
    return Fault(f"failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({disk.volume_id})")


def _gce_place(labels: Mapping[str, str]) -> str | Fault:
    zones = (labels.get(BETA_ZONE) or labels.get(ZONE) or "").split(ZONE_DELIMITER)
    if len(zones) == 1:
        return f"zones/{zones[0] or 'UNSPECIFIED'}"
    for zone in zones:
        if zone.count("-") != 2:
            shape = "{locale}-{region}-{zone}"
            return _no_region(f"zone in unexpected format, expected: {shape}, got: {zone}")
    regions = sorted({zone.rpartition("-")[0] for zone in zones})
    if len(regions) != 1:
        got = " ".join(f"{region}:{{}}" for region in regions)
        return _no_region(f"multiple or no regions gotten from zones, got: map[{got}]")
    return f"regions/{regions[0]}"


def _no_region(cause: str) -> Fault:
    return Fault(f"failed to get region from zones: {cause}")


def _azure_disk_uri(disk: AzureDisk) -> str | Fault:
    if disk.kind is not None and disk.kind.lower() != "managed":
        return Fault(f"kind({disk.kind}) is not supported in csi migration")
    return disk.disk_uri


def _with_topology(pv: PersistentVolume, key: str) -> NodeSelector | None:
    """Returns the volume's node selector, with the CSI driver's topology key `key` instead of the zone label.

    Source: csi-translation-lib translateTopologyFromInTreeToCSI.
    """
    zone, region = _topology_labels(pv)
    renamed = {zone: key} if _values(pv, zone) else {}
    if region == BETA_REGION and _values(pv, region):
        renamed[region] = REGION
    added: list[NodeSelectorRequirement] = []
    if zone not in renamed and zone in pv.labels:
        zones = sorted({name.strip() for name in pv.labels[zone].split(ZONE_DELIMITER)} - {""})
        added = [NodeSelectorRequirement(key=key, operator="In", values=zones)] if zones else []
    if not renamed and not added:
        return pv.node_selector
    terms = (pv.node_selector.node_selector_terms if pv.node_selector else None) or [NodeSelectorTerm()]
    return NodeSelector(node_selector_terms=[_rewritten(term, renamed, added) for term in terms])


def _rewritten(
    term: NodeSelectorTerm, renamed: Mapping[str, str], added: list[NodeSelectorRequirement]
) -> NodeSelectorTerm:
    expressions = [
        msgspec.structs.replace(expression, key=renamed.get(expression.key, expression.key))
        for expression in term.match_expressions or ()
    ]
    return msgspec.structs.replace(term, match_expressions=expressions + added)


def _topology_labels(pv: PersistentVolume) -> tuple[str, str]:
    keys = {expression.key for expression in _expressions(pv)}
    for present in (keys, pv.labels):
        if ZONE in present:
            return ZONE, REGION
        if BETA_ZONE in present:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _values(pv: PersistentVolume, key: str) -> set[str]:
    return {value for expression in _expressions(pv) if expression.key == key for value in expression.values or ()}


def _expressions(pv: PersistentVolume) -> Iterator[NodeSelectorRequirement]:
    selector = pv.node_selector
    for term in (selector.node_selector_terms if selector else None) or ():
        yield from term.match_expressions or ()


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
