"""Carries plans out on one cluster, one after another, and notes the best of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import combinations

from extender.offline.plan.findings import CarriedOut, Findings, Progress, Score, Side
from extender.offline.plan.trial import Checkpoint, DirectedMove, MoveRefused, PlanTrial
from extender.offline.replicas import is_pinned
from extender.offline.state import ClusterState
from extender.offline.what_if.result import fragmentation_of
from extender.runtime.text import counted
from extender.table import PodInfo

MOST_ORDERS = 1000


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
    seed: int
    now: datetime
    progress: Progress | None
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
        return PlanTrial(self.base, self.seed, self.now)

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
        """Ends the trial, and notes the plan if it is the best so far; None if the scheduler would preempt a pod."""
        try:
            trial.finish(self.created)
        except MoveRefused:
            return None
        return self._noted(trial)

    def _noted(self, trial: PlanTrial) -> Score:
        """Returns the score of a trial at its end, and notes it if it is the best plan so far."""
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
            if self.progress is not None and trial.moves and (best is None or score > best.score):
                share = f"{len(placed)} of {counted(len(self.priorities), 'pod')}"
                self.progress(f"best plan so far: {counted(len(trial.moves), 'move')} for {share}")
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
