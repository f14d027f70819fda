"""The writes to a pod's claims once its node is chosen. Source: upstream Reserve, PreBind, bindClaim."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.devices.allocator.allocation_result import NewShareID, allocation_of
from extender.devices.binding_conditions import unavailable
from extender.devices.claims import NAME, PodDeviceClaims, pod_device_claims
from extender.devices.extended_resources import CLAIM_NAME, requests_and_mappings
from extender.devices.node_claims import NodeClaims
from extender.framework.fit import Fit
from extender.framework.status import Refusal
from extender.model.devices.claims import AllocationResult, RequestMapping, ResourceClaim
from extender.table import PodInfo, Table
from extender.table.labels import Rows


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """The claims to write; they count as allocated from now on (`model.devices.claims.PendingClaim`).

    Attributes:
        allocate: claims with their allocations, to be written together with the reservation for the pod. A claim by the
            name of `extended_resources.CLAIM_NAME` is to be created, with its spec, under a generated name.
        reserve: claims allocated already, to be reserved for the pod where they are not.
        mappings: which request serves which extended resource of which container, for the pod's status.
    """

    allocate: tuple[tuple[ResourceClaim, AllocationResult], ...] = ()
    reserve: tuple[ResourceClaim, ...] = ()
    mappings: tuple[RequestMapping, ...] = ()


def plan_devices(pod: PodInfo, table: Table, row: int, new_share_id: NewShareID) -> DevicePlan | Refusal:
    """The plan for `pod` on the node at `row`, which DynamicResources has let through; else a Refusal.

    `new_share_id` gives a new UUID each time; only devices that are shared need one.
    """
    claims = pod_device_claims(pod, table)
    if not isinstance(claims, PodDeviceClaims):
        return claims or DevicePlan()
    rows = np.array([row])
    node_claims = NodeClaims(claims, table, rows)
    for mask, refusal in node_claims.refused:
        if mask[0]:
            return refusal
    allocate: list[tuple[ResourceClaim, AllocationResult]] = []
    for group in node_claims.groups:
        for _, refusal in group.verdict(rows):
            return refusal
        node_name = table.nodes.names[row]
        for claim, results in zip(group.claims, group.allocations.results(row), strict=True):
            allocate.append((claim, allocation_of(claim, results, node_name, new_share_id)))
    backed = {name: each for name, each in claims.backed.items() if node_claims.is_delegated(name, 0)}
    mappings = requests_and_mappings(pod.pod, backed)[1] if node_claims.groups else []
    return DevicePlan(tuple(allocate), tuple(claims.allocated), tuple(mappings))


def idle_claim(pod: PodInfo, table: Table, fit: Fit) -> ResourceClaim | None:
    """A claim to deallocate for a pod that fits nowhere: no other pod uses it, and it keeps the pod away.

    Its devices are then allocated anew; a claim that was made for extended resources is to be deleted, and made anew.
    Source: upstream PostFilter.
    """
    refused = [index for index, refusal in enumerate(fit.refusals) if refusal.plugin == NAME]
    claims = pod_device_claims(pod, table) if refused else None
    if not isinstance(claims, PodDeviceClaims):
        return None
    rows = fit.rows[np.isin(fit.cause, refused)]
    for claim in claims.user:
        if claim.allocation is not None and claim.is_only_for(pod.uid) and _keeps_away(claim, table, rows):
            return claim
    return claims.special if claims.special is not None and claims.special.name != CLAIM_NAME else None


def _keeps_away(claim: ResourceClaim, table: Table, rows: Rows) -> bool:
    return bool(unavailable([claim], table, rows, float("-inf"), 0).any())
