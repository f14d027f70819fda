"""Searches for the smallest plan: a heuristic finds a first one, and a solver improves on it until nothing is smaller.

    search
      1. let the scheduler place what it can without any move; if nodes are to be emptied, with the moves of their pods
      2. compare sums: they may show that no arrangement of the movable pods places all targets
      3. try, for each pod to place, the nodes where the fewest evictions free enough
      4. ask the solver for the cheapest evictions of the relaxed problem, carry them out in every order, and exclude
         them if no order works; the first that works is the smallest plan

Steps 3 and 4 call `PlanTrial`, so that every plan has been decided step by step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

import numpy as np

from extender.offline.controllers.replicas import is_pinned
from extender.offline.controllers.workloads import in_order
from extender.offline.explain.pod_terms import with_cordon
from extender.offline.plan import movable, solver
from extender.offline.plan.model import Ints, PodClass, RelaxedProblem
from extender.offline.plan.solver import Solver, Unsolved
from extender.offline.plan.trial import MoveRefused, PlanTrial
from extender.offline.state import ClusterState
from extender.offline.what_if import budgets
from extender.offline.what_if.simulation import Eviction, Simulation
from extender.runtime.clock import INTERRUPTIONS, Clock
from extender.table import PodInfo

MOST_MOVES = 20
SEARCH_SECONDS = 10.0
_MOST_NODES_TRIED = 25
_MOST_ORDERS = 720
_NONE_MOVABLE = "no pod may be evicted, and without that the scheduler finds no node"
_BY_SOLVER = (
    "no arrangement of the movable pods fits: the solver has proved it for requests, host ports, taints and node"
    " affinity of all pods together"
)


@dataclass(slots=True)
class Findings:
    """The result of a search, also of one that was interrupted.

    Attributes:
        plan: the smallest plan found, carried out; None if none was found.
        bound: no plan has fewer moves; 0 if nothing is known.
        proof: why no plan can exist; None if that is not proved.
        is_complete: True if the search has ended because there is nothing left to try. Without a plan and without a
            proof, an arrangement of the pods exists, but no order of evictions leads to it.
        is_interrupted: True if a signal has ended the search; `plan` is the best plan until then.
        preempted: the pods that the scheduler preempts before any move.
        kept: reason -> the number of pods that no plan may evict for it.
        movable: the number of pods that a plan may evict.
    """

    plan: PlanTrial | None = None
    bound: int = 0
    proof: str | None = None
    is_complete: bool = False
    is_interrupted: bool = False
    preempted: Sequence[Eviction] = ()
    kept: dict[str, int] = field(default_factory=dict)
    movable: int = 0


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """The limits of a search.

    Attributes:
        seconds: when to stop with the best plan so far.
        moves: the most moves of a plan.
        uses_solver: False to use the heuristic only, as if no solver were installed.
    """

    seconds: float = SEARCH_SECONDS
    moves: int = MOST_MOVES
    uses_solver: bool = True


def search(
    state: ClusterState,
    waiting: Sequence[str],
    created: Sequence[PodInfo],
    rules: movable.KeepRules,
    limits: SearchLimits,
    clock: Clock,
    seed: int = 0,
    emptied: Sequence[str] = (),
) -> Findings:
    """Searches for the fewest moves after which the pods are placed, and some nodes are empty.

    Args:
        waiting: pods of the cluster that wait for a node, as `namespace/name`.
        created: pods that do not exist yet; they are created when the moves are done.
        emptied: nodes that all pods have to leave, except those of DaemonSets and static pods. They stay cordoned.
    """
    return _Search(state, waiting, created, rules, limits, clock, seed, emptied).run()


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
    ) -> None:
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
        self._movable: dict[str, PodInfo] = {}
        self.findings = Findings()

    def run(self) -> Findings:
        findings = self.findings
        try:
            self._settle()
            findings.proof = self._find_leaving()
            if findings.proof is not None or self._is_plan(self._carried_out(self._leaving)):
                findings.is_complete = True
                return findings
            self._find_movable()
            problem = self._problem()
            is_stuck = not (self._movable or self._leaving)
            findings.proof = self._gated() or problem.shortage() or (_NONE_MOVABLE if is_stuck else None)
            findings.bound = len(self._leaving)
            if findings.proof is not None:
                findings.is_complete = True
            elif findings.bound <= self._limits.moves:
                self._try_nodes()
                self._ask_solver(problem)
        except INTERRUPTIONS:
            if findings.plan is None:
                raise
            findings.is_interrupted = True
        return findings

    def _settle(self) -> None:
        """Cordons the nodes to empty, and lets the scheduler run until it has nothing left to do."""
        for name in self._emptied:
            self._base.add(with_cordon(self._base.node(name), unschedulable=True))
        simulation = Simulation(self._base, self._seed, now=self._now)
        simulation.add(in_order(self._base.pending))
        simulation.settle()
        budgets.observe(self._base, every=False)
        self.findings.preempted = simulation.log.evictions

    def _find_leaving(self) -> str | None:
        """Collects the pods that have to leave the nodes to empty; returns why one of them cannot leave."""
        leaving = _movers_on(self._base, self._emptied)
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

    def _gated(self) -> str | None:
        gated = [info.pod.key for info in self._all_targets() if info.pod.spec.scheduling_gates]
        return f"pod {gated[0]} has scheduling gates: no scheduler tries it until they are removed" if gated else None

    def _trial(self) -> PlanTrial:
        return PlanTrial(self._base.copy(), self._seed, self._now)

    def _carried_out(self, keys: Sequence[str]) -> PlanTrial | None:
        """Returns the cluster after the moves in this order; None if one of them is refused."""
        trial = self._trial()
        try:
            for key in keys:
                trial.evict(key)
            trial.finish(self._created)
        except MoveRefused:
            return None
        return trial

    def _is_plan(self, trial: PlanTrial | None) -> bool:
        """Returns True if everything is placed at the end of the trial; notes it if it is the best plan so far."""
        if trial is None or trial.unplaced(self._targets) or _movers_on(trial.state, self._emptied):
            return False
        best = self.findings.plan
        if best is None or len(trial.moves) < len(best.moves):
            self.findings.plan = trial
        return True

    def _ends_well(self, trial: PlanTrial) -> bool:
        """Ends the trial, and returns True if it is a plan."""
        try:
            trial.finish(self._created)
        except MoveRefused:
            return False
        return self._is_plan(trial)

    def _left_seconds(self) -> float:
        return self._ends_at - self._clock.monotonic()

    # ---- without a solver

    def _try_nodes(self) -> None:
        """Looks for a plan that frees room for one target after another, each on the node where that is cheapest."""
        trial: PlanTrial | None = None if self._leaving else self._carried_out(()) or self._trial()
        while trial is not None and not self._is_plan(trial):
            trial = self._longer(trial)

    def _longer(self, trial: PlanTrial) -> PlanTrial | None:
        """Returns a trial with more moves that places more targets than this one; None if none is found."""
        moves = [move.pod for move in trial.moves]
        unplaced = set(trial.unplaced(self._targets))
        movers = [key for key in self._movable if key not in moves]
        rest = [info for info in self._all_targets() if info.pod.key in unplaced]
        for victims in _cheapest(RelaxedProblem(trial.state, rest, [trial.state.infos[key] for key in movers])):
            if self._left_seconds() <= 0:
                return None
            keys = [*moves, *(info.pod.key for info in victims)]
            longer = self._carried_out(keys) if len(keys) <= self._limits.moves else None
            if longer is not None and len(longer.unplaced(self._targets)) < len(unplaced):
                return longer
        return None

    def _all_targets(self) -> list[PodInfo]:
        return [*(self._base.infos[key] for key in self._waiting), *self._created]

    # ---- with a solver

    def _ask_solver(self, problem: RelaxedProblem) -> None:
        """Tries the cheapest evictions of the relaxed problem until some work, or until there are none left."""
        if not (self._limits.uses_solver and solver.is_installed()):
            return
        findings = self.findings
        model = Solver(problem, self._seed)
        excluded = False
        while (left := self._left_seconds()) > 0:
            solution = model.solve(left)
            if solution is None:
                findings.is_complete = True
                if findings.plan is None and not excluded:
                    findings.proof = _BY_SOLVER
                return
            findings.bound = max(findings.bound, solution.bound + len(self._leaving))
            best = findings.plan
            if best is not None and findings.bound >= len(best.moves):
                findings.is_complete = True
                return
            if findings.bound > self._limits.moves:
                return
            if isinstance(solution, Unsolved):
                return
            tried_all = self._try_orders([*(info.pod.key for info in solution.evicted), *self._leaving])
            if tried_all is None:
                findings.is_complete = solution.is_best
                return
            if not tried_all:
                return
            model.exclude(solution.evicted)
            excluded = True

    def _try_orders(self, keys: Sequence[str]) -> bool | None:
        """Carries the evictions out in one order after another.

        Returns None if one of them is a plan, True if none is, and False if there are too many orders to try all.
        """
        attempts = 0

        def extend(trial: PlanTrial, rest: Sequence[str]) -> bool:
            nonlocal attempts
            if not rest:
                return self._ends_well(trial)
            for key in rest:
                attempts += 1
                if attempts > _MOST_ORDERS or self._left_seconds() <= 0:
                    return False
                longer = trial.copy()
                try:
                    longer.evict(key)
                except MoveRefused:
                    continue
                if extend(longer, [other for other in rest if other != key]):
                    return True
            return False

        if self._is_plan(self._carried_out(keys)) or extend(self._trial(), keys):
            return None
        return attempts <= _MOST_ORDERS and self._left_seconds() > 0


def _movers_on(state: ClusterState, names: Sequence[str]) -> list[PodInfo]:
    """Returns the pods that have to leave the nodes to empty them."""
    return [info for name in names for info in state.pods_on(name) if not is_pinned(info.pod)]


def _largest_first(infos: Sequence[PodInfo], state: ClusterState) -> list[PodInfo]:
    """Returns the pods in the order in which a node is emptied: those that need the largest part of a node first."""
    columns = state.table.nodes
    most = np.maximum(columns.allocatable[:, columns.rows].max(axis=1, initial=1), 1)

    def share(info: PodInfo) -> float:
        return float((columns.vector(info.footprint) / most).max())

    return sorted(infos, key=lambda info: (-share(info), info.pod.key))


def _cheapest(problem: RelaxedProblem) -> Iterator[Sequence[PodInfo]]:
    """Yields sets of pods whose eviction frees a node for one of the targets, the smallest sets first."""
    choices: list[tuple[int, int, int, list[PodInfo]]] = []
    for pods in problem.classes:
        for place in pods.allowed.tolist() if pods.targets else ():
            victims = _victims(problem, pods, place)
            if victims:
                choices.append((len(victims), sum(info.priority for info in victims), place, victims))
    choices.sort(key=lambda choice: choice[:3])
    for _, _, _, victims in islice(choices, _MOST_NODES_TRIED):
        yield victims


def _victims(problem: RelaxedProblem, pods: PodClass, place: int) -> list[PodInfo]:
    """Returns few movable pods of a node that free enough for one pod of the class; none if all are not enough."""
    short = pods.takes - problem.free[:, place]
    movers = [(each.frees, info) for each in problem.classes for info in each.movers.get(place, ())]
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
