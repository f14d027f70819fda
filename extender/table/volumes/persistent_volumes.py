"""Persistent volumes that a claim may still be bound to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from extender.model.quantity import nano, units_from_nano
from extender.model.volumes.storage import FILESYSTEM, PersistentVolume
from extender.table.journal import FREE_VOLUMES, Journal


class VolumeTraits(NamedTuple):
    """The properties that a claim matches besides size and node affinity; many volumes have the same."""

    access_modes: frozenset[str]
    volume_mode: str
    attributes_class: str
    available: bool


class UnboundVolume(NamedTuple):
    """A volume, its size and traits. `selector_key` is equal for equal node affinities."""

    volume: PersistentVolume
    nanos: int
    size_bytes: int
    traits: VolumeTraits
    selector_key: bytes


class UnboundVolumes:
    """The volumes without a claimRef by storage class, and those with one by the claim."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._free: defaultdict[str, dict[str, UnboundVolume]] = defaultdict(dict)
        self._reserved: defaultdict[str, dict[str, UnboundVolume]] = defaultdict(dict)
        self._known: dict[str, PersistentVolume] = {}

    def set(self, volume: PersistentVolume) -> None:
        """Adds or replaces the volume."""
        self.remove(volume.name)
        self._known[volume.name] = volume
        self._volumes_beside(volume)[volume.name] = _unbound(volume)
        self._note(volume)

    def remove(self, name: str) -> None:
        """Forgets the volume; an unknown name is ignored."""
        volume = self._known.pop(name, None)
        if volume is not None:
            del self._volumes_beside(volume)[name]
            self._note(volume)

    def free(self, class_name: str) -> Collection[UnboundVolume]:
        """The volumes of a class without a claimRef."""
        return self._free.get(class_name, {}).values()

    def reserved(self, claim_key: str) -> Collection[UnboundVolume]:
        """The volumes whose claimRef names the claim, bound to it or not."""
        return self._reserved.get(claim_key, {}).values()

    def names(self) -> dict[tuple[str, str], frozenset[str]]:
        """The names of all volumes, by ("free", class) and ("reserved", claim)."""
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
