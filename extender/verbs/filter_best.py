"""Implements a filter that returns a single node: the best one that can take the pod.

This saves time, because kube-scheduler neither scores nor calls prioritize if only one node remains.
"""

from __future__ import annotations

from random import Random

import numpy as np
from msgspec.structs import replace

from extender.extender_v1.messages import ExtenderArgs, ExtenderFilterResult
from extender.runtime.clock import NO_LIMIT, TimeLimit
from extender.verbs.filter import Filter
from extender.verbs.prioritize import Prioritize


class FilterBest:
    """Filters as Filter does, and then keeps only the node to which Prioritize gives the highest score.

    Upstream counterpart: HTTPExtender.Filter, prioritizeNodes, selectHost.
    """

    def __init__(
        self, feasible: Filter, prioritize: Prioritize, limit: TimeLimit = NO_LIMIT, random: Random | None = None
    ) -> None:
        """`random` chooses one of the best nodes if several have the same score."""
        self.name = feasible.name
        self.decode = feasible.decode
        self.summary = feasible.summary
        self.allow_all = feasible.allow_all
        self.failed = feasible.failed
        self.encode = feasible.encode
        self._filter = feasible
        self._prioritize = prioritize
        self._limit = limit
        self._random = random or Random()  # noqa: S311  ties between nodes

    def decide(self, request: ExtenderArgs) -> ExtenderFilterResult:
        """Returns Filter's answer, in which `best` names the node with the highest score."""
        deadline = self._limit.begin()
        result = self._filter.decide(request)
        if len(result.passed) < 2 or result.best:
            return result
        feasible = replace(request, node_names=result.node_names, nodes=result.nodes)
        names, totals = self._prioritize.totals(feasible, deadline)
        best = np.flatnonzero(totals == np.maximum.reduce(totals))
        return replace(result, best=names[best[self._random.randrange(len(best))]])
