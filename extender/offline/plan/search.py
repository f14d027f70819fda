"""Searches for the smallest plan: a heuristic finds a first one, and a solver improves on it until nothing is smaller.

    search
      1. let the scheduler place what it can without any move; if nodes are to be emptied, with the moves of their pods
      2. compare sums: they may show that no arrangement of the movable pods places all targets
      3. try, for each pod to place, the nodes where the fewest evictions free enough
      4. if not everything is placed, direct pods to nodes: as `steering` finds it, and as the solver does for few nodes
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from random import Random
from typing import NamedTuple

import numpy as np

from extender.offline.explain.pod_terms import with_cordon
from extender.offline.plan import movable, solver
from extender.offline.plan.model import UNREACHABLE, Ints, PodClass, RelaxedProblem
from extender.offline.plan.solver import Solution, Solver, Unsolved, part_of
from extender.offline.plan.steering import Packing
from extender.offline.plan.trial import Checkpoint, DirectedMove, Move, MoveRefused, PlanTrial, settle
from extender.offline.replicas import is_pinned
from extender.offline.state import ClusterState
from extender.offline.what_if.result import fragmentation_of
from extender.offline.what_if.simulation import Eviction
from extender.runtime.clock import INTERRUPTIONS, Clock
from extender.runtime.text import counted
from extender.table import PodInfo

Progress = Callable[[str], None]

MOST_MOVES = 20
SEARCH_SECONDS = 10.0
_MOST_NODES_LOOKED_AT = 200
_MOST_NODES_TRIED = 25
_MOST_SETS_OF_A_NODE = 3
_MOST_COUNTED = 8
_MOST_ADDED = 3
_MOST_NODES_AT_ONCE = 50
_MOST_QUESTIONS = 2
_MOST_ORDERS = 1000
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
_MOST_EQUAL_SETS = 5
_MOST_ORDERS_COMPARED = 100
_MOST_ORDERS_COMPARED_OF_MANY_NODES = 10
_NONE_MOVABLE = "no pod may be evicted, and without that the scheduler finds no node"
_BY_SOLVER = (
    "no arrangement of the movable pods fits: the solver has proved it for requests, host ports, taints and node"
    " affinity of all pods together"
)


class Score(NamedTuple):
    """The quality of a plan; the better one is greater.

    Attributes:
        placed: how many of the pods to place have a node at the end, by priority, from the highest.
        moves: minus the number of moves.
    """

    placed: tuple[int, ...]
    moves: int


class Side(NamedTuple):
    """The side effects of a plan; of two plans with equal scores, the one with the greater is taken.

    Attributes:
        disrupted: minus the priorities of the evicted pods, the highest priority first. So of equally many evictions,
            those are best that evict the fewest pods of the highest priority, then of the next, and so on.
        fragmentation: minus the mean, for CPU and memory, of the fragmentation that `simulate` prints.
    """

    disrupted: tuple[int, ...]
    fragmentation: float


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """A plan that has been carried out on a copy of the cluster.

    Attributes:
        steps: the moves as they were asked for.
        placed: the pods to place that have a node at the end -> the node.
    """

    moves: Sequence[Move]
    steps: Sequence[DirectedMove]
    placed: Mapping[str, str]
    score: Score
    side: Side


@dataclass(slots=True)
class Findings:
    """The result of a search, also of one that was interrupted.

    Attributes:
        plan: the best plan found, which may have no moves; None if not even the scheduler may act without a move.
        unmoved: how many pods are placed without a move, by priority as in `Score`.
        levels: the priorities of the pods to place, from the highest, and how many of them are to be placed.
        at_most: no plan places more pods, by priority: the first number that differs from a plan's is the larger one.
        bound: no plan that places as much as is known to be possible has fewer moves; 0 if nothing is known.
        proof: why no plan can place everything; None if that is not proved.
        is_complete: True if the search has ended because there is nothing left to try: no plan is better. Without a
            proof, an arrangement of the pods that places more exists, but no order of evictions leads to it.
        is_interrupted: True if a signal has ended the search; `plan` is the best plan until then.
        is_out_of_time: True if the search has ended because its time was over.
        refusal: why the first eviction was refused that was tried and refused.
        is_gentlest: True if all plans that place as much with as few moves were compared, so that none of them disrupts
            fewer pods of high priority, or as few and leaves less fragmentation.
        preempted: the pods that the scheduler preempts before any move.
        kept: reason -> the number of pods that no plan may evict for it.
        movable: the number of pods that a plan may evict.
    """

    plan: CarriedOut | None = None
    unmoved: Sequence[int] = ()
    levels: Mapping[int, int] = field(default_factory=dict)
    at_most: Sequence[int] = ()
    bound: int = 0
    proof: str | None = None
    is_complete: bool = False
    is_interrupted: bool = False
    is_out_of_time: bool = False
    refusal: str | None = None
    is_gentlest: bool = False
    preempted: Sequence[Eviction] = ()
    kept: dict[str, int] = field(default_factory=dict)
    movable: int = 0

    @property
    def places_all(self) -> bool:
        """True if the plan places every pod that was to be placed."""
        return self.plan is not None and self.plan.score.placed == tuple(self.levels.values())

    @property
    def moves(self) -> Sequence[Move]:
        """The moves of the plan; none without a plan."""
        return self.plan.moves if self.plan is not None else ()


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """The limits of a search.

    Attributes:
        seconds: when to stop with the best plan so far.
        moves: the most moves of a plan.
        uses_solver: False to use the heuristic only, as if no solver were installed.
        compared: how many sets of evictions to try at most, to find a plan that is as good and gentler.
    """

    seconds: float = SEARCH_SECONDS
    moves: int = MOST_MOVES
    uses_solver: bool = True
    compared: int = 0


def search(
    state: ClusterState,
    waiting: Sequence[str],
    created: Sequence[PodInfo],
    rules: movable.KeepRules,
    limits: SearchLimits,
    clock: Clock,
    seed: int = 0,
    emptied: Sequence[str] = (),
    progress: Progress | None = None,
) -> Findings:
    """Searches for the fewest moves after which the pods are placed, and some nodes are empty.

    Args:
        waiting: pods of the cluster that wait for a node, as `namespace/name`.
        created: pods that do not exist yet; they are created when the moves are done.
        emptied: nodes that all pods have to leave, except those of DaemonSets and static pods. They stay cordoned.
        progress: called with each plan that is the best so far, in words.
    """
    return _Search(state, waiting, created, rules, limits, clock, seed, emptied, progress).run()


class _Search:
    def __init__(
        self,
        state: ClusterState,
        waiting: Sequence[str],
        created: Sequence[PodInfo],
        rules: movable.KeepRules,
        limits: SearchLimits,
        clock: Clock,
        seed: int,
        emptied: Sequence[str],
        progress: Progress | None,
    ) -> None:
        self._progress = progress
        self._limits = limits
        self._clock = clock
        self._seed = seed
        self._ends_at = clock.monotonic() + limits.seconds
        self._now = datetime.fromtimestamp(clock.now(), UTC)
        self._created = created
        self._targets = [*waiting, *(info.pod.key for info in created)]
        self._waiting = waiting
        self._emptied = emptied
        self._leaving: list[str] = []
        """The pods that have to leave the nodes of `emptied`, the largest first."""
        self._rules = rules
        self._base = state.copy()
        self._priorities: dict[str, int] = {}
        self._checkpoint = Checkpoint(self._base)
        self._movable: dict[str, PodInfo] = {}
        self._already: Sequence[int] = ()
        """How many pods to place have a node before the relaxed problem, by priority as in `Score`."""
        self._excluded: list[Sequence[PodInfo]] = []
        """The evictions of the relaxed problem that have been tried in every order."""
        self.findings = Findings()
        self.releases = len(waiting) > 1 and not created
        """True if plans may uncordon nodes before the last move, so that some pods are placed before others."""

    def run(self) -> Findings:
        findings = self.findings
        try:
            self._settle()
            findings.proof = self._find_leaving()
            self._priorities = {key: info.priority for key, info in self._all_targets().items()}
            counts = Counter(self._priorities.values())
            findings.levels = {priority: counts[priority] for priority in sorted(counts, reverse=True)}
            findings.at_most = tuple(findings.levels.values())
            self._checkpoint = Checkpoint(self._base)
            self._carry_out(self._leaving)
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
        self._checkpoint.restore()
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
        if self._emptied:
            findings.is_complete = findings.proof is not None
            findings.bound = len(self._leaving)
        else:
            self._note_most(problem.most_placed(findings.levels))
            findings.is_complete |= findings.unmoved == findings.at_most
        if findings.is_complete:
            return
        self._search_for_best(problem)
        if self.findings.is_complete and not self._emptied and self._limits.compared:
            self._search_for_gentlest(problem)

    def _search_for_best(self, problem: RelaxedProblem) -> None:
        findings = self.findings
        if not self._leaving:
            self._try_nodes(problem)
            self._checkpoint.restore()
            self._steer(problem)
            self._search_parts(problem)
        if findings.proof is None and not self._leaving:
            known = len(findings.plan.moves) if findings.plan and findings.places_all else self._limits.moves + 1
            findings.bound = self._least(problem, known)
            findings.is_complete = findings.places_all and findings.bound >= known
        if not findings.is_complete:
            self._ask_solver(problem)

    def _settle(self) -> None:
        """Lets the scheduler run until it has nothing left to do, and cordons the nodes to empty."""
        self.findings.preempted = settle(self._base, self._seed, self._now)
        for name in self._emptied:
            self._base.add(with_cordon(self._base.node(name), unschedulable=True))

    def _find_leaving(self) -> str | None:
        """Collects the pods that have to leave the nodes to empty; returns why one of them cannot leave."""
        leaving = movers_on(self._base, self._emptied)
        for info in leaving:
            reason = movable.obstacle(info, self._base, self._rules)
            if reason is not None:
                return f"pod {info.pod.key} stays on {info.pod.node_name} because it {reason}"
        self._leaving = [info.pod.key for info in _largest_first(leaving, self._base)]
        self._targets = [*self._targets, *self._leaving]
        return None

    def _find_movable(self) -> None:
        for info in sorted(self._base.infos.values(), key=lambda each: each.pod.key):
            if not info.pod.node_name or not self._base.has_node(info.pod.node_name) or info.pod.key in self._leaving:
                continue
            reason = movable.obstacle(info, self._base, self._rules)
            if reason is None:
                self._movable[info.pod.key] = info
            else:
                self.findings.kept[reason] = self.findings.kept.get(reason, 0) + 1
        self.findings.movable = len(self._movable)

    def _problem(self) -> RelaxedProblem:
        """Returns the relaxed problem; the pods of nodes to empty count as pods that wait."""
        state = self._base
        leaving = [state.infos[key] for key in self._leaving]
        if leaving:
            state = state.copy()
            for info in leaving:
                state.remove_pod(info)
        targets = [self._base.infos[key] for key in self._waiting if not self._base.infos[key].pod.node_name]
        return RelaxedProblem(state, [*targets, *self._created, *leaving], list(self._movable.values()))

    def _trial(self) -> PlanTrial:
        self._checkpoint.restore()
        return PlanTrial(self._base, self._seed, self._now)

    def _carry_out(self, keys: Sequence[str]) -> Score | None:
        """Carries the moves out in this order, and notes the plan if it is the best; None if a move is refused."""
        trial = self._trial()
        acts = (partial(PlanTrial.evict, key=key) for key in keys)
        return self._finish(trial) if all(self._is_done(trial, act) for act in acts) else None

    def _is_done(self, trial: PlanTrial, act: Callable[[PlanTrial], None]) -> bool:
        """Returns True after the act; False if it is refused, and notes the first reason of the search."""
        try:
            act(trial)
        except MoveRefused as error:
            self.findings.refusal = self.findings.refusal or str(error)
            return False
        return True

    def _finish(self, trial: PlanTrial) -> Score | None:
        """Ends the trial, and notes the plan if it is the best so far; None if the scheduler would preempt a pod."""
        try:
            trial.finish(self._created)
        except MoveRefused:
            return None
        return self._noted(trial)

    def _noted(self, trial: PlanTrial) -> Score:
        """Returns the score of a trial at its end, and notes it if it is the best plan so far."""
        infos = trial.state.infos
        placed = {key: info.pod.node_name for key in self._targets if (info := infos.get(key)) and info.pod.node_name}
        counts = Counter(self._priorities[key] for key in placed)
        score = Score(tuple(counts[priority] for priority in self.findings.levels), -len(trial.moves))
        best = self.findings.plan
        is_plan = not self._emptied or (len(placed) == len(self._targets) and not movers_on(trial.state, self._emptied))
        if is_plan and (best is None or score >= best.score):
            carried_out = CarriedOut(list(trial.moves), list(trial.steps), placed, score, _side_of(trial))
            if best is None or (score, carried_out.side) > (best.score, best.side):
                self.findings.plan = carried_out
            if self._progress is not None and trial.moves and (best is None or score > best.score):
                share = f"{len(placed)} of {counted(len(self._targets), 'pod')}"
                self._progress(f"best plan so far: {counted(len(trial.moves), 'move')} for {share}")
        return score

    def _left_seconds(self) -> float:
        return self._ends_at - self._clock.monotonic()

    # ---- without a solver

    def _try_nodes(self, problem: RelaxedProblem) -> None:
        """Looks for a plan that frees room for one target after another, each on the node where that is cheapest."""
        moves: list[str] = []
        score = self._carry_out(moves)
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
        for victims in _cheapest(here):
            if left_seconds() <= 0:
                return None
            keys = [*moves, *(info.pod.key for info in victims)]
            longer = self._carry_out(keys) if len(keys) <= self._limits.moves else None
            if longer is not None and longer.placed > score.placed:
                return keys, longer
        return None

    def _unplaced(self) -> set[str]:
        infos = self._base.infos
        return {key for key in self._targets if key not in infos or not infos[key].pod.node_name}

    def _all_targets(self) -> dict[str, PodInfo]:
        created = {info.pod.key: info for info in self._created}
        return {key: created.get(key) or self._base.infos[key] for key in self._targets}

    def _least(self, problem: RelaxedProblem, known: int) -> int:
        """Returns a lower bound for the moves of a plan that places everything; `known` moves are enough."""
        return max(_least_moves(problem, each, known) for each in problem.classes if each.targets)

    @property
    def _has_solver(self) -> bool:
        return self._limits.uses_solver and solver.is_installed()

    def _steer(self, problem: RelaxedProblem) -> None:
        """Looks for plans that direct pods to nodes, and so make room for one target after another."""
        random = Random(self._seed)  # noqa: S311  shuffles
        left_seconds = part_of(self._left_seconds, _SHARE_OF_STEERING)
        attempts = 0
        while attempts < _MOST_SHUFFLES and not self.findings.places_all and left_seconds() > 0:
            attempts += 1
            packing = self._packing(problem, left_seconds, random)
            packing.make_room(self._limits.moves)
            if self._is_better(packing.steps, packing.placed, problem) and self._carry_out_steps(packing.steps):
                attempts = 0

    def _packing(self, problem: RelaxedProblem, left_seconds: Callable[[], float], random: Random) -> Packing:
        return Packing(problem, random, left_seconds, releases=self.releases)

    def _is_better(self, steps: Sequence[DirectedMove], placed: Iterable[int], problem: RelaxedProblem) -> bool:
        """Returns True if the steps promise more than the best plan."""
        counts = Counter(problem.classes[kind].first.priority for kind in placed)
        levels = [each + counts[level] for each, level in zip(self._already, self.findings.levels, strict=True)]
        best = self.findings.plan
        return bool(steps) and (best is None or Score(tuple(levels), -len(steps) - len(self._leaving)) > best.score)

    def _carry_out_steps(self, steps: Sequence[DirectedMove]) -> bool:
        """Carries the steps out; returns True if they are the best plan."""
        trial = self._trial()
        try:
            for step in steps:
                trial.evict(step.pod, step.target)
                trial.release(step.released)
        except MoveRefused:
            return False
        best = self.findings.plan
        self._finish(trial)
        return self.findings.plan is not best

    def _search_parts(self, problem: RelaxedProblem) -> None:
        """Asks the solver to make room for one target within a few nodes, and repeats that from the result."""
        if not self._has_solver or len(problem.nodes) <= _NODES_OF_A_PART:
            return
        random = Random(self._seed)  # noqa: S311  chooses nodes
        left_seconds = part_of(self._left_seconds, _SHARE_OF_PARTS)
        start: Sequence[DirectedMove] = self.findings.plan.steps if self.findings.plan is not None else ()
        here, is_new = problem, True
        attempts = 0
        while attempts < _MOST_PARTS and not self.findings.places_all and left_seconds() > 0:
            attempts += 1
            if is_new and start:
                self._carry_out_steps(start)
                unplaced = self._unplaced()
                placed = [key for key in self._targets if key not in unplaced]
                here = problem.after((step.pod for step in start), placed)
            steps = self._steps_of_part(here, self._limits.moves - len(start), random)
            is_new = bool(steps) and self._carry_out_steps([*start, *steps])
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
        found = Solver(part, [target.priority], self._seed, most_moves).solve(left_seconds, None)
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
        last = len(findings.plan.moves) - 1 if findings.places_all and findings.plan else self._limits.moves
        last -= len(self._leaving)
        if last < 0:
            return
        self._checkpoint.restore()
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
        model = self._model(problem, most, is_whole=is_whole)
        is_sure = True
        while self._left_seconds() > 0:
            best = findings.plan.score if findings.plan is not None else None
            known = best.placed if best is not None else findings.unmoved
            rest = [a - b for a, b in zip(known, self._already, strict=True)]
            may_place_less = is_last and not (self._emptied or findings.places_all)
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
            self._note_bounds(solution)
            if isinstance(solution, Unsolved):
                return True
            best = findings.plan.score if findings.plan is not None else None
            if best is not None and best >= self._promised(solution):
                findings.is_complete = is_sure and (is_whole or not self._excluded)
                return True
            tried_all = self._try(solution, problem)
            if tried_all is None:
                findings.is_complete = solution.is_best and is_sure
                return True
            if not (tried_all or is_whole):
                return True
            is_sure = is_sure and tried_all and solution.is_best
            model.exclude(solution.evicted)
            self._excluded.append(solution.evicted)
        return True

    def _model(self, problem: RelaxedProblem, most: int, *, is_whole: bool) -> Solver:
        has_first_move = is_whole and not self._leaving
        model = Solver(
            problem, self.findings.levels, self._seed, most, is_whole=is_whole, has_first_move=has_first_move
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
        found = Solver(problem, self.findings.levels, self._seed).solve(left_seconds, None)
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
        random = Random(self._seed)  # noqa: S311  chooses orders
        for _ in range(_MOST_FOLLOWED):
            packing = self._packing(problem, self._left_seconds, random)
            packing.follow(homes, self._limits.moves)
            if self._is_better(packing.steps, packing.placed, problem) and self._carry_out_steps(packing.steps):
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

        tried_all = self._try_orders(solution, score, _MOST_NATURAL_ORDERS, directs=False)
        if tried_all is not None and _is_small(problem):
            self._follow(solution, problem)
            tried_all = None if is_reached() else self._try_orders(solution, score)
        return tried_all

    # ---- among equal plans

    def _search_for_gentlest(self, problem: RelaxedProblem) -> None:
        """Carries out other plans that place as much with as few moves, as far as the limits allow.

        The scheduler chooses all nodes, because a pod is directed to a node only if nothing else leads to a plan.
        """
        best = self.findings.plan
        if best is None or not best.moves or not self._has_solver:
            return
        self._checkpoint.restore()
        is_whole = _is_small(problem)
        model = Solver(problem, self.findings.levels, self._seed, len(best.moves), is_whole=is_whole)
        rest = [a - b for a, b in zip(best.score.placed, self._already, strict=True)]
        unreachable = Score(best.score.placed, 1)  # so that all orders are tried
        most_orders = _MOST_ORDERS_COMPARED if is_whole else _MOST_ORDERS_COMPARED_OF_MANY_NODES
        for _ in range(self._limits.compared if is_whole else min(_MOST_EQUAL_SETS, self._limits.compared)):
            solution = model.solve(self._left_seconds, rest)
            if solution is None:
                self.findings.is_gentlest = is_whole
                return
            if isinstance(solution, Unsolved):
                return
            tried_all = self._try_orders(solution, unreachable, most_orders, directs=False)
            if is_whole and not tried_all:
                return
            model.exclude(solution.evicted)

    def _try_orders(
        self, solution: Solution, score: Score, most: int = _MOST_ORDERS, *, directs: bool = True
    ) -> bool | None:
        """Carries the evictions out in one order after another.

        Args:
            most: how many moves are tried.
            directs: True to direct each pod to one node after another, and to uncordon nodes between the moves, too.

        Returns None if one of them is as good as the solution says, True if none is, and False if there are too many
        orders to try all.
        """
        attempts = 0
        seen: set[object] = set()
        has_time = True

        def extend(trial: PlanTrial, rest: Sequence[str]) -> bool:
            nonlocal attempts, has_time
            if not rest:
                reached = self._finish(trial)
                return reached is not None and reached >= score
            before = Checkpoint(self._base)
            for act, left in self._actions(trial, rest, solution.homes, directs=directs):
                has_time = attempts < most and self._left_seconds() > 0
                if not has_time:
                    return False
                longer = trial.branch()
                if self._is_done(longer, act):
                    attempts += 1
                    if (situation := longer.situation()) not in seen:
                        seen.add(situation)
                        if extend(longer, left):
                            return True
                before.restore()
            return False

        is_found = extend(self._trial(), [*(info.pod.key for info in solution.evicted), *self._leaving])
        return None if is_found else has_time

    def _actions(
        self, trial: PlanTrial, rest: Sequence[str], homes: Mapping[str, str], *, directs: bool
    ) -> Iterator[tuple[Callable[[PlanTrial], None], Sequence[str]]]:
        """Yields what may be done next, each with the pods that are still to be evicted then."""
        for key in rest:
            left = [other for other in rest if other != key]
            yield partial(PlanTrial.evict, key=key), left
            if directs:
                names = sorted(self._base.node_names(), key=lambda name: name != homes.get(key))
                for name in names:
                    yield partial(PlanTrial.evict, key=key, target=name), left
        if directs and self.releases:
            for size in range(1, len(trial.held) + 1):
                for released in combinations(trial.held, size):
                    yield partial(PlanTrial.release, names=released), rest


def _is_small(problem: RelaxedProblem) -> bool:
    """Returns True if the solver is asked about all nodes, and what it proposes is tried in all ways."""
    return len(problem.nodes) <= _MOST_NODES_AT_ONCE


def _side_of(trial: PlanTrial) -> Side:
    infos = trial.state.infos
    priorities = sorted((infos[move.pod].priority for move in trial.moves), reverse=True)
    shares = fragmentation_of(trial.state).values()
    return Side(tuple(-each for each in priorities), -round(sum(shares) / len(shares), 4))


def movers_on(state: ClusterState, names: Sequence[str]) -> list[PodInfo]:
    """Returns the pods that have to leave the nodes to empty them."""
    return [info for name in names for info in state.pods_on(name) if not is_pinned(info.pod)]


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


def _least_moves(problem: RelaxedProblem, pods: PodClass, known: int) -> int:
    """Returns a lower bound for the evictions that make room for all pods to place of a class, if `known` are enough.

    For each number of pods, no more nodes matter than pods are to be placed: those where the fewest have to go.
    """
    count = min(pods.targets, _MOST_COUNTED)
    by_number = []
    for number in range(1, count + 1):
        most = min(known, int(problem.fewest(pods, number).min()) + _MOST_ADDED) - 1
        by_number.append(problem.fewest_exactly(pods, most, number))
    nodes = {place for fewest in by_number for place in np.argsort(fewest, kind="stable")[:count].tolist()}
    least = [0, *([UNREACHABLE] * count)]
    for place in nodes:
        costs = [0, *(int(fewest[place]) for fewest in by_number)]
        least = [min(least[n - more] + costs[more] for more in range(n + 1)) for n in range(count + 1)]
    return least[count]


def _cheapest(problem: RelaxedProblem) -> Iterator[Sequence[PodInfo]]:
    """Yields sets of pods whose eviction frees a node for one of the targets.

    The targets of the highest priority come first, and for each of them the smallest sets.
    """
    rooms = _Rooms(problem)
    for pods in sorted(problem.classes, key=lambda each: -each.first.priority):
        if not pods.targets:
            continue
        fewest = problem.fewest(pods)
        places = [place for place in np.argsort(fewest, kind="stable").tolist() if 0 < fewest[place] < UNREACHABLE]
        choices: list[tuple[int, int, Sequence[int], int, list[PodInfo]]] = []
        for place in places[:_MOST_NODES_LOOKED_AT]:
            for victims in _victims(problem, pods, place, int(fewest[place])):
                victims.sort(key=rooms.of)
                stuck = sum(not rooms.of(info) for info in victims)
                ranks = sorted((info.priority for info in victims), reverse=True)
                choices.append((len(victims) + stuck, stuck, ranks, place, victims))
        choices.sort(key=lambda choice: choice[:4])
        yield from (choice[-1] for choice in choices[:_MOST_NODES_TRIED])


class _Rooms:
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
