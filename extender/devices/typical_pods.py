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

from extender.devices.device_nodes import MOST_DEVICES, WHOLE, Bools, Columns, DeviceAsk, DeviceNodes, Floats, Ints

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


_SCALE = 1 << 32
"""Shares of typical pods are integers of this unit, so that equal fragmentation is equal in every order of devices."""
_NOT_FITTING = -(1 << 51)
"""Less than any drop, in thousandths and the unit of shares."""


class _Derived(NamedTuple):
    """The columns that are kept for each node.

    Attributes:
        first: the number of the sums for the node's model without any CPU.
        group: the number of the sums for this model and the node's free CPU.
        idle: the number of idle devices.
        usable: the free thousandths that typical pods can use, times `_SCALE`.
    """

    first: Ints
    group: Ints
    idle: Ints
    usable: Ints


class TypicalPods:
    """The typical pods, prepared so that the fragmentation costs the same for any number of them.

    A typical pod that asks for a share can use every device with so much free, whatever the other devices have. A pod
    that asks for whole devices can use all idle ones if there are enough. So what typical pods can use of a node is a
    sum over its devices, plus a term for its number of idle devices. Both are looked up by a group: the node's model
    and which typical pods its free CPU is enough for.

    Attributes:
        kinds: the kinds of pods with their shares. Only whole devices are asked for in numbers.
        cpu_per_thousandth: the mean millicores that those with devices request for each thousandth of a device.
    """

    def __init__(self, shares: Mapping[Kind, float]) -> None:
        self.kinds = dict(shares)
        milli = sum(share * milli * count for (_, milli, count, _), share in shares.items())
        self.cpu_per_thousandth = (
            sum(share * kind[0] for kind, share in shares.items() if kind[2]) / milli if milli else 0.0
        )
        self._asking = [(kind, round(share * _SCALE)) for kind, share in shares.items() if kind[2]]
        self._cpus = np.unique(np.array([cpu for (cpu, _, _, _), _ in self._asking], np.int64))
        self._most = max((count for (_, _, count, _), _ in self._asking), default=0)
        self._first: dict[str, int] = {}
        sizes = np.unique(np.array([kind[1] for kind, _ in self._asking if kind[1] < WHOLE], np.int64))
        self._least = int(sizes[0]) if len(sizes) else WHOLE  # a device with less left is full
        self._rank = sizes.searchsorted(np.arange(WHOLE + 1), side="right")
        # The pods that use a device with so much free, int64[group, rank], as parts of _SCALE. And what is used of so
        # many idle devices by pods that ask for whole ones, int64[group, devices], in thousandths times _SCALE.
        self._shares = np.zeros((0, len(sizes) + 1), np.int64)
        self._of_idle = np.zeros((0, max(self._most, MOST_DEVICES) + 1), np.int64)
        self._of_last_idle = self._of_idle.copy()  # the part of the last of so many idle devices

    @classmethod
    def of(cls, asks: Iterable[DeviceAsk]) -> TypicalPods:
        """Learns the typical pods from all pods."""
        return cls(most_frequent(Counter(map(kind_of, asks))))

    def fragmentation(self, nodes: DeviceNodes) -> Floats:
        """Returns float64[row]: the free thousandths that the typical pods cannot use."""
        fragmentation: Floats = nodes.free.sum(axis=1) - self._kept(nodes).usable / _SCALE
        return fragmentation

    def drop(self, nodes: DeviceNodes, ask: DeviceAsk) -> Floats:
        """Returns by how much the fragmentation falls if the pod is placed.

        For a share: float64[row, device], for each device. Else float64[row]: a pod takes the first idle devices.
        The value is meaningless where the pod does not fit.
        """
        drop: Floats = (self._drop_by_device(nodes, ask).T if ask.is_shared else self._drop(nodes, ask)) / _SCALE
        return drop

    def most_drop(self, nodes: DeviceNodes, ask: DeviceAsk, fits: Bools) -> Floats:
        """Returns float64[row]: the highest `drop` of the devices that fit, bool[row, device].

        Idle devices of one node are alike, and what is left of full ones is of no use to this or a typical pod. So only
        the other devices are looked at one by one, unless they are more than half of all.
        """
        if not ask.is_shared:
            return self.drop(nodes, ask)
        most: Floats
        free, fits = nodes.free.T, fits.T
        is_idle = free == WHOLE
        partly = np.flatnonzero((free >= min(self._least, ask.milli)) & ~is_idle)
        if 2 * len(partly) > free.size:
            most = np.where(fits, self._drop_by_device(nodes, ask), _NOT_FITTING).max(axis=0) / _SCALE
            return most
        kept = self._kept(nodes)
        group = self._group(kept.first, nodes.free_cpu - ask.cpu)
        idle = group * self._of_idle.shape[1] + kept.idle
        row, left, fitting = partly % len(group), free.take(partly), np.flatnonzero(fits.take(partly))
        group_of_each = group.take(row)
        before, before_idle = self._used(left, group_of_each), self._used(WHOLE, group)
        gain = self._used(left - ask.milli, group_of_each) - before
        best = self._used(WHOLE - ask.milli, group) - before_idle - self._of_last_idle.take(idle)
        best[~(fits & is_idle).any(axis=0)] = _NOT_FITTING
        np.maximum.at(best, row.take(fitting), gain.take(fitting))
        usable = np.bincount(row, before, len(group))  # float64 is exact: the sums are below 2**53
        usable += before_idle * kept.idle + self._of_idle.take(idle) - kept.usable
        most = (usable + best) / _SCALE + ask.milli
        return most

    def _drop(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        """Returns int64[row]: the drop, times `_SCALE`, for whole devices or none."""
        kept = self._kept(nodes)
        group = self._group(kept.first, nodes.free_cpu - ask.cpu)
        usable = kept.usable.copy()
        # Other typical pods fit where the pod takes so much CPU that fewer of them do.
        moved = np.flatnonzero(group != kept.group)
        usable[moved] = self._usable(nodes.free[moved], group[moved], kept.idle[moved])
        if ask.count:
            place = group * self._of_idle.shape[1] + kept.idle
            usable -= ask.total * self._shares[:, -1].take(group)
            usable += self._of_idle.take(np.maximum(place - ask.count, 0)) - self._of_idle.take(place)
        drop: Ints = usable - kept.usable + ask.total * _SCALE
        return drop

    def _drop_by_device(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        """Returns int64[device, row]: the drop, times `_SCALE`, if the share is taken from each device."""
        kept = self._kept(nodes)
        free = nodes.free.T
        group = self._group(kept.first, nodes.free_cpu - ask.cpu)
        before = self._used(free, group)
        drop = self._used(free - ask.milli, group)
        drop -= before
        idle = group * self._of_idle.shape[1] + kept.idle
        usable = before.sum(axis=0)
        usable += self._of_idle.take(idle)
        usable -= kept.usable
        usable += ask.milli * _SCALE
        drop += usable
        drop -= (free == WHOLE) * self._of_last_idle.take(idle)
        return drop

    def _kept(self, nodes: DeviceNodes) -> _Derived:
        return _Derived(*nodes.derived(self, self._derive))

    def _derive(self, nodes: DeviceNodes) -> Columns:
        first = np.array([self._first_group(model) for model in nodes.models.tolist()], np.int64)
        if nodes.free.shape[1] >= self._of_idle.shape[1]:
            self._widen(nodes.free.shape[1] + 1)
        group = self._group(first, nodes.free_cpu)
        idle = (nodes.free == WHOLE).sum(axis=1)
        return _Derived(first, group, idle, self._usable(nodes.free, group, idle))

    def _usable(self, free: Ints, group: Ints, idle: Ints) -> Ints:
        """Returns int64[row]: the thousandths that typical pods can use, times `_SCALE`."""
        usable: Ints = self._used(free.T, group).sum(axis=0)
        usable += self._of_idle.take(group * self._of_idle.shape[1] + idle)
        return usable

    def _used(self, free: Ints | int, group: Ints) -> Ints:
        """Returns int64: the thousandths that pods with shares can use of each device, times `_SCALE`."""
        places = self._rank.take(free) + group * self._shares.shape[1]
        used: Ints = self._shares.take(places)
        used *= free
        return used

    def _group(self, first: Ints, cpu: Ints) -> Ints:
        """Returns int64[row]: the number of the sums for a node with this free CPU."""
        groups: Ints = self._cpus.searchsorted(cpu, side="right")
        groups += first
        return groups

    def _first_group(self, model: str) -> int:
        first = self._first.get(model)
        if first is None:
            first = self._first[model] = len(self._shares)
            shares = np.zeros((len(self._cpus) + 1, self._shares.shape[1]), np.int64)
            whole = np.zeros((len(self._cpus) + 1, self._of_idle.shape[1]), np.int64)
            for (cpu, milli, count, models), share in self._asking:
                if not models or model in models:
                    rank = self._cpus.searchsorted(cpu) + 1
                    if milli < WHOLE:
                        shares[rank, self._rank[milli]] += share
                    else:
                        whole[rank, count] += share
            of_idle = whole.cumsum(axis=0).cumsum(axis=1) * (WHOLE * np.arange(whole.shape[1]))
            self._shares = np.concatenate([self._shares, shares.cumsum(axis=0).cumsum(axis=1)])
            self._set_of_idle(np.concatenate([self._of_idle, of_idle]))
        return first

    def _widen(self, width: int) -> None:
        """Makes room for nodes with more devices; a further idle device contributes as much as those before."""
        devices = self._of_idle.shape[1] - 1
        more = self._of_idle[:, -1:] // devices * np.arange(devices + 1, width)
        self._set_of_idle(np.concatenate([self._of_idle, more], axis=1))

    def _set_of_idle(self, of_idle: Ints) -> None:
        self._of_idle = of_idle
        self._of_last_idle = np.diff(of_idle, axis=1, prepend=0)
