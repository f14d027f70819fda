"""Explains the choice of a node: the scores of the two best nodes, or why preemption chose its node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from extender.engine import Decision
from extender.offline.answers import Documented
from extender.preemption import Candidate, Preemption


class ScoreLine(Documented, frozen=True):
    """One plugin's scores for the best node and the next best node.

    Attributes:
        weight: the plugin's weight, by which the points are already multiplied.
        winner: the points of the best node.
        runner_up: the points of the next best node; 0 if there is none.
        difference: the points by which this plugin prefers the winner; negative if it prefers the runner-up.
    """

    weight: int
    winner: int
    runner_up: int
    difference: int


class Waterfall(Documented, frozen=True):
    """The scores of the best node and the next best, plugin by plugin, the greatest difference first.

    Attributes:
        winner: the best node.
        total: the sum of its points.
        ties: the number of nodes with the highest total; the scheduler picks one of these at random.
        runner_up: the best node with a lower total; None if all nodes have the same total.
        runner_up_total: the sum of the runner-up's points; None if there is no runner-up.
        plugins: plugin -> its points for both nodes.
    """

    winner: str
    total: int
    ties: int
    runner_up: str | None
    runner_up_total: int | None
    plugins: Mapping[str, ScoreLine]


def waterfall(decision: Decision) -> Waterfall | None:
    """Compares the scores of the two best nodes; returns None if scores do not decide.

    Scores do not decide if no node fits, or if the pod can run on its nominated node. Among nodes with the same total,
    the first by name is the winner. The runner-up is the best node with a lower total.
    """
    if not decision.feasible or decision.nominated is not None:
        return None
    totals = decision.total.tolist()
    order = sorted(range(len(totals)), key=lambda position: (-totals[position], decision.feasible[position]))
    best = order[0]
    lower = [position for position in order if totals[position] < totals[best]]
    second = lower[0] if lower else None
    lines = {}
    for name, score in decision.scores.items():
        winner, runner_up = int(score.weighted[best]), 0 if second is None else int(score.weighted[second])
        lines[name] = ScoreLine(score.weight, winner, runner_up, winner - runner_up)
    return Waterfall(
        decision.feasible[best],
        totals[best],
        len(order) - len(lower),
        None if second is None else decision.feasible[second],
        None if second is None else totals[second],
        dict(sorted(lines.items(), key=lambda item: (-abs(item[1].difference), item[0]))),
    )


# The (reason, cost) of each rule, in the order of upstream pickOneNodeForPreemption. The lowest cost wins.
_RULES: Sequence[tuple[str, Callable[[Candidate], float]]] = (
    ("it violates the fewest PodDisruptionBudgets", lambda candidate: candidate.num_pdb_violations),
    ("its most important victim has the lowest priority", lambda candidate: candidate.victims[0].priority),
    (
        "the sum of its victims' priorities is the lowest",
        lambda candidate: sum(victim.priority + 2**31 for victim in candidate.victims),
    ),
    ("it has the fewest victims", lambda candidate: len(candidate.victims)),
    ("its most important victim started last", lambda candidate: -candidate.victims[0].started_seconds),
)
_EQUAL = "it comes first among equal nodes"


def decided_by(preemption: Preemption) -> str:
    """Returns the reason why preemption chose its node; empty if there was no other candidate."""
    remaining = list(preemption.candidates.values())
    if preemption.nominated_node is None or len(remaining) < 2:
        return ""
    reason = _EQUAL
    for rule, cost in _RULES:
        costs = [cost(candidate) for candidate in remaining]
        cheapest = [each for each, its_cost in zip(remaining, costs, strict=True) if its_cost == min(costs)]
        if len(cheapest) < len(remaining):
            reason = rule
        remaining = cheapest
        if len(remaining) == 1:
            break
    return reason
