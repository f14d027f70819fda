"""filter with a single node in its answer: the best one that can take the pod.

kube-scheduler neither scores nor calls prioritize if only one node remains.
"""

from __future__ import annotations

from random import Random

import numpy as np
from msgspec.structs import replace

from extender.extender_v1.types import ExtenderArgs, ExtenderFilterResult
from extender.runtime.clock import NO_LIMIT, TimeLimit
from extender.verbs.filter import Filter
from extender.verbs.prioritize import Prioritize


class FilterBest:
    """Decides as filter, and then chooses the node with the highest score of prioritize.

    Upstream counterpart: HTTPExtender.Filter, prioritizeNodes, selectHost.
    """

    def __init__(
        self, feasible: Filter, prioritize: Prioritize, limit: TimeLimit = NO_LIMIT, random: Random | None = None
    ) -> None:
        """`random` breaks ties."""
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
        """Returns the verdict on each node, and the best of those that passed."""
        deadline = self._limit.begin()
        result = self._filter.decide(request)
        if len(result.passed) < 2:
            return result
        feasible = replace(request, node_names=result.node_names, nodes=result.nodes)
        names, totals = self._prioritize.totals(feasible, deadline)
        best = np.flatnonzero(totals == np.maximum.reduce(totals))
        return replace(result, best=names[best[self._random.randrange(len(best))]])
