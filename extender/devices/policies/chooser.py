"""Chooses a node and devices for one pod after another. Scores are kept by ask, and recomputed for changed nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from extender.devices.policies.device_nodes import DeviceAsk, DeviceNodes, Ints
from extender.devices.policies.policy import NEVER, Weighted, best_devices, total

_MAX_KEPT = 256


class Choice(NamedTuple):
    row: int
    devices: tuple[int, ...]


class _Kept:
    """The columns that are known for one ask: bool[row] and int64[row]."""

    def __init__(self, rows: int, policies: int) -> None:
        self.fits = np.zeros(rows, np.bool_)
        self.device = np.zeros(rows, np.int64)
        self.scores = np.zeros((policies, rows), np.int64)
        self.seen = 0


class DeviceChooser:
    """Chooses by a weighted sum of policies among nodes that it owns. Of equals, the first node and device is taken."""

    def __init__(self, nodes: DeviceNodes, parts: Sequence[Weighted]) -> None:
        self.nodes = nodes
        self._parts = tuple(parts)
        self._repeats = all(part.policy.repeats for part in parts)
        self._kept: dict[DeviceAsk, _Kept] = {}
        self._changed: list[int] = []

    def choose(self, ask: DeviceAsk, *, only: int | None = None, but: int | None = None) -> Choice | None:
        """Returns the best node and devices, or None if the pod fits nowhere. Places nothing.

        Args:
            only: the only row to consider.
            but: a row to leave out, as if its node were cordoned.
        """
        kept = self._up_to_date(ask)
        fits = kept.fits
        if only is not None or but is not None:
            rows = np.arange(len(fits))
            fits = fits & (rows != but if only is None else rows == only)
        if not fits.any():
            return None
        scores = total(self._parts, list(kept.scores), fits)
        row = int(np.where(fits, scores, NEVER).argmax())
        return Choice(row, self._devices(row, ask, kept))

    def change(self, choice: Choice, ask: DeviceAsk, sign: int = -1) -> None:
        """Places a pod, or removes it again if `sign` is 1."""
        self.nodes.change(choice.row, ask, choice.devices, sign)
        self._changed.append(choice.row)

    def _devices(self, row: int, ask: DeviceAsk, kept: _Kept) -> tuple[int, ...]:
        if not ask.count:
            return ()
        if ask.is_shared:
            return (int(kept.device[row]),)
        return tuple(np.flatnonzero(self.nodes.free[row] >= ask.milli)[: ask.count].tolist())

    def _up_to_date(self, ask: DeviceAsk) -> _Kept:
        kept = self._kept.get(ask) if self._repeats else None
        if kept is None:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            kept = self._kept[ask] = _Kept(len(self.nodes.free), len(self._parts))
            kept.seen = len(self._changed)
            self._compute(kept, ask, np.arange(len(self.nodes.free)))
        elif kept.seen < len(self._changed):
            rows = np.unique(self._changed[kept.seen :])
            kept.seen = len(self._changed)
            self._compute(kept, ask, rows)
        return kept

    def _compute(self, kept: _Kept, ask: DeviceAsk, rows: Ints) -> None:
        nodes = self.nodes.take(rows)
        fits = kept.fits[rows] = nodes.fits(ask)
        rows, nodes = rows[fits], nodes.take(np.flatnonzero(fits))
        if not len(rows):
            return
        scores = [part.policy.score(nodes, ask) for part in self._parts]
        device = best_devices(nodes, nodes.free >= ask.milli, scores, self._parts)
        kept.device[rows] = device
        for column, each in zip(kept.scores, scores, strict=True):
            column[rows] = each if each.ndim == 1 else each[np.arange(len(rows)), device]
