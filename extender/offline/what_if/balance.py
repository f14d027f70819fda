"""Measures of a cluster: how full it is, how evenly, and how much of what is free no pod can use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from extender.framework.topology import ZONE
from extender.offline.nodes import all_nodes
from extender.offline.state import ClusterState
from extender.table.labels import ABSENT, Rows

_MEASURED = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Balance:
    """Measures over all nodes, each a share between 0 and 1, by resource.

    Attributes:
        utilisation: what is requested of all that is offered.
        imbalance: the standard deviation of the nodes' utilisation.
        zone_imbalance: the same of the zones'.
        fragmentation: the part of what is free that lies on nodes which cannot take one more pod of mean size.
        nodes: the nodes themselves, see `offline.nodes.all_nodes`; for maps, and not in `to_dict`.
    """

    utilisation: dict[str, float]
    imbalance: dict[str, float]
    zone_imbalance: dict[str, float]
    fragmentation: dict[str, float]
    nodes: Mapping[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """{"utilisation", "imbalance", "zoneImbalance", "fragmentation"}, each {resource: share}."""
        return {
            "utilisation": self.utilisation,
            "imbalance": self.imbalance,
            "zoneImbalance": self.zone_imbalance,
            "fragmentation": self.fragmentation,
        }


def balance_of(state: ClusterState) -> Balance:
    """The measures of the cluster as it is; empty clusters measure 0."""
    nodes, rows = state.table.nodes, state.table.nodes.rows
    offered = {name: nodes.allocatable[nodes.resources[name]][rows].astype(float) for name in _MEASURED}
    asked = {name: nodes.requested[nodes.resources[name]][rows].astype(float) for name in _MEASURED}
    free = {name: np.maximum(offered[name] - asked[name], 0) for name in _MEASURED}
    pods = max(int(nodes.requested[nodes.resources["pods"]][rows].sum()), 1)
    mean = {name: asked[name].sum() / pods for name in _MEASURED}
    full = np.zeros(len(rows), np.bool_)
    for name in _MEASURED:
        full |= free[name] < mean[name]
    full |= (nodes.allocatable - nodes.requested)[nodes.resources["pods"]][rows] < 1
    return Balance(
        {name: _share(asked[name].sum(), offered[name].sum()) for name in _MEASURED},
        {name: _spread(asked[name], offered[name]) for name in _MEASURED},
        {name: _spread(*_by_zone(state, rows, asked[name], offered[name])) for name in _MEASURED},
        {name: _share(free[name][full].sum(), free[name].sum()) for name in _MEASURED},
        all_nodes(state),
    )


def _by_zone(state: ClusterState, rows: Rows, *columns: Any) -> list[Any]:
    zone = state.table.nodes.labels[ZONE].ids[rows]
    return [np.bincount(zone[zone != ABSENT], weights=column[zone != ABSENT]) for column in columns]


def _spread(asked: Any, offered: Any) -> float:
    some = offered > 0
    return round(float(np.std(asked[some] / offered[some])), 4) if some.any() else 0.0


def _share(part: float, whole: float) -> float:
    return round(float(part / whole), 4) if whole else 0.0
