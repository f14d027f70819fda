"""Stores, in columns, the CSI volumes on each node and the pods that use them."""

from __future__ import annotations

import numpy as np

from extender.model.csi_migration import CSIVolume
from extender.table.filing import ShrinkingDict
from extender.table.labels import BoolColumn, IntColumn

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
        if not self._pair_of[volume]:
            del self._pair_of[volume]
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
