"""PWR: prefers the node and device that draw the least more power.

Score: watts before minus watts after, stretched to 0..100. A device draws its full watts if anything is placed on it,
else its idle watts; the millicores in use fill sockets of 32 threads, of which each is idle or full, too.
Source: Lettich et al., "Power- and Fragmentation-aware Online Scheduling for GPU Datacenters", arXiv 2412.17484.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from extender.devices.policies.device_nodes import WHOLE, DeviceAsk, DeviceNodes, Floats, Ints, truncated

SOCKET_CPU = 32_000
SOCKET_WATTS = (15.0, 120.0)
OTHER_WATTS = (25.0, 250.0)
"""Idle and full watts of a model that `WATTS` does not name."""
WATTS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "A10": (30.0, 150.0),
        "A100": (50.0, 400.0),
        "P100": (25.0, 250.0),
        "T4": (10.0, 70.0),
        "V100M16": (30.0, 300.0),
        "V100M32": (30.0, 300.0),
    }
)


@dataclass(frozen=True, slots=True)
class PowerModel:
    """Computes what nodes draw, by the idle and full watts of each model of device."""

    watts: Mapping[str, tuple[float, float]] = field(default_factory=lambda: WATTS)

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
        watts = np.array([self.watts.get(str(model), OTHER_WATTS) for model in known]).reshape(-1, 2)[numbers]
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
        idle, full = SOCKET_WATTS
        sockets = -(-cpu // SOCKET_CPU)
        busy = -(-used // SOCKET_CPU)
        return busy * full + (sockets - busy) * idle


@dataclass(frozen=True, slots=True)
class PWR:
    power: PowerModel = field(default_factory=PowerModel)
    name: str = "PWR"
    rescales: bool = True
    repeats: bool = True

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        return truncated(-self.power.added(nodes, ask))
