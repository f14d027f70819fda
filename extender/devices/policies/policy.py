"""Defines what a device policy is, and chooses nodes and devices for pods by a weighted sum of policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from extender.devices.policies.device_nodes import Bools, DeviceAsk, DeviceNodes, Ints

MAX_SCORE = 100
NEVER = -(2**62)
"""Less than any score."""
_MOST = 1e12
"""Larger numbers of a user's function could overflow in a weighted sum."""


class DevicePolicy(Protocol):
    """Scores nodes for a pod, and devices if it prefers some."""

    @property
    def name(self) -> str: ...

    @property
    def rescales(self) -> bool:
        """True if scores are stretched so that the worst and best of the nodes that fit get 0 and 100."""

    @property
    def repeats(self) -> bool:
        """True if equal nodes and asks score alike, so that a score can be kept until the node changes."""

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        """Returns int64[row], or int64[row, device] if devices of one node differ; more is better.

        A score by device counts only for a share. For whole devices, every column must be equal.
        """


@runtime_checkable
class BestPolicy(Protocol):
    """A policy that finds the highest score of each node's devices faster than by scoring every device."""

    def best(self, nodes: DeviceNodes, ask: DeviceAsk, fits: Bools) -> Ints:
        """Returns int64[row]: the highest score of a device that fits, bool[row, device]; one fits in each row."""


@dataclass(frozen=True, slots=True)
class UserPolicy:
    """A user's function as a policy; its scores are truncated to integers."""

    name: str
    function: Callable[[DeviceNodes, DeviceAsk], object]
    rescales: bool = False
    repeats: bool = True

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        answer = np.asarray(self.function(nodes.read_only(), ask))
        rows, devices = nodes.free.shape
        if answer.dtype.kind not in "biuf" or answer.shape not in ((rows,), (rows, devices)):
            raise TypeError(
                f"a device policy must return a number for each of {rows} nodes, or for each of their {devices}"
                f" devices, not {answer.dtype} of the shape {answer.shape}"
            )
        if not (np.abs(answer) <= _MOST).all():
            raise ValueError(f"a device policy must return numbers between -{_MOST:g} and {_MOST:g}")
        return answer.astype(np.int64)


def rescaled(scores: Ints, fits: Bools) -> Ints:
    """Returns scores stretched to 0..100 over the rows that fit; 100 for all if they are equal."""
    among = scores[fits]
    least, most = int(among.min()), int(among.max())
    if least == most:
        return np.full_like(scores, MAX_SCORE)
    stretched: Ints = (scores - least) * MAX_SCORE // (most - least)
    return stretched


@dataclass(frozen=True, slots=True)
class Weighted:
    """A policy and its weight in a sum."""

    policy: DevicePolicy
    weight: int = 1


def total(parts: Sequence[Weighted], scores: Sequence[Ints], fits: Bools) -> Ints:
    """Returns int64[row]: the weighted sum of each policy's scores, stretched where the policy says so."""
    result = np.zeros(len(fits), np.int64)
    for part, each in zip(parts, scores, strict=True):
        result += part.weight * (rescaled(each, fits) if part.policy.rescales else each)
    return result


def best_devices(nodes: DeviceNodes, fits: Bools, scores: Sequence[Ints], parts: Sequence[Weighted]) -> Ints:
    """Returns int64[row]: the device with the highest sum of scores among those that fit, bool[row, device].

    If no policy scores devices, this is the fullest. Of equals, it is the first.
    """
    by_device = [part.weight * each for part, each in zip(parts, scores, strict=True) if each.ndim == 2]
    best: Ints = np.where(fits, sum(by_device) if by_device else -nodes.free, NEVER).argmax(axis=1)
    return best


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
    """Chooses by a weighted sum of policies among nodes that it owns. Of equals, the first node and device is taken.

    Scores are kept by ask, and recomputed for changed nodes.
    """

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
