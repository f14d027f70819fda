"""Carries plans out on one cluster, one after another, and keeps what a search finds: the best plan, and its limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from typing import NamedTuple

from extender.offline.plan.trial import Checkpoint, DirectedMove, KeepRules, Move, MoveRefused, PlanTrial
from extender.offline.replicas import is_pinned
from extender.offline.state import ClusterState
from extender.offline.what_if.result import fragmentation_of
from extender.offline.what_if.simulation import Eviction
from extender.runtime.clock import Clock, SystemClock
from extender.runtime.text import counted
from extender.table import PodInfo

Progress = Callable[[str], None]

MOST_MOVES = 20
SEARCH_SECONDS = 10.0
MOST_ORDERS = 1000


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
class SearchOptions:
    """Holds what a search may do, and how long.

    Attributes:
        rules: the pods that may be evicted.
        seconds: when to stop with the best plan so far.
        moves: the most moves of a plan.
        uses_solver: False to use the heuristic only, as if no solver were installed.
        compared: how many sets of evictions to try at most, to find a plan that is as good and gentler.
        tries: how many plans to carry out at most; None for any number. If it is given, the search is short: it directs
            no pod to a node.
        progress: called with each plan that is the best so far, in words.
    """

    rules: KeepRules = field(default_factory=KeepRules)
    seconds: float = SEARCH_SECONDS
    moves: int = MOST_MOVES
    uses_solver: bool = True
    compared: int = 0
    tries: int | None = None
    seed: int = 0
    clock: Clock = field(default_factory=SystemClock)
    progress: Progress | None = None

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC)

    def begin(self) -> Callable[[], float]:
        """Begins the time of the search; returns a function that says how many seconds of it are left."""
        ends_at = self.clock.monotonic() + self.seconds
        return lambda: ends_at - self.clock.monotonic()


@dataclass(slots=True)
class Attempts:
    """The plans that are carried out during a search; each begins with the cluster as it was at first.

    Attributes:
        base: the cluster, which every attempt changes.
        priorities: the pods to place -> their priorities.
        created: the pods to create when the moves are done.
        emptied: nodes that have to be empty at the end; a plan that leaves pods on them does not count.
        releases: True if nodes may be uncordoned before the last move.
        findings: gets the best plan, and the first reason why an eviction is refused.
        count: how many plans were begun.
    """

    base: ClusterState
    priorities: Mapping[str, int]
    created: Sequence[PodInfo]
    emptied: Sequence[str]
    releases: bool
    findings: Findings
    options: SearchOptions
    now: datetime
    count: int = 0
    _start: Checkpoint = field(init=False)

    def __post_init__(self) -> None:
        self._start = Checkpoint(self.base)

    def restore(self) -> None:
        """Makes the cluster as it was at first."""
        self._start.restore()

    def _trial(self) -> PlanTrial:
        self.count += 1
        self._start.restore()
        return PlanTrial(self.base, self.options.seed, self.now)

    def carry_out(self, keys: Sequence[str]) -> Score | None:
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
        """Ends the trial, and notes it if it is the best plan so far.

        Returns its score; None if the scheduler would preempt a pod.
        """
        try:
            trial.finish(self.created)
        except MoveRefused:
            return None
        infos = trial.state.infos
        placed = {key: info.pod.node_name for key in self.priorities if (info := infos.get(key)) and info.pod.node_name}
        counts = Counter(self.priorities[key] for key in placed)
        score = Score(tuple(counts[priority] for priority in self.findings.levels), -len(trial.moves))
        best = self.findings.plan
        is_plan = not self.emptied or (len(placed) == len(self.priorities) and not movers_on(trial.state, self.emptied))
        if is_plan and (best is None or score >= best.score):
            carried_out = CarriedOut(list(trial.moves), list(trial.steps), placed, score, _side_of(trial))
            if best is None or (score, carried_out.side) > (best.score, best.side):
                self.findings.plan = carried_out
            progress = self.options.progress
            if progress is not None and trial.moves and (best is None or score > best.score):
                share = f"{len(placed)} of {counted(len(self.priorities), 'pod')}"
                progress(f"best plan so far: {counted(len(trial.moves), 'move')} for {share}")
        return score

    def carry_out_steps(self, steps: Sequence[DirectedMove]) -> bool:
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

    def try_orders(
        self,
        evicted: Sequence[str],
        homes: Mapping[str, str],
        score: Score,
        left_seconds: Callable[[], float],
        most: int = MOST_ORDERS,
        *,
        directs: bool = True,
    ) -> bool | None:
        """Carries evictions out in one order after another, until a plan has the score.

        Args:
            homes: pod to evict -> the node to which it is directed first.
            most: how many moves are tried.
            directs: True to direct each pod to one node after another, and to uncordon nodes between the moves, too.

        Returns None if one of the plans has the score, True if none has, and False if there are too many orders to try
        all.
        """
        attempts = 0
        seen: set[object] = set()
        has_time = True

        def extend(trial: PlanTrial, rest: Sequence[str]) -> bool:
            nonlocal attempts, has_time
            if not rest:
                reached = self._finish(trial)
                return reached is not None and reached >= score
            before = Checkpoint(self.base)
            for act, left in self._actions(trial, rest, homes, directs=directs):
                has_time = attempts < most and left_seconds() > 0
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

        is_found = extend(self._trial(), evicted)
        return None if is_found else has_time

    def _actions(
        self, trial: PlanTrial, rest: Sequence[str], homes: Mapping[str, str], *, directs: bool
    ) -> Iterator[tuple[Callable[[PlanTrial], None], Sequence[str]]]:
        """Yields what may be done next, each with the pods that are still to be evicted then."""
        for key in rest:
            left = [other for other in rest if other != key]
            yield partial(PlanTrial.evict, key=key), left
            if directs:
                names = sorted(self.base.node_names(), key=lambda name: name != homes.get(key))
                for name in names:
                    yield partial(PlanTrial.evict, key=key, target=name), left
        if directs and self.releases:
            for size in range(1, len(trial.held) + 1):
                for released in combinations(trial.held, size):
                    yield partial(PlanTrial.release, names=released), rest


def _side_of(trial: PlanTrial) -> Side:
    infos = trial.state.infos
    priorities = sorted((infos[move.pod].priority for move in trial.moves), reverse=True)
    shares = fragmentation_of(trial.state).values()
    return Side(tuple(-each for each in priorities), -round(sum(shares) / len(shares), 4))


def movers_on(state: ClusterState, names: Sequence[str]) -> list[PodInfo]:
    """Returns the pods that have to leave the nodes to empty them."""
    return [info for name in names for info in state.pods_on(name) if not is_pinned(info.pod)]
