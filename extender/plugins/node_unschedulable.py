"""NodeUnschedulable: a cordoned node takes only pods that tolerate it."""

from __future__ import annotations

from dataclasses import dataclass

from extender.framework.rules import Check, Verdict
from extender.framework.status import unresolvable
from extender.model.tolerations import NO_SCHEDULE, UNSCHEDULABLE_TAINT, untolerated
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NAME = "NodeUnschedulable"
REFUSAL = unresolvable(NAME, "node(s) were unschedulable")


@dataclass(frozen=True, slots=True)
class NodeUnschedulable:
    """Upstream nodeunschedulable.NodeUnschedulable."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        if not table.nodes.cordoned:
            return None
        tolerations = pod.pod.spec.tolerations or ()
        return _Check(table) if untolerated((UNSCHEDULABLE_TAINT,), tolerations, (NO_SCHEDULE,)) else None


class _Check(Check):
    def __init__(self, table: Table) -> None:
        self._unschedulable = table.nodes.unschedulable

    def refuse(self, rows: Rows) -> Verdict:
        return [(self._unschedulable[rows], REFUSAL)]
