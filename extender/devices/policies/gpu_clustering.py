"""GpuClustering: puts pods that ask for devices in the same way (a share, one device, k devices) on the same nodes.

Score: 75 if the node's pods with devices are all of the pod's kind, 50 if some are, 25 if the node has none, else 0;
plus 25 (8000 - G) / 8000 for the free device thousandths G. A pod without devices: 0.
Source: Weng et al., "Beware of Fragmentation", USENIX ATC '23, section 6.1, after Xiao et al., "Gandiva", OSDI '18.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.devices.policies.best_fit import MOST_MILLI
from extender.devices.policies.device_nodes import DeviceAsk, DeviceNodes, Ints, truncated


@dataclass(frozen=True, slots=True)
class GpuClustering:
    name: str = "GpuClustering"
    rescales: bool = False
    repeats: bool = True

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        if not ask.count:
            return np.zeros(len(nodes.free), np.int64)
        alike = nodes.pods[:, ask.kind]
        pods = nodes.pods.sum(axis=1)
        among = np.where(alike == pods, 75, 50)
        base = np.where(pods == 0, 25, np.where(alike > 0, among, 0))
        return truncated(base + 25 * (MOST_MILLI - nodes.free.sum(axis=1)) / MOST_MILLI)
