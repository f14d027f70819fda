"""How far preemption looks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CandidateLimits:
    """How many candidates are enough, of the nodes where preemption may help (upstream DefaultPreemptionArgs).

    The search ends at the larger of both numbers, if one of the candidates violates no PodDisruptionBudget.
    """

    min_nodes_percentage: int = 10
    min_nodes_absolute: int = 100

    def enough(self, nodes: int) -> int:
        return min(nodes, max(nodes * self.min_nodes_percentage // 100, self.min_nodes_absolute))


DEFAULT_LIMITS = CandidateLimits()
ALL_NODES = CandidateLimits(min_nodes_percentage=100)
