"""NodeName: a pod that names a node fits on that node only. Source: upstream plugin nodename."""

from __future__ import annotations

from dataclasses import dataclass

from extender.framework.cluster_events import Action, Resource
from extender.framework.plugin import Arguments, Plugin
from extender.framework.queueing_hints import Interest, Interests
from extender.framework.rules import NO_REFUSAL, Check, PerNode, Verdict
from extender.framework.status import unresolvable
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NAME = "NodeName"
REFUSAL = unresolvable(NAME, "node(s) didn't match the requested node name")


@dataclass(frozen=True, slots=True)
class NodeName(PerNode):
    """Refuses all nodes except the one that the pod names in spec.nodeName."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        node_name = pod.pod.spec.node_name
        return _NodeNameCheck(node_name, table) if node_name else None


class _NodeNameCheck(Check):
    def __init__(self, node_name: str, table: Table) -> None:
        self.only = frozenset((node_name,))
        self._row = table.nodes.row_of.get(node_name, -1)

    def refuse(self, rows: Rows) -> Verdict:
        elsewhere = rows != self._row
        return [(elsewhere, REFUSAL)] if elsewhere.any() else NO_REFUSAL


PLUGIN = Plugin(NAME, Arguments, lambda _: NodeName(), interests=Interests((Interest(Resource.NODE, Action.ADD),)))
