"""Learns which pods are typical, and computes how much of a node's free devices they cannot use: its fragmentation.

Fragmentation of a node: F = sum of p F(m) over typical pods m with share p. F(m) is all free thousandths G where m asks
for no device or does not fit, else the free thousandths of the devices that are too full for m.
Source: Weng et al., "Beware of Fragmentation", USENIX ATC '23, section 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

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


Prefixes = tuple[Floats, Floats, Floats, Floats, Floats]


class _Derived(NamedTuple):
    """The columns that are kept for each node. The prefixes are sums over the first sizes: float64[row, size + 1].

    Attributes:
        models: the number of the node's model.
        base: the place in the sums of a node with this model and free CPU.
        fitting: int64[row, size]: how many devices fit the size.
        usable: int64[row, size]: what is free on these devices.
        free: what is free on all devices.
        fragmentation: what typical pods cannot use.
        used: what typical pods can use.
        before: float64[row, device]: the part of a share's result that does not depend on the share.
        same, lost, devices: prefixes of the shares of typical pods that fit now; of what they lose in all if one device
            fewer fits; and of the shares of those that fit then.
    """

    models: Ints
    base: Ints
    fitting: Ints
    usable: Ints
    free: Ints
    fragmentation: Floats
    used: Floats
    before: Floats
    same: Floats
    lost: Floats
    devices: Floats

    @property
    def prefixes(self) -> Prefixes:
        return self.used, self.before, self.same, self.lost, self.devices


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
        fragmentation: Floats = _Derived(*nodes.derived(self, self._derive)).fragmentation
        return fragmentation

    def after(self, nodes: DeviceNodes, ask: DeviceAsk) -> Floats:
        """Returns the fragmentation with the pod in place.

        For a share: float64[row, device], for each device. Else float64[row]: a pod takes the first idle devices.
        The value is meaningless where the pod does not fit.
        """
        derived = _Derived(*nodes.derived(self, self._derive))
        base = self._base(derived.models, nodes.free_cpu - ask.cpu)
        if not ask.is_shared:
            sums = self._sums_of(base, derived.fitting - ask.count)
            result: Floats = derived.free - ask.total - ((derived.usable - ask.total) * sums).sum(axis=1)
            return result
        by_device = self._with_share(nodes.free, derived.free, derived.prefixes, ask.milli)
        # Other typical pods fit where the pod takes so much CPU that fewer of them do.
        if len(moved := np.flatnonzero(base != derived.base)):
            prefixes = self._prefixes(nodes.free[moved], base[moved], derived.fitting[moved], derived.usable[moved])
            by_device[moved] = self._with_share(nodes.free[moved], derived.free[moved], prefixes, ask.milli)
        return by_device

    def _with_share(self, free: Ints, total: Ints, prefixes: Prefixes, milli: int) -> Floats:
        """Returns float64[row, device]: the fragmentation after a share of each device is taken.

        Only one device changes. Sizes up to what is left on it lose the share; sizes between that and what was free
        lose the device. So sums over the first sizes give the result.
        """
        used, before, same, lost, devices = prefixes
        rows = (np.arange(len(free)) * (len(self._sizes) + 1))[:, np.newaxis]
        left = rows + self._rank[np.maximum(free - milli, 0)]
        by_device: Floats = (milli * same + lost).take(left) - free * devices.take(left) + before
        by_device += (total - milli - used)[:, np.newaxis]
        return by_device

    def _derive(self, nodes: DeviceNodes) -> Columns:
        models = np.array([self._number(model) for model in nodes.models.tolist()], np.int64)
        fits = nodes.free[:, :, np.newaxis] >= self._sizes
        fitting = np.count_nonzero(fits, axis=1)
        usable = (nodes.free[:, :, np.newaxis] * fits).sum(axis=1)
        free = nodes.free.sum(axis=1)
        base = self._base(models, nodes.free_cpu)
        prefixes = self._prefixes(nodes.free, base, fitting, usable)
        return _Derived(models, base, fitting, usable, free, free - prefixes[0], *prefixes)

    def _prefixes(self, free: Ints, base: Ints, fitting: Ints, usable: Ints) -> Prefixes:
        same, fewer = self._sums_of(base, fitting), self._sums_of(base, fitting - 1)
        lost, devices = _sums_of_first((fewer - same) * usable), _sums_of_first(fewer)
        places = (np.arange(len(free)) * (len(self._sizes) + 1))[:, np.newaxis] + self._rank[free]
        before = free * devices.take(places) - lost.take(places)
        return (same * usable).sum(axis=1), before, _sums_of_first(same), lost, devices

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


def _sums_of_first(values: Floats) -> Floats:
    """Returns float64[row, size + 1]: the sums of the first 0, 1, 2, ... values of each row."""
    prefixes = np.zeros((len(values), values.shape[1] + 1))
    np.cumsum(values, axis=1, out=prefixes[:, 1:])
    return prefixes
