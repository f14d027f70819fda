"""Holds the columns that a device policy reads: what nodes have left, and what a pod asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = tuple[NDArray[Any], ...]
"""Columns that are derived from nodes; the first axis of each is the row."""
WHOLE = 1000
"""A whole device, in thousandths."""
MOST_DEVICES = 16
_COLUMNS = ("models", "cpu", "memory", "devices", "free", "free_cpu", "free_memory", "pods")
_MOST_DERIVED = 4
_MOST_TOUCHED = 1 << 16
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def truncated(scores: Floats) -> Ints:
    """Returns scores as integers, rounded towards zero like Go's conversion; the published policies score so."""
    return scores.astype(np.int64)


def score_of_drop(drop: Floats) -> Ints:
    """Returns 100 sigmoid(drop / 1000), truncated; `drop` is what a choice saves, in thousandths of devices."""
    return truncated(100 / (1 + np.exp(-drop / WHOLE)))


@dataclass(frozen=True, slots=True)
class DeviceAsk:
    """The resources and devices that one pod asks for.

    Attributes:
        milli: the thousandths of each device: below 1000 for a share of one device, 1000 for whole devices.
        count: the number of devices; 0 if the pod needs none.
        models: the models of devices that the pod can use; empty if it can use any.
    """

    cpu: int = 0
    memory: int = 0
    milli: int = 0
    count: int = 0
    models: frozenset[str] = frozenset()

    @property
    def is_shared(self) -> bool:
        return self.count == 1 and self.milli < WHOLE

    @property
    def total(self) -> int:
        return self.milli * self.count

    @property
    def kind(self) -> int:
        """The column of `DeviceNodes.pods` that counts such pods: 0 for a share, else the number of whole devices."""
        return 0 if self.is_shared else min(self.count, MOST_DEVICES)


@dataclass(slots=True)
class DeviceNodes:
    """The state of nodes with devices. One row is one node; rows are in the order in which equals are preferred.

    Attributes:
        models: str[row]: the model of the node's devices.
        cpu, memory: int64[row]: the capacity, in millicores and in the unit of the asks.
        devices: int64[row]: the number of devices.
        free: int64[row, device]: free thousandths of each device; 0 where the node has fewer devices. One device after
            the other in memory (Fortran's order), because sums over the devices of many nodes are then much faster.
        free_cpu, free_memory: int64[row].
        pods: int64[row, kind]: pods with devices, counted by `DeviceAsk.kind`.

    Whoever changes a row without `change` calls `touch`, so that columns derived from the row are computed again.
    """

    models: NDArray[np.str_]
    cpu: Ints
    memory: Ints
    devices: Ints
    free: Ints
    free_cpu: Ints
    free_memory: Ints
    pods: Ints
    _touched: list[int] = field(default_factory=list)
    _derived: dict[object, tuple[int, Columns]] = field(default_factory=dict)
    _source: tuple[DeviceNodes, Ints | slice] | None = None

    @classmethod
    def empty(cls, models: NDArray[np.str_], cpu: Ints, memory: Ints, devices: Ints) -> DeviceNodes:
        """Returns nodes without pods."""
        slots = np.arange(max(1, int(devices.max(initial=0))))
        free = np.asfortranarray(np.where(slots < devices[:, np.newaxis], WHOLE, 0))
        pods = np.zeros((len(cpu), MOST_DEVICES + 1), np.int64)
        return cls(models, cpu, memory, devices, free, cpu.copy(), memory.copy(), pods)

    def take(self, rows: Ints | slice) -> DeviceNodes:
        """Returns some rows: a copy for an array of rows, a view for a slice.

        Their derived columns come from these nodes, as long as they do not change.
        """
        nodes = DeviceNodes(*(getattr(self, column)[rows] for column in _COLUMNS))
        nodes._source = self, rows
        return nodes

    def view(self, rows: Ints) -> DeviceNodes:
        """Returns some ascending rows for reading; without a copy if they follow each other."""
        first, last = int(rows[0]), int(rows[-1]) + 1
        return self.take(slice(first, last) if last - first == len(rows) else rows)

    def read_only(self) -> DeviceNodes:
        """Returns these nodes for code that must not change them; writing to a column raises ValueError."""
        nodes = self.take(slice(None))
        for column in _COLUMNS:
            getattr(nodes, column).setflags(write=False)
        return nodes

    def touch(self, *rows: int) -> None:
        """Notes that these rows have changed, or all rows if none is given."""
        self._touched += rows
        self._source = None
        if not rows:
            self._derived.clear()

    def derived(self, key: object, compute: Callable[[DeviceNodes], Columns]) -> Columns:
        """Returns `compute` of these nodes, which is stored under the key and repeated for changed rows only."""
        if self._source is not None:
            source, index = self._source
            return tuple(column[index] for column in source.derived(key, compute))
        seen, columns = self._derived.get(key, (-1, ()))
        if seen < 0 or len(self._touched) - seen > len(self.free):
            if len(self._derived) >= _MOST_DERIVED:
                del self._derived[next(iter(self._derived))]
            columns = compute(self)
        elif changed := sorted(set(self._touched[seen:])):
            rows = np.array(changed)
            for column, again in zip(columns, compute(self.take(rows)), strict=True):
                column[rows] = again
        if len(self._touched) > _MOST_TOUCHED:
            self._touched.clear()
            self._derived.clear()
        self._derived[key] = len(self._touched), columns
        return columns

    def fits(self, ask: DeviceAsk) -> Bools:
        """Returns bool[row]: True if CPU, memory, the model and enough devices are there."""
        fits: Bools = (self.free_cpu >= ask.cpu) & (self.free_memory >= ask.memory)
        if ask.count:
            fits &= np.count_nonzero(self.free >= ask.milli, axis=1) >= ask.count
            if ask.models:
                fits &= np.isin(self.models, list(ask.models))
        return fits

    def change(self, row: int, ask: DeviceAsk, chosen: tuple[int, ...], sign: int = -1) -> None:
        """Places a pod on devices of a node, or removes it from there if `sign` is 1."""
        self.free_cpu[row] += sign * ask.cpu
        self.free_memory[row] += sign * ask.memory
        if chosen:
            self.free[row, list(chosen)] += sign * ask.milli
            self.pods[row, ask.kind] -= sign
        self.touch(row)
