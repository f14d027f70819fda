"""GpuPacking: fills devices in use first, then idle devices of nodes in use, and opens an idle node last.

Score: max(33 - n, n) on a node whose n devices are all idle; max(50 - k, 33) if k idle devices are needed; else
max(100 - free / 100, 50) for the thousandths free on the fullest device that fits. A pod without devices: 0.
Source: Weng et al., "Beware of Fragmentation", USENIX ATC '23, section 6.1, after Weng et al., "MLaaS in the Wild",
NSDI '22.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.devices.policies.device_nodes import WHOLE, DeviceAsk, DeviceNodes, Ints


@dataclass(frozen=True, slots=True)
class GpuPacking:
    name: str = "GpuPacking"
    rescales: bool = False
    repeats: bool = True

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        if not ask.count:
            return np.zeros(len(nodes.free), np.int64)
        idle = np.count_nonzero(nodes.free == WHOLE, axis=1)
        tightest = np.where(nodes.free >= ask.milli, nodes.free, WHOLE).min(axis=1)
        left = np.maximum(100 - tightest // 100, 50)
        in_use = np.where(tightest == WHOLE, max(50 - ask.count, 33), left)
        return np.where(idle == nodes.devices, np.maximum(33 - idle, idle), in_use)
