"""DotProd: prefers the node whose free resources are least like what the pod asks for.

Score: 100 (1 - (C c / 128000^2 + G g / 8000^2) / 2). C and G are the free millicores and free device thousandths of the
node, c and g what the pod asks for.
Source: Weng et al., "Beware of Fragmentation", USENIX ATC '23, section 6.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.devices.policies.best_fit import MOST_CPU, MOST_MILLI
from extender.devices.policies.device_nodes import DeviceAsk, DeviceNodes, Ints, truncated


@dataclass(frozen=True, slots=True)
class DotProd:
    name: str = "DotProd"
    rescales: bool = False
    repeats: bool = True

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        cpu = nodes.free_cpu * (ask.cpu / MOST_CPU**2)
        milli = nodes.free.sum(axis=1) * (ask.total / MOST_MILLI**2)
        return truncated(100 * (1 - (cpu + milli) / 2))
