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

from extender.devices.policies.device_nodes import WHOLE, Columns, DeviceAsk, DeviceNodes, Floats, Ints

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
    """The typical pods, prepared so that the fragmentation costs the same for any number of them.

    Of a typical pod, it matters for a node only if it fits; then all devices of at least its size are usable. So the
    shares are added up by model, free CPU, size and number of devices of that size; a node looks its sums up.

    Attributes:
        kinds: the kinds of pods with their shares.
    """

    def __init__(self, shares: Mapping[Kind, float]) -> None:
        self.kinds = dict(shares)
        kinds = [(kind, share) for kind, share in shares.items() if kind[2]]
        self._asking = kinds
        self._cpus = np.unique(np.array([cpu for (cpu, _, _, _), _ in kinds], np.int64))
        self._sizes = np.unique(np.array([milli for (_, milli, _, _), _ in kinds], np.int64))
        self._most = max((count for (_, _, count, _), _ in kinds), default=0)
        self._rank = np.searchsorted(self._sizes, np.arange(WHOLE + 1), side="right")
        self._models: dict[str, int] = {}
        self._sums = np.zeros((0, len(self._cpus) + 1, len(self._sizes), self._most + 1))

    @classmethod
    def of(cls, asks: Iterable[DeviceAsk]) -> TypicalPods:
        """Learns the typical pods from all pods."""
        return cls(most_frequent(Counter(map(kind_of, asks))))

    def fragmentation(self, nodes: DeviceNodes) -> Floats:
        """Returns float64[row]: the free thousandths that the typical pods cannot use."""
        fragmentation: Floats = nodes.derived(self, self._derive)[-1]
        return fragmentation

    def after(self, nodes: DeviceNodes, ask: DeviceAsk) -> Floats:
        """Returns the fragmentation with the pod in place.

        For a share: float64[row, device], for each device. Else float64[row]: a pod takes the first idle devices.
        The value is meaningless where the pod does not fit.
        """
        models, fitting, usable, free, _ = nodes.derived(self, self._derive)
        base = self._base(models, nodes.free_cpu - ask.cpu)
        if not ask.is_shared:
            sums = self._sums_of(base, fitting - ask.count)
            result: Floats = free - ask.total - ((usable - ask.total) * sums).sum(axis=1)
            return result
        same, fewer = self._sums_of(base, fitting), self._sums_of(base, fitting - 1)
        # Only one device changes. Sizes up to what is left on it lose the ask; those between that and what was free
        # lose the device. So prefix sums over the ascending sizes give the result for each device.
        lost = _prefixes((fewer - same) * usable)
        kept = ask.milli * _prefixes(same) + lost
        devices = _prefixes(fewer)
        width = len(self._sizes) + 1
        rows = (np.arange(len(nodes.free)) * width)[:, np.newaxis]
        before = rows + self._rank[nodes.free]
        left = rows + self._rank[np.maximum(nodes.free - ask.milli, 0)]
        unusable = kept.take(left) - lost.take(before) + nodes.free * (devices.take(before) - devices.take(left))
        whole = free - ask.milli - (same * usable).sum(axis=1)
        by_device: Floats = whole[:, np.newaxis] + unusable
        return by_device

    def _derive(self, nodes: DeviceNodes) -> Columns:
        """Returns the model's number, the devices that fit each size, what is free on them, all that is free, and F."""
        models = np.array([self._number(model) for model in nodes.models.tolist()], np.int64)
        fits = nodes.free[:, :, np.newaxis] >= self._sizes
        fitting = np.count_nonzero(fits, axis=1)
        usable = (nodes.free[:, :, np.newaxis] * fits).sum(axis=1)
        free = nodes.free.sum(axis=1)
        sums = self._sums_of(self._base(models, nodes.free_cpu), fitting)
        return models, fitting, usable, free, free - (usable * sums).sum(axis=1)

    def _base(self, models: Ints, cpu: Ints) -> Ints:
        """Returns int64[row]: the place in the sums of a node with this model and free CPU."""
        places: Ints = models * (len(self._cpus) + 1) + np.searchsorted(self._cpus, cpu, side="right")
        return places * (len(self._sizes) * (self._most + 1))

    def _sums_of(self, base: Ints, fitting: Ints) -> Floats:
        """Returns float64[row, size]: the shares of the pods of each size that fit, if so many devices fit the size."""
        by_size = np.arange(len(self._sizes)) * (self._most + 1)
        sums: Floats = self._sums.take(base[:, np.newaxis] + by_size + fitting.clip(0, self._most))
        return sums

    def _number(self, model: str) -> int:
        number = self._models.get(model)
        if number is None:
            number = self._models[model] = len(self._models)
            sums = np.zeros(self._sums.shape[1:])
            for (cpu, milli, count, models), share in self._asking:
                if not models or model in models:
                    rank = np.searchsorted(self._cpus, cpu) + 1
                    sums[rank:, np.searchsorted(self._sizes, milli), count:] += share
            self._sums = np.concatenate([self._sums, sums[np.newaxis]])
        return number


def _prefixes(values: Floats) -> Floats:
    """Returns float64[row, size + 1]: the sums of the first 0, 1, 2, ... values of each row."""
    prefixes = np.zeros((len(values), values.shape[1] + 1))
    np.cumsum(values, axis=1, out=prefixes[:, 1:])
    return prefixes
