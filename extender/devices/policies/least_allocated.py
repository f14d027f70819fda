"""LeastAllocated: prefers the node with the most CPU and memory left; kube-scheduler's default scores.

Score: NodeResourcesFit with LeastAllocated, plus NodeResourcesBalancedAllocation, both of CPU and memory. Devices do
not count, and within a node the first device that fits is taken.
Source: plugins/node_resources_scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.devices.policies.device_nodes import DeviceAsk, DeviceNodes, Floats, Ints, truncated
from extender.devices.policies.policy import MAX_SCORE


@dataclass(frozen=True, slots=True)
class LeastAllocated:
    name: str = "LeastAllocated"
    rescales: bool = False
    repeats: bool = True

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        cpu, memory = np.maximum(nodes.cpu, 1), np.maximum(nodes.memory, 1)
        free_cpu, free_memory = nodes.free_cpu - ask.cpu, nodes.free_memory - ask.memory
        least = (free_cpu * 100 // cpu + free_memory * 100 // memory) // 2
        before = _balance(nodes.free_cpu / cpu, nodes.free_memory / memory)
        after = _balance(free_cpu / cpu, free_memory / memory)
        scores = least + (after - before + MAX_SCORE // 2) // 2 + MAX_SCORE // 2
        return np.repeat(scores[:, np.newaxis], nodes.free.shape[1], axis=1)


def _balance(free_cpu: Floats, free_memory: Floats) -> Ints:
    """Returns 100 if equal shares of CPU and memory are free, and less if the shares differ."""
    return truncated(MAX_SCORE * (1 - np.abs(free_cpu - free_memory) / 2))
