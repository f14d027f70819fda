"""Chooses the pods to evict for a pod of a higher priority that fits nowhere, as kube-scheduler's preemption does.

Victims are on one node. First all pods of a lower priority are taken away, then as many as possible put back, the most
important first. The node is the one whose most important victim is the least important. Of equals it is the one with
the lowest sum of priorities, then with the fewest victims, then the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from extender.devices.policies.device_nodes import DeviceNodes
from extender.devices.policies.policy import Choice
from extender.offline.experiment.arrivals import Arrival
from extender.offline.experiment.moves import NodeRoom

_MOST_CANDIDATES = 100
"""The number of nodes that are compared, as in kube-scheduler."""


class RunningPod(NamedTuple):
    """A pod on a node."""

    arrival: Arrival
    choice: Choice


class RunningPods:
    """The pods on the nodes of a run, the longest running first.

    Args:
        nodes: the nodes, still without pods.
        priorities: the priorities of all pods that will come.
    """

    def __init__(self, nodes: DeviceNodes, priorities: Iterable[int]) -> None:
        self.by_number: dict[int, RunningPod] = {}
        self._nodes = nodes
        self._on_node: dict[int, dict[int, RunningPod]] = {}
        every_row = np.arange(len(nodes.devices))
        # Priority -> the nodes as if they had only pods with at least this priority.
        self._least = {priority: nodes.take(every_row) for priority in sorted(set(priorities))[1:]}

    def start(self, number: int, pod: RunningPod) -> None:
        self.by_number[number] = pod
        self._on_node.setdefault(pod.choice.row, {})[number] = pod
        self._count(pod, -1)

    def stop(self, number: int) -> RunningPod:
        pod = self.by_number.pop(number)
        del self._on_node[pod.choice.row][number]
        self._count(pod, 1)
        return pod

    def _count(self, pod: RunningPod, sign: int) -> None:
        for priority, nodes in self._least.items():
            if pod.arrival.priority >= priority:
                nodes.change(pod.choice.row, pod.arrival.ask, pod.choice.devices, sign)

    def victims_for(self, arrival: Arrival) -> tuple[int, Sequence[int]] | None:
        """Returns a row, and the numbers of the pods on it to evict; None if no eviction helps."""
        least = self._least.get(arrival.priority)
        if least is None:
            return None
        rows = np.flatnonzero(least.fits(arrival.ask))[:_MOST_CANDIDATES].tolist()
        return min(((row, self._victims_on(row, least, arrival)) for row in rows), key=self._harm, default=None)

    def _victims_on(self, row: int, least: DeviceNodes, arrival: Arrival) -> Sequence[int]:
        room = NodeRoom.of(least, row)
        lower = {number: pod for number, pod in self._on_node[row].items() if pod.arrival.priority < arrival.priority}
        victims = []
        for number, pod in sorted(lower.items(), key=lambda item: (-item[1].arrival.priority, item[0])):
            fuller = room.without(pod.arrival.ask, pod.choice.devices, -1)
            if fuller.lacking(arrival.ask) > 0:
                victims.append(number)
            else:
                room = fuller
        return victims

    def _harm(self, candidate: tuple[int, Sequence[int]]) -> tuple[int, int, int, int]:
        row, victims = candidate
        priorities = [self.by_number[number].arrival.priority for number in victims]
        return max(priorities), sum(priorities), len(priorities), row
