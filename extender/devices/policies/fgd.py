"""FGD, fragmentation gradient descent: places a pod where the free devices stay of most use to typical pods.

Score: 100 sigmoid((F_before - F_after) / 1000), truncated; F is the node's fragmentation (`typical_pods`).
Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC '23, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.devices.policies.device_nodes import WHOLE, Bools, DeviceAsk, DeviceNodes, Floats, Ints, truncated
from extender.devices.policies.typical_pods import TypicalPods


@dataclass(frozen=True, slots=True)
class FGD:
    typical_pods: TypicalPods
    name: str = "FGD"
    rescales: bool = False
    repeats: bool = True

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        return _scores(self.typical_pods.drop(nodes, ask))

    def best(self, nodes: DeviceNodes, ask: DeviceAsk, fits: Bools) -> Ints:
        return _scores(self.typical_pods.most_drop(nodes, ask, fits))


def _scores(drop: Floats) -> Ints:
    return truncated(100 / (1 + np.exp(-drop / WHOLE)))
