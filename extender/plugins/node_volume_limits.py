"""NodeVolumeLimits: limits the volumes of a CSI driver on a node, and requires that the driver is installed.

Source: upstream plugin nodevolumelimits, csi.go, with VolumeLimitScaling (KEP-5030).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

import numpy as np

from extender.framework.cluster_events import Action, Change, Resource
from extender.framework.plugin import Arguments, Plugin
from extender.framework.queueing_hints import USED_CLAIMS, Interest, Interests, Reads, claim_of, has_place, uses_claim
from extender.framework.rules import Check, PerNode, PodsCheck, Verdict
from extender.framework.status import Refusal, failed, unresolvable, unschedulable
from extender.model.pod_volumes import CSIVolume, Fault, InlineVolume
from extender.model.storage import CSIDriver, CSINode
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.csi import MissingClaim
from extender.table.labels import BoolColumn, IntColumn, Rows
from extender.volumes.node_volumes import CLAIM, AttachableVolumes, attachable_volumes, not_found

NAME = "NodeVolumeLimits"
REFUSAL = unschedulable(NAME, "node(s) exceed max volume count")


@dataclass(frozen=True, slots=True)
class NodeVolumeLimits(PerNode):
    """Refuses nodes where the pod's volumes would exceed a driver's limit, which is in the node's CSINode."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        if not pod.attachables:
            return None
        volumes = attachable_volumes(pod, table)
        return _NodeVolumeLimitsCheck(volumes, table) if volumes.by_driver or volumes.errors else None


@dataclass(slots=True, eq=False)
class _NodeVolumeLimitsCheck(PodsCheck):
    _volumes: AttachableVolumes
    _table: Table

    def verdict(self, rows: Rows, gone: HypotheticalRemovals | None) -> Verdict:
        not_refused = np.ones(len(rows), np.bool_)
        verdict: list[tuple[BoolColumn, Refusal]] = []
        exceeding = self._exceeding(rows, None if gone is None else gone.removed)
        for mask, refusal in (*self._errors(rows), *self._not_installed(rows), *exceeding):
            verdict.append((mask & not_refused, refusal))
            not_refused &= ~mask
        return verdict

    def _errors(self, rows: Rows) -> Verdict:
        has_csi_node = self._table.storage.csi_nodes.known()[rows]
        return [(has_csi_node | everywhere, _refusal(cause)) for cause, everywhere in self._volumes.errors]

    def _not_installed(self, rows: Rows) -> Verdict:
        return [
            (self._lacking(driver, rows), unschedulable(NAME, f"{driver} CSI driver is not installed on the node"))
            for driver in sorted(self._volumes.by_driver)
            if _must_be_installed(driver, self._table)
        ]

    def _lacking(self, driver: str, rows: Rows) -> BoolColumn:
        csi_nodes = self._table.storage.csi_nodes
        applies = csi_nodes.known()[rows] | (driver in self._volumes.native_drivers)
        return applies & ~csi_nodes.has_driver(driver)[rows]

    def _exceeding(self, rows: Rows, gone: BoolColumn | None) -> Verdict:
        """Refuses nodes whose volumes cannot be counted, and nodes that would have too many volumes."""
        if not self._volumes.by_driver:
            return ()
        limited = self._table.storage.csi_nodes.limited()[rows]
        faulty = [
            (limited & np.isin(rows, where), _refusal(fault))
            for fault, where in self._table.storage.attachments.faults(gone).items()
        ]
        full = np.logical_or.reduce([self._full(driver, rows, gone) for driver in self._volumes.by_driver])
        return [*faulty, (full, REFUSAL)]

    def _full(self, driver: str, rows: Rows, gone: BoolColumn | None) -> BoolColumn:
        attachments = self._table.storage.attachments
        added = not_attached(self._volumes.by_driver[driver], self._table, rows, gone)
        limit = self._table.storage.csi_nodes.limit(driver)[rows]
        full: BoolColumn = (added > 0) & (attachments.counted(driver, gone)[rows] + added > limit)
        return full


