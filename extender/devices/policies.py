"""Device policies choose nodes and devices: what a policy is, the choice by a sum of policies, and each policy by name.

A policy knows nothing of how a choice is written. Start with `device_nodes`, the columns that a policy reads, and
`BestFit`, the shortest policy. `DeviceChooser` asks policies for one pod after another and computes only what has
changed. Each class of a policy has its formula and source; `POLICIES` has them by the names of a configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from extender.devices.device_nodes import WHOLE, Bools, DeviceAsk, DeviceNodes, Floats, Ints, score_of_drop, truncated
from extender.devices.typical_pods import TypicalPods

MAX_SCORE = 100
NEVER = -(2**62)
"""Less than any score."""
_MOST = 1e12
"""Larger numbers of a user's function could overflow in a weighted sum."""
_MOST_CPU = 128_000
_MOST_MILLI = 8_000
_MOST_RANDOM = 2**40  # so large that equals are rare
_DEVICE_BITS = 16
_SOCKET_CPU = 32_000
_SOCKET_WATTS = (15.0, 120.0)
_OTHER_WATTS = (25.0, 250.0)
"""Idle and full watts of a model that `_WATTS` does not name."""
_WATTS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "A10": (30.0, 150.0),
        "A100": (50.0, 400.0),
        "P100": (25.0, 250.0),
        "T4": (10.0, 70.0),
        "V100M16": (30.0, 300.0),
        "V100M32": (30.0, 300.0),
    }
)


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


class _Policy:
    """Sets the flags as most policies need them; see `DevicePolicy`."""

    rescales = False
    repeats = True


class FirstFit(_Policy):
    """Takes the first node that fits, and the first device that fits, as kube-scheduler's allocator does in a node.

    Score: 0 for every device.
    """

    name = "FirstFit"

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:  # noqa: ARG002  # any ask scores alike
        return np.zeros_like(nodes.free)


class BestFit(_Policy):
    """Prefers the node with the least left over of CPU and devices.

    Score: 100 (1 - (C - c) / 128000 / 2 - (G - g) / 8000 / 2), stretched to 0..100. C and G are the free millicores and
    free device thousandths of the node, c and g what the pod asks for.
    Source: Weng et al., "Beware of Fragmentation", USENIX ATC '23, section 6.1.
    """

    name = "BestFit"
    rescales = True

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        cpu = (nodes.free_cpu - ask.cpu) / _MOST_CPU
        milli = (nodes.free.sum(axis=1) - ask.total) / _MOST_MILLI
        return truncated(100 * (1 - cpu / 2 - milli / 2))


class DotProd(_Policy):
    """Prefers the node whose free resources are least like what the pod asks for.

    Score: 100 (1 - (C c / 128000^2 + G g / 8000^2) / 2), with the letters of BestFit.
    Source: Weng et al., "Beware of Fragmentation", USENIX ATC '23, section 6.1.
    """

    name = "DotProd"

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        cpu = nodes.free_cpu * (ask.cpu / _MOST_CPU**2)
        milli = nodes.free.sum(axis=1) * (ask.total / _MOST_MILLI**2)
        return truncated(100 * (1 - (cpu + milli) / 2))


class GpuClustering(_Policy):
    """Puts pods that ask for devices in the same way (a share, one device, k devices) on the same nodes.

    Score: 75 if the node's pods with devices are all of the pod's kind, 50 if some are, 25 if the node has none, else
    0; plus 25 (8000 - G) / 8000 for the free device thousandths G. A pod without devices: 0.
    Source: Weng et al., "Beware of Fragmentation", USENIX ATC '23, section 6.1, after Xiao et al., "Gandiva", OSDI '18.
    """

    name = "GpuClustering"

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        if not ask.count:
            return np.zeros(len(nodes.free), np.int64)
        alike = nodes.pods[:, ask.kind]
        pods = nodes.pods.sum(axis=1)
        among = np.where(alike == pods, 75, 50)
        base = np.where(pods == 0, 25, np.where(alike > 0, among, 0))
        return truncated(base + 25 * (_MOST_MILLI - nodes.free.sum(axis=1)) / _MOST_MILLI)


