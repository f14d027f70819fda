"""DynamicResources: prefers nodes where claims get the first alternatives of their prioritized lists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.devices.allocations import BEST_ALTERNATIVE, FITS
from extender.devices.claims import NAME, PodDeviceClaims, pod_device_claims
from extender.devices.node_claims import NodeClaims
from extender.framework.rules import PerTemplate, RowScorer, Scorer, Scores, normalised
from extender.model.devices.claims import ResourceClaim
from extender.table import PodInfo, Table
from extender.table.labels import Rows


@dataclass(frozen=True, slots=True)
class DynamicResourcesScore(PerTemplate):
    """Upstream dynamicresources.DynamicResources, Score (KEP-4816)."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        claims = pod_device_claims(pod, table)
        if not isinstance(claims, PodDeviceClaims):
            return None
        listed = any(request.first_available for claim in claims.user for request in claim.requests)
        had = sum(map(_score, claims.allocated))

        def score(rows: Rows) -> Scores:
            scores = np.zeros(len(rows), np.int64)
            for group in NodeClaims(claims, table, rows).groups:
                fitting = np.flatnonzero(group.mask)
                fitting = fitting[group.allocations.outcomes(rows[fitting], group.limit) == FITS]
                scores[fitting] = group.allocations.scores(rows[fitting]) + had
            return scores

        return RowScorer(score, normalised) if listed else None


def _score(claim: ResourceClaim) -> int:
    """The score of a claim that has its devices already."""
    taken = {result.request for result in (claim.allocation.results if claim.allocation else ())}
    return sum(
        BEST_ALTERNATIVE - place
        for request in claim.requests
        for place, sub in enumerate(request.first_available or ())
        if f"{request.name}/{sub.name}" in taken
    )
