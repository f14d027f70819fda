"""Implements prioritize, which returns a score of 0..10 for each node, and a filter that returns the best node only.

That filter saves time, because kube-scheduler neither scores nor calls prioritize if only one node remains.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from random import Random

import numpy as np
from msgspec.structs import replace

from extender.cache.cache import Cache
from extender.errors import RuleFailed
from extender.extender_v1.messages import (
    MAX_EXTENDER_PRIORITY,
    ExtenderArgs,
    ExtenderFilterResult,
    HostPriorityList,
    NamesReader,
    decode_args,
    encode_priorities,
    validate_prioritize,
)
from extender.framework.find_fit import score
from extender.framework.profile import Profile, Profiles
from extender.framework.rules import MAX_SCORE, Scores
from extender.plugins.device_scoring import scored_by_first_fit
from extender.runtime.clock import NO_LIMIT, Deadline, TimeLimit
from extender.table import PodInfo
from extender.verbs.filter import Filter, requested_nodes
from extender.verbs.verb import Summary


class Scale(Enum):
    """The ways to convert a node's weighted total score to a score of 0..10."""

    RELATIVE = "relative"
    """The best requested node gets 10 and the worst 0, so that the full range shows their differences."""
    ABSOLUTE = "absolute"
    """A node that gets the highest possible score from every priority gets 10."""


@dataclass(frozen=True, slots=True, eq=False)
class Prioritize:
    """The prioritize verb. Upstream counterpart: HTTPExtender.Prioritize."""

    name = "prioritize"

    cache: Cache
    profiles: Profiles
    scale: Scale = Scale.RELATIVE
    reader: NamesReader = field(default_factory=NamesReader)
    limit: TimeLimit = NO_LIMIT

    def decode(self, body: bytes) -> ExtenderArgs:
        return decode_args(body, self.reader)

    def decide(self, request: ExtenderArgs) -> HostPriorityList:
        names, totals = self.totals(request, self.limit.begin())
        return HostPriorityList(names, self._scaled(totals, self.profiles.of(request.pod)))

    def totals(self, request: ExtenderArgs, deadline: Deadline) -> tuple[list[str], Scores]:
        """Returns the distinct names of the requested nodes, and their weighted total scores as int64[names].

        Raises DeadlineExceeded.
        """
        info = self.cache.info_of(request.pod) or PodInfo(request.pod)
        profile = scored_by_first_fit(self.profiles.of(request.pod))  # kube-scheduler will choose the devices
        with self.cache.snapshot(self.name, deadline) as table:
            nodes = requested_nodes(request, table)
            totals = np.zeros(len(nodes.names), np.int64)
            try:
                for part in nodes.parts:
                    totals[part.positions] = score(profile, info, part.table, part.rows).total
            except RuleFailed:  # if a rule fails, kube-scheduler rejects the pod before it calls an extender
                totals[:] = 0
        return nodes.names, totals

    def allow_all(self, request: ExtenderArgs) -> HostPriorityList:
        names = list(dict.fromkeys(request.names))
        return HostPriorityList(names, np.zeros(len(names), np.int64))

    def failed(self, request: ExtenderArgs, message: str) -> None:
        return None

    def encode(self, request: ExtenderArgs, result: HostPriorityList) -> bytes:
        validate_prioritize(request.names, result)
        return encode_priorities(result)

    def summary(self, request: ExtenderArgs, result: HostPriorityList) -> Summary:
        return Summary(len(request.names), len(result.hosts))

    def _scaled(self, totals: Scores, profile: Profile) -> Scores:
        if not len(totals):
            return totals
        if self.scale is Scale.RELATIVE:
            return _spread(totals, int(np.minimum.reduce(totals)), int(np.maximum.reduce(totals)))
        highest = MAX_SCORE * sum(weighted.weight for weighted in profile.priorities)
        return _spread(totals, 0, highest)


def _spread(totals: Scores, lowest: int, highest: int) -> Scores:
    """Returns the totals scaled linearly, so that `lowest` becomes 0 and `highest` becomes 10."""
    if highest <= lowest:
        return np.full(len(totals), MAX_EXTENDER_PRIORITY, np.int64)
    return (totals - lowest) * MAX_EXTENDER_PRIORITY // (highest - lowest)


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
