"""Random: any node that fits, and any device that fits; the baseline of the other policies.

Score: a random number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.devices.policies.device_nodes import DeviceAsk, DeviceNodes, Ints

_MOST = 2**40  # so large that equals are rare


@dataclass(frozen=True, slots=True)
class Random:
    generator: np.random.Generator
    name: str = "Random"
    rescales: bool = False
    repeats: bool = False

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        return self.generator.integers(_MOST, size=nodes.free.shape if ask.is_shared else len(nodes.free))
