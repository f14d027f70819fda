"""Finds moves by arithmetic alone: the fewest pods to evict from single nodes, and which pod goes to which node.

The number of these pods is a lower bound for every plan, and the sets of these pods are tried first.

The scheduler often places an evicted pod elsewhere than a plan needs it, although both nodes have room. So a plan can
cordon the other nodes during a step. Then requests and node affinity decide what is possible, and thousands of moves
can be looked at in a second: `Packing` finds an order in which each node has room in time. `PlanTrial` carries the
result out, because other rules may still refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.offline.plan.model import MOST_SETS_COMPARED, UNREACHABLE, Ints, PodClass, RelaxedProblem, sets_of
from extender.offline.plan.trial import DirectedMove
from extender.table import PodInfo

_MOST_NODES_LOOKED_AT = 200
_MOST_NODES_TRIED = 25
_MOST_SETS_OF_A_NODE = 3
_MOST_COUNTED = 8
_MOST_ADDED = 3
_UNLIMITED = 1000
_NOT_REACHED = -UNREACHABLE
_MOST_VICTIMS = 3
_MOST_SETS = 60
_MOST_EXCHANGES = 12
_MOST_DEPTH = 2
Mask = NDArray[np.bool_]


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


def least_with_homes(problem: RelaxedProblem, pods: PodClass, known: int) -> int:
    """Returns a lower bound for all pods to place of a class, which also looks at the homes of evicted pods.

    An evicted pod is stuck if no other node has room for it now. It can only go where other pods are evicted. So on all
    nodes together, no more pods may be stuck than have room in what evictions free beyond the pods to place. Every
    stuck pod counts as small as the smallest of them in each resource, so this is a bound and not a plan.

    Args:
        known: so many evictions are enough. The answer is at most that, or a little more than the bound of
            `least_moves`, which does not look at homes.
    """
    least = least_moves(problem, pods, known)
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


@dataclass(slots=True, eq=False)
class _Item:
    """A pod that may be evicted: the number of its class, and the number of the node that it is on."""

    info: PodInfo
    kind: int
    node: int
    is_moved: bool = False


class Packing:
    """The pods of every node during a plan, as far as requests and node affinity decide.

    Args:
        left_seconds: how much time is left.
        releases: True if nodes may be uncordoned before the last move, so that waiting pods get nodes then.
    """

    def __init__(
        self, problem: RelaxedProblem, random: Random, left_seconds: Callable[[], float], *, releases: bool
    ) -> None:
        self._names = problem.nodes
        self._random = random
        self._left_seconds = left_seconds
        self._releases = releases
        self._classes = problem.classes
        self._free: Ints = problem.free.copy()
        self._size = 1 / np.maximum(problem.freed().max(axis=1), 1)
        self._is_allowed = np.zeros((len(self._classes), len(problem.nodes)), np.bool_)
        for number, pods in enumerate(self._classes):
            self._is_allowed[number, pods.allowed] = True
        self._items = [
            _Item(info, number, node) for number, pods in enumerate(self._classes) for node, info in pods.all_movers
        ]
        self._frees = np.array([self._classes[item.kind].frees for item in self._items]).reshape(
            len(self._items), len(problem.resources)
        )
        self._on: dict[int, list[_Item]] = {}
        for item in self._items:
            self._on.setdefault(item.node, []).append(item)
        waiting = [(info.priority, number) for number, pods in enumerate(self._classes) for info in pods.waiting]
        self._waiting = [number for _, number in sorted(waiting, key=lambda each: -each[0])]
        self._held: list[int] = []
        self._trail: list[tuple[_Item, int, bool, Sequence[int]]] = []
        self.steps: list[DirectedMove] = []
        self.placed: list[int] = []
        """The classes of the pods to place that have room by now."""

    # ---- what a move does

    def _open(self, kind: int) -> Mask:
        """Returns the nodes that take a pod of the class now and are not held: bool[node]."""
        takes = self._classes[kind].takes
        enough: Mask = (self._free >= takes[:, np.newaxis]).all(axis=0) & self._is_allowed[kind]
        enough[self._held] = False
        return enough

    def _has_room(self, kind: int, node: int) -> bool:
        return bool(self._is_allowed[kind, node] and (self._free[:, node] >= self._classes[kind].takes).all())

    def _move(self, item: _Item, target: int) -> None:
        pods = self._classes[item.kind]
        self._trail.append((item, item.node, item.is_moved, tuple(self._held)))
        self._free[:, item.node] += pods.frees
        self._free[:, target] -= pods.takes
        if item.node not in self._held:
            self._held.append(item.node)
        if target in self._held:
            self._held.remove(target)  # it is uncordoned for the pod
        self._on[item.node].remove(item)
        self._on.setdefault(target, []).append(item)
        item.node = target
        item.is_moved = True
        self.steps.append(DirectedMove(item.info.pod.key, self._names[target]))

    def _undo_to(self, length: int) -> None:
        """Undoes all moves but the first `length`; none of them may have been followed by a release."""
        while len(self._trail) > length:
            item, source, was_moved, held = self._trail.pop()
            pods = self._classes[item.kind]
            self._free[:, source] -= pods.frees
            self._free[:, item.node] += pods.takes
            self._on[item.node].remove(item)
            self._on[source].append(item)
            item.node = source
            item.is_moved = was_moved
            self._held = list(held)
            self.steps.pop()

    def _release(self, nodes: Sequence[int]) -> None:
        """Uncordons nodes: the scheduler places there what waits and fits, the highest priority first."""
        if self._releases and self.steps and nodes:
            last = self.steps[-1]
            names = [self._names[node] for node in nodes]
            self.steps[-1] = DirectedMove(last.pod, last.target, [*last.released, *names])
            self._held = [node for node in self._held if node not in nodes]
            self._trail.clear()
        for node in nodes:
            for kind in list(self._waiting):
                if self._has_room(kind, node):
                    self._free[:, node] -= self._classes[kind].takes
                    self._waiting.remove(kind)
                    self.placed.append(kind)

    def _release_all(self, first: int) -> None:
        self._release([first, *(node for node in self._held if node != first)])

    # ---- making room for one pod after another

    def make_room(self, most_moves: int) -> None:
        """Looks for moves that make room for one waiting pod after another, the highest priority first."""
        for kind in dict.fromkeys(list(self._waiting)):
            while kind in self._waiting and self._make_room_for(kind, most_moves):
                pass

    def _make_room_for(self, kind: int, most_moves: int) -> bool:
        for depth in range(_MOST_DEPTH + 1):
            if depth == 1 and len(self.steps) + 2 <= most_moves and self._swap_for(kind):
                return True
            for node, victims in self._choices(kind):
                if self._left_seconds() <= 0:
                    return False
                if len(self.steps) + len(victims) > most_moves:
                    continue
                mark = len(self._trail)
                if (
                    all(self._rehome(item, depth, node) for item in victims)
                    and self._has_room(kind, node)
                    and len(self.steps) <= most_moves
                ):
                    self._release_all(node)
                    return True
                self._undo_to(mark)
        return False

    def _choices(self, kind: int) -> Iterator[tuple[int, Sequence[_Item]]]:
        """Yields nodes and few of their pods whose eviction makes room for a pod of the class."""
        takes = self._classes[kind].takes
        choices: list[tuple[int, float, int, Sequence[_Item]]] = []
        for node in np.flatnonzero(self._is_allowed[kind]).tolist():
            items = [item for item in self._on.get(node, ()) if not item.is_moved]
            if node in self._held or not items:
                continue
            frees = np.array([self._classes[item.kind].frees for item in items])
            short = takes - self._free[:, node]
            for size in range(1, min(_MOST_VICTIMS, len(items)) + 1):
                sets = np.array(list(combinations(range(len(items)), size)))
                freed = frees[sets].sum(axis=1)
                enough = np.flatnonzero((freed >= short).all(axis=1))
                waste = ((freed[enough] - short) * self._size).sum(axis=1) + self._random.random() * 0.2
                for place, amount in sorted(zip(enough.tolist(), waste.tolist(), strict=True), key=lambda e: e[1])[:4]:
                    choices.append((size, amount, node, [items[number] for number in sets[place].tolist()]))
        choices.sort(key=lambda each: each[:3])
        for _, _, node, chosen in choices[:_MOST_SETS]:
            yield node, sorted(chosen, key=lambda item: -float((self._classes[item.kind].takes * self._size).sum()))

    def _rehome(self, item: _Item, depth: int, avoided: int | None) -> bool:
        """Moves the pod to a node with room, after moving others out of its way; False leaves moves to undo."""
        is_open = self._open(item.kind)
        is_open[item.node] = False
        if avoided is not None:
            is_open[avoided] = False
        if is_open.any():
            self._move(item, self._tightest(item.kind, is_open))
            return True
        return depth > 0 and any(self._exchange(item, other, depth, avoided) for other in self._in_the_way(item))

    def _tightest(self, kind: int, is_open: Mask) -> int:
        nodes = np.flatnonzero(is_open)
        left = (self._free[:, nodes] - self._classes[kind].takes[:, np.newaxis]) * self._size[:, np.newaxis]
        return int(nodes[left.sum(axis=0).argmin()])

    def _in_the_way(self, item: _Item) -> list[_Item]:
        """Returns the smallest pods whose eviction makes room for the pod on their node."""
        nodes = np.array([other.node for other in self._items])
        room = self._free[:, nodes].T + self._frees
        takes = self._classes[item.kind].takes
        enough = (room >= takes).all(axis=1) & self._is_allowed[item.kind][nodes] & (nodes != item.node)
        places = np.flatnonzero(enough)
        sizes = (self._frees[places] * self._size).sum(axis=1)
        order = places[np.argsort(sizes, kind="stable")][: 2 * _MOST_EXCHANGES].tolist()
        others = [self._items[place] for place in order]
        usable = [other for other in others if not other.is_moved and other.node not in self._held]
        self._random.shuffle(usable)
        return usable[:_MOST_EXCHANGES]

    def _exchange(self, item: _Item, other: _Item, depth: int, avoided: int | None) -> bool:
        """Moves `other` away and the pod to its node."""
        mark, node = len(self._trail), other.node
        if node == avoided or self._left_seconds() <= 0 or other.is_moved or node in self._held:
            return False
        is_free = self._rehome(other, depth - 1, None) and self._has_room(item.kind, node)
        if is_free and not any(self._has_room(kind, node) for kind in self._waiting):
            self._move(item, node)
            return True
        self._undo_to(mark)
        return False

    def _swap_for(self, kind: int) -> bool:
        """Makes room by moving a smaller pod to a node before a larger one leaves it for the smaller one's node."""
        nodes = np.array([item.node for item in self._items])
        kinds = np.array([item.kind for item in self._items])
        is_moved = np.array([item.is_moved for item in self._items]) | np.isin(nodes, self._held)
        takes = np.array([pods.takes for pods in self._classes])
        for node in self._random.sample(
            np.flatnonzero(self._is_allowed[kind]).tolist(), int(self._is_allowed[kind].sum())
        ):
            if node in self._held or self._left_seconds() <= 0:
                continue
            free = self._free[:, node]
            comes = (takes[kinds] <= free).all(axis=1) & self._is_allowed[kinds, node] & ~is_moved & (nodes != node)
            places = np.flatnonzero(comes)
            room = self._free[:, nodes[places]].T + self._frees[places]
            after = free - takes[kinds[places]] - takes[kind]
            for item in [item for item in self._on.get(node, ()) if not item.is_moved]:
                frees, own = self._classes[item.kind].frees, self._classes[item.kind].takes
                fits = (room >= own).all(axis=1) & (after + frees >= 0).all(axis=1)
                fits &= self._is_allowed[item.kind][nodes[places]]
                if fits.any():
                    other = self._items[places[fits][0]]
                    source = other.node
                    self._move(other, node)
                    self._move(item, source)
                    self._release_all(node)
                    return True
        return False

    # ---- following an arrangement that is known

    def follow(self, homes: Mapping[str, str], most_moves: int) -> bool:
        """Moves pods to the nodes that an arrangement gives them, in an order in which each has room when it comes.

        Returns False if some have not got to their nodes.
        """
        place_of = {name: place for place, name in enumerate(self._names)}
        rest = {item: place_of[homes[item.info.pod.key]] for item in self._items if item.info.pod.key in homes}
        while rest and self._left_seconds() > 0 and len(self.steps) < most_moves:
            able = [(item, home) for item, home in rest.items() if self._may_arrive(item, home)]
            if not able:
                return False
            item, home = min(able, key=lambda each: (each[1] in self._held, self._random.random()))
            source = item.node
            self._move(item, home)
            del rest[item]
            self._release([node for node in (source, home) if node in self._held and self._is_done(node, rest)])
        if not rest:
            self._release(list(self._held))
        return not rest

    def _is_done(self, node: int, rest: Mapping[_Item, int]) -> bool:
        return all(node not in (item.node, home) for item, home in rest.items())

    def _may_arrive(self, item: _Item, node: int) -> bool:
        if not self._has_room(item.kind, node):
            return False
        if node not in self._held:
            return True
        return not any(self._has_room(kind, node) for kind in self._waiting)
