"""CheckNodeMemoryPressure, CheckNodeDiskPressure, CheckNodePIDPressure: a node that runs short takes no more pods.

Since v1.12 the node controller says the same by taints, which TaintToleration sees to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.rules import Check, RowCheck
from extender.framework.status import unresolvable
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.quantity import nano
from extender.table import PodInfo, Table

_REASONS = {
    "MemoryPressure": "node(s) had memory pressure",
    "DiskPressure": "node(s) had disk pressure",
    "PIDPressure": "node(s) had pid pressure",
}


@dataclass(frozen=True, slots=True)
class NodePressure:
    """Upstream CheckNode{Memory,Disk,PID}PressurePredicate, until v1.17.

    `condition`: MemoryPressure, DiskPressure or PIDPressure. `best_effort_only`: pods that ask for any cpu or memory,
    or are limited in it, are let through.
    """

    condition: str
    name: str
    best_effort_only: bool = False

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        if self.best_effort_only and not _best_effort(pod.pod):
            return None
        refusal, pressures = unresolvable(self.name, _REASONS[self.condition]), table.nodes.facts(_pressures)
        pressed = np.array([self.condition in met for met in pressures.values], np.bool_)
        return RowCheck(lambda rows: [(pressed[pressures.ids[rows]], refusal)])


def _pressures(node: Node) -> frozenset[str]:
    conditions = node.status.conditions or ()
    return frozenset(each.type for each in conditions if each.type in _REASONS and each.status == "True")


def _best_effort(pod: Pod) -> bool:
    """Returns True if the pod's quality of service is BestEffort (upstream qos.GetPodQOS)."""
    for container in (*pod.containers, *pod.init_containers):
        resources = container.resources
        for asked in (resources.requests, resources.limits) if resources else ():
            if asked and (nano(asked.get("cpu")) or nano(asked.get("memory"))):
                return False
    return True
