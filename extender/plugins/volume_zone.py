"""VolumeZone: a volume that is labelled with zones or regions is used on nodes there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.rules import Check, Verdict
from extender.framework.status import Refusal, unresolvable
from extender.model.volumes.csi_migration import BETA_REGION, BETA_ZONE, REGION, ZONE
from extender.table import PodInfo, Table
from extender.table.labels import ABSENT, BoolColumn, Rows
from extender.volumes.zones import TOPOLOGY_LABELS, Topology, volume_topologies

NAME = "VolumeZone"
REFUSAL = unresolvable(NAME, "node(s) had no available volume zone")
_TODAYS_LABEL = {BETA_ZONE: ZONE, BETA_REGION: REGION}


@dataclass(frozen=True, slots=True)
class VolumeZone:
    """Upstream volumezone.VolumeZone."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        if not pod.claims:
            return None
        topologies = volume_topologies(pod, table)
        if isinstance(topologies, str):
            return unresolvable(NAME, topologies)
        return _Check(topologies, table) if topologies else None


class _Check(Check):
    def __init__(self, topologies: list[Topology], table: Table) -> None:
        self._topologies, self._labels = topologies, table.nodes.labels

    def refuse(self, rows: Rows) -> Verdict:
        outside = np.zeros(len(rows), np.bool_)
        for topology in self._topologies:
            outside |= ~self._inside(topology, rows)
        # A node without any of the labels is of a cluster with a single zone.
        labelled = np.logical_or.reduce([self._labels[key].ids[rows] != ABSENT for key in TOPOLOGY_LABELS])
        return [(outside & labelled, REFUSAL)]

    def _inside(self, topology: Topology, rows: Rows) -> BoolColumn:
        inside = self._having(topology.key, topology.values, rows)
        todays = _TODAYS_LABEL.get(topology.key)
        if todays is not None:
            unlabelled = self._labels[topology.key].ids[rows] == ABSENT
            inside |= unlabelled & self._having(todays, topology.values, rows)
        return inside

    def _having(self, key: str, values: frozenset[str], rows: Rows) -> BoolColumn:
        column = self._labels[key]
        return np.isin(column.ids[rows], [known for value in values if (known := column.find(value)) is not None])
