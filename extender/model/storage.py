"""Defines volumes, claims, storage classes and CSI objects such as CSINode, with the fields that scheduling reads.

Defines the volume sources of pods and persistent volumes, one type for each storage system.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from extender.model.meta import Int32, LabelSelector, NodeSelector, Object, Value
from extender.model.quantity import Quantity, ResourceList, nano

STORAGE = "storage"
FILESYSTEM = "Filesystem"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
NO_PROVISIONER = "kubernetes.io/no-provisioner"

BETA_STORAGE_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED_ANNOTATION = "pv.kubernetes.io/bind-completed"
SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node"
BOUND_BY_CONTROLLER_ANNOTATION = "pv.kubernetes.io/bound-by-controller"
MIGRATED_PLUGINS_ANNOTATION = "storage.alpha.kubernetes.io/migrated-plugins"


class GCEPersistentDisk(Value, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStore(Value, frozen=True):
    volume_id: str = msgspec.field(name="volumeID", default="")
    read_only: bool = False


class AzureDisk(Value, frozen=True):
    disk_name: str = ""
    disk_uri: str = msgspec.field(name="diskURI", default="")
    kind: str | None = None


class Cinder(Value, frozen=True):
    volume_id: str = msgspec.field(name="volumeID", default="")


class PortworxVolume(Value, frozen=True):
    volume_id: str = msgspec.field(name="volumeID", default="")


class MigratableSources(Value, frozen=True):
    """The in-tree sources that CSI drivers have replaced. Pods and persistent volumes use the same keys for them."""

    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: Cinder | None = None
    portworx_volume: PortworxVolume | None = None


class ISCSI(Value, frozen=True):
    target_portal: str = ""
    iqn: str = ""
    lun: Int32 = 0
    read_only: bool = False


class RBD(Value, frozen=True):
    monitors: list[str] | None = None
    image: str = ""
    pool: str = "rbd"
    read_only: bool = False


class PersistentVolumeClaimSource(Value, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class CSIVolumeSource(Value, frozen=True):
    """A pod's inline CSI volume. It is created on the node instead of attached, so volume limits do not count it."""

    driver: str = ""
    read_only: bool | None = None


class CSIPersistentVolumeSource(Value, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class ImageVolumeSource(Value, frozen=True):
    reference: str = ""


class PodCertificateProjection(Value, frozen=True):
    key_type: str = ""


class VolumeProjection(Value, frozen=True):
    pod_certificate: PodCertificateProjection | None = None


class ProjectedVolumeSource(Value, frozen=True):
    """The projections of a volume, with the fields that scheduling reads."""

    sources: list[VolumeProjection] | None = None


class ClaimReference(Value, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Value, frozen=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(MigratableSources, frozen=True):
    capacity: ResourceList | None = None
    access_modes: list[str] | None = None
    storage_class_name: str = ""
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    csi: CSIPersistentVolumeSource | None = None


class VolumePhase(Value, frozen=True):
    """The status of a persistent volume or of a claim; only the phase is read."""

    phase: str = ""


class PersistentVolume(Object, frozen=True):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: VolumePhase = VolumePhase()

    @property
    def class_name(self) -> str:
        """The storage class; the legacy annotation has precedence (upstream GetPersistentVolumeClass)."""
        return self.annotations.get(BETA_STORAGE_CLASS_ANNOTATION, self.spec.storage_class_name)

    @property
    def storage(self) -> Quantity:
        return (self.spec.capacity or {}).get(STORAGE)

    @property
    def node_selector(self) -> NodeSelector | None:
        """The selector of the nodes that can reach the volume; None if all nodes can."""
        return self.spec.node_affinity.required if self.spec.node_affinity else None

    def is_bound_to(self, claim: PersistentVolumeClaim) -> bool:
        """Returns True if a user or the controller reserved the volume for `claim` (upstream IsVolumeBoundToClaim)."""
        reference = self.spec.claim_ref
        if reference is None or (reference.namespace, reference.name) != (claim.namespace, claim.name):
            return False
        return reference.uid in ("", claim.uid)


class VolumeResources(Value, frozen=True):
    requests: ResourceList | None = None


class PersistentVolumeClaimSpec(Value, frozen=True):
    access_modes: list[str] | None = None
    selector: LabelSelector | None = None
    resources: VolumeResources | None = None
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaim(Object, frozen=True):
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: VolumePhase = VolumePhase()

    @property
    def class_name(self) -> str:
        """The storage class; the legacy annotation has precedence (upstream GetPersistentVolumeClaimClass)."""
        return self.annotations.get(BETA_STORAGE_CLASS_ANNOTATION, self.spec.storage_class_name or "")

    @property
    def requested_storage(self) -> Quantity:
        """The requested size, or None if the claim requests no size."""
        resources = self.spec.resources
        return (resources.requests or {}).get(STORAGE) if resources else None

    @property
    def requested_nanos(self) -> int:
        return nano(self.requested_storage)

    @property
    def lost(self) -> bool:
        return self.status.phase == "Lost"

    @property
    def fully_bound(self) -> bool:
        """True if the claim names its volume and the controller has finished the binding (upstream isPVCFullyBound)."""
        return bool(self.spec.volume_name) and BIND_COMPLETED_ANNOTATION in self.annotations

    @property
    def selected_node(self) -> str | None:
        """The node that a scheduler has chosen for provisioning the claim's volume, or None."""
        return self.annotations.get(SELECTED_NODE_ANNOTATION)


class TopologySelectorLabelRequirement(Value, frozen=True):
    key: str = ""
    values: list[str] | None = None


class TopologySelectorTerm(Value, frozen=True):
    match_label_expressions: list[TopologySelectorLabelRequirement] | None = None


class StorageClass(Object, frozen=True):
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologySelectorTerm] | None = None

    @property
    def provisions(self) -> bool:
        """True if volumes of this class are provisioned on demand."""
        return self.provisioner not in ("", NO_PROVISIONER)


class VolumeNodeResources(Value, frozen=True):
    count: Int32 | None = None


class CSINodeDriver(Value, frozen=True):
    name: str = ""
    allocatable: VolumeNodeResources | None = None
    topology_keys: list[str] | None = None


class CSINodeSpec(Value, frozen=True):
    drivers: list[CSINodeDriver] | None = None


class CSINode(Object, frozen=True):
    spec: CSINodeSpec = CSINodeSpec()

    @property
    def drivers(self) -> Sequence[CSINodeDriver]:
        return self.spec.drivers or ()

    @property
    def migrated_plugins(self) -> frozenset[str]:
        """The in-tree plugins that are migrated to CSI drivers on this node."""
        return frozenset(self.annotations.get(MIGRATED_PLUGINS_ANNOTATION, "").split(","))


class CSIDriverSpec(Value, frozen=True):
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(Object, frozen=True):
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Object, frozen=True):
    """A driver's capacity for a storage class on the nodes that `node_topology` selects; None selects no node."""

    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: Quantity = None
    maximum_volume_size: Quantity = None

    @property
    def volume_limit(self) -> Quantity:
        """The largest volume that can be provisioned; None if unknown."""
        return self.capacity if self.maximum_volume_size is None else self.maximum_volume_size


class VolumeAttachmentSource(Value, frozen=True):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Value, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(Object, frozen=True):
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
