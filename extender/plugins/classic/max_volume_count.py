"""Limits the number of a cloud's volumes on a node: MaxEBSVolumeCount and similar classic rules.

A node that has migrated the in-tree plugin to a CSI driver always passes, because NodeVolumeLimits counts its volumes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from extender.framework.rules import Check, Verdict
from extender.framework.status import unschedulable
from extender.model.csi_migration import AWS_EBS, MIGRATED_PLUGINS, CSIVolume
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.labels import ABSENT, BoolColumn, IntColumn, Rows
from extender.volumes.volume_claims import attachable_volumes

REASON = "node(s) exceed max volume count"
INSTANCE_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
NITRO, NITRO_LIMIT = re.compile(r"^[cmr]5.*|t3|z1d"), 25


@dataclass(frozen=True, slots=True)
class MaxVolumeCount:
    """Refuses nodes with too many volumes of a cloud (upstream nodevolumelimits nonCSILimits, until v1.30).

    Volumes of the CSI driver that replaces the in-tree plugin count too, because they use the same slots.

    Attributes:
        plugin: the in-tree plugin whose volumes are counted.
        resource: the name of the allocatable resource with which a node reports its limit.
        default_limit: the limit of nodes that do not report one.
    """

    plugin: str
    resource: str
    default_limit: int
    name: str

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        if not pod.attachables:
            return None
        volumes = attachable_volumes(pod, table).by_driver.get(MIGRATED_PLUGINS[self.plugin])
        return _MaxVolumeCountCheck(self, volumes, table) if volumes else None


@dataclass(slots=True, eq=False)
class _MaxVolumeCountCheck(Check):
    sees_pods = True

    _rule: MaxVolumeCount
    _volumes: set[CSIVolume]
    _table: Table

    def refuse(self, rows: Rows) -> Verdict:
        return self._refuse(rows, None)

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> Verdict:
        return self._refuse(rows, gone.removed)

    def _refuse(self, rows: Rows, gone: BoolColumn | None) -> Verdict:
        attachments = self._table.storage.attachments
        count = attachments.counted(MIGRATED_PLUGINS[self._rule.plugin], gone)
        for volume in self._volumes:
            count = count + ~attachments.used(volume, gone)
        too_many = (count > self._limits()) & ~self._table.storage.csi_nodes.migrated(self._rule.plugin)
        return [(too_many[rows], unschedulable(self._rule.name, REASON))]

    def _limits(self) -> IntColumn:
        """Returns the number of volumes that each node may have: int64[row]."""
        nodes = self._table.nodes
        limits = np.full(nodes.capacity, self._rule.default_limit, np.int64)
        if self._rule.plugin == AWS_EBS:
            limits[_nitro_nodes(self._table)] = NITRO_LIMIT
        index = nodes.resources.get(self._rule.resource)
        return limits if index is None else np.where(nodes.allocatable[index] > 0, nodes.allocatable[index], limits)


def _nitro_nodes(table: Table) -> BoolColumn:
    nitro = np.zeros(table.nodes.capacity, np.bool_)
    for label in INSTANCE_TYPES:
        column = table.nodes.labels[label]
        is_nitro = np.array([bool(NITRO.search(value)) for value in column.values], np.bool_)
        is_nitro[ABSENT] = False
        nitro |= is_nitro[column.ids]
    return nitro
