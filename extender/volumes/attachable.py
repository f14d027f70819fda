"""The CSI volumes that a pod needs attached to its node."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from extender.model.volumes.csi_migration import CSIVolume, Fault
from extender.table import PodInfo, Table
from extender.table.volumes.csi_volumes import MissingClaim, csi_volume_of


@dataclass(slots=True)
class AttachableVolumes:
    """The CSI volumes behind a pod's claims and inline volumes.

    Attributes:
        by_driver: the volumes.
        native_drivers: drivers of volumes that are not migrated in-tree ones; these count only on nodes with a CSINode.
        errors: faults, each with True if it counts on nodes without a CSINode too; in the order of the volumes.
    """

    by_driver: defaultdict[str, set[CSIVolume]] = field(default_factory=lambda: defaultdict(set))
    native_drivers: set[str] = field(default_factory=set)
    errors: list[tuple[Fault | MissingClaim, bool]] = field(default_factory=list)


def attachable_volumes(pod: PodInfo, table: Table) -> AttachableVolumes:
    """Resolves the pod's claims and inline volumes (upstream nodevolumelimits filterAttachableVolumes)."""
    volumes = AttachableVolumes()
    for source in pod.attachables:
        found, migrated, _ = csi_volume_of(source, table.objects)
        if isinstance(found, CSIVolume):
            volumes.by_driver[found.driver].add(found)
            if not migrated:
                volumes.native_drivers.add(found.driver)
        elif found is not None:
            volumes.errors.append((found, not migrated))
    return volumes
