"""What the table keeps for the volume rules."""

from __future__ import annotations

from extender.table.journal import Journal
from extender.table.nodes.columns import NodeColumns
from extender.table.objects import Objects
from extender.table.podinfo import PodInfo
from extender.table.pods.columns import PodColumns
from extender.table.volumes.attachments import Attachments
from extender.table.volumes.csi_nodes import CSINodes
from extender.table.volumes.unbound import UnboundVolumes
from extender.table.volumes.usage import VolumeUsage


class Storage:
    """Volumes in use, attached and still to be had."""

    def __init__(self, nodes: NodeColumns, pods: PodColumns, objects: Objects, journal: Journal) -> None:
        self.usage = VolumeUsage()
        self.attachments = Attachments(nodes, pods, objects, journal)
        self.csi_nodes = CSINodes(nodes, objects, journal)
        self.unbound = UnboundVolumes(journal)

    def add(self, info: PodInfo, slot: int) -> None:
        """The pod stands in `slot` now."""
        if info.volumes:
            self.usage.add(info, slot)
            self.attachments.add(info, slot)

    def remove(self, info: PodInfo, slot: int) -> None:
        """The pod has left `slot`."""
        if info.volumes:
            self.usage.remove(info, slot)
            self.attachments.remove(info, slot)
