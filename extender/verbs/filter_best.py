"""filter, where it answers one node: the best that can take the pod.

kube-scheduler neither scores nor calls prioritize where one node is left.
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
    """A Verb that decides as filter, and chooses as kube-scheduler would by the scores of prioritize alone.

    Upstream counterpart: HTTPExtender.Filter, prioritizeNodes, selectHost.
    """

    def __init__(
        self, feasible: Filter, prioritize: Prioritize, limit: TimeLimit = NO_LIMIT, random: Random | None = None
    ) -> None:
        """`random` breaks ties."""
        self.name, self.decode, self.summary = feasible.name, feasible.decode, feasible.summary
        self.allow_all, self.failed, self.encode = feasible.allow_all, feasible.failed, feasible.encode
        self._filter, self._prioritize, self._limit = feasible, prioritize, limit
        self._random = random or Random()  # noqa: S311  ties between nodes

    def decide(self, request: ExtenderArgs) -> ExtenderFilterResult:
        """Returns the verdict on each node, and the best of those that passed."""
        deadline = self._limit.begin()
        result = self._filter.decide(request)
        if len(result.passed) < 2:
            return result
        asked = replace(request, node_names=result.node_names, nodes=result.nodes)
        names, totals = self._prioritize.totals(asked, deadline)
        best = np.flatnonzero(totals == np.maximum.reduce(totals))
        return replace(result, best=names[best[self._random.randrange(len(best))]])
