"""DynamicResources: the devices that the pod claims can be had on the node."""

from __future__ import annotations

from dataclasses import dataclass

from extender.devices.claims import NAME, PodDeviceClaims, pod_device_claims
from extender.devices.placement import Placement
from extender.devices.readiness import unavailable
from extender.framework.rules import Check, Verdict
from extender.framework.status import Refusal, unresolvable
from extender.runtime.clock import Clock
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, Rows

UNAVAILABLE = unresolvable(NAME, "resourceclaim not available on the node")


@dataclass(frozen=True, slots=True)
class DynamicResourcesFilter:
    """Upstream dynamicresources.DynamicResources, Filter.

    Without a clock no claim is ever overdue. What upstream's PostFilter does, to take an allocation that fits no node
    away from its claim, changes the cluster and is no matter of rules.
    """

    binding_timeout_seconds: float = 600
    clock: Clock | None = None
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        claims = pod_device_claims(pod, table)
        if not isinstance(claims, PodDeviceClaims):
            return claims
        now = self.clock.now() if self.clock else float("-inf")
        return _Check(claims, table, now, self.binding_timeout_seconds)


class _Check(Check):
    def __init__(self, claims: PodDeviceClaims, table: Table, now: float, timeout: float) -> None:
        self._claims, self._table, self._now, self._timeout = claims, table, now, timeout

    def refuse(self, rows: Rows) -> Verdict:
        placement = Placement(self._claims, self._table, rows)
        verdict = list(placement.refused)
        for group in placement.groups:
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
