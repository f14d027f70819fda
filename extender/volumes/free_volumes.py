"""The free persistent volumes of a storage class, the smallest first, and which of them suit a claim.

Source: component-helpers volume.FindMatchingVolume.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from extender.framework.rules import Scores
from extender.model.selectors import compile_selector
from extender.model.volumes.storage import FILESYSTEM, PersistentVolumeClaim
from extender.table import Table
from extender.table.journal import FREE_VOLUMES, TOPOLOGY, Cursor
from extender.table.labels import BoolColumn
from extender.table.volumes.unbound import Offer, Traits
from extender.volumes.reach import Reach, reach_by_node_selector


class FreeVolumes:
    """The volumes with their sizes (`bytes`: int64[volume]) and the nodes that reach them."""

    def __init__(self, class_name: str, table: Table) -> None:
        self.offers = sorted(table.storage.unbound.free(class_name), key=lambda offer: offer.nanos)
        self.bytes: Scores = np.array([offer.size_bytes for offer in self.offers], np.int64)
        self.reach: Reach = reach_by_node_selector([(o.place, o.volume.node_selector) for o in self.offers], table)
        self._nanos = [offer.nanos for offer in self.offers]
        index: dict[Traits, int] = {}
        self._kind = np.array([index.setdefault(offer.traits, len(index)) for offer in self.offers], np.intp)
        self._kinds = list(index)

    def suitable(self, claim: PersistentVolumeClaim) -> BoolColumn:
        """Which of the volumes the claim could be bound to, wherever they are: bool[volume]."""
        suitable: BoolColumn = np.array([_suits(kind, claim) for kind in self._kinds], np.bool_)[self._kind]
        suitable[: bisect_left(self._nanos, claim.requested_nanos)] = False
        if claim.spec.selector is not None:
            selector = compile_selector(claim.spec.selector)
            for index in np.flatnonzero(suitable):
                suitable[index] = selector.matches(self.offers[index].volume.labels)
        return suitable


class _FreeVolumesByClass:
    """What is kept of each class until one of its volumes, or a node, changes."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._nodes, self._volumes = Cursor(table.journal, TOPOLOGY), Cursor(table.journal, FREE_VOLUMES)
        self._by_class: dict[str, FreeVolumes] = {}

    def of(self, class_name: str) -> FreeVolumes:
        changed = self._volumes.read()
        if self._nodes.advance() or changed is None:
            self._by_class.clear()
        for name in changed or ():
            self._by_class.pop(name, None)
        if class_name not in self._by_class:
            self._by_class[class_name] = FreeVolumes(class_name, self._table)
        return self._by_class[class_name]


def free_volumes(class_name: str, table: Table) -> FreeVolumes:
    """Returns the free volumes of the class."""
    return table.reader(_FreeVolumesByClass).of(class_name)


def reserved_volume(claim: PersistentVolumeClaim, table: Table) -> Offer | None:
    """The volume that is kept for the claim, if there is one; then it is that one or none."""
    return next((offer for offer in table.storage.unbound.reserved(claim.key) if _is_for(offer, claim)), None)


def _is_for(offer: Offer, claim: PersistentVolumeClaim) -> bool:
    return (
        offer.volume.is_bound_to(claim)
        and offer.volume.class_name == claim.class_name
        and offer.nanos >= claim.requested_nanos
        and _same_form(offer.traits, claim)
        and not offer.volume.terminating
    )


def _suits(kind: Traits, claim: PersistentVolumeClaim) -> bool:
    return kind.available and _same_form(kind, claim) and kind.access_modes.issuperset(claim.spec.access_modes or ())


def _same_form(kind: Traits, claim: PersistentVolumeClaim) -> bool:
    wanted = claim.spec.volume_mode or FILESYSTEM, claim.spec.volume_attributes_class_name or ""
    return (kind.volume_mode, kind.attributes_class) == wanted
