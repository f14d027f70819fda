"""CpuBalance: keeps enough CPU on each node for the devices that are free there; meant to be added to FGD.

Score: 100 sigmoid((S_before - S_after) / 1000), truncated. S are the free device thousandths of the node for which its
CPU is not enough: max(0, G - C / r). C and G are the free millicores and device thousandths, and r the millicores that
typical pods request for each thousandth of a device on average.
Source: ours. FGD sees too little CPU only when a typical pod no longer fits, which is too late for the node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.devices.policies.device_nodes import DeviceAsk, DeviceNodes, Floats, Ints, score_of_drop
from extender.devices.policies.typical_pods import TypicalPods


@dataclass(frozen=True, slots=True)
class CpuBalance:
    typical_pods: TypicalPods
    name: str = "CpuBalance"
    rescales: bool = False
    repeats: bool = True

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
