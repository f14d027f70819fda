"""Makes one run: places the pods of a trace under one policy and one seed, and measures on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count

import numpy as np

from extender.devices.device_nodes import DeviceAsk, DeviceNodes
from extender.devices.policies import Choice, DeviceChooser, PowerModel
from extender.offline.answers import Documented
from extender.offline.experiment.claims import ClaimChooser
from extender.offline.experiment.evictions import DeviceMoves, PlacedPod, RunningPod, RunningPods
from extender.offline.experiment.specification import Arrival, Experiment, arrivals

_STEPS = 100
"""Measurements of a run in which pods come and go at certain times."""


class ExperimentSample(Documented, frozen=True):
    """The measurements at one moment of a run.

    Attributes:
        policy: the policy, as the experiment names it.
        seed: the seed.
        hours: the hours since the first pod; None if pods arrive in order only.
        arrived: the devices that all pods so far asked for, in percent of all devices.
        allocated: the devices in use, in percent of all devices.
        fragmentation_ratio: the free devices that typical pods cannot use, in percent of the free devices.
        fragmentation: the same, in percent of all devices.
        pending: the pods that have arrived and have no node.
        kilowatts: what the nodes draw, by the model of the policy PWR.
        moves: the pods that have been moved. Pods are moved only when all have arrived, and if the experiment says so.
        evictions: the pods that have been evicted for others of a higher priority.
    """

    policy: str
    seed: int
    hours: float | None
    arrived: float
    allocated: float
    fragmentation_ratio: float
    fragmentation: float
    pending: int
    kilowatts: float
    moves: int = 0
    evictions: int = 0


class _World:
    """The nodes of one run, with what has arrived and what waits."""

    def __init__(self, nodes: DeviceNodes, chooser: DeviceChooser | ClaimChooser, priorities: Iterable[int]) -> None:
        self.nodes = nodes
        self.arrived = 0
        self.pending = 0
        self.evictions = 0
        self._chooser = chooser
        self._waiting: list[Arrival] = []
        self._leaving: list[tuple[float, int]] = []
        self._numbers = count()
        self._running = RunningPods(nodes, priorities)

    def arrive(self, arrival: Arrival) -> None:
        self.arrived += arrival.ask.total
        self._place_or_preempt(arrival, arrival.hours)
        self.pending = len(self._waiting)

    def move(self, most: int) -> Iterator[int]:
        """Moves pods, so that those that wait get room; yields the number of moves after each step."""
        assert isinstance(self._chooser, DeviceChooser)  # the specification demands it
        placed = [PlacedPod(pod.arrival.ask, pod.choice) for pod in self._running.by_number.values()]
        moves = DeviceMoves(self._chooser, placed, [arrival.ask for arrival in self._waiting])
        for made in moves.steps(most):
            self.pending = moves.waiting.total()
            yield made

    def let_go(self, hours: float) -> None:
        """Removes the pods that leave up to this hour, and tries those that wait after each of them."""
        while self._leaving and self._leaving[0][0] <= hours:
            now, number = heappop(self._leaving)
            if number in self._running.by_number:
                self._stop(number)
                self._try_pending(now)

    def _try_pending(self, now: float) -> None:
        refused: set[DeviceAsk] = set()
        waiting = []
        for arrival in self._waiting:
            if arrival.ask in refused or not self._place(arrival, now):
                refused.add(arrival.ask)
                waiting.append(arrival)
        self._waiting = waiting
        self.pending = len(waiting)

    def _place_or_preempt(self, arrival: Arrival, now: float | None) -> None:
        """Places the pod, if need be by evicting others, which arrive again at once; or lets it wait."""
        if self._place(arrival, now):
            return
        found = self._running.victims_for(arrival)
        if found is None:
            self._waiting.append(arrival)
            return
        row, victims = found
        evicted = [self._stop(number).arrival for number in victims]
        self.evictions += len(evicted)
        assert isinstance(self._chooser, DeviceChooser)  # the specification demands it
        choice = self._chooser.choose(arrival.ask, only=row)
        assert choice is not None
        self._start(arrival, choice, now)
        for each in evicted:
            self._place_or_preempt(each, now)

    def _place(self, arrival: Arrival, now: float | None) -> bool:
        choice = self._chooser.choose(arrival.ask)
        if choice is not None:
            self._start(arrival, choice, now)
        return choice is not None

    def _start(self, arrival: Arrival, choice: Choice, now: float | None) -> None:
        number = next(self._numbers)
        self._chooser.change(choice, arrival.ask)
        self._running.start(number, RunningPod(arrival, choice))
        if arrival.leaves is not None and arrival.hours is not None and now is not None:
            # A pod that waited, or was evicted, runs as long as one that did not.
            heappush(self._leaving, (now + arrival.leaves - arrival.hours, number))

    def _stop(self, number: int) -> RunningPod:
        pod = self._running.stop(number)
        self._chooser.change(pod.choice, pod.arrival.ask, sign=1)
        return pod


def run(experiment: Experiment, policy: str, seed: int) -> list[ExperimentSample]:
    """Returns the measurements of one run. Equal seeds mean equal arrivals for every policy.

    The nodes are in an order drawn by the seed, because a policy takes the first of equals: the order of the trace's
    names would favour some models of devices.
    """
    trace = experiment.trace
    order = np.random.default_rng([seed, 1]).permutation(len(trace.nodes.devices))
    nodes = trace.nodes.take(order)
    pods = arrivals(experiment.spec.arrivals, trace, np.random.default_rng([seed, 0]))
    is_timed = experiment.spec.arrivals.type != "inflated"
    world = _World(nodes, experiment.chooser(nodes, policy, seed), [pod.priority for pod in pods])
    power = PowerModel()
    capacity = trace.capacity

    def measured(hours: float | None, arrived: float, moves: int = 0) -> ExperimentSample:
        free = int(nodes.free.sum())
        unusable = float(experiment.typical_pods.fragmentation(nodes).sum())
        return ExperimentSample(
            policy,
            seed,
            hours,
            arrived,
            _percent(capacity - free, capacity),
            _percent(unusable, free),
            _percent(unusable, capacity),
            world.pending,
            round(float(power.of(nodes).sum()) / 1000, 3),
            moves,
            world.evictions,
        )

    if is_timed:
        return list(_by_hours(world, pods, lambda hours: measured(hours, _percent(world.arrived, capacity))))
    samples = list(_by_percent(world, pods, capacity, lambda percent: measured(None, float(percent))))
    if most := max(experiment.spec.moves, default=0):
        arrived = _percent(world.arrived, capacity)
        samples += [measured(None, arrived, moves) for moves in world.move(most)]
    return samples


def _by_percent(
    world: _World, pods: Sequence[Arrival], capacity: int, measured: Callable[[int], ExperimentSample]
) -> Iterator[ExperimentSample]:
    """Measures at each whole percent of all devices that has been asked for."""
    percent = 1
    for arrival in pods:
        world.arrive(arrival)
        if world.arrived * 100 >= percent * capacity:
            percent = world.arrived * 100 // capacity
            yield measured(percent)
            percent += 1


def _by_hours(
    world: _World, pods: Sequence[Arrival], measured: Callable[[float], ExperimentSample]
) -> Iterator[ExperimentSample]:
    """Measures in equal steps up to the last arrival."""
    last = max((arrival.hours or 0.0 for arrival in pods), default=0.0)
    waiting = iter(pods)
    following = next(waiting, None)
    for step in range(1, _STEPS + 1):
        until = last * step / _STEPS
        while following is not None and (following.hours or 0.0) <= until:
            world.let_go(following.hours or 0.0)
            world.arrive(following)
            following = next(waiting, None)
        world.let_go(until)
        yield measured(round(until, 6))


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 4) if whole else 0.0
