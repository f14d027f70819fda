"""Plans the writes to a pod's claims once its node is chosen, and finds claims that cannot be used, or become free.

Source: upstream isClaimReadyForBinding, isClaimTimeout, structured Allocate, createNodeSelector; Reserve, PreBind,
bindClaim.

`ClaimsOfVictims` finds the claims that evictions would free. kube-scheduler does not preempt for devices (KEP-5690 is
open), so it is used only with `devicePreemption`: nodes are then judged as if the claims of evicted pods were
deallocated, and the dry run of preemption selects victims as for any other resource. A claim becomes free when all pods
that have reserved it have left, but not at once: a controller removes the reservations and the allocation some time
after the pods are gone. Until then the claim is `left_behind`. For the question whom to evict, its devices are as good
as free; for everything else, they are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from extender.devices.allocations import FindBest
from extender.devices.allocator import DeviceResult
from extender.devices.device_requests import RequestData, quantity_of
from extender.devices.pod_claims import (
    CLAIM_NAME,
    NAME,
    NodeClaims,
    PodDeviceClaims,
    pod_device_claims,
    requests_and_mappings,
)
from extender.framework.find_fit import Fit
from extender.framework.node_selectors import NODE_NAME_FIELD, nodes_in_selector
from extender.framework.status import Refusal
from extender.model.devices import (
    AllocatedDeviceStatus,
    AllocationResult,
    ConsumerReference,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    PendingClaim,
    RequestMapping,
    ResourceClaim,
    ResourceClaimStatus,
)
from extender.model.meta import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from extender.model.pod import Pod
from extender.model.selectors import Requirement, compile_requirement
from extender.table import HypotheticalRemovals, PodInfo, Table, Trial
from extender.table.labels import BoolColumn, Rows

_PODS = "pods"
_SHARE = "00000000-0000-0000-0000-000000000000"  # of a device that is only supposed to be shared


def unavailable(claims: Iterable[ResourceClaim], table: Table, rows: Rows, now: float, timeout: float) -> BoolColumn:
    """Returns bool[len(rows)]: True if at least one of `claims` is allocated, but not usable on the row.

    No row can use a claim for which `is_failed` or `is_overdue` returns True. `now` and `timeout` are in seconds.
    """
    away = np.zeros(len(rows), np.bool_)
    for claim in claims:
        allocation = claim.allocation
        if allocation is None:
            continue
        if allocation.node_selector is not None:
            away |= ~nodes_in_selector(allocation.node_selector, table, rows)
        if is_failed(claim) or is_overdue(claim, now, timeout):
            away[:] = True
    return away


def is_failed(claim: ResourceClaim) -> bool:
    """Returns True if a device of the claim has a failure condition, and all devices before this one are ready."""
    return _state(claim) is False


def is_overdue(claim: ResourceClaim, now: float, timeout: float) -> bool:
    """Returns True if binding conditions are still not met `timeout` seconds after the allocation."""
    allocation = claim.allocation
    if allocation is None or allocation.allocation_timestamp is None or _state(claim) is not None:
        return False
    return allocation.allocation_timestamp.timestamp() + timeout < now


def is_ready(claim: ResourceClaim) -> bool:
    """Returns True if all binding conditions of the claim's devices are met."""
    return _state(claim) is True


def _state(claim: ResourceClaim) -> bool | None:
    """Returns True if the claim is ready, False if it has failed, None if a condition is not met yet."""
    for result in claim.allocation.results if claim.allocation else ():
        if not result.binding_conditions:
            continue
        status = _status(claim, result)
        if status is None:
            return None
        holding = {condition.type for condition in status.conditions or () if condition.status == "True"}
        if holding.intersection(result.binding_failure_conditions or ()):
            return False
        if not holding.issuperset(result.binding_conditions):
            return None
    return True


