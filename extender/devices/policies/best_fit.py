"""BestFit: prefers the node with the least left over of CPU and devices.

Score: 100 (1 - (C - c) / 128000 / 2 - (G - g) / 8000 / 2), stretched to 0..100. C and G are the free millicores and
free device thousandths of the node, c and g what the pod asks for.
Source: Weng et al., "Beware of Fragmentation", USENIX ATC '23, section 6.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.devices.policies.device_nodes import DeviceAsk, DeviceNodes, Ints, truncated

MOST_CPU = 128_000
MOST_MILLI = 8_000


@dataclass(frozen=True, slots=True)
class BestFit:
    name: str = "BestFit"
    rescales: bool = True
    repeats: bool = True

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        cpu = (nodes.free_cpu - ask.cpu) / MOST_CPU
        milli = (nodes.free.sum(axis=1) - ask.total) / MOST_MILLI
        return truncated(100 * (1 - cpu / 2 - milli / 2))
