"""CheckNodeCondition: a node must be ready, with its network up and not cordoned.

Since v1.12 the node controller says the same by taints, which TaintToleration sees to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.rules import Check, RowCheck, Verdict
from extender.framework.status import unresolvable
from extender.model.node import Node
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NAME = "CheckNodeCondition"
NOT_READY = "node(s) were not ready"
OUT_OF_DISK = "node(s) were out of disk space"
NETWORK_UNAVAILABLE = "node(s) had unavailable network"
UNSCHEDULABLE = "node(s) were unschedulable"


@dataclass(frozen=True, slots=True)
class CheckNodeCondition:
    """Upstream CheckNodeConditionPredicate, until v1.17. A node without conditions passes."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check:
        known = table.nodes.facts(_troubles)

        def refuse(rows: Rows) -> Verdict:
            ids = known.ids[rows]
            troubles = {each: known.values[each] for each in np.unique(ids).tolist()}
            return [(ids == each, unresolvable(self.name, *reasons)) for each, reasons in troubles.items() if reasons]

        return RowCheck(refuse)


def _troubles(node: Node) -> tuple[str, ...]:
    reasons = []
    for condition in node.status.conditions or ():
        match condition.type, condition.status:
            case "Ready", status if status != "True":
                reasons.append(NOT_READY)
            case "OutOfDisk", status if status != "False":
                reasons.append(OUT_OF_DISK)
            case "NetworkUnavailable", status if status != "False":
                reasons.append(NETWORK_UNAVAILABLE)
    return (*reasons, UNSCHEDULABLE) if node.spec.unschedulable else tuple(reasons)
