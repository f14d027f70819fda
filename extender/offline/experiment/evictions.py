"""Chooses pods to evict: for a pod of a higher priority, or as moves after which waiting pods get room.

For a pod that fits nowhere, victims are chosen as kube-scheduler's preemption does, all on one node. First all pods of
a lower priority are taken away, then as many as possible put back, the most important first. The node is the one whose
most important victim is the least important. Of equals it is the one with the lowest sum of priorities, then with the
fewest victims, then the first.

When all pods have arrived, a step of moves evicts up to four pods of one node, places a waiting pod there, and lets the
policy place the evicted pods on other nodes; the step after which most devices are in use comes first. Which pods to
evict is a greedy choice: the pod that frees most of what is lacking, again and again. So more may be possible with as
many moves, but every step can be carried out, one pod after another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from extender.devices.device_nodes import DeviceAsk, DeviceNodes
from extender.devices.policies import Choice, DeviceChooser
from extender.offline.experiment.specification import Arrival

_MOST_EVICTED = 4
_MOST_CANDIDATES = 100
"""The number of nodes that are compared, as in kube-scheduler."""


class PlacedPod(NamedTuple):
    """A pod on a node."""

    ask: DeviceAsk
    choice: Choice

    @property
    def taken(self) -> tuple[DeviceAsk, tuple[int, ...]]:
        return self.ask, self.choice.devices


class _Step(NamedTuple):
    """An idea: evict these pods of a node, so that `ask` gets room there."""

    ask: DeviceAsk
    row: int
    evicted: Sequence[PlacedPod]

    @property
    def gain(self) -> float:
        """The thousandths of devices that come into use for each eviction."""
        return self.ask.total / len(self.evicted)


class DeviceMoves:
    """A cluster in which pods wait, and the moves that make room for them.

    Args:
        chooser: the policy, with the nodes.
        placed: the pods on nodes.
        waiting: the pods without a node.

    Attributes:
        moves: the number of evictions so far.
        waiting: ask -> how many such pods wait.
    """

    def __init__(self, chooser: DeviceChooser, placed: Iterable[PlacedPod], waiting: Iterable[DeviceAsk]) -> None:
        self.moves = 0
        self.waiting = Counter(waiting)
        self._chooser = chooser
        self._on_node: dict[int, list[PlacedPod]] = {}
        for pod in placed:
            self._on_node.setdefault(pod.choice.row, []).append(pod)
        self._ideas: dict[int, list[_Step]] = {}
        """Row -> the steps that are possible there. A row is left out if it has to be examined again."""
        self._movable: frozenset[DeviceAsk] = frozenset()
        """The asks of pods that fit on some node, so that they may be evicted."""

    def steps(self, most: int) -> Iterator[int]:
        """Carries out the best steps one after another, while they need at most so many moves in total.

        Yields the number of moves after each step.
        """
        while any(self._try(step) for step in self._best_first(most - self.moves)):
            self._place_waiting()
            yield self.moves

    def _best_first(self, most: int) -> list[_Step]:
        """Returns the steps with at most so many moves, the one with the most gain first."""
        asks = {pod.ask for pods in self._on_node.values() for pod in pods}
        self._movable = frozenset(ask for ask in asks if self._chooser.choose(ask) is not None)
        for row in range(len(self._chooser.nodes.devices)):
            steps = self._ideas.get(row)
            if steps is None or any(pod.ask not in self._movable for step in steps for pod in step.evicted):
                self._ideas[row] = list(self._steps_on(row))
        known = (step for steps in self._ideas.values() for step in steps)
        usable = [step for step in known if len(step.evicted) <= most and self.waiting[step.ask]]
        return sorted(usable, key=lambda step: (-step.gain, len(step.evicted), step.row))

    def _steps_on(self, row: int) -> Iterator[_Step]:
        model = str(self._chooser.nodes.models[row])
        for ask, count in self.waiting.items():
            if count and ask.total and (not ask.models or model in ask.models):
                evicted = self._evicted_for(ask, row)
                if evicted:
                    yield _Step(ask, row, evicted)

    def _evicted_for(self, ask: DeviceAsk, row: int) -> Sequence[PlacedPod]:
        """Returns pods of the node whose eviction makes room for the ask; none if a few are not enough."""
        room = NodeRoom.of(self._chooser.nodes, row)
        rest = [pod for pod in self._on_node.get(row, ()) if pod.ask in self._movable]
        chosen: list[PlacedPod] = []
        while (lacking := room.lacking(ask)) > 0:
            left = [room.without(*pod.taken).lacking(ask) for pod in rest]
            least = min(left, default=lacking)
            if least >= lacking or len(chosen) == _MOST_EVICTED:
                return ()
            chosen.append(rest.pop(left.index(least)))
            room = room.without(*chosen[-1].taken)
        return chosen

    def _try(self, step: _Step) -> bool:
        """Carries the step out; returns False, with nothing changed, if an evicted pod fits on no other node."""
        done: list[tuple[PlacedPod, int]] = []

        def do(pod: PlacedPod, sign: int) -> None:
            self._chooser.change(pod.choice, pod.ask, sign)
            done.append((pod, sign))

        for pod in step.evicted:
            do(pod, 1)
        for pod in step.evicted:
            if (choice := self._chooser.choose(pod.ask, but=step.row)) is not None:
                do(PlacedPod(pod.ask, choice), -1)
        target = self._chooser.choose(step.ask, only=step.row)
        if target is None or len(done) < 2 * len(step.evicted):
            for pod, sign in reversed(done):
                self._chooser.change(pod.choice, pod.ask, -sign)
            return False
        self.moves += len(step.evicted)
        for pod, sign in done:
            self._note(pod, sign)
        self._start(step.ask, target)
        return True

    def _start(self, ask: DeviceAsk, choice: Choice) -> None:
        self._chooser.change(choice, ask)
        self.waiting[ask] -= 1
        self._note(PlacedPod(ask, choice), -1)

    def _note(self, pod: PlacedPod, sign: int) -> None:
        """Notes that the pod is on its node, or no longer there if `sign` is 1."""
        pods = self._on_node.setdefault(pod.choice.row, [])
        if sign == 1:
            pods.remove(pod)
        else:
            pods.append(pod)
        self._ideas.pop(pod.choice.row, None)

    def _place_waiting(self) -> None:
        """Places the waiting pods that fit without a move, those that ask for most devices first."""
        for ask in sorted(self.waiting, key=lambda ask: -ask.total):
            while self.waiting[ask] and (choice := self._chooser.choose(ask)) is not None:
                self._start(ask, choice)


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """The free resources of one node."""

    cpu: int
    memory: int
    free: tuple[int, ...]

    @classmethod
    def of(cls, nodes: DeviceNodes, row: int) -> NodeRoom:
        return cls(int(nodes.free_cpu[row]), int(nodes.free_memory[row]), tuple(nodes.free[row].tolist()))

    def without(self, ask: DeviceAsk, devices: tuple[int, ...], sign: int = 1) -> NodeRoom:
        """Returns the room without such a pod on these devices, or with one more if `sign` is -1."""
        free = list(self.free)
        for device in devices:
            free[device] += sign * ask.milli
        return NodeRoom(self.cpu + sign * ask.cpu, self.memory + sign * ask.memory, tuple(free))

    def lacking(self, ask: DeviceAsk) -> float:
        """Returns the shares of CPU, memory and devices that the ask lacks here, added up; 0 if it fits."""
        cpu = max(ask.cpu - self.cpu, 0) / max(ask.cpu, 1)
        memory = max(ask.memory - self.memory, 0) / max(ask.memory, 1)
        best = sorted(self.free, reverse=True)[: ask.count]
        milli = sum(max(ask.milli - free, 0) for free in best) + ask.milli * (ask.count - len(best))
        return cpu + memory + milli / max(ask.total, 1)


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
