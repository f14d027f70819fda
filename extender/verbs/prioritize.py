"""prioritize: how good each node is, as an integer of 0..10."""

from __future__ import annotations

from enum import Enum

import numpy as np

from extender.engine.algorithm import Profile, score
from extender.engine.profiles import Profiles
from extender.engine.rules import MAX_SCORE, Scores
from extender.state.cache import Cache
from extender.table import PodInfo
from extender.verbs.asked import asked
from extender.verbs.validation import MAX_EXTENDER_PRIORITY, validate_prioritize
from extender.verbs.verb import Summary
from extender.wire import ExtenderArgs, HostPriority, decode_args, encode


class Scale(Enum):
    """How the engine's weighted total becomes 0..10."""

    RELATIVE = "relative"
    """The best of the nodes asked about gets 10 and the worst 0: eleven steps for what tells them apart."""
    ABSOLUTE = "absolute"
    """10 is what a node would get that every priority finds perfect."""


class Prioritize:
    """Upstream counterpart: HTTPExtender.Prioritize."""

    name = "prioritize"

    def __init__(self, cache: Cache, profiles: Profiles, scale: Scale = Scale.RELATIVE) -> None:
        self._cache, self._profiles, self._scale = cache, profiles, scale

    def decode(self, body: bytes) -> ExtenderArgs:
        return decode_args(body)

    def decide(self, request: ExtenderArgs) -> list[HostPriority]:
        info = PodInfo(request.pod)
        profile = self._profiles.of(request.pod)
        with self._cache.snapshot(self.name) as table:
            nodes = asked(request, table)
            totals = np.zeros(len(nodes.names), np.int64)
            for part in nodes.parts:
                totals[part.positions] = score(profile, info, part.table, part.rows).total
        scaled = self._scaled(totals, profile)
        return [HostPriority(host, points) for host, points in zip(nodes.names, scaled.tolist(), strict=True)]

    def passed(self, request: ExtenderArgs) -> list[HostPriority]:
        return [HostPriority(name, 0) for name in dict.fromkeys(request.names)]

    def failed(self, request: ExtenderArgs, message: str) -> None:
        return None

    def encode(self, request: ExtenderArgs, result: list[HostPriority]) -> bytes:
        validate_prioritize(request.names, result)
        return encode(result)

    def summary(self, request: ExtenderArgs, result: list[HostPriority]) -> Summary:
        pod = request.pod
        return Summary(pod.uid, pod.namespace, pod.name, len(request.names), len(result))

    def _scaled(self, totals: Scores, profile: Profile) -> Scores:
        if not len(totals):
            return totals
        lowest, highest = 0, MAX_SCORE * sum(weighted.weight for weighted in profile.priorities)
        if self._scale is Scale.RELATIVE:
            lowest, highest = int(totals.min()), int(totals.max())
        if highest <= lowest:
            return np.full(len(totals), MAX_EXTENDER_PRIORITY, np.int64)
        scaled: Scores = (totals - lowest) * MAX_EXTENDER_PRIORITY // (highest - lowest)
        return scaled.clip(0, MAX_EXTENDER_PRIORITY)
