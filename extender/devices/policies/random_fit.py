"""Random: any node that fits, and any device that fits; the baseline of the other policies.

Score: a random number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.devices.policies.device_nodes import DeviceAsk, DeviceNodes, Ints

_MOST = 2**40  # so large that equals are rare
_DEVICE_BITS = 16


@dataclass(frozen=True, slots=True)
class Random:
    generator: np.random.Generator
    name: str = "Random"
    rescales: bool = False
    repeats: bool = False

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        by_node: Ints = self.generator.integers(_MOST, size=len(nodes.free))
        if not ask.is_shared:
            return by_node
        # The node comes first, because the best of many devices would favour nodes with many.
        by_device = self.generator.integers(1 << _DEVICE_BITS, size=nodes.free.shape)
        both: Ints = (by_node[:, np.newaxis] << _DEVICE_BITS) + by_device
        return both
