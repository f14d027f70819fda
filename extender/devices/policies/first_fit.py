"""FirstFit: the first node that fits, and the first device that fits; what kube-scheduler's allocator does in a node.

Score: 0 for every device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.devices.policies.device_nodes import DeviceAsk, DeviceNodes, Ints


@dataclass(frozen=True, slots=True)
class FirstFit:
    name: str = "FirstFit"
    rescales: bool = False
    repeats: bool = True

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:  # noqa: ARG002  # any ask scores alike
        return np.zeros_like(nodes.free)
