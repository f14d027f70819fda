"""TaintToleration: a node's NoSchedule and NoExecute taints must be tolerated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.rules import Check, Verdict
from extender.framework.status import unresolvable
from extender.model.tolerations import NO_EXECUTE, NO_SCHEDULE, untolerated
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, Rows

NAME = "TaintToleration"
REFUSAL = unresolvable(NAME, "node(s) had untolerated taint(s)")


@dataclass(frozen=True, slots=True)
class TaintToleration:
    """Upstream tainttoleration.TaintToleration, Filter. `effects`: of the taints that it looks at."""

    effects: tuple[str, ...] = (NO_SCHEDULE, NO_EXECUTE)
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        tolerations = pod.pod.spec.tolerations or ()
        refused = [bool(untolerated(taints, tolerations, self.effects)) for taints in table.nodes.taint_sets]
        return _Check(table, np.array(refused)) if any(refused) else None


class _Check(Check):
    def __init__(self, table: Table, refused_sets: BoolColumn) -> None:
        self._taint_set = table.nodes.taint_set
        self._refused_sets = refused_sets

    def refuse(self, rows: Rows) -> Verdict:
        return [(self._refused_sets[self._taint_set[rows]], REFUSAL)]
