"""Finds moves by arithmetic alone: which pod goes to which node, in an order in which each node has room in time.

The scheduler often places an evicted pod elsewhere than a plan needs it, although both nodes have room. So a plan can
cordon the other nodes during a step. Then requests and node affinity decide what is possible, and thousands of moves
can be looked at in a second. `PlanTrial` carries the result out, because other rules may still refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

import numpy as np
from numpy.typing import NDArray

from extender.offline.plan.model import Ints, RelaxedProblem
from extender.offline.plan.trial import DirectedMove
from extender.table import PodInfo

_MOST_VICTIMS = 3
_MOST_SETS = 60
_MOST_EXCHANGES = 12
_MOST_DEPTH = 2
Mask = NDArray[np.bool_]


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
