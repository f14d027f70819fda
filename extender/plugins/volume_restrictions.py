"""VolumeRestrictions: refuses nodes because of disks that pods cannot share, and claims that only one pod may use.

Source: upstream plugin volumerestrictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from extender.framework.cluster_events import Action, Change, Resource
from extender.framework.plugin import FILTER, PRE_FILTER, Arguments, Plugin
from extender.framework.queueing_hints import (
    NAMED_CLAIMS,
    Interest,
    Interests,
    Reads,
    claim_of,
    named_claims,
    names_claim,
)
from extender.framework.rules import Check, PerNode, Verdict
from extender.framework.status import Refusal, unresolvable, unschedulable
from extender.model.pod_volumes import ClaimUse, clash
from extender.model.storage import READ_WRITE_ONCE_POD, PersistentVolumeClaim
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.labels import BoolColumn, IntColumn, Rows
from extender.volumes.node_volumes import CLAIM, not_found

NAME = "VolumeRestrictions"
DISK_CONFLICT = unschedulable(NAME, "node(s) had no available disk")
CLAIM_CONFLICT = unschedulable(
    NAME,
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
)


@dataclass(frozen=True, slots=True)
class VolumeRestrictions(PerNode):
    """Refuses nodes where another pod uses a disk that the pod cannot share.

    If another pod uses a ReadWriteOncePod claim of the pod, all nodes are refused.
    """

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        if not (pod.claims or pod.mounts):
            return None
        exclusive: list[ClaimUse] = []
        for use in pod.claims:
            if use.owner is not None:
                continue
            claim = table.objects.get(PersistentVolumeClaim, use.key)
            if claim is None:
                return unresolvable(NAME, not_found(CLAIM, use.name))
            if READ_WRITE_ONCE_POD in (claim.spec.access_modes or ()):
                exclusive.append(use)
        in_use = {use.key for use in exclusive if _in_use(use.key, table)}
        if not pod.mounts and not in_use:
            return None
        return _VolumeRestrictionsCheck(pod, table, frozenset(use.name for use in exclusive), len(in_use))


class _VolumeRestrictionsCheck(Check):
    sees_pods = True
    # A dry run removes only the node's own pods: if a pod on another node uses the claim, this node still refuses.
    sees_own_pods_only = True

    def __init__(self, pod: PodInfo, table: Table, exclusive: frozenset[str], claims_in_use: int) -> None:
        self._pod = pod
        self._table = table
        self._exclusive = exclusive
        self._claims_in_use = claims_in_use
        self._clashing = np.array(sorted(table.storage.usage.clashing(pod.mounts)), np.intp)

    def refuse(self, rows: Rows) -> Verdict:
        hypothetical = self._sum(self._uses, self._table.hypothetical.values())
        return self._verdict(rows, self._clashes(), self._claims_in_use + hypothetical)

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> Verdict:
        nominated = gone.nominated.pairs
        clashes = gone.sum_by_row(
            (self, DISK_CONFLICT), self._clash, lambda: -self._sum(self._clashes_with, nominated())
        )
        uses = gone.sum_by_row((self, CLAIM_CONFLICT), self._uses_by_slot, lambda: -self._sum(self._uses, nominated()))
        return self._verdict(rows, self._clashes() - clashes, self._claims_in_use - uses)

    def _verdict(self, rows: Rows, clashes: IntColumn, claims_in_use: IntColumn) -> Verdict:
        disk: BoolColumn = clashes[rows] > 0
        return [(disk, DISK_CONFLICT), (~disk & (claims_in_use[rows] > 0), CLAIM_CONFLICT)]

    def _clashes(self) -> IntColumn:
        """Returns the number of pods on each node that use a disk that this pod needs and cannot share: int64[row]."""
        return np.bincount(self._table.pods.row[self._clashing], minlength=self._table.nodes.capacity)

    def _clash(self) -> IntColumn:
        clashes = np.zeros(len(self._table.pods.row), np.int64)
        clashes[self._clashing] = 1
        return clashes

    def _clashes_with(self, info: PodInfo) -> int:
        return clash(self._pod.mounts, info.mounts)

    def _uses_by_slot(self) -> IntColumn:
        """Returns int64[slot]: how many exclusive claims of the incoming pod are used by the pod in each slot.

        A ReadWriteOncePod claim is exclusive. Claims are compared by name, without the namespace, as in upstream's
        RemovePod.
        """
        pods, uses = self._table.pods, np.zeros(len(self._table.pods.row), np.int64)
        for slot in self._table.storage.usage.users_of_any(self._exclusive):
            uses[slot] = self._uses(pods.info(slot))
        return uses

    def _uses(self, info: PodInfo) -> int:
        return sum(use.owner is None and use.name in self._exclusive for use in info.claims)

    def _sum(self, count: Callable[[PodInfo], int], pods: Iterable[tuple[PodInfo, int]]) -> IntColumn:
        total = np.zeros(self._table.nodes.capacity, np.int64)
        for info, row in pods:
            total[row] += count(info)
        return total


def _in_use(claim: str, table: Table) -> bool:
    """Returns True if a placed pod uses the claim; pods that are placed hypothetically do not count."""
    hypothetical = [table.pods.slot_of[uid] for uid in table.hypothetical]
    rows = table.pods.row[list(table.storage.usage.users(claim).difference(hypothetical))]
    return bool(table.nodes.present[rows].any())


def volumes_are_released(pod: PodInfo, change: Change) -> bool:
    """Returns True if the deleted pod used one of this pod's claims, or a disk that the two pods could not share."""
    deleted: PodInfo = change.old
    if deleted.pod.namespace != pod.pod.namespace:
        return False
    shared = not set(named_claims(pod)).isdisjoint(named_claims(deleted))
    return shared or clash(pod.mounts, deleted.mounts)


def claims_and_disks_of_the_pod(change: Change) -> Iterator[str]:
    """Yields the names of the claims and disks that the deleted pod used.

    The queue looks up the waiting pods that use one of them.
    """
    return _claims_and_disks(change.old)


def _claims_and_disks(pod: PodInfo) -> Iterator[str]:
    yield from named_claims(pod)
    yield from (repr(mount.disk) for mount in pod.mounts)


PLUGIN = Plugin(
    NAME,
    Arguments,
    lambda _: VolumeRestrictions(),
    needs=((FILTER, PRE_FILTER),),
    interests=Interests(
        (
            Interest(
                Resource.ASSIGNED_POD,
                Action.DELETE,
                volumes_are_released,
                Reads(lambda pod: (pod.pod.namespace, pod.claims, pod.mounts), _claims_and_disks),
                claims_and_disks_of_the_pod,
            ),
            Interest(Resource.NODE, Action.ADD),
            Interest(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, names_claim, NAMED_CLAIMS, claim_of),
        )
    ),
)