def _status(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> AllocatedDeviceStatus | None:
    device = result.driver, result.pool, result.device
    return next((s for s in claim.status.devices or () if (s.driver, s.pool, s.device) == device), None)


NewShareID = Callable[[], str]
FROM_CLASS, FROM_CLAIM = "FromClass", "FromClaim"


def allocation_of(
    claim: ResourceClaim, results: Sequence[DeviceResult], node_name: str, new_share_id: NewShareID
) -> AllocationResult:
    """Returns the allocation to write into the claim's status."""
    of_devices = [_result(device_result, new_share_id) for device_result in results]
    config = list(_configuration(claim, results))
    return AllocationResult(
        devices=DeviceAllocationResult(results=of_devices, config=config or None),
        node_selector=_node_selector(results, node_name),
    )


def _result(device_result: DeviceResult, new_share_id: NewShareID) -> DeviceRequestAllocationResult:
    amounts = {name: quantity_of(nanos) for name, nanos in (device_result.amounts or {}).items()}
    device = device_result.device
    return DeviceRequestAllocationResult(
        request=device_result.request.name,
        driver=device.id.driver,
        pool=device.id.pool,
        device=device.id.device,
        admin_access=device_result.request.admin or None,
        tolerations=device_result.request.request.tolerations,
        binding_conditions=device.spec.binding_conditions,
        binding_failure_conditions=device.spec.binding_failure_conditions,
        share_id=new_share_id() if device.shareable else None,
        consumed_capacity=dict(amounts) or None,
    )


def _configuration(claim: ResourceClaim, results: Sequence[DeviceResult]) -> Iterator[DeviceAllocationConfiguration]:
    """Yields the configurations of the device classes (each class once), then those of the claim.

    A configuration without requests applies to all requests.
    """
    chosen = {device_result.request.parent: device_result.request for device_result in results}
    requests = [chosen[request.name] for request in claim.requests if request.name in chosen]
    by_class: dict[str, list[RequestData]] = {}
    for request in requests:
        if request.device_class is not None:
            by_class.setdefault(request.device_class.name, []).append(request)
    for of_class in by_class.values():
        device_class = of_class[0].device_class
        for config in (device_class.spec.config if device_class else None) or ():
            yield _applied(FROM_CLASS, [request.name for request in of_class], requests, config.opaque)
    for own in claim.spec.devices.config or ():
        named = own.requests or []
        if not named or any(request.name in named or request.parent in named for request in requests):
            yield _applied(FROM_CLAIM, named, requests, own.opaque)


def _applied(
    source: str, names: list[str], requests: Sequence[RequestData], opaque: dict[str, object] | None
) -> DeviceAllocationConfiguration:
    to_all = all(request.name in names or request.parent in names for request in requests)
    return DeviceAllocationConfiguration(source=source, requests=None if to_all else names or None, opaque=opaque)


def _node_selector(results: Sequence[DeviceResult], node_name: str) -> NodeSelector | None:
    """Returns a selector of the nodes that can access all the devices; None means every node."""
    term = NodeSelectorTerm()
    for device_result in results:
        spec = device_result.device.slice.spec
        selecting = device_result.device.spec if spec.per_device_node_selection else spec
        if selecting.node_name is not None or device_result.device.spec.binds_to_node:
            only = NodeSelectorRequirement(key=NODE_NAME_FIELD, operator="In", values=[node_name])
            return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[only])])
        for more in (selecting.node_selector.node_selector_terms if selecting.node_selector else None) or ():
            term = _both(term, more)
    return NodeSelector(node_selector_terms=[term]) if term.match_fields or term.match_expressions else None


def _both(term: NodeSelectorTerm, more: NodeSelectorTerm) -> NodeSelectorTerm:
    return replace(
        term,
        match_fields=_joined(term.match_fields, more.match_fields),
        match_expressions=_joined(term.match_expressions, more.match_expressions),
    )


def _joined(
    first: list[NodeSelectorRequirement] | None, more: list[NodeSelectorRequirement] | None
) -> list[NodeSelectorRequirement] | None:
    joined: dict[Requirement, NodeSelectorRequirement] = {}
    for requirement in (*(first or ()), *(more or ())):
        joined.setdefault(compile_requirement(requirement), requirement)
    return list(joined.values()) or None


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """The writes to the claims of a pod, once its node is chosen.

    Until the writes are done, the claims count as allocated (`model.devices.PendingClaim`).

    Attributes:
        allocate: claims with their new allocations; each claim is also reserved for the pod. A claim with the name
            `pod_claims.CLAIM_NAME` does not exist yet, and must be created under a generated name.
        reserve: claims that are already allocated; each must be reserved for the pod, unless it already is.
        mappings: for each extended resource of a container, the request that provides it; goes into the pod's status.
        shared: the UIDs of the claims that are reserved for the pod's group instead of the pod.
        group: the pod's group, as the consumer of the `shared` claims; None if there are no such claims.
    """

    allocate: tuple[tuple[ResourceClaim, AllocationResult], ...] = ()
    reserve: tuple[ResourceClaim, ...] = ()
    mappings: tuple[RequestMapping, ...] = ()
    shared: frozenset[str] = frozenset()
    group: ConsumerReference | None = None

    def consumer_of(self, claim: ResourceClaim, pod: Pod) -> ConsumerReference:
        """Returns the consumer to reserve the claim for: the pod's group if the claim is shared, else the pod."""
        return self.group if self.group is not None and claim.uid in self.shared else ConsumerReference.of_pod(pod)


