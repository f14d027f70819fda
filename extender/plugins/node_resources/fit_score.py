"""NodeResourcesFit: nodes with more left over are preferred, or fuller ones, or those nearest to a wanted fill."""

from __future__ import annotations

from dataclasses import dataclass

from extender.framework.rules import Scorer, Scores
from extender.plugins.node_resources.allocation import CPU_AND_MEMORY, ResourceWeights, allocation
from extender.plugins.node_resources.cached_scores import cached_scores
from extender.plugins.node_resources.scoring_strategies import Strategy, least_allocated
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NAME = "NodeResourcesFit"


@dataclass(frozen=True, slots=True)
class NodeResourcesFit:
    """Upstream noderesources.Fit, Score, with its argument scoringStrategy."""

    strategy: Strategy = least_allocated
    resources: ResourceWeights = CPU_AND_MEMORY
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        return _Scorer(self.strategy, self.resources, pod, table)


class _Scorer(Scorer):
    def __init__(self, strategy: Strategy, resources: ResourceWeights, pod: PodInfo, table: Table) -> None:
        self._strategy, self._resources, self._table = strategy, resources, table
        self._wanted = pod.requests_with_defaults

    def map(self, rows: Rows) -> Scores:
        return cached_scores(self._strategy, self._resources, self._wanted, self._table, rows, self._work_out)

    def _work_out(self, rows: Rows) -> Scores:
        return self._strategy(allocation(self._resources, self._wanted, self._table, rows, nonzero=True))
