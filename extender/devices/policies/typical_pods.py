"""Learns which pods are typical, and computes how much of a node's free devices they cannot use: its fragmentation.

Fragmentation of a node: F = sum of p F(m) over typical pods m with share p. F(m) is all free thousandths G where m asks
for no device or does not fit, else the free thousandths of the devices that are too full for m.
Source: Weng et al., "Beware of Fragmentation", USENIX ATC '23, section 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import numpy as np

from extender.devices.policies.device_nodes import Bools, DeviceAsk, DeviceNodes, Floats, Ints

COVERED = 0.95
"""The typical pods are the most frequent kinds of pods that make up this part of all pods."""
Kind = tuple[int, int, int, frozenset[str]]
K = TypeVar("K", bound=Hashable)


def kind_of(ask: DeviceAsk) -> Kind:
    return ask.cpu, ask.milli, ask.count, ask.models


def most_frequent(counts: Mapping[K, int], covered: float = COVERED) -> dict[K, float]:
    """Returns the most frequent kinds that make up the part `covered` of all, with their shares of these."""
    most = sorted(counts.items(), key=lambda item: -item[1])
    enough = covered * sum(counts.values())
    kinds: dict[K, int] = {}
    seen = 0
    for kind, count in most:
        if seen >= enough:
            break
        kinds[kind] = count
        seen += count
    return {kind: count / seen for kind, count in kinds.items()}


class TypicalPods:
    """The typical pods as columns, int64[pod], with their shares."""

    def __init__(self, shares: Mapping[Kind, float]) -> None:
        kinds = list(shares)
        self._cpu = np.array([cpu for cpu, _, _, _ in kinds], np.int64)
        self._count = np.array([count for _, _, count, _ in kinds], np.int64)
        self._needs_devices = self._count > 0
        # Few sizes differ, so what depends on the size alone is computed once for each size.
        sizes, size_of_kind = np.unique([milli for _, milli, _, _ in kinds], return_inverse=True)
        self._sizes = sizes
        self._size = size_of_kind
        self._models = [models for _, _, _, models in kinds]
        self._shares = np.array(list(shares.values()))
        self._usable: dict[str, Bools] = {}

    @classmethod
    def of(cls, asks: Iterable[DeviceAsk]) -> TypicalPods:
        """Learns the typical pods from all pods."""
        return cls(most_frequent(Counter(map(kind_of, asks))))

    def fragmentation(self, nodes: DeviceNodes) -> Floats:
        """Returns float64[row]: the free thousandths that the typical pods cannot use."""
        fitting, usable = self._by_size(nodes)
        return self._expected(nodes.free_cpu, nodes.free.sum(axis=1), fitting, usable, self._usable_by(nodes))

    def after(self, nodes: DeviceNodes, ask: DeviceAsk) -> Floats:
        """Returns the fragmentation with the pod in place.

        For a share: float64[row, device], for each device. Else float64[row]: a pod takes the first idle devices.
        """
        models = self._usable_by(nodes)
        cpu = nodes.free_cpu - ask.cpu
        free = nodes.free
        if not ask.is_shared:
            idle = (free >= ask.milli) & (ask.count > 0)
            taken = idle & (np.cumsum(idle, axis=1) <= ask.count)
            free = np.where(taken, free - ask.milli, free)
            fitting, usable = self._by_size_of(free)
            return self._expected(cpu, free.sum(axis=1), fitting, usable, models)
        fitting, usable = self._by_size(nodes)
        rows, devices = free.shape
        # Only one device changes: [row, device, size] instead of the whole node for each device.
        before = free[:, :, np.newaxis]
        after = before - ask.milli
        fits_before, fits_after = before >= self._sizes, after >= self._sizes
        fitting_after = fitting[:, np.newaxis] - fits_before + fits_after
        usable_after = usable[:, np.newaxis] - before * fits_before + after * fits_after
        return self._expected(
            np.repeat(cpu, devices),
            np.repeat(free.sum(axis=1) - ask.milli, devices),
            fitting_after.reshape(rows * devices, -1),
            usable_after.reshape(rows * devices, -1),
            np.repeat(models, devices, axis=0),
        ).reshape(rows, devices)

    def _by_size(self, nodes: DeviceNodes) -> tuple[Ints, Ints]:
        return self._by_size_of(nodes.free)

    def _by_size_of(self, free: Ints) -> tuple[Ints, Ints]:
        """Returns, for each size, the number of devices that fit it, and what is free on them: int64[row, size]."""
        fits = free[:, :, np.newaxis] >= self._sizes
        return np.count_nonzero(fits, axis=1), (free[:, :, np.newaxis] * fits).sum(axis=1)

    def _expected(self, cpu: Ints, free: Ints, fitting: Ints, usable: Ints, models: Bools) -> Floats:
        fits = (fitting[:, self._size] >= self._count) & (cpu[:, np.newaxis] >= self._cpu) & models
        result: Floats = free - (usable[:, self._size] * fits) @ self._shares
        return result

    def _usable_by(self, nodes: DeviceNodes) -> Bools:
        """Returns bool[row, typical pod]: True if the pod needs devices and can use the node's model."""
        known, numbers = np.unique(nodes.models, return_inverse=True)
        return np.array([self._for_model(str(model)) for model in known])[numbers]

    def _for_model(self, model: str) -> Bools:
        usable = self._usable.get(model)
        if usable is None:
            matches = np.array([not models or model in models for models in self._models], np.bool_)
            usable = self._usable[model] = matches & self._needs_devices
        return usable
