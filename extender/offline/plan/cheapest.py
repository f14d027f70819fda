"""Finds, by arithmetic, the fewest pods to evict from single nodes: as a lower bound, and as sets that may be tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from extender.offline.plan.model import MOST_SETS_COMPARED, UNREACHABLE, Ints, PodClass, RelaxedProblem, sets_of
from extender.table import PodInfo

_MOST_NODES_LOOKED_AT = 200
_MOST_NODES_TRIED = 25
_MOST_SETS_OF_A_NODE = 3
_MOST_COUNTED = 8
_MOST_ADDED = 3
_UNLIMITED = 1000
_NOT_REACHED = -UNREACHABLE


class Least(NamedTuple):
    """Lower bounds for the evictions that make room for pods to place of one class.

    Attributes:
        total: total[n] is the bound for n of them, on all nodes together; n goes up to their number, but not above 8.
        on_node: on_node[n - 1] is the bound for n of them on each node: int64[node].
    """

    total: Sequence[int]
    on_node: Sequence[Ints]

    def with_node(self) -> Ints:
        """Returns the bound for all of them if at least one is on a node: int64[node]."""
        rest = self.total[-2::-1]  # for the others: the first element is for all but one
        bound: Ints = np.min([on_node + others for on_node, others in zip(self.on_node, rest, strict=True)], axis=0)
        return bound


def least_moves(problem: RelaxedProblem, pods: PodClass, known: int) -> Least:
    """Returns lower bounds for the evictions that make room for the pods to place of a class, if `known` are enough.

    For each number of pods, no more nodes matter than pods are to be placed: those where the fewest have to go. Only
    their bounds are as good as possible.
    """
    count = min(pods.targets, _MOST_COUNTED)
    on_node = [problem.fewest(pods, number) for number in range(1, count + 1)]
    nodes: set[int] = set()
    for number, fewest in enumerate(on_node, start=1):
        improved: set[int] = set()
        while not improved.issuperset(first := np.argsort(fewest, kind="stable")[:count].tolist()):
            problem.improve(fewest, set(first) - improved, pods, known - 1, number)
            improved.update(first)
        nodes.update(first)
    total = [0, *([UNREACHABLE] * count)]
    for place in nodes:
        costs = [0, *(int(fewest[place]) for fewest in on_node)]
        total = [min(total[n - more] + costs[more] for more in range(n + 1)) for n in range(count + 1)]
    return Least(total, on_node)


def least_with_homes(problem: RelaxedProblem, pods: PodClass, least: Least, known: int) -> int:
    """Returns a lower bound for all pods to place of a class, which also looks at the homes of evicted pods.

    An evicted pod is stuck if no other node has room for it now. It can only go where other pods are evicted. So on all
    nodes together, no more pods may be stuck than have room in what evictions free beyond the pods to place. Every
    stuck pod counts as small as the smallest of them in each resource, so this is a bound and not a plan.

    Args:
        least: the bounds that do not look at homes.
        known: so many evictions are enough. The answer is at most that, or a little more than the bound of `least`.
    """
    total = least.total
    known = min(known, total[-1] + _MOST_ADDED)
    balance = _Balance(problem, pods)
    if total[-1] >= known or not balance.may_be_stuck:
        return total[-1]
    targets = len(total) - 1
    reached = np.full((known, targets + 1), _NOT_REACHED)  # [evictions, pods to place]: the best balance
    reached[0, 0] = 0
    for place in range(len(problem.nodes)):
        before = reached.copy()
        for number in range(targets + 1):
            first = int(least.on_node[number - 1][place]) if number else 1
            for size in range(first, known - total[targets - number]):
                best = balance.best(place, number, size)
                if best is not None and (number or best > 0):
                    after = before[: known - size, : targets + 1 - number] + best
                    np.maximum(reached[size:, number:], after, out=reached[size:, number:])
    enough = np.flatnonzero(reached[:, targets] >= 0)
    return int(enough[0]) if len(enough) else known


class _Balance:
    """Compares how many stuck pods have room on a node with how many are evicted from it."""

    def __init__(self, problem: RelaxedProblem, pods: PodClass) -> None:
        self._problem = problem
        self._takes = pods.takes
        rooms = [(each, problem.with_room(each).tolist()) for each in problem.classes if each.movers]
        rooms = [(each, places) for each, places in rooms if len(places) <= 1]
        self.may_be_stuck = {id(each): places for each, places in rooms}
        """The id of each class for which at most one node has room -> that node, in a list."""
        smallest = np.min([each.takes for each, _ in rooms] or [pods.takes], axis=0)
        self._counted = np.flatnonzero(smallest)
        self._smallest = smallest[self._counted]

    def best(self, place: int, number: int, size: int) -> int | None:
        """Returns the difference for the best set of pods whose eviction makes room for `number` pods to place.

        None if no set of `size` pods does that. If there are too many sets, the answer is one that none exceeds.
        """
        if not size:
            return 0
        freed = self._problem.freed_by_sets(place, size, MOST_SETS_COMPARED)
        if freed is None:
            return _UNLIMITED
        left = self._problem.free[:, place] + freed - self._takes * number
        enough = (left >= 0).all(axis=1)
        if not enough.any():
            return None
        movers = [self.may_be_stuck.get(id(each)) for each, _ in self._problem.movers_on(place)]
        is_stuck = np.array([rooms in ([], [place]) for rooms in movers])
        leaving = is_stuck[sets_of(len(is_stuck), size)[enough]].sum(axis=1)
        arriving = (left[enough][:, self._counted] // self._smallest).min(axis=1, initial=_UNLIMITED)
        return int((arriving - leaving).max())


def cheapest(problem: RelaxedProblem, rooms: Rooms) -> Iterator[Sequence[PodInfo]]:
    """Yields sets of pods whose eviction frees a node for one of the targets.

    The targets of the highest priority come first, and for each of them the smallest sets.
    """
    for pods in sorted(problem.classes, key=lambda each: -each.first.priority):
        if not pods.targets:
            continue
        fewest = problem.fewest(pods)
        places = [place for place in np.argsort(fewest, kind="stable").tolist() if 0 < fewest[place] < UNREACHABLE]
        choices: list[tuple[int, int, Sequence[int], int, list[PodInfo]]] = []
        for place in places[:_MOST_NODES_LOOKED_AT]:
            if sum(choice[0] < fewest[place] for choice in choices) >= _MOST_NODES_TRIED:
                break  # what comes now is not among the smallest
            for victims in _victims(problem, pods, place, int(fewest[place])):
                victims.sort(key=rooms.of)
                stuck = sum(not rooms.of(info) for info in victims)
                ranks = sorted((info.priority for info in victims), reverse=True)
                choices.append((len(victims) + stuck, stuck, ranks, place, victims))
        choices.sort(key=lambda choice: choice[:4])
        yield from (choice[-1] for choice in choices[:_MOST_NODES_TRIED])


class Rooms:
    """Counts, for each pod that may be evicted, the nodes on which its replacement has room now."""

    def __init__(self, problem: RelaxedProblem) -> None:
        self._problem = problem
        self._class_of = {info.pod.key: each for each in problem.classes for _, info in each.all_movers}
        self._rooms: dict[int, int] = {}

    def of(self, info: PodInfo) -> int:
        pods = self._class_of[info.pod.key]
        if id(pods) not in self._rooms:
            self._rooms[id(pods)] = self._problem.places_with_room(pods)
        return self._rooms[id(pods)]

    def with_homes(self, victims: Sequence[PodInfo]) -> Sequence[PodInfo]:
        """Returns the victims, and before each that has no room the pods of another node that make room for it."""
        ordered: list[PodInfo] = []
        used = {info.pod.node_name for info in victims}
        for info in victims:
            makers = () if self.of(info) else self._makers(self._class_of[info.pod.key], used)
            used.update(maker.pod.node_name for maker in makers)
            ordered += [*makers, info]
        return ordered

    def _makers(self, pods: PodClass, used: set[str]) -> Sequence[PodInfo]:
        """Returns few pods with room elsewhere that make room for one of the class on an unused node; may find none."""
        fewest = self._problem.fewest(pods)
        for place in np.argsort(fewest, kind="stable")[:_MOST_NODES_TRIED].tolist():
            if self._problem.nodes[place] not in used and 0 < fewest[place] < UNREACHABLE:
                for makers in self._problem.victims(pods, place, int(fewest[place])) or ():
                    if all(map(self.of, makers)):
                        return makers
        return ()


def _victims(problem: RelaxedProblem, pods: PodClass, place: int, fewest: int) -> list[list[PodInfo]]:
    """Returns the best of the smallest sets of movable pods of a node that free enough for one pod of the class."""
    for size in range(fewest, fewest + 2):
        sets = problem.victims(pods, place, size)
        if sets is None:
            break
        if sets:
            return sets[:_MOST_SETS_OF_A_NODE]
    few = _few_victims(problem, pods, place)
    return [few] if few else []


def _few_victims(problem: RelaxedProblem, pods: PodClass, place: int) -> list[PodInfo]:
    """Returns few movable pods of a node that free enough for one pod of the class; none if all are not enough."""
    short = pods.takes - problem.free[:, place]
    movers = [(pods.frees, info) for pods, info in problem.movers_on(place)]
    chosen: list[tuple[Ints, PodInfo]] = []
    while (short > 0).any():
        helpful = [(float(_share(frees, short)), -info.priority, info.pod.key, frees, info) for frees, info in movers]
        helpful = [each for each in helpful if each[0] > 0]
        if not helpful:
            return []
        _, _, _, frees, info = max(helpful, key=lambda each: each[:3])
        chosen.append((frees, info))
        movers = [each for each in movers if each[1] is not info]
        short = short - frees
    for frees, info in list(chosen):
        if ((short + frees) <= 0).all():
            short = short + frees
            chosen = [each for each in chosen if each[1] is not info]
    return [info for _, info in chosen]


def _share(frees: Ints, short: Ints) -> float:
    """Returns how much of the shortage the pod frees, added up over the resources that are short."""
    lacking = short > 0
    return float((np.minimum(frees[lacking], short[lacking]) / short[lacking]).sum())
