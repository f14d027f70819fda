"""Defines the volume sources of pods and persistent volumes, one type for each storage system."""

from __future__ import annotations

import msgspec

from extender.model.meta import Int32, Value


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
