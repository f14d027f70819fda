"""DynamicResources: the devices that the pod claims must be free on the node."""

from __future__ import annotations

from dataclasses import dataclass, replace

from extender.devices.allocator.allocator import FILTER_TIMEOUT_SECONDS, UNTIMED, NodeTimeLimit
from extender.devices.binding_conditions import unavailable
from extender.devices.claims import NAME, PodDeviceClaims, pod_device_claims
from extender.devices.node_claims import NodeClaims
from extender.framework.rules import Check, PerTemplate, Verdict
from extender.framework.status import Refusal, unresolvable
from extender.runtime.clock import Clock
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, Rows

UNAVAILABLE = unresolvable(NAME, "resourceclaim not available on the node")


@dataclass(frozen=True, slots=True)
class DynamicResourcesFilter(PerTemplate):
    """Upstream dynamicresources.DynamicResources, Filter.

    Without a clock no claim is ever overdue, and the allocator's steps are counted instead of its time. Upstream's
    PostFilter, which deallocates a claim that fits no node, is `devices.plan.idle_claim`.

    Attributes:
        at_bind: a claim for the pod's extended resources is the one that the scheduler has just made (upstream PreBind)
            and judged like any other; in a scheduling cycle it is left over from an earlier one, and in the way.
    """

    binding_timeout_seconds: float = 600
    clock: Clock | None = None
    filter_timeout_seconds: float = FILTER_TIMEOUT_SECONDS
    at_bind: bool = False
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        claims = pod_device_claims(pod, table)
        if not isinstance(claims, PodDeviceClaims):
            return claims
        if self.at_bind and claims.special is not None and claims.special.requests:
            claims = replace(claims, user=(*claims.user, claims.special), special=None, backed={})
        if self.clock is None:
            return _Check(claims, table, float("-inf"), self.binding_timeout_seconds, UNTIMED)
        limit = NodeTimeLimit(self.clock.monotonic, self.filter_timeout_seconds or float("inf"))
        return _Check(claims, table, self.clock.now(), self.binding_timeout_seconds, limit)


class _Check(Check):
    def __init__(self, claims: PodDeviceClaims, table: Table, now: float, timeout: float, limit: NodeTimeLimit) -> None:
        self._claims, self._table, self._now, self._timeout, self._limit = claims, table, now, timeout, limit

    def refuse(self, rows: Rows) -> Verdict:
        node_claims = NodeClaims(self._claims, self._table, rows, self._limit)
        verdict = list(node_claims.refused)
        for group in node_claims.groups:
            verdict.extend(group.verdict(rows))
        allocated = self._claims.allocated
        if allocated:
            away = unavailable(allocated, self._table, rows, self._now, self._timeout)
            verdict.append((_without(away, verdict), UNAVAILABLE))
        return verdict


def _without(mask: BoolColumn, verdict: Verdict) -> BoolColumn:
    for refused, _ in verdict:
        mask &= ~refused
    return mask