def plan_devices(
    pod: PodInfo, table: Table, row: int, new_share_id: NewShareID, find_best: FindBest | None = None
) -> DevicePlan | Refusal:
    """Returns the plan for the pod on the node with this row; a Refusal if the devices are not available.

    `new_share_id`: returns a new UUID; called once for each allocated device that can be shared. `find_best`: chooses
    the devices; None for those that kube-scheduler takes.
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
        chosen = group.allocations.results(row) if find_best is None else group.allocations.best(row, find_best)
        for claim, results in zip(group.claims, chosen, strict=True):
            allocate.append((claim, allocation_of(claim, results, node_name, new_share_id)))
    mappings = requests_and_mappings(pod.pod, node_claims.delegated())[1] if node_claims.groups else []
    consumer = ConsumerReference.of_group(claims.group) if claims.group is not None and claims.shared else None
    return DevicePlan(tuple(allocate), tuple(claims.allocated), tuple(mappings), claims.shared, consumer)


def pending_claim(claim: ResourceClaim, allocation: AllocationResult) -> PendingClaim:
    """Returns an object for the cache that keeps the devices taken until the allocation is written.

    It has the name of the claim. If the claim is not created yet, the name contains the claim's UID.
    """
    name = claim.name if claim.name != CLAIM_NAME else f"<{claim.uid}>"
    metadata = replace(claim.metadata, name=name, resource_version="")
    return PendingClaim(metadata=metadata, status=ResourceClaimStatus(allocation=allocation))


def idle_claim(pod: PodInfo, table: Table, fit: Fit) -> ResourceClaim | None:
    """Returns a claim to deallocate in order to help a pod that fits nowhere; None if there is no such claim.

    This is a claim that only this pod uses, and whose devices cannot be used on at least one of the refused nodes.
    Without such a claim, it is the claim that was created for the pod's extended resources, if any. After the
    deallocation, the claim gets other devices; a claim for extended resources is deleted and created again.

    Source: upstream PostFilter.
    """
    claims, rows = _refused_by_claims(pod, table, fit)
    if claims is None:
        return None
    special = claims.special if claims.special is not None and claims.special.name != CLAIM_NAME else None
    return next((claim for claim in _unavailable(claims, table, rows) if claim.is_only_for(pod.uid)), special)


def unavailable_claims(pod: PodInfo, table: Table, fit: Fit) -> Sequence[ResourceClaim]:
    """Returns the pod's allocated claims that are unusable on at least one node.

    Only nodes that the plugin DynamicResources refused are considered.
    """
    claims, rows = _refused_by_claims(pod, table, fit)
    return [] if claims is None else list(_unavailable(claims, table, rows))


def _refused_by_claims(pod: PodInfo, table: Table, fit: Fit) -> tuple[PodDeviceClaims | None, Rows]:
    """Returns the pod's claims, and the rows that the plugin DynamicResources refused.

    The claims are None if the plugin refused no row, or if the pod has no claims.
    """
    refused = [index for index, refusal in enumerate(fit.refusals) if refusal.plugin == NAME]
    rows: Rows = fit.rows[np.isin(fit.cause, refused)]
    claims = pod_device_claims(pod, table) if refused else None
    return (claims if isinstance(claims, PodDeviceClaims) else None), rows


def _unavailable(claims: PodDeviceClaims, table: Table, rows: Rows) -> Iterator[ResourceClaim]:
    for claim in claims.user:
        if claim.allocation is not None and unavailable([claim], table, rows, float("-inf"), 0).any():
            yield claim


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
