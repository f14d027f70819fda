"""FGD, fragmentation gradient descent: places a pod where the free devices stay of most use to typical pods.

Score: 100 sigmoid((F_before - F_after) / 1000), truncated; F is the node's fragmentation (`typical_pods`).
Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC '23, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.devices.policies.device_nodes import Bools, DeviceAsk, DeviceNodes, Ints, score_of_drop
from extender.devices.policies.typical_pods import TypicalPods


@dataclass(frozen=True, slots=True)
class FGD:
    typical_pods: TypicalPods
    name: str = "FGD"
    rescales: bool = False
    repeats: bool = True

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        return score_of_drop(self.typical_pods.drop(nodes, ask))

    def best(self, nodes: DeviceNodes, ask: DeviceAsk, fits: Bools) -> Ints:
        return score_of_drop(self.typical_pods.most_drop(nodes, ask, fits))
