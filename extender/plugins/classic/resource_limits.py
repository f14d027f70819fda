"""ResourceLimits: among equals, nodes that could give the pod all that its limits allow are preferred."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.rules import RowScorer, Scorer, Scores
from extender.model.pod import Container, Pod
from extender.model.quantity import amounts
from extender.table import PodInfo, Table
from extender.table.labels import Rows
from extender.table.nodes.columns import CPU, MEMORY

NAME = "NodeResourceLimits"


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Upstream noderesources.ResourceLimits, until v1.19: 1 where the limit on cpu or that on memory is met, else 0."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        limits = _limits(pod.pod)

        def score(rows: Rows) -> Scores:
            met = np.zeros(len(rows), np.bool_)
            for resource, index in (("cpu", CPU), ("memory", MEMORY)):
                limit = limits.get(resource, 0)
                if limit:
                    met |= limit <= table.nodes.allocatable[index][rows]
            return met.astype(np.int64)

        return RowScorer(score)


def _limits(pod: Pod) -> dict[str, int]:
    """The sum over containers, or any one init container's limit where that is more: cpu in milli, memory in bytes."""
    limits: dict[str, int] = {}
    for container in pod.containers:
        for name, amount in _limits_of(container).items():
            limits[name] = limits.get(name, 0) + amount
    for container in pod.init_containers:
        for name, amount in _limits_of(container).items():
            limits[name] = max(limits.get(name, 0), amount)
    return limits


def _limits_of(container: Container) -> dict[str, int]:
    return amounts((container.resources.limits if container.resources else None) or {})
