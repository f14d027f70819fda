"""What the table keeps for the volume rules."""

from __future__ import annotations

from extender.model.volumes.storage import CSINode, PersistentVolume
from extender.table.derived import Derived
from extender.table.nodes.columns import NodeColumns
from extender.table.objects import Objects
from extender.table.podinfo import PodInfo
from extender.table.pods.columns import PodColumns
from extender.table.volumes.attachments import Attachments
from extender.table.volumes.csi_nodes import CSINodes
from extender.table.volumes.unbound import UnboundVolumes
from extender.table.volumes.usage import VolumeUsage


class Storage:
    """Volumes in use, attached and still to be had; told by the table of all that happens."""

    def __init__(self, nodes: NodeColumns, pods: PodColumns, objects: Objects) -> None:
        self._objects = objects
        self.usage = VolumeUsage()
        self.attachments = Attachments(nodes, pods, objects)
        self.csi_nodes = CSINodes(nodes, objects)
        self.unbound = UnboundVolumes()
        self.derived = Derived()
        self._membership = 0
        self._labels = nodes.labels

    @property
    def topology_version(self) -> tuple[int, int]:
        """Changes whenever a node comes, goes or is labelled otherwise."""
        return self._membership, self._labels.version

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

    def node_changed(self, name: str) -> None:
        """The node has come or gone."""
        self._membership += 1
        self.attachments.node_changed(name)
        self.csi_nodes.changed(name)

    def object_changed(self, kind: str, key: str) -> None:
        """An object has come, gone or changed."""
        self.attachments.changed(kind, key)
        if kind == CSINode.__name__:
            self.csi_nodes.changed(key)
        elif kind == PersistentVolume.__name__:
            self._volume_changed(key)

    def _volume_changed(self, name: str) -> None:
        volume = self._objects.get(PersistentVolume, name)
        if volume is None:
            self.unbound.remove(name)
        else:
            self.unbound.set(volume)