def not_attached(volumes: Iterable[CSIVolume], table: Table, rows: Rows, gone: BoolColumn | None = None) -> IntColumn:
    """Returns how many of the volumes are not attached to each node yet: int64[len(rows)].

    `gone`: bool[slot], the pods whose volumes do not count.
    """
    added = np.zeros(len(rows), np.int64)
    for volume in volumes:
        added += ~table.storage.attachments.used(volume, gone)[rows]
    return added


def _must_be_installed(driver: str, table: Table) -> bool:
    if not table.features.volume_limit_scaling:
        return False
    registered = table.objects.get(CSIDriver, driver)
    return registered is not None and bool(registered.spec.prevent_pod_scheduling_if_missing)


def _refusal(cause: Fault | MissingClaim) -> Refusal:
    if isinstance(cause, MissingClaim):
        return unresolvable(NAME, f"looking up PVC {cause.use.key}: {not_found(CLAIM, cause.use.name)}")
    return failed(NAME, f'running "{NAME}" filter plugin: {cause.message}')


def limits_grow(_pod: PodInfo, change: Change) -> bool:
    """Returns True if a driver was installed on the node, or a driver's limit was raised or removed.

    Upstream reads a missing limit as 0, so there a removed limit helps no pod.
    """
    before, now = _limits(change.old), _limits(change.new)
    limits = ((before.get(driver, 0), now.get(driver, inf)) for driver in before.keys() | now.keys())
    return any(limit > limit_before for limit_before, limit in limits)


def _limits(csi_node: CSINode) -> dict[str, float]:
    counts = ((driver.name, driver.allocatable.count if driver.allocatable else None) for driver in csi_node.drivers)
    return {name: inf if count is None else count for name, count in counts}


def driver_need_not_be_installed(_pod: PodInfo, change: Change) -> bool:
    """Returns True if nodes no longer need to have the CSI driver installed. Upstream does not register for this."""
    return bool(change.old.spec.prevent_pod_scheduling_if_missing) and not (
        change.new and change.new.spec.prevent_pod_scheduling_if_missing
    )


def volumes_are_detached(_pod: PodInfo, change: Change) -> bool:
    """Returns True if a deleted pod may have had volumes attached to its node."""
    return has_place(change.old) and bool(change.old.attachables)


def attachment_goes(pod: PodInfo, change: Change) -> bool:
    """Returns True if a volume was detached and its driver may be one that the pod needs."""
    return not _drivers(pod).isdisjoint((None, change.old.spec.attacher))


def _drivers(pod: PodInfo) -> frozenset[str | None]:
    """Returns the CSI drivers of the pod's inline volumes. Adds None if the pod has other volumes.

    The drivers of other volumes, such as claims, are unknown here.
    """
    inline = (volume.volume if isinstance(volume, InlineVolume) else None for volume in pod.attachables)
    return frozenset(volume.driver if isinstance(volume, CSIVolume) else None for volume in inline)


PLUGIN = Plugin(
    NAME,
    Arguments,
    lambda _: NodeVolumeLimits(),
    interests=Interests(
        (
            # Upstream registers for changes of the CSINode only, which may arrive before its node.
            Interest(Resource.NODE, Action.ADD),
            Interest(Resource.CSI_NODE, Action.ADD),
            Interest(Resource.CSI_NODE, Action.UPDATE, limits_grow),
            Interest(Resource.CSI_DRIVER, Action.UPDATE | Action.DELETE, driver_need_not_be_installed),
            Interest(Resource.ASSIGNED_POD, Action.DELETE, volumes_are_detached),
            Interest(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, uses_claim, USED_CLAIMS, claim_of),
            Interest(Resource.VOLUME_ATTACHMENT, Action.DELETE, attachment_goes, Reads(_drivers)),
        )
    ),
)
