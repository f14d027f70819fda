"""Indexes unbound volumes and the users of volumes.

`Storage` owns all data about volumes, including attachments and CSINodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from extender.model.pod_volumes import ClaimUse, Disk, Mount
from extender.model.quantity import nano, units_from_nano
from extender.model.storage import FILESYSTEM, PersistentVolume
from extender.table.attachments import Attachments
from extender.table.csi import CSINodes
from extender.table.filing import ShrinkingDict
from extender.table.journal import FREE_VOLUMES, Journal
from extender.table.node_columns import NodeColumns
from extender.table.object_index import Objects
from extender.table.pod_columns import PodColumns
from extender.table.podinfo import PodInfo


class VolumeTraits(NamedTuple):
    """The properties of a volume that must match a claim, apart from the size and the node affinity.

    Many volumes have equal traits.
    """

    access_modes: frozenset[str]
    volume_mode: str
    attributes_class: str
    available: bool


class UnboundVolume(NamedTuple):
    """A persistent volume that may not be bound yet.

    Attributes:
        nanos: its size in billionths of a byte.
        selector_key: a value that is equal for volumes with equal node affinity.
    """

    volume: PersistentVolume
    nanos: int
    size_bytes: int
    traits: VolumeTraits
    selector_key: bytes


class UnboundVolumes:
    """Indexes persistent volumes: free ones by storage class, and reserved ones by the claim in their claimRef."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._free: defaultdict[str, dict[str, UnboundVolume]] = defaultdict(dict)
        self._reserved: defaultdict[str, dict[str, UnboundVolume]] = defaultdict(dict)
        self._volumes: dict[str, PersistentVolume] = {}

    def set(self, volume: PersistentVolume) -> None:
        self.remove(volume.name)
        self._volumes[volume.name] = volume
        self._volumes_beside(volume)[volume.name] = _unbound(volume)
        self._note(volume)

    def remove(self, name: str) -> None:
        """Removes the volume; an unknown name is ignored."""
        volume = self._volumes.pop(name, None)
        if volume is not None:
            del self._volumes_beside(volume)[name]
            self._note(volume)

    def free(self, class_name: str) -> Collection[UnboundVolume]:
        """Returns the volumes of a class that have no claimRef."""
        return self._free.get(class_name, {}).values()

    def reserved(self, claim_key: str) -> Collection[UnboundVolume]:
        """Returns the volumes whose claimRef names the claim, even if they are not bound to it."""
        return self._reserved.get(claim_key, {}).values()

    def names(self) -> dict[tuple[str, str], frozenset[str]]:
        """Returns the names of the free volumes of each class, and of the volumes reserved for each claim.

        The keys are ("free", storage class) and ("reserved", key of the claim).
        """
        free = {("free", class_name): frozenset(volumes) for class_name, volumes in self._free.items() if volumes}
        return free | {("reserved", claim): frozenset(volumes) for claim, volumes in self._reserved.items() if volumes}

    def _volumes_beside(self, volume: PersistentVolume) -> dict[str, UnboundVolume]:
        reference = volume.spec.claim_ref
        if reference is None:
            return self._free[volume.class_name]
        return self._reserved[f"{reference.namespace}/{reference.name}"]

    def _note(self, volume: PersistentVolume) -> None:
        if volume.spec.claim_ref is None:
            self._journal.note(FREE_VOLUMES, volume.class_name)
        elif not self._volumes_beside(volume):
            del self._reserved[f"{volume.spec.claim_ref.namespace}/{volume.spec.claim_ref.name}"]


def _unbound(volume: PersistentVolume) -> UnboundVolume:
    spec, nanos = volume.spec, nano(volume.storage)
    traits = VolumeTraits(
        frozenset(spec.access_modes or ()),
        spec.volume_mode or FILESYSTEM,
        spec.volume_attributes_class_name or "",
        volume.status.phase == "Available" and not volume.terminating,
    )
    return UnboundVolume(volume, nanos, units_from_nano(nanos), traits, msgspec.msgpack.encode(volume.node_selector))


_NO_SLOTS: frozenset[int] = frozenset()


class Storage:
    """Owns the table's data about volumes: their users, attachments, CSINodes and unbound volumes."""

    def __init__(self, nodes: NodeColumns, pods: PodColumns, objects: Objects, journal: Journal) -> None:
        self.usage = VolumeUsage()
        self.attachments = Attachments(nodes, pods, objects, journal)
        self.csi_nodes = CSINodes(nodes, objects, journal)
        self.unbound = UnboundVolumes(journal)

    def add(self, info: PodInfo, slot: int) -> None:
        """Adds the volumes of the pod in `slot`."""
        if info.volumes:
            self.usage.add(info, slot)
            self.attachments.add(info, slot)

    def remove(self, info: PodInfo, slot: int) -> None:
        if info.volumes:
            self.usage.remove(info, slot)
            self.attachments.remove(info, slot)


class VolumeUsage:
    """The slots of the pods that use each claim and each inline disk.

    Claims of ephemeral volumes are left out, because only one pod uses them.
    """

    def __init__(self) -> None:
        self._claims: ShrinkingDict[str, set[int]] = ShrinkingDict()
        self._disks: ShrinkingDict[Disk, dict[int, bool]] = ShrinkingDict()

    def add(self, info: PodInfo, slot: int) -> None:
        """Adds the volumes of the pod in `slot`."""
        for use in _shared(info):
            self._claims.setdefault(use.key, set()).add(slot)
        for disk, read_only in info.mounts:
            users = self._disks.setdefault(disk, {})
            users[slot] = users.get(slot, True) and read_only

    def remove(self, info: PodInfo, slot: int) -> None:
        for key in {use.key for use in _shared(info)}:
            self._claims[key].remove(slot)
            if not self._claims[key]:
                del self._claims[key]
        for disk in {disk for disk, _ in info.mounts}:
            del self._disks[disk][slot]
            if not self._disks[disk]:
                del self._disks[disk]

    def claims(self) -> Mapping[str, set[int]]:
        """Returns the slots of the pods that use each claim, by the claim's key."""
        return self._claims

    def disks(self) -> Mapping[Disk, dict[int, bool]]:
        """Returns the users of each inline disk: slot of the pod -> True if the pod only reads the disk."""
        return self._disks

    def users(self, claim: str) -> frozenset[int] | set[int]:
        """Returns the slots of the pods that use the claim with this key."""
        return self._claims.get(claim, _NO_SLOTS)

    def users_of_any(self, names: frozenset[str]) -> set[int]:
        """Returns the slots of the pods that use a claim with one of these names, in any namespace."""
        return {slot for key, slots in self._claims.items() if key.partition("/")[2] in names for slot in slots}

    def clashing(self, mounts: Iterable[Mount]) -> set[int]:
        """Returns the slots of the pods whose use of a disk conflicts with `mounts`."""
        return set(self._clashing(mounts))

    def _clashing(self, mounts: Iterable[Mount]) -> Iterator[int]:
        for disk, read_only in mounts:
            for slot, reads_only in self._disks.get(disk, {}).items():
                if not (read_only and reads_only):
                    yield slot


def _shared(info: PodInfo) -> Iterator[ClaimUse]:
    return (use for use in info.claims if use.owner is None)
