"""The table's columns and indices of volumes: one place that is told of every change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from extender.model.volumes.pod_volumes import ClaimUse, Disk, Mount
from extender.table.journal import Journal
from extender.table.nodes.columns import NodeColumns
from extender.table.objects import Objects
from extender.table.podinfo import PodInfo
from extender.table.pods.columns import PodColumns
from extender.table.volumes.attachments import Attachments
from extender.table.volumes.csi_nodes import CSINodes
from extender.table.volumes.persistent_volumes import UnboundVolumes

_NOBODY: frozenset[int] = frozenset()


class Storage:
    """The volumes in use, attached and unbound."""

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


class VolumeUsage:
    """The pod slots that use claims and inline disks; claims of ephemeral volumes have one user and are left out."""

    def __init__(self) -> None:
        self._claims: defaultdict[str, set[int]] = defaultdict(set)
        self._disks: defaultdict[Disk, dict[int, bool]] = defaultdict(dict)

    def add(self, info: PodInfo, slot: int) -> None:
        """The pod stands in `slot` now."""
        for use in _shared(info):
            self._claims[use.key].add(slot)
        for disk, read_only in info.mounts:
            self._disks[disk][slot] = self._disks[disk].get(slot, True) and read_only

    def remove(self, info: PodInfo, slot: int) -> None:
        """The pod has left `slot`."""
        for use in _shared(info):
            self._claims[use.key].discard(slot)
            if not self._claims[use.key]:
                del self._claims[use.key]
        for disk, _ in info.mounts:
            self._disks[disk].pop(slot, None)
            if not self._disks[disk]:
                del self._disks[disk]

    def claims(self) -> Mapping[str, set[int]]:
        """The slots of the users of every claim in use."""
        return self._claims

    def disks(self) -> Mapping[Disk, dict[int, bool]]:
        """For every inline disk in use the slots of its users, each with True if it only reads."""
        return self._disks

    def users(self, claim: str) -> frozenset[int] | set[int]:
        """The slots of the pods that use the claim of this key."""
        return self._claims.get(claim, _NOBODY)

    def users_of_any(self, names: frozenset[str]) -> set[int]:
        """The slots of the pods that use a claim with one of these names, in whatever namespace."""
        return {slot for key, slots in self._claims.items() if key.partition("/")[2] in names for slot in slots}

    def clashing(self, mounts: Iterable[Mount]) -> set[int]:
        """The slots of the pods whose use of one of the disks conflicts with `mounts`."""
        return set(self._clashing(mounts))

    def _clashing(self, mounts: Iterable[Mount]) -> Iterator[int]:
        for disk, read_only in mounts:
            for slot, reads_only in self._disks.get(disk, {}).items():
                if not (read_only and reads_only):
                    yield slot


def _shared(info: PodInfo) -> Iterator[ClaimUse]:
    return (use for use in info.claims if use.owner is None)
