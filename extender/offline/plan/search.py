"""Searches for the smallest plan: a heuristic finds a first one, and a solver improves on it until nothing is smaller.

    search
      1. let the scheduler place what it can without any move; if nodes are to be emptied, with the moves of their pods
      2. compare sums: they may show that no arrangement of the movable pods places all targets
      3. try, for each pod to place, the nodes where the fewest evictions free enough
      4. if not everything is placed, direct pods to nodes: as `Packing` finds it, and as the solver does for few nodes
      5. end if sums show that everything is placed with the fewest moves
      6. ask the solver for the best evictions of the relaxed problem, carry them out in every order, and exclude
         them if no order does what they promise; end if what remains promises nothing better than the best plan
      7. compare the plan with others that place as much with as few moves, if the caller asks for it

All steps but 2 and 5 call `PlanTrial`, so that every plan has been decided step by step. A plan is better than another
if it places more pods of the highest priority, or as many and more of the next, and so on; or if it needs fewer moves.
Of plans that are equal in this, the one with the better `Side` is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random

import numpy as np

from extender.offline.explain.pod_terms import with_cordon
from extender.offline.plan import solver
from extender.offline.plan.arithmetic import Packing, Rooms, cheapest, least_with_homes
from extender.offline.plan.attempts import (
    MOST_ORDERS,
    Attempts,
    CarriedOut,
    Findings,
    Score,
    SearchOptions,
    movers_on,
)
from extender.offline.plan.model import RelaxedProblem
from extender.offline.plan.solver import Solution, Solver, Unsolved, part_of
from extender.offline.plan.trial import DirectedMove, obstacle, settle
from extender.offline.state import ClusterState
from extender.runtime.clock import INTERRUPTIONS
from extender.table import PodInfo

_MOST_NODES_AT_ONCE = 50
_MOST_QUESTIONS = 2
_MOST_NATURAL_ORDERS = 40
_MOST_SHUFFLES = 6
_SHARE_OF_NODES = 0.3
_SHARE_OF_MANY_NODES = 0.6
_SHARE_OF_STEERING = 0.3
_SHARE_OF_PARTS = 0.5
_SHARE_OF_PROOF = 0.3
_NODES_OF_A_PART = 5
_SECONDS_OF_A_PART = 0.3
_MOST_PARTS = 200
_MOST_FOLLOWED = 5
_MOST_EXCHANGED = 5
_MOST_ORDERS_COMPARED = 100
_NONE_MOVABLE = "no pod may be evicted, and without that the scheduler finds no node"
_BY_SOLVER = (
    "no arrangement of the movable pods fits: the solver has proved it for requests, host ports, taints and node"
    " affinity of all pods together"
)


@dataclass
class Search:
    """A search for the fewest moves after which the pods are placed, and some nodes are empty.

    Attributes:
        base: the cluster; the search changes only a copy of it.
        waiting: pods of the cluster that wait for a node, as `namespace/name`.
        created: pods that do not exist yet; they are created when the moves are done.
        emptied: nodes that all pods have to leave, except those of DaemonSets and static pods. They stay cordoned.
    """

    base: ClusterState
    waiting: Sequence[str]
    created: Sequence[PodInfo]
    options: SearchOptions
    emptied: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._time_left = self.options.begin()
        self._now = self.options.now()
        self._targets = [*self.waiting, *(info.pod.key for info in self.created)]
        self._leaving: list[str] = []
        """The pods that have to leave the nodes of `emptied`, the largest first."""
        self.base = self.base.copy()
        self._movable: dict[str, PodInfo] = {}
        self._already: Sequence[int] = ()
        """How many pods to place have a node before the relaxed problem, by priority as in `Score`."""
        self._excluded: list[Sequence[PodInfo]] = []
        """The evictions of the relaxed problem that have been tried in every order."""
        self.findings = Findings()
        self._attempts: Attempts
        """They begin with the cluster in which the scheduler has nothing left to do."""

    def run(self) -> Findings:
        findings = self.findings
        try:
            # Lets the scheduler run until it has nothing left to do, and cordons the nodes to empty.
            findings.preempted = settle(self.base, self.options.seed, self._now)
            for name in self.emptied:
                self.base.add(with_cordon(self.base.node(name), unschedulable=True))
            findings.proof = self._find_leaving()
            counts = Counter(self._priorities().values())
            findings.levels = {priority: counts[priority] for priority in sorted(counts, reverse=True)}
            findings.at_most = tuple(findings.levels.values())
            self._attempts = Attempts(
                self.base,
                self._priorities(),
                self.created,
                self.emptied,
                releases=len(self.waiting) > 1 and not self.created,
                findings=findings,
                options=self.options,
                now=self._now,
            )
            self._attempts.carry_out(self._leaving)
            findings.unmoved = findings.plan.score.placed if findings.plan else (0,) * len(counts)
            if findings.places_all or findings.proof is not None:
                findings.is_complete = True
                return findings
            self._search()
            findings.is_out_of_time = not findings.is_complete and self._left_seconds() <= 0
        except INTERRUPTIONS:
            if findings.plan is None or not findings.plan.moves:
                raise
            findings.is_interrupted = True
        finally:
            if findings.is_complete and findings.plan is not None:
                findings.at_most = findings.plan.score.placed
        return findings

    def _search(self) -> None:
        findings = self.findings
        self._attempts.restore()
        self._find_movable()
        problem = self._problem()
        waiting = Counter(info.priority for each in problem.classes for info in each.waiting)
        self._already = [count - waiting[priority] for priority, count in findings.levels.items()]
        hopeless = _hopeless(problem)
        problem = problem.after((), hopeless)
        shortage = problem.shortage()
        count = sum(each.targets for each in problem.classes)
        is_stuck = not (self._movable or self._leaving)
        findings.proof = next(iter(hopeless.values()), shortage or (_NONE_MOVABLE if is_stuck else None))
        findings.is_complete = is_stuck or count == 0 or (count == 1 and shortage is not None)
        if self.emptied:
            findings.is_complete = findings.proof is not None
            findings.bound = len(self._leaving)
        else:
            self._note_most(problem.most_placed(findings.levels))
            findings.is_complete |= findings.unmoved == findings.at_most
        if findings.is_complete:
            return
        self._search_for_best(problem)
        if self.findings.is_complete and not self.emptied and self.options.compared:
            self._search_for_gentlest(problem)

    def _search_for_best(self, problem: RelaxedProblem) -> None:
        findings = self.findings
        if not self._leaving:
            self._try_nodes(problem)
            self._attempts.restore()
            if self.options.tries is None:
                self._steer(problem)
                self._search_parts(problem)
        if findings.proof is None and not self._leaving:
            known = len(findings.plan.moves) if findings.plan and findings.places_all else self.options.moves + 1
            findings.bound = self._least(problem, known)
            findings.is_complete = findings.places_all and findings.bound >= known
        if not findings.is_complete:
            self._ask_solver(problem)

    def _find_leaving(self) -> str | None:
        """Collects the pods that have to leave the nodes to empty; returns why one of them cannot leave."""
        leaving = movers_on(self.base, self.emptied)
        for info in leaving:
            reason = obstacle(info, self.base, self.options.rules)
            if reason is not None:
                return f"pod {info.pod.key} stays on {info.pod.node_name} because it {reason}"
        self._leaving = [info.pod.key for info in _largest_first(leaving, self.base)]
        self._targets = [*self._targets, *self._leaving]
        return None

    def _find_movable(self) -> None:
        for info in sorted(self.base.infos.values(), key=lambda each: each.pod.key):
            if not info.pod.node_name or not self.base.has_node(info.pod.node_name) or info.pod.key in self._leaving:
                continue
            reason = obstacle(info, self.base, self.options.rules)
            if reason is None:
                self._movable[info.pod.key] = info
            else:
                self.findings.kept[reason] = self.findings.kept.get(reason, 0) + 1
        self.findings.movable = len(self._movable)

    def _problem(self) -> RelaxedProblem:
        """Returns the relaxed problem; the pods of nodes to empty count as pods that wait."""
        state = self.base
        leaving = [state.infos[key] for key in self._leaving]
        if leaving:
            state = state.copy()
            for info in leaving:
                state.remove_pod(info)
        targets = [self.base.infos[key] for key in self.waiting if not self.base.infos[key].pod.node_name]
        return RelaxedProblem(state, [*targets, *self.created, *leaving], list(self._movable.values()))

    def _left_seconds(self) -> float:
        if self.options.tries is not None and self._attempts.count >= self.options.tries:
            return 0.0
        return self._time_left()

    # ---- without a solver

    def _try_nodes(self, problem: RelaxedProblem) -> None:
        """Looks for a plan that frees room for one target after another, each on the node where that is cheapest."""
        moves: list[str] = []
        score = self._attempts.carry_out(moves)
        share = _SHARE_OF_NODES if _is_small(problem) else _SHARE_OF_MANY_NODES
        left_seconds = part_of(self._left_seconds, share)
        while score is not None and not self.findings.places_all and left_seconds() > 0:
            longer = self._longer(problem, moves, score, left_seconds)
            if longer is None:
                return
            moves, score = longer

    def _longer(
        self, problem: RelaxedProblem, moves: Sequence[str], score: Score, left_seconds: Callable[[], float]
    ) -> tuple[list[str], Score] | None:
        """Returns more moves that place more targets, and their score; None if none are found."""
        unplaced = self._unplaced()
        here = problem.after(moves, [key for key in self._targets if key not in unplaced])
        rooms = Rooms(here)
        for victims in cheapest(here, rooms):
            if left_seconds() <= 0:
                return None
            keys = [*moves, *(info.pod.key for info in rooms.with_homes(victims))]
            longer = self._attempts.carry_out(keys) if len(keys) <= self.options.moves else None
            if longer is not None and longer.placed > score.placed:
                return keys, longer
        return None

    def _unplaced(self) -> set[str]:
        infos = self.base.infos
        return {key for key in self._targets if key not in infos or not infos[key].pod.node_name}

    def _priorities(self) -> dict[str, int]:
        """Returns the priorities of all pods to place, with those that have to leave the nodes to empty."""
        created = {info.pod.key: info for info in self.created}
        return {key: (created.get(key) or self.base.infos[key]).priority for key in self._targets}

    def _least(self, problem: RelaxedProblem, known: int) -> int:
        """Returns a lower bound for the moves of a plan that places everything; `known` moves are enough."""
        return max(least_with_homes(problem, each, known) for each in problem.classes if each.targets)

    @property
    def _has_solver(self) -> bool:
        return self.options.uses_solver and solver.is_installed()

    def _steer(self, problem: RelaxedProblem) -> None:
        """Looks for plans that direct pods to nodes, and so make room for one target after another."""
        random = Random(self.options.seed)  # noqa: S311  shuffles
        left_seconds = part_of(self._left_seconds, _SHARE_OF_STEERING)
        attempts = 0
        while attempts < _MOST_SHUFFLES and not self.findings.places_all and left_seconds() > 0:
            attempts += 1
            packing = self._packing(problem, left_seconds, random)
            packing.make_room(self.options.moves)
            if self._improves(packing, problem):
                attempts = 0

    def _packing(self, problem: RelaxedProblem, left_seconds: Callable[[], float], random: Random) -> Packing:
        return Packing(problem, random, left_seconds, releases=self._attempts.releases)

    def _improves(self, packing: Packing, problem: RelaxedProblem) -> bool:
        """Carries the steps out if they promise more than the best plan; returns True if they are the best plan now."""
        counts = Counter(problem.classes[kind].first.priority for kind in packing.placed)
        levels = [each + counts[level] for each, level in zip(self._already, self.findings.levels, strict=True)]
        promised = Score(tuple(levels), -len(packing.steps) - len(self._leaving))
        best = self.findings.plan
        if not packing.steps or (best is not None and promised <= best.score):
            return False
        return self._attempts.carry_out_steps(packing.steps)

    def _search_parts(self, problem: RelaxedProblem) -> None:
        """Asks the solver to make room for one target within a few nodes, and repeats that from the result.

        In a large cluster, a few nodes that are drawn at random hardly ever help.
        """
        if not self._has_solver or len(problem.nodes) <= _NODES_OF_A_PART or not _is_small(problem):
            return
        random = Random(self.options.seed)  # noqa: S311  chooses nodes
        left_seconds = part_of(self._left_seconds, _SHARE_OF_PARTS)
        start: Sequence[DirectedMove] = self.findings.plan.steps if self.findings.plan is not None else ()
        here, is_new = problem, True
        attempts = 0
        while attempts < _MOST_PARTS and not self.findings.places_all and left_seconds() > 0:
            attempts += 1
            if is_new and start:
                self._attempts.carry_out_steps(start)
                unplaced = self._unplaced()
                placed = [key for key in self._targets if key not in unplaced]
                here = problem.after((step.pod for step in start), placed)
            steps = self._steps_of_part(here, self.options.moves - len(start), random)
            is_new = bool(steps) and self._attempts.carry_out_steps([*start, *steps])
            if is_new:
                start, attempts = [*start, *steps], 0

    def _steps_of_part(self, problem: RelaxedProblem, most_moves: int, random: Random) -> Sequence[DirectedMove]:
        """Returns steps that make room for one of the targets; none if none are found."""
        waiting = [info for pods in problem.classes for info in pods.waiting]
        if not waiting or most_moves <= 0:
            return ()
        highest = max(info.priority for info in waiting)
        target = random.choice([info for info in waiting if info.priority == highest])
        part = problem.within(random.sample(range(len(problem.nodes)), _NODES_OF_A_PART), target)
        left_seconds = part_of(self._left_seconds, most=_SECONDS_OF_A_PART)
        found = Solver(part, [target.priority], self.options.seed, most_moves).solve(left_seconds, None)
        if not isinstance(found, Solution) or not found.evicted:
            return ()
        for _ in range(_MOST_FOLLOWED):
            packing = self._packing(part, self._left_seconds, random)
            if packing.follow(found.homes, most_moves):
                return packing.steps
        return ()

    # ---- with a solver

    def _ask_solver(self, problem: RelaxedProblem) -> None:
        """Asks the solver for plans with few moves first, because that leaves most of a large cluster out."""
        if not self._has_solver:
            return
        findings = self.findings
        last = len(findings.plan.moves) - 1 if findings.places_all and findings.plan else self.options.moves
        last -= len(self._leaving)
        if last < 0:
            return
        self._attempts.restore()
        if not _is_small(problem) and findings.proof is None and not self._leaving:
            # If a plan is known to be nearly the smallest, one question is enough.
            is_close = findings.places_all and last - findings.bound <= _MOST_QUESTIONS
            for most in range(findings.bound, findings.bound if is_close else last):
                if self._ask(problem, most, is_last=False):
                    return
                if not self._excluded:
                    findings.bound = most + 1
        self._ask(problem, last, is_last=True)

    def _ask(self, problem: RelaxedProblem, most: int, *, is_last: bool) -> bool:
        """Tries the best evictions of the relaxed problem until the rest promises nothing better than the best plan.

        Args:
            most: the most evictions.
            is_last: False to try only to place everything, because more evictions are tried later.

        Returns:
            True if the search is to end.
        """
        findings = self.findings
        is_whole = _is_small(problem)
        places_all = not is_last or findings.places_all
        model = self._model(problem, most, is_whole=is_whole, places_all=places_all and not self._leaving)
        is_sure = True
        while self._left_seconds() > 0:
            best = findings.plan.score if findings.plan is not None else None
            known = best.placed if best is not None else findings.unmoved
            rest = [a - b for a, b in zip(known, self._already, strict=True)]
            may_place_less = is_last and not (self.emptied or findings.places_all)
            solution = model.solve(
                self._left_seconds, rest if may_place_less else None, lambda found: self._follow(found, problem)
            )
            if is_last and model.fits_all is False and not (self._excluded or findings.places_all or findings.proof):
                self._prove_that_not_all_fit(problem)
            if is_last and not self._excluded:
                self._note_most(model.most)
            if solution is None:
                findings.is_complete = is_last and is_sure and (is_whole or not self._excluded)
                return is_last
            # In a large cluster, not everything was tried with the evictions that are excluded.
            is_firm = is_whole or not self._excluded
            if is_firm:
                self._note_bounds(solution)
            if isinstance(solution, Unsolved):
                return True
            best = findings.plan.score if findings.plan is not None else None
            if best is not None and best >= self._promised(solution):
                findings.is_complete = is_sure and is_firm
                return True
            tried_all = self._try(solution, problem)
            if tried_all is None:
                findings.is_complete = solution.is_best and is_sure and is_firm
                return True
            if not (tried_all or is_whole):
                return True
            is_sure = is_sure and tried_all and solution.is_best
            model.exclude(solution.evicted)
            self._excluded.append(solution.evicted)
        return True

    def _model(self, problem: RelaxedProblem, most: int, *, is_whole: bool, places_all: bool) -> Solver:
        model = Solver(
            problem,
            self.findings.levels,
            self.options.seed,
            most,
            is_whole=is_whole,
            places_all=places_all,
            has_first_move=is_whole and not self._leaving,
        )
        for evicted in self._excluded:
            model.exclude(evicted)
        best = self.findings.plan
        if best is not None and best.moves:
            model.start_at({move.pod: move.target for move in best.moves}, best.placed)
        return model

    def _promised(self, solution: Solution) -> Score:
        """Returns the score of the best plan that the relaxed problem allows."""
        placed = tuple(a + b for a, b in zip(solution.placed, self._already, strict=True))
        return Score(placed, -solution.bound - len(self._leaving))

    def _note_bounds(self, solution: Solution | Unsolved) -> None:
        findings = self.findings
        if isinstance(solution, Solution) and not self._excluded:
            findings.at_most = min(tuple(findings.at_most), self._promised(solution).placed)
        if isinstance(solution, Unsolved) or self._promised(solution).placed == findings.at_most:
            findings.bound = max(findings.bound, solution.bound + len(self._leaving))

    def _prove_that_not_all_fit(self, problem: RelaxedProblem) -> None:
        """Asks whether all pods have room at once if the number of moves does not matter."""
        left_seconds = part_of(self._left_seconds, _SHARE_OF_PROOF)
        found = Solver(problem, self.findings.levels, self.options.seed).solve(left_seconds, None)
        if found is None:
            self.findings.proof = _BY_SOLVER
        else:
            self.findings.bound = max(self.findings.bound, found.bound + len(self._leaving))

    def _note_most(self, most: Sequence[int]) -> None:
        """Notes how many pods of the highest priorities can be placed at most."""
        findings = self.findings
        proved = [a + b for a, b in zip(most, self._already, strict=False)]
        rest = list(findings.levels.values())[len(proved) :]
        findings.at_most = min(tuple(findings.at_most), (*proved, *rest))

    def _follow(self, solution: Solution, problem: RelaxedProblem) -> None:
        """Directs pods to the nodes that a solution gives them, in a few orders."""
        homes = dict(solution.homes)
        if self._leaving or len(homes) < len(solution.evicted):
            return
        random = Random(self.options.seed)  # noqa: S311  chooses orders
        for _ in range(_MOST_FOLLOWED):
            packing = self._packing(problem, self._left_seconds, random)
            packing.follow(homes, self.options.moves)
            if self._improves(packing, problem):
                return

    def _try(self, solution: Solution, problem: RelaxedProblem) -> bool | None:
        """Carries the evictions of a solution out; the scheduler's own choice of nodes is tried before any other.

        Returns the same as `_try_orders`.
        """
        score = self._promised(solution)
        if not solution.is_best:
            score = Score(score.placed, -len(solution.evicted) - len(self._leaving))

        def is_reached() -> bool:
            return self.findings.plan is not None and self.findings.plan.score >= score

        rooms = Rooms(problem)
        evicted = sorted(_largest_first(solution.evicted, self.base), key=rooms.of)
        solution = replace(solution, evicted=evicted)  # those with the fewest choices come first
        tried_all = self._try_orders(solution, score, _MOST_NATURAL_ORDERS, directs=False)
        if tried_all is None:
            return None
        if _is_small(problem):
            self._follow(solution, problem)
            return None if is_reached() else self._try_orders(solution, score)
        homes = solution.homes
        self._attempts.carry_out_steps([DirectedMove(info.pod.key, homes.get(info.pod.key)) for info in evicted])
        return None if is_reached() else tried_all

    def _try_orders(
        self, solution: Solution, score: Score, most: int = MOST_ORDERS, *, directs: bool = True
    ) -> bool | None:
        """Carries the evictions of a solution out, and those that empty nodes; see `Attempts.try_orders`."""
        evicted = [*(info.pod.key for info in solution.evicted), *self._leaving]
        return self._attempts.try_orders(evicted, solution.homes, score, self._left_seconds, most, directs=directs)

    # ---- among equal plans

    def _search_for_gentlest(self, problem: RelaxedProblem) -> None:
        """Carries out other plans that place as much with as few moves, as far as the limits allow.

        The scheduler chooses all nodes, because a pod is directed to a node only if nothing else leads to a plan.
        """
        best = self.findings.plan
        if best is None or not best.moves:
            return
        self._attempts.restore()
        if not _is_small(problem):
            for keys in islice(self._exchanged(problem, best), self.options.compared):
                self._attempts.carry_out(keys)
        elif self._has_solver:
            self._compare_all(problem, best)

    def _exchanged(self, problem: RelaxedProblem, best: CarriedOut) -> Iterator[Sequence[str]]:
        """Yields a few plans in which a set of pods of another node is evicted instead of the pods of one node.

        They evict no more pods of high priority than the best plan. A solver would find more of them, but it takes
        seconds for each in a large cluster.
        """
        sources = {move.source for move in best.moves}
        sets = [victims for victims in cheapest(problem, Rooms(problem)) if victims[0].pod.node_name not in sources]
        plans: list[tuple[list[int], Sequence[str]]] = []
        for source in sorted(sources):
            rest = [self._movable[move.pod] for move in best.moves if move.source != source]
            for victims in sets:
                if len(rest) + len(victims) == len(best.moves):
                    evicted = [*rest, *victims]
                    disrupted = sorted(-info.priority for info in evicted)
                    plans.append((disrupted, [info.pod.key for info in evicted]))
        plans.sort(key=lambda plan: plan[0], reverse=True)
        gentle = [keys for disrupted, keys in plans if tuple(disrupted) >= best.side.disrupted]
        yield from gentle[:_MOST_EXCHANGED]

    def _compare_all(self, problem: RelaxedProblem, best: CarriedOut) -> None:
        """Asks the solver for one set of evictions after another, until there is none or the limits end it."""
        model = Solver(problem, self.findings.levels, self.options.seed, len(best.moves))
        rest = [a - b for a, b in zip(best.score.placed, self._already, strict=True)]
        unreachable = Score(best.score.placed, 1)  # so that all orders are tried
        for _ in range(self.options.compared):
            solution = model.solve(self._left_seconds, rest)
            if solution is None:
                self.findings.is_gentlest = True
            if not isinstance(solution, Solution):
                return
            if not self._try_orders(solution, unreachable, _MOST_ORDERS_COMPARED, directs=False):
                return
            model.exclude(solution.evicted)


def _is_small(problem: RelaxedProblem) -> bool:
    """Returns True if the solver is asked about all nodes, and what it proposes is tried in all ways."""
    return len(problem.nodes) <= _MOST_NODES_AT_ONCE


def _largest_first(infos: Sequence[PodInfo], state: ClusterState) -> list[PodInfo]:
    """Returns the pods in the order in which a node is emptied: those that need the largest part of a node first."""
    columns = state.table.nodes
    most = np.maximum(columns.allocatable[:, columns.rows].max(axis=1, initial=1), 1)

    def share(info: PodInfo) -> float:
        return float((columns.vector(info.footprint) / most).max())

    return sorted(infos, key=lambda info: (-share(info), info.pod.key))


def _hopeless(problem: RelaxedProblem) -> dict[str, str]:
    """Returns the pods that no plan places, however few others there are, each with the reason."""
    freed = problem.freed()
    reasons: dict[str, str] = {}
    for pods in problem.classes:
        for info in pods.waiting:
            if reason := _gated(info) or problem.too_large(pods, freed):
                reasons[info.pod.key] = reason
    return reasons


def _gated(info: PodInfo) -> str | None:
    if not info.pod.spec.scheduling_gates:
        return None
    return f"pod {info.pod.key} has scheduling gates: no scheduler tries it until they are removed"
