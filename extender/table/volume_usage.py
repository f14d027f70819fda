"""Indexes unbound volumes and the users of volumes, and counts the CSI volumes attached to each node.

`Storage` owns all data about volumes, including attachments and CSINodes.

An attached volume counts once on a node, even if several pods there use it. So the pairs of a volume and a node, and
the pods that use each pair, are stored in columns. A claim may resolve to another volume when the claim, its volume or
its class changes. The journal records such changes, and the claim is resolved again when the counts are next read.
Source: upstream nodevolumelimits CSILimits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from extender.model.pod_volumes import Attachable, ClaimUse, CSIVolume, Disk, Fault, Mount
from extender.model.quantity import nano, units_from_nano
from extender.model.storage import FILESYSTEM, PersistentVolume, VolumeAttachment
from extender.table.csi import READ_KINDS, CSINodes, ObjectKey, ResolvedVolume, attached_volume, csi_volume_of
from extender.table.filing import ShrinkingDict, drop_empty
from extender.table.journal import FREE_VOLUMES, TOPOLOGY, Cursor, Journal
from extender.table.labels import BoolColumn, IntColumn
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
    """The pods that use each claim and each inline disk.

    Claims of ephemeral volumes are left out, because only one pod uses them.

    Attributes:
        claims: key of a claim -> the slots of the pods that use it.
        disks: inline disk -> {slot of a pod that uses it: True if the pod only reads the disk}.
    """

    def __init__(self) -> None:
        self.claims: ShrinkingDict[str, set[int]] = ShrinkingDict()
        self.disks: ShrinkingDict[Disk, dict[int, bool]] = ShrinkingDict()

    def add(self, info: PodInfo, slot: int) -> None:
        """Adds the volumes of the pod in `slot`."""
        for use in _shared(info):
            self.claims.setdefault(use.key, set()).add(slot)
        for disk, read_only in info.mounts:
            users = self.disks.setdefault(disk, {})
            users[slot] = users.get(slot, True) and read_only

    def remove(self, info: PodInfo, slot: int) -> None:
        for key in {use.key for use in _shared(info)}:
            self.claims[key].remove(slot)
            drop_empty(self.claims, key)
        for disk in {disk for disk, _ in info.mounts}:
            del self.disks[disk][slot]
            drop_empty(self.disks, disk)

    def users(self, claim: str) -> frozenset[int] | set[int]:
        """Returns the slots of the pods that use the claim with this key."""
        return self.claims.get(claim, _NO_SLOTS)

    def users_of_any(self, names: frozenset[str]) -> set[int]:
        """Returns the slots of the pods that use a claim with one of these names, in any namespace."""
        return {slot for key, slots in self.claims.items() if key.partition("/")[2] in names for slot in slots}

    def clashing(self, mounts: Iterable[Mount]) -> set[int]:
        """Returns the slots of the pods whose use of a disk conflicts with `mounts`."""
        return {
            slot
            for disk, read_only in mounts
            for slot, reads_only in self.disks.get(disk, {}).items()
            if not (read_only and reads_only)
        }


def _shared(info: PodInfo) -> Iterator[ClaimUse]:
    return (use for use in info.claims if use.owner is None)


_FIRST_CAPACITY = 16
_FREE = -1


class VolumePairs:
    """Stores which CSI volumes are on which nodes, and which pods use them there.

    A pair is a volume and a node that has it. Each pair has a number, and each use of a pair by a pod has a number.
    """

    def __init__(self) -> None:
        # volume -> {row of a node: the number of their pair}
        self._pair_of: ShrinkingDict[CSIVolume, dict[int, int]] = ShrinkingDict()
        self._volume: list[CSIVolume | None] = []
        self._row = np.zeros(_FIRST_CAPACITY, np.intp)
        self._driver = np.full(_FIRST_CAPACITY, _FREE, np.intp)
        self._uses = np.zeros(_FIRST_CAPACITY, np.int64)
        self._attachments = np.zeros(_FIRST_CAPACITY, np.int64)
        self._free_pairs: list[int] = []
        self._drivers: dict[str, int] = {}
        self._use_pair = np.full(_FIRST_CAPACITY, _FREE, np.intp)
        self._use_slot = np.zeros(_FIRST_CAPACITY, np.intp)
        self._free_uses = list(range(_FIRST_CAPACITY))

    def add_use(self, volume: CSIVolume, row: int, slot: int) -> int:
        """Records that a pod uses the volume on the node on `row`; returns a number for `drop_use`."""
        pair = self._pair(volume, row)
        if not self._free_uses:
            self._grow_uses()
        use = self._free_uses.pop()
        self._use_pair[use], self._use_slot[use] = pair, slot
        self._uses[pair] += 1
        return use

    def drop_use(self, use: int) -> None:
        """Records that a pod no longer uses a volume. `use`: the number that `add_use` returned."""
        pair = int(self._use_pair[use])
        self._use_pair[use] = _FREE
        self._free_uses.append(use)
        self._uses[pair] -= 1
        self._release(pair)

    def attach(self, volume: CSIVolume, row: int) -> int:
        """Records a VolumeAttachment of the volume to the node on `row`; returns a number for `detach`."""
        pair = self._pair(volume, row)
        self._attachments[pair] += 1
        return pair

    def detach(self, pair: int) -> None:
        """Records that a VolumeAttachment no longer exists. `pair`: the number that `attach` returned."""
        self._attachments[pair] -= 1
        self._release(pair)

    def drivers(self) -> tuple[str, ...]:
        """Returns the drivers of all volumes that are or were on a node."""
        return tuple(self._drivers)

    def counted(self, driver: str, capacity: int, gone: BoolColumn | None) -> IntColumn:
        """Returns the number of the driver's volumes on each row: int64[capacity].

        `gone`: bool[slot]: True for pods to ignore.
        """
        there = (self._uses_without(gone) > 0) | (self._attachments > 0)
        there &= self._driver == self._drivers.get(driver, _FREE - 1)
        return np.bincount(self._row[there], minlength=capacity)

    def used(self, volume: CSIVolume, capacity: int, gone: BoolColumn | None) -> BoolColumn:
        """Returns bool[capacity]: True for the rows of nodes on which a pod uses the volume.

        `gone`: bool[slot]: True for pods to ignore.
        """
        used = np.zeros(capacity, np.bool_)
        pairs = list(self._pair_of.get(volume, {}).values())
        used[self._row[pairs]] = self._uses_without(gone)[pairs] > 0
        return used

    def _uses_without(self, gone: BoolColumn | None) -> IntColumn:
        if gone is None:
            return self._uses
        dropped = self._use_pair[(self._use_pair != _FREE) & gone[self._use_slot]]
        return self._uses - np.bincount(dropped, minlength=len(self._uses))

    def _pair(self, volume: CSIVolume, row: int) -> int:
        pair_of_row = self._pair_of.setdefault(volume, {})
        pair = pair_of_row.get(row)
        if pair is None:
            pair = self._free_pairs.pop() if self._free_pairs else self._append_pair()
            pair_of_row[row] = pair
            self._volume[pair] = volume
            self._row[pair] = row
            self._driver[pair] = self._drivers.setdefault(volume.driver, len(self._drivers))
        return pair

    def _release(self, pair: int) -> None:
        if self._uses[pair] or self._attachments[pair]:
            return
        volume = self._volume[pair]
        assert volume is not None
        del self._pair_of[volume][int(self._row[pair])]
        drop_empty(self._pair_of, volume)
        self._volume[pair] = None
        self._driver[pair] = _FREE
        self._free_pairs.append(pair)

    def _append_pair(self) -> int:
        pair = len(self._volume)
        self._volume.append(None)
        if pair == len(self._row):
            self._row = np.pad(self._row, (0, pair))
            self._driver = np.pad(self._driver, (0, pair), constant_values=_FREE)
            self._uses = np.pad(self._uses, (0, pair))
            self._attachments = np.pad(self._attachments, (0, pair))
        return pair

    def _grow_uses(self) -> None:
        more = len(self._use_pair)
        self._free_uses.extend(range(more, 2 * more))
        self._use_pair = np.pad(self._use_pair, (0, more), constant_values=_FREE)
        self._use_slot = np.pad(self._use_slot, (0, more))


class Attached(NamedTuple):
    """A VolumeAttachment. It keeps a volume on a node even if no pod uses the volume."""

    key: str


Source = Attachable | Attached
_ATTACHMENT = VolumeAttachment.__name__
_UNKNOWN = ResolvedVolume(None)


class Attachments:
    """Tracks the CSI volumes on each node: a volume is there if a pod uses it, or if it has a VolumeAttachment."""

    def __init__(self, nodes: NodeColumns, pods: PodColumns, objects: Objects, journal: Journal) -> None:
        self._nodes = nodes
        self._pods = pods
        self._objects = objects
        self._changes = {topic: Cursor(journal, topic) for topic in (TOPOLOGY, _ATTACHMENT, *READ_KINDS)}
        self._pairs = VolumePairs()
        # volume -> {slot of a pod that uses it: the number of the use in `_pairs`}
        self._users: ShrinkingDict[Attachable, dict[int, int | None]] = ShrinkingDict()
        self._pair_of: dict[Attached, int] = {}
        self._resolved: ShrinkingDict[Source, ResolvedVolume] = ShrinkingDict()
        self._readers: ShrinkingDict[ObjectKey, set[Source]] = ShrinkingDict()
        self._faulty: dict[Attachable, Fault] = {}
        self._node_of: dict[Attached, str] = {}
        self._on_node: defaultdict[str, set[Attached]] = defaultdict(set)
        self._unresolved: dict[Attachable, None] = {}  # volumes of pods added since the counts were last read

    # ---- changes

    def add(self, info: PodInfo, slot: int) -> None:
        """Adds the volumes of the pod in `slot`."""
        for source in info.attachables:
            self._users.setdefault(source, {})[slot] = None
            if source in self._resolved:
                self._use(source, slot)
            else:
                self._unresolved[source] = None

    def remove(self, info: PodInfo, slot: int) -> None:
        for source in info.attachables:
            if source not in self._users:  # the pod names the volume twice, and the first pass has removed the entry
                continue
            use = self._users[source].pop(slot, None)
            if use is not None:
                self._pairs.drop_use(use)
            if not self._users[source]:
                del self._users[source]
                self._drop_resolved(source)
                self._unresolved.pop(source, None)

    # ---- reading

    def counted(self, driver: str, gone: BoolColumn | None = None) -> IntColumn:
        """Returns the number of volumes of a driver on each node: int64[row].

        `gone`: bool[slot]: True for pods to ignore.
        """
        self._refresh()
        return self._pairs.counted(driver, self._nodes.capacity, gone)

    def drivers(self) -> tuple[str, ...]:
        """Returns the drivers of all volumes that are or were on a node."""
        self._refresh()
        return self._pairs.drivers()

    def used(self, volume: CSIVolume, gone: BoolColumn | None = None) -> BoolColumn:
        """Returns bool[row]: True for the nodes on which a pod uses the volume.

        `gone`: bool[slot]: True for pods to ignore.
        """
        self._refresh()
        return self._pairs.used(volume, self._nodes.capacity, gone)

    def faults(self, gone: BoolColumn | None = None) -> dict[Fault, NDArray[np.intp]]:
        """Returns each fault of a volume, with the rows of the nodes on which pods use the volume.

        A fault is the reason why the CSI volume is unknown. `gone`: bool[slot]: True for pods to ignore.
        """
        self._refresh()
        return {
            fault: self._pods.row[[slot for slot in self._users[source] if gone is None or not gone[slot]]]
            for source, fault in self._faulty.items()
        }

    # ---- catching up

    def _refresh(self) -> None:
        changed = self._changed() | self._unresolved
        self._unresolved = {}
        for source in changed:
            if isinstance(source, Attached):
                self._reattach(source)
            elif source in self._users:
                self._reuse(source)

    def _changed(self) -> dict[Source, None]:
        """Returns the claims, inline volumes and VolumeAttachments that must be resolved again.

        An object that they depend on has changed, or the node of a VolumeAttachment was added, removed or relabelled.
        """
        changes = [(topic, cursor.read()) for topic, cursor in self._changes.items()]
        changed: dict[Source, None] = {}
        for topic, keys in changes:
            if keys is None:
                return dict.fromkeys(
                    (*self._users, *self._node_of, *map(Attached, self._objects.all(VolumeAttachment)))
                )
            for key in keys:
                changed |= dict.fromkeys(self._sources_of(topic, key))
        return changed

    def _sources_of(self, topic: str, key: str) -> Iterable[Source]:
        if topic == TOPOLOGY:
            return self._on_node.get(key, ())
        return (Attached(key),) if topic == _ATTACHMENT else self._readers.get((topic, key), ())

    def _reuse(self, source: Attachable) -> None:
        before = self._resolved.get(source, _UNKNOWN)
        after = self._set_resolved(source, csi_volume_of(source, self._objects))
        for slot, use in self._users[source].items():
            if use is None or before.volume != after.volume:
                if use is not None:
                    self._pairs.drop_use(use)
                self._use(source, slot)

    def _use(self, source: Attachable, slot: int) -> None:
        volume = self._resolved[source].volume
        if isinstance(volume, CSIVolume):
            self._users[source][slot] = self._pairs.add_use(volume, int(self._pods.row[slot]), slot)
        else:
            self._users[source][slot] = None

    def _reattach(self, source: Attached) -> None:
        self._detach(source)
        attachment = self._objects.get(VolumeAttachment, source.key)
        if attachment is None:
            self._drop_resolved(source)
            return
        node = self._node_of[source] = attachment.spec.node_name
        self._on_node[node].add(source)
        volume = self._set_resolved(source, attached_volume(attachment, self._objects)).volume
        row = self._nodes.row_of.get(node)
        if isinstance(volume, CSIVolume) and row is not None:
            self._pair_of[source] = self._pairs.attach(volume, row)

    def _detach(self, source: Attached) -> None:
        if source in self._pair_of:
            self._pairs.detach(self._pair_of.pop(source))
        node = self._node_of.pop(source, None)
        if node is not None:
            self._on_node[node].discard(source)
            drop_empty(self._on_node, node)

    def _set_resolved(self, source: Source, resolved: ResolvedVolume) -> ResolvedVolume:
        self._drop_resolved(source)
        self._resolved[source] = resolved
        if isinstance(resolved.volume, Fault) and not isinstance(source, Attached):
            self._faulty[source] = resolved.volume
        for key in resolved.read:
            self._readers.setdefault(key, set()).add(source)
        return resolved

    def _drop_resolved(self, source: Source) -> None:
        if not isinstance(source, Attached):
            self._faulty.pop(source, None)
        for key in self._resolved.pop(source, _UNKNOWN).read:
            self._readers[key].discard(source)
            drop_empty(self._readers, key)
