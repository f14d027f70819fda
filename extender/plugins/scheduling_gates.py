"""SchedulingGates: a pod with gates is not ready to be scheduled at all (KEP-3521)."""

from __future__ import annotations

from dataclasses import dataclass

from extender.framework.status import Refusal, unresolvable
from extender.table import PodInfo, Table

NAME = "SchedulingGates"


@dataclass(frozen=True, slots=True)
class SchedulingGates:
    """Upstream schedulinggates.SchedulingGates, PreEnqueue.

    The queue asks `admits`, and such pods are never filtered for; `prepare` says the same where pods are explained.
    """

    name: str = NAME

    def admits(self, pod: PodInfo) -> bool:
        return not pod.pod.spec.scheduling_gates

    def prepare(self, pod: PodInfo, table: Table) -> Refusal | None:
        gates = " ".join(gate.name for gate in pod.pod.spec.scheduling_gates or ())
        return unresolvable(NAME, f"waiting for scheduling gates: [{gates}]") if gates else None
