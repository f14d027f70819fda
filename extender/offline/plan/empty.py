"""Chooses the nodes that can be emptied with the fewest moves.

Every pod that may leave a node has to, so the number of these pods is a lower bound for the moves of a set of nodes.
The sets are tried in the order of this bound, until the bound of the next set is not below the best plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from extender.errors import ConfigurationError
from extender.offline.plan.attempts import Findings, SearchLimits, movers_on
from extender.offline.plan.movable import KeepRules, obstacle
from extender.offline.plan.search import search
from extender.offline.plan.trial import settle
from extender.offline.state import ClusterState
from extender.offline.what_if.scenario import selected_nodes
from extender.runtime.clock import INTERRUPTIONS, Clock
from extender.runtime.text import counted

_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


def nodes_to_choose_from(state: ClusterState, selections: Sequence[str], count: int | None) -> list[str]:
    """Returns the nodes that the selections name, by name or label; without any, those outside the control plane.

    Raises:
        UnknownNode: the cluster has no node of this name or label.
        ConfigurationError: there are fewer nodes than are to be chosen.
    """
    if selections:
        names = selected_nodes(state, selections)
    else:
        names = [node.name for node in state.nodes() if _CONTROL_PLANE not in node.labels]
    if count is not None and count > len(names):
        raise ConfigurationError([f"{counted(count, 'node')} cannot be chosen from {counted(len(names), 'node')}"])
    return names


def empty(
    state: ClusterState,
    names: Sequence[str],
    count: int,
    rules: KeepRules,
    limits: SearchLimits,
    clock: Clock,
    seed: int,
) -> tuple[Sequence[str], Findings]:
    """Returns those `count` of the nodes that can be emptied with the fewest moves, and the plan or why there is none.

    Without a plan, the nodes are those that were tried first.
    """
    if count == len(names):
        return names, search(state, [], [], rules, limits, clock, seed, names)
    return _Choice(state, rules, limits, clock, seed).run(names, count)


class _Choice:
    """Tries sets of nodes until no other set can be emptied with fewer moves."""

    def __init__(self, state: ClusterState, rules: KeepRules, limits: SearchLimits, clock: Clock, seed: int) -> None:
        self._rules = rules
        self._limits = limits
        self._clock = clock
        self._seed = seed
        self._ends_at = clock.monotonic() + limits.seconds
        self._base = state.copy()
        self._preempted = settle(self._base, seed, datetime.fromtimestamp(clock.now(), UTC))
        self._best: tuple[Sequence[str], Findings] | None = None
        self._first: tuple[Sequence[str], Findings] | None = None
        self._open: list[int] = []
        """The lower bounds of the moves for the sets that were not tried to the end."""
        self._hopeless: dict[str, bool] = {}
        """Node -> it is proved that the node cannot be emptied even alone."""

    def run(self, names: Sequence[str], count: int) -> tuple[Sequence[str], Findings]:
        pods = self._pods_to_move(names)
        if len(pods) >= count:
            chosen, found = self._try_sets(pods, count)
        else:
            chosen = sorted(names, key=lambda name: name in pods)[:count]
            found = self._find(chosen)
            found.proof = (
                f"only {len(pods)} of {counted(len(names), 'node')} can be emptied; for example, {found.proof}"
            )
        found.preempted = self._preempted
        return chosen, found

    def _pods_to_move(self, names: Sequence[str]) -> dict[str, int]:
        """Returns how many pods have to leave each node; nodes with a pod that has to stay are left out."""
        movers = {name: movers_on(self._base, [name]) for name in names}
        return {
            name: len(infos)
            for name, infos in movers.items()
            if all(obstacle(info, self._base, self._rules) is None for info in infos)
        }

    def _find(self, chosen: Sequence[str]) -> Findings:
        left = replace(self._limits, seconds=max(self._ends_at - self._clock.monotonic(), 0.0))
        return search(self._base, [], [], self._rules, left, self._clock, self._seed, chosen)

    def _try_sets(self, pods: Mapping[str, int], count: int) -> tuple[Sequence[str], Findings]:
        """Returns the set with the best plan, and the plan; without a plan, the first set and why it has none."""
        is_interrupted = False
        try:
            for chosen in _sets(pods, count):
                least = sum(pods[name] for name in chosen)
                if self._is_enough(least):
                    break
                if not any(self._hopeless.get(name) for name in chosen):
                    self._try(chosen, least)
        except INTERRUPTIONS:
            if self._best is None:
                raise
            is_interrupted = True
        return self._concluded(is_interrupted=is_interrupted)

    def _is_enough(self, least: int) -> bool:
        """Returns True if the sets that need at least so many moves are not to be tried."""
        if self._best is not None and least >= len(self._best[1].moves):
            return True
        if self._first is None or (least <= self._limits.moves and self._clock.monotonic() < self._ends_at):
            return False
        self._open.append(least)
        return True

    def _try(self, chosen: Sequence[str], least: int) -> None:
        found = self._find(chosen)
        self._first = self._first or (chosen, found)
        if not found.is_complete:
            self._open.append(max(found.bound, least))
        if found.places_all and (self._best is None or len(found.moves) < len(self._best[1].moves)):
            self._best = chosen, found
        elif found.proof is not None and len(chosen) > 1:
            self._look_at_each(chosen)

    def _look_at_each(self, chosen: Sequence[str]) -> None:
        """Finds the nodes that cannot be emptied even alone, because no set with such a node can be."""
        for name in chosen:
            if name not in self._hopeless:
                self._hopeless[name] = self._find([name]).proof is not None

    def _concluded(self, *, is_interrupted: bool) -> tuple[Sequence[str], Findings]:
        """Returns the best set, or the first one if there is no plan, with what is known about all sets."""
        concluded = self._best or self._first
        assert concluded is not None, "there are at least `count` nodes"
        chosen, found = concluded
        found.is_interrupted = is_interrupted
        if self._best is not None:
            found.bound = min([*self._open, len(found.moves)])
            found.is_complete = not is_interrupted and found.bound == len(found.moves)
        elif self._open:
            found.bound = min(self._open)
            found.is_complete = False
            found.proof = None
        elif found.proof is not None:
            found.proof = f"no set of so many nodes can be emptied; for example, {found.proof}"
        return chosen, found


def _sets(pods: Mapping[str, int], count: int) -> Iterator[Sequence[str]]:
    """Yields all sets of `count` nodes, those with the smallest sum of pods first."""
    names = sorted(pods, key=lambda name: (pods[name], name))
    amounts = [pods[name] for name in names]
    start = tuple(range(count))
    heap = [(sum(amounts[:count]), start)]
    while heap:
        total, places = heapq.heappop(heap)
        yield [names[place] for place in places]
        # A place moves on only while all places before it are at the start, so each set is reached once.
        for index, place in enumerate(places):
            following = place + 1
            if following == (places[index + 1] if index + 1 < count else len(names)):
                continue
            if places[:index] == start[:index]:
                moved = (*places[:index], following, *places[index + 1 :])
                heapq.heappush(heap, (total - amounts[place] + amounts[following], moved))
