"""Persistent volumes that a claim may still be bound to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from extender.model.quantity import nano, units_from_nano
from extender.model.volumes.storage import FILESYSTEM, PersistentVolume
from extender.table.journal import FREE_VOLUMES, Journal


class Traits(NamedTuple):
    """What a claim asks of a volume besides its size and place; many volumes have the same."""

    access_modes: frozenset[str]
    volume_mode: str
    attributes_class: str
    available: bool


class Offer(NamedTuple):
    """A volume and what was worked out of it once. `place` is equal where the node affinity is."""

    volume: PersistentVolume
    nanos: int
    size_bytes: int
    traits: Traits
    place: bytes


class UnboundVolumes:
    """The volumes that no claim has, by storage class; and those that are kept for a claim, by the claim."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._free: defaultdict[str, dict[str, Offer]] = defaultdict(dict)
        self._reserved: defaultdict[str, dict[str, Offer]] = defaultdict(dict)
        self._known: dict[str, PersistentVolume] = {}

    def set(self, volume: PersistentVolume) -> None:
        """Adds the volume or replaces what was known of it."""
        self.remove(volume.name)
        self._known[volume.name] = volume
        self._shelf(volume)[volume.name] = _offer(volume)
        self._note(volume)

    def remove(self, name: str) -> None:
        """Forgets the volume; an unknown name is ignored."""
        volume = self._known.pop(name, None)
        if volume is not None:
            del self._shelf(volume)[name]
            self._note(volume)

    def free(self, class_name: str) -> Collection[Offer]:
        """The volumes of a class that are kept for nobody."""
        return self._free.get(class_name, {}).values()

    def reserved(self, claim_key: str) -> Collection[Offer]:
        """The volumes that name the claim, bound to it or not."""
        return self._reserved.get(claim_key, {}).values()

    def shelves(self) -> dict[tuple[str, str], frozenset[str]]:
        """The names of all volumes, by ("free", class) and ("reserved", claim)."""
        free = {("free", class_name): frozenset(shelf) for class_name, shelf in self._free.items() if shelf}
        return free | {("reserved", claim): frozenset(shelf) for claim, shelf in self._reserved.items() if shelf}

    def _shelf(self, volume: PersistentVolume) -> dict[str, Offer]:
        reference = volume.spec.claim_ref
        if reference is None:
            return self._free[volume.class_name]
        return self._reserved[f"{reference.namespace}/{reference.name}"]

    def _note(self, volume: PersistentVolume) -> None:
        if volume.spec.claim_ref is None:
            self._journal.note(FREE_VOLUMES, volume.class_name)
        elif not self._shelf(volume):
            del self._reserved[f"{volume.spec.claim_ref.namespace}/{volume.spec.claim_ref.name}"]


def _offer(volume: PersistentVolume) -> Offer:
    spec, nanos = volume.spec, nano(volume.storage)
    traits = Traits(
        frozenset(spec.access_modes or ()),
        spec.volume_mode or FILESYSTEM,
        spec.volume_attributes_class_name or "",
        volume.status.phase == "Available" and not volume.terminating,
    )
    return Offer(volume, nanos, units_from_nano(nanos), traits, msgspec.msgpack.encode(volume.node_selector))