class GpuPacking(_Policy):
    """Fills devices in use first, then idle devices of nodes in use, and opens an idle node last.

    Score: max(33 - n, n) on a node whose n devices are all idle; max(50 - k, 33) if k idle devices are needed; else
    max(100 - free / 100, 50) for the thousandths free on the fullest device that fits. A pod without devices: 0.
    Source: Weng et al., "Beware of Fragmentation", USENIX ATC '23, section 6.1, after Weng et al., "MLaaS in the Wild",
    NSDI '22.
    """

    name = "GpuPacking"

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        if not ask.count:
            return np.zeros(len(nodes.free), np.int64)
        idle = np.count_nonzero(nodes.free == WHOLE, axis=1)
        tightest = np.where(nodes.free >= ask.milli, nodes.free, WHOLE).min(axis=1)
        left = np.maximum(100 - tightest // 100, 50)
        in_use = np.where(tightest == WHOLE, max(50 - ask.count, 33), left)
        return np.where(idle == nodes.devices, np.maximum(33 - idle, idle), in_use)


class LeastAllocated(_Policy):
    """Prefers the node with the most CPU and memory left; kube-scheduler's default scores.

    Score: NodeResourcesFit with LeastAllocated, plus NodeResourcesBalancedAllocation, both of CPU and memory. Devices
    do not count, and within a node the first device that fits is taken.
    Source: plugins/node_resources_scores.
    """

    name = "LeastAllocated"

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        cpu, memory = np.maximum(nodes.cpu, 1), np.maximum(nodes.memory, 1)
        free_cpu, free_memory = nodes.free_cpu - ask.cpu, nodes.free_memory - ask.memory
        least = (free_cpu * 100 // cpu + free_memory * 100 // memory) // 2
        before = _balance(nodes.free_cpu / cpu, nodes.free_memory / memory)
        after = _balance(free_cpu / cpu, free_memory / memory)
        scores = least + (after - before + MAX_SCORE // 2) // 2 + MAX_SCORE // 2
        return np.repeat(scores[:, np.newaxis], nodes.free.shape[1], axis=1)


def _balance(free_cpu: Floats, free_memory: Floats) -> Ints:
    """Returns 100 if equal shares of CPU and memory are free, and less if the shares differ."""
    return truncated(MAX_SCORE * (1 - np.abs(free_cpu - free_memory) / 2))


@dataclass(frozen=True, slots=True)
class FGD(_Policy):
    """Fragmentation gradient descent: places a pod where the free devices stay of most use to typical pods.

    Score: 100 sigmoid((F_before - F_after) / 1000), truncated; F is the node's fragmentation (`typical_pods`).
    Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
    Descent", USENIX ATC '23, section 5.
    """

    typical_pods: TypicalPods
    name = "FGD"

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        return score_of_drop(self.typical_pods.drop(nodes, ask))

    def best(self, nodes: DeviceNodes, ask: DeviceAsk, fits: Bools) -> Ints:
        return score_of_drop(self.typical_pods.most_drop(nodes, ask, fits))


@dataclass(frozen=True, slots=True)
class CpuBalance(_Policy):
    """Keeps enough CPU on each node for the devices that are free there; meant to be added to FGD.

    Score: 100 sigmoid((S_before - S_after) / 1000), truncated. S are the free device thousandths of the node for which
    its CPU is not enough: max(0, G - C / r). C and G are the free millicores and device thousandths, and r the
    millicores that typical pods request for each thousandth of a device on average.
    Source: ours. FGD sees too little CPU only when a typical pod no longer fits, which is too late for the node.
    """

    typical_pods: TypicalPods
    name = "CpuBalance"

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        free = nodes.free.sum(axis=1)
        drop = self._stranded(free, nodes.free_cpu) - self._stranded(free - ask.total, nodes.free_cpu - ask.cpu)
        return score_of_drop(drop)

    def _stranded(self, free: Ints, cpu: Ints) -> Floats:
        needed = self.typical_pods.cpu_per_thousandth
        if not needed:
            return np.zeros(len(free))
        stranded: Floats = np.maximum(free - cpu / needed, 0)
        return stranded


@dataclass(frozen=True, slots=True)
class PowerModel:
    """Computes what nodes draw, by the idle and full watts of each model of device."""

    watts: Mapping[str, tuple[float, float]] = field(default_factory=lambda: _WATTS)

    def of(self, nodes: DeviceNodes) -> Floats:
        """Returns float64[row]: the watts that the nodes draw now."""
        busy = nodes.devices - np.count_nonzero(nodes.free == WHOLE, axis=1)
        idle_watts, full_watts = self.of_device(nodes)
        devices = busy * full_watts + (nodes.devices - busy) * idle_watts
        watts: Floats = self._sockets(nodes.cpu - nodes.free_cpu, nodes.cpu) + devices
        return watts

    def of_device(self, nodes: DeviceNodes) -> tuple[Floats, Floats]:
        """Returns the idle and full watts of one device of each node: two columns of float64[row]."""
        known, numbers = np.unique(nodes.models, return_inverse=True)
        watts = np.array([self.watts.get(str(model), _OTHER_WATTS) for model in known]).reshape(-1, 2)[numbers]
        return watts[:, 0], watts[:, 1]

    def added(self, nodes: DeviceNodes, ask: DeviceAsk) -> Floats:
        """Returns the watts that the pod would add: float64[row, device] for a share, else float64[row]."""
        used = nodes.cpu - nodes.free_cpu
        cpu = self._sockets(used + ask.cpu, nodes.cpu) - self._sockets(used, nodes.cpu)
        idle_watts, full_watts = self.of_device(nodes)
        if ask.is_shared:
            wakes = (nodes.free == WHOLE) * (full_watts - idle_watts)[:, np.newaxis]
            by_device: Floats = cpu[:, np.newaxis] + wakes
            return by_device
        added: Floats = cpu + ask.count * (full_watts - idle_watts)
        return added

    def _sockets(self, used: Ints, cpu: Ints) -> Floats:
        idle, full = _SOCKET_WATTS
        sockets = -(-cpu // _SOCKET_CPU)
        busy = -(-used // _SOCKET_CPU)
        return busy * full + (sockets - busy) * idle


@dataclass(frozen=True, slots=True)
class PWR(_Policy):
    """Prefers the node and device that draw the least more power.

    Score: watts before minus watts after, stretched to 0..100. A device draws its full watts if anything is placed on
    it, else its idle watts; the millicores in use fill sockets of 32 threads, of which each is idle or full, too.
    Source: Lettich et al., "Power- and Fragmentation-aware Online Scheduling for GPU Datacenters", arXiv 2412.17484.
    """

    power: PowerModel = field(default_factory=PowerModel)
    name = "PWR"
    rescales = True

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        return truncated(-self.power.added(nodes, ask))


@dataclass(frozen=True, slots=True)
class Random(_Policy):
    """Takes any node that fits, and any device that fits; the baseline of the other policies.

    Score: a random number.
    """

    generator: np.random.Generator
    name = "Random"
    repeats = False

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        by_node: Ints = self.generator.integers(_MOST_RANDOM, size=len(nodes.free))
        if not ask.is_shared:
            return by_node
        # The node comes first, because the best of many devices would favour nodes with many.
        by_device = self.generator.integers(1 << _DEVICE_BITS, size=nodes.free.shape)
        both: Ints = (by_node[:, np.newaxis] << _DEVICE_BITS) + by_device
        return both


Build = Callable[[TypicalPods, int], DevicePolicy]
POLICIES: Mapping[str, Build] = MappingProxyType(
    {
        "FirstFit": lambda _typical, _seed: FirstFit(),
        "BestFit": lambda _typical, _seed: BestFit(),
        "DotProd": lambda _typical, _seed: DotProd(),
        "GpuClustering": lambda _typical, _seed: GpuClustering(),
        "GpuPacking": lambda _typical, _seed: GpuPacking(),
        "LeastAllocated": lambda _typical, _seed: LeastAllocated(),
        "FGD": lambda typical, _seed: FGD(typical),
        "CpuBalance": lambda typical, _seed: CpuBalance(typical),
        "PWR": lambda _typical, _seed: PWR(),
        "Random": lambda _typical, seed: Random(np.random.default_rng(seed)),
    }
)
"""Name -> builds the policy from the typical pods and a seed."""

USERS_OF_TYPICAL_PODS = frozenset({"FGD", "CpuBalance"})
"""The policies that learn them from the cluster if the configuration names none."""
