"""What a pod wants attached to its node."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from extender.model.volumes.csi_migration import CSIVolume, Fault
from extender.table import PodInfo, Table
from extender.table.volumes.csi_volumes import Missing


@dataclass(slots=True)
class WantedVolumes:
    """The CSI volumes behind a pod's claims and inline volumes.

    Attributes:
        volumes: by driver.
        everywhere: the drivers of volumes that are not in-tree ones. Of those only nodes with a CSINode take notice.
        unknown: what cannot be told, and whether nodes without a CSINode take notice; in the order of the volumes.
    """

    volumes: defaultdict[str, set[CSIVolume]] = field(default_factory=lambda: defaultdict(set))
    everywhere: set[str] = field(default_factory=set)
    unknown: list[tuple[Fault | Missing, bool]] = field(default_factory=list)


def wanted_volumes(pod: PodInfo, table: Table) -> WantedVolumes:
    """Source: upstream nodevolumelimits filterAttachableVolumes."""
    wanted = WantedVolumes()
    for source in pod.attachables:
        found, migrated, _ = table.storage.attachments.look_up(source)
        if isinstance(found, CSIVolume):
            wanted.volumes[found.driver].add(found)
            if not migrated:
                wanted.everywhere.add(found.driver)
        elif found is not None:
            wanted.unknown.append((found, not migrated))
    return wanted
