"""The persistent volumes that a claim can be bound to. Source: component-helpers volume.FindMatchingVolume."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from extender.framework.rules import Scores
from extender.model.selectors import compile_selector
from extender.model.volumes.storage import FILESYSTEM, PersistentVolumeClaim
from extender.table import Table
from extender.table.journal import FREE_VOLUMES, TOPOLOGY, Cursor
from extender.table.labels import BoolColumn
from extender.table.volumes.persistent_volumes import UnboundVolume, VolumeTraits
from extender.volumes.accessibility import Accessibility, accessibility_by_node_selector


class FreeVolumes:
    """The free volumes of a class, the smallest first.

    Attributes:
        bytes: int64[volume]: their sizes.
        access: the nodes that can access them.
    """

    def __init__(self, class_name: str, table: Table) -> None:
        self.volumes = sorted(table.storage.unbound.free(class_name), key=lambda each: each.nanos)
        self.bytes: Scores = np.array([each.size_bytes for each in self.volumes], np.int64)
        selectors = [(each.selector_key, each.volume.node_selector) for each in self.volumes]
        self.access: Accessibility = accessibility_by_node_selector(selectors, table)
        self._nanos = [each.nanos for each in self.volumes]
        index: dict[VolumeTraits, int] = {}
        self._kind = np.array([index.setdefault(each.traits, len(index)) for each in self.volumes], np.intp)
        self._kinds = list(index)

    def suitable(self, claim: PersistentVolumeClaim) -> BoolColumn:
        """Tells the volumes that the claim could be bound to, wherever they are: bool[volume]."""
        suitable: BoolColumn = np.array([_suits(kind, claim) for kind in self._kinds], np.bool_)[self._kind]
        suitable[: bisect_left(self._nanos, claim.requested_nanos)] = False
        if claim.spec.selector is not None:
            selector = compile_selector(claim.spec.selector)
            for index in np.flatnonzero(suitable):
                suitable[index] = selector.matches(self.volumes[index].volume.labels)
        return suitable


class _FreeVolumesByClass:
    """The free volumes of each class, kept until one of them, or a node, changes."""

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


def reserved_volume(claim: PersistentVolumeClaim, table: Table) -> UnboundVolume | None:
    """The volume whose claimRef names the claim, if there is one; then it is that one or none."""
    return next((each for each in table.storage.unbound.reserved(claim.key) if _is_for(each, claim)), None)


def _is_for(each: UnboundVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        each.volume.is_bound_to(claim)
        and each.volume.class_name == claim.class_name
        and each.nanos >= claim.requested_nanos
        and _same_form(each.traits, claim)
        and not each.volume.terminating
    )


def _suits(kind: VolumeTraits, claim: PersistentVolumeClaim) -> bool:
    return kind.available and _same_form(kind, claim) and kind.access_modes.issuperset(claim.spec.access_modes or ())


def _same_form(kind: VolumeTraits, claim: PersistentVolumeClaim) -> bool:
    wanted = claim.spec.volume_mode or FILESYSTEM, claim.spec.volume_attributes_class_name or ""
    return (kind.volume_mode, kind.attributes_class) == wanted
