"""The choice between nodes: the winner's scores beside the runner-up's, and the rule that picks whom to preempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from extender.offline.decision import Decision
from extender.preemption import Candidate, Preemption


@dataclass(frozen=True, slots=True)
class ScoreLine:
    """One plugin's weighted scores for the winner and the runner-up."""

    plugin: str
    weight: int
    winner: int
    runner_up: int

    @property
    def difference(self) -> int:
        """By how much it is for the winner."""
        return self.winner - self.runner_up


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The scores of the best node and the next, plugin by plugin, the greatest difference first.

    Attributes:
        ties: how many nodes have the highest total; the scheduler takes one of them at random.
        runner_up: the best of the others; empty where there is none.
    """

    winner: str
    total: int
    ties: int
    runner_up: str
    runner_up_total: int
    lines: Sequence[ScoreLine]

    def to_dict(self) -> dict[str, Any]:
        """{"winner", "total", "ties", "runnerUp", "runnerUpTotal", "plugins": {plugin: {"weight", "winner", ...}}}."""
        plugins = {
            each.plugin: {
                "weight": each.weight,
                "winner": each.winner,
                "runnerUp": each.runner_up,
                "difference": each.difference,
            }
            for each in self.lines
        }
        return {
            "winner": self.winner,
            "total": self.total,
            "ties": self.ties,
            "runnerUp": self.runner_up or None,
            "runnerUpTotal": self.runner_up_total if self.runner_up else None,
            "plugins": plugins,
        }


def waterfall(decision: Decision) -> Waterfall | None:
    """The comparison of the first two nodes; None where no node can take the pod.

    Of nodes with the same total the first by name wins; the runner-up is the best of those with less.
    """
    if not decision.feasible:
        return None
    total = decision.total.tolist()
    order = sorted(range(len(total)), key=lambda at: (-total[at], decision.feasible[at]))
    best = order[0]
    behind = [at for at in order if total[at] < total[best]]
    other = behind[0] if behind else None
    lines = [
        ScoreLine(name, score.weight, int(score.weighted[best]), 0 if other is None else int(score.weighted[other]))
        for name, score in decision.scores.items()
    ]
    lines.sort(key=lambda each: (-abs(each.difference), each.plugin))
    return Waterfall(
        decision.feasible[best],
        total[best],
        len(order) - len(behind),
        "" if other is None else decision.feasible[other],
        0 if other is None else total[other],
        lines,
    )


# Upstream preemption.pickOneNodeForPreemption, in its order: the lowest wins.
_RULES: Sequence[tuple[str, Callable[[Candidate], float]]] = (
    ("the fewest violations of PodDisruptionBudgets", lambda each: each.num_pdb_violations),
    ("the lowest of the highest victims' priorities", lambda each: each.victims[0].priority),
    ("the lowest sum of priorities", lambda each: sum(victim.priority + 2**31 for victim in each.victims)),
    ("the fewest victims", lambda each: len(each.victims)),
    ("the latest start of the most important victim", lambda each: -each.victims[0].started_seconds),
)


def decided_by(preemption: Preemption) -> str:
    """The rule by which the nominated node was preferred to the last of the others; empty without a choice."""
    left = list(preemption.candidates.values())
    if preemption.nominated_node is None or len(left) < 2:
        return ""
    decisive = "the order of nodes, for they are equal"
    for rule, cost in _RULES:
        costs = [cost(each) for each in left]
        kept = [each for each, its in zip(left, costs, strict=True) if its == min(costs)]
        if len(kept) < len(left):
            decisive = rule
        left = kept
        if len(left) == 1:
            break
    return decisive
