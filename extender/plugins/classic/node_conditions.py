"""Defines classic rules on labels and conditions of nodes: NodeLabel (upstream until v1.22), CheckNodeCondition etc.

Since v1.12 the node controller turns conditions into taints, so TaintToleration has replaced most of these rules.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.rules import MAX_SCORE, Check, RowCheck, RowScorer, Scorer, Scores, Verdict
from extender.framework.status import unresolvable
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.quantity import nano
from extender.table import PodInfo, Table
from extender.table.labels import ABSENT, Rows

REASON = "node(s) didn't have the requested labels"
NOT_READY = "node(s) were not ready"
OUT_OF_DISK = "node(s) were out of disk space"
NETWORK_UNAVAILABLE = "node(s) had unavailable network"
UNSCHEDULABLE = "node(s) were unschedulable"
_REASONS = {
    "MemoryPressure": "node(s) had memory pressure",
    "DiskPressure": "node(s) had disk pressure",
    "PIDPressure": "node(s) had pid pressure",
}


@dataclass(frozen=True, slots=True)
class NodeLabelFilter:
    """Requires that a node has all of the labels, or none if `presence` is False (CheckNodeLabelPresence).

    The values of the labels do not matter.
    """

    labels: tuple[str, ...]
    presence: bool
    name: str

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        refusal = unresolvable(self.name, REASON)

        def refuse(rows: Rows) -> Verdict:
            refused = np.zeros(len(rows), np.bool_)
            for label in self.labels:
                refused |= (table.nodes.labels[label].ids[rows] != ABSENT) != self.presence
            return [(refused, refusal)]

        return RowCheck(refuse) if self.labels else None


@dataclass(frozen=True, slots=True)
class NodeLabelScore:
    """Prefers nodes with the label, or nodes without it if `presence` is False."""

    label: str
    presence: bool
    name: str

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        def score(rows: Rows) -> Scores:
            scores: Scores = MAX_SCORE * ((table.nodes.labels[self.label].ids[rows] != ABSENT) == self.presence)
            return scores

        return RowScorer(score)


@dataclass(frozen=True, slots=True)
class CheckNodeCondition:
    """Refuses nodes that are not ready (upstream CheckNodeConditionPredicate, until v1.17).

    A node without conditions passes, unless it is cordoned.
    """

    name: str = "CheckNodeCondition"

    def prepare(self, pod: PodInfo, table: Table) -> Check:
        facts = table.nodes.facts(_troubles)

        def refuse(rows: Rows) -> Verdict:
            ids = facts.ids[rows]
            reasons_by_id = {value_id: facts.values[value_id] for value_id in np.unique(ids).tolist()}
            return [
                (ids == value_id, unresolvable(self.name, *reasons))
                for value_id, reasons in reasons_by_id.items()
                if reasons
            ]

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


@dataclass(frozen=True, slots=True)
class NodePressure:
    """Refuses nodes that are short of memory, disk or PIDs (upstream CheckNode*PressurePredicate, until v1.17).

    Attributes:
        condition: MemoryPressure, DiskPressure or PIDPressure.
        best_effort_only: True if the rule ignores pods with any request or limit of cpu or memory.
    """

    condition: str
    name: str
    best_effort_only: bool = False

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        if self.best_effort_only and not _best_effort(pod.pod):
            return None
        refusal = unresolvable(self.name, _REASONS[self.condition])
        facts = table.nodes.facts(_pressures)
        under_pressure = np.array([self.condition in pressures for pressures in facts.values], np.bool_)
        return RowCheck(lambda rows: [(under_pressure[facts.ids[rows]], refusal)])


def _pressures(node: Node) -> frozenset[str]:
    conditions = node.status.conditions or ()
    return frozenset(c.type for c in conditions if c.type in _REASONS and c.status == "True")


def _best_effort(pod: Pod) -> bool:
    """Returns True if the pod's quality of service class is BestEffort (upstream qos.GetPodQOS)."""
    for container in (*pod.containers, *pod.init_containers):
        resources = container.resources
        for quantities in (resources.requests, resources.limits) if resources else ():
            if quantities and (nano(quantities.get("cpu")) or nano(quantities.get("memory"))):
                return False
    return True
