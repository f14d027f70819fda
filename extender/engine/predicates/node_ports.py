"""NodePorts: no two pods on one node may take the same port of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from extender.engine.rules import Check, Verdict
from extender.engine.status import unschedulable
from extender.table import PodInfo, Table
from extender.table.labels import Rows
from extender.table.podinfo import HostPort

NAME = "NodePorts"
REFUSAL = unschedulable(NAME, "node(s) didn't have free ports for the requested pod ports")


@dataclass(frozen=True, slots=True)
class NodePorts:
    """Upstream nodeports.NodePorts."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        return _Check(pod.host_ports, table) if pod.host_ports else None


class _Check(Check):
    sees_pods = True

    def __init__(self, ports: Sequence[HostPort], table: Table) -> None:
        self._ports, self._table = ports, table

    def refuse(self, rows: Rows) -> Verdict:
        taken = list(self._table.ports.conflicting(self._ports))
        return [(np.isin(rows, taken), REFUSAL)]
