"""Preemption for device claims: judges nodes as if the claims of evicted pods were deallocated (`devicePreemption`).

kube-scheduler does not preempt for devices (KEP-5690 is open), so this is off by default. If it is on, evictions may
help on a node that lacks free devices. `preemption.dry_run` then selects victims as for any other resource.

A claim becomes free when all pods that have reserved it have left, but not at once: a controller removes the
reservations and the allocation some time after the pods are gone. Until then the claim is `left_behind`. For the
question whom to evict, its devices are as good as free; for everything else, they are taken.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from extender.devices.extended_resources import CLAIM_NAME
from extender.devices.plan import DevicePlan, pending_claim, plan_devices
from extender.model.devices import ResourceClaim, ResourceClaimStatus
from extender.table import HypotheticalRemovals, PodInfo, Table, Trial

_PODS = "pods"
_SHARE = "00000000-0000-0000-0000-000000000000"  # of a device that is only supposed to be shared


def deallocated(claim: ResourceClaim) -> ResourceClaim:
    return replace(claim, status=ResourceClaimStatus())


class ClaimsOfVictims:
    """The claims that become free if certain pods are evicted, for one decision.

    A claim that is reserved for a PodGroup never becomes free here, because the group outlives its pods.

    Attributes:
        left_behind: the claims whose pods have left already, so that they become free without an eviction.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._by_user: dict[str, list[ResourceClaim]] = {}
        self.left_behind: list[ResourceClaim] = []
        for claim in table.objects.all(ResourceClaim).values():
            users = claim.status.reserved_for or () if claim.allocation is not None else ()
            for user in users:
                self._by_user.setdefault(user.uid, []).append(claim)
            if users and self._is_free(claim, frozenset()):
                self.left_behind.append(claim)

    def freed(self, removals: HypotheticalRemovals) -> dict[int, list[ResourceClaim]]:
        """Returns a dict: row of a node -> the claims that only the removed pods of this node use."""
        by_row: dict[int, set[str]] = {}
        slots = removals.slots
        for info, row in zip(self._table.pods.at(slots), self._table.pods.row[slots].tolist(), strict=True):
            if info.uid in self._by_user:
                by_row.setdefault(row, set()).add(info.uid)
        return {row: self.freed_by(uids) for row, uids in by_row.items()}

    def freed_by(self, uids: Collection[str]) -> list[ResourceClaim]:
        """Returns the claims that no pod uses once the pods with these UIDs have left."""
        claims = {claim.key: claim for uid in uids for claim in self._by_user.get(uid, ())}
        return [claim for claim in claims.values() if self._is_free(claim, uids)]

    def used_by(self, uid: str) -> Sequence[ResourceClaim]:
        """Returns the allocated claims that the pod has reserved, as they were before any eviction."""
        return self._by_user.get(uid, ())

    def _is_free(self, claim: ResourceClaim, removed: Collection[str]) -> bool:
        placed = self._table.pods.slot_of
        users = claim.status.reserved_for or ()
        return all(user.resource == _PODS and (user.uid in removed or user.uid not in placed) for user in users)


def more_important_by_row(pod: PodInfo, table: Table) -> dict[int, list[PodInfo]]:
    """Returns a dict: row of a node -> the pods of a higher priority with claims that are nominated to this node."""
    by_row: dict[int, list[PodInfo]] = {}
    for info, row in table.nominated.awaited_by(pod, lambda _scheduler_name: True).pairs():
        if info.pod.spec.resource_claims and info.priority > pod.priority:
            by_row.setdefault(row, []).append(info)
    return by_row


def take_devices(trial: Trial, pods: Sequence[PodInfo], row: int) -> None:
    """Allocates, in `trial`, the devices that the pods can get on the node of this row."""
    for info in sorted(pods, key=lambda each: (-each.priority, each.sort_key)):
        plan = plan_devices(info, trial.table, row, lambda: _SHARE)
        if isinstance(plan, DevicePlan):
            for claim, allocation in plan.allocate:
                is_special = claim.name == CLAIM_NAME  # it is created for extended resources, and does not exist yet
                taken = pending_claim(claim, allocation) if is_special else claim.with_allocation(allocation)
                trial.set_object(taken)
