"""Finds the ResourceClaims of a pod, those that must be allocated on each node, and the devices for them.

A claim may not exist yet: containers request extended resources that device classes provide by name (KEP-5004), and a
claim is created for them. Source: upstream dynamicresources PreFilter, resourceclaim.Name, extendeddynamicresources.go,
extendedresourcecache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np

from extender.devices.allocations import FITS, AllocationFailure, Allocations, devices_of
from extender.devices.allocator import UNTIMED, NodeTimeLimit
from extender.framework.node_selectors import is_well_formed
from extender.framework.rules import Verdict
from extender.framework.status import Code, Refusal, failed, unresolvable
from extender.model.devices import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    PendingClaim,
    RequestMapping,
    ResourceClaim,
    ResourceClaimSpec,
)
from extender.model.meta import ObjectMeta, OwnerReference
from extender.model.node import Node
from extender.model.pod import Container, Pod, PodResourceClaim, PodResourceClaimStatus
from extender.model.pod_groups import PodGroup
from extender.model.quantity import NANO, nano
from extender.model.requests import RESOURCE_NAMES, is_extended
from extender.table import PodInfo, Table
from extender.table.journal import BEGINNING
from extender.table.labels import BoolColumn, Rows

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
CLAIM_NAME = "<extended-resources>"  # the API does not allow this name, so no real claim has it
NAME = "DynamicResources"

FindClaim = Callable[[str], ResourceClaim | None]
"""A function that returns the claim with the given key, None if it does not exist."""
STALE = unresolvable(NAME, "cannot schedule extended resource claim")
UNFIT = unresolvable(NAME, "cannot fit resource")


@lru_cache(RESOURCE_NAMES)
def may_be_backed(resource: str) -> bool:
    """Returns True if a device class may provide a resource of this name.

    Source: upstream IsDRAExtendedResourceName.
    """
    return is_extended(resource) or resource.startswith(IMPLICIT_PREFIX)


def class_behind(resource: str, table: Table) -> DeviceClass | None:
    """Returns the device class that provides an extended resource, None if there is no such class."""
    if not table.objects.all(DeviceClass):
        return None
    return table.derived(_classes_by_resource, DeviceClass.__name__).get(resource)


def _classes_by_resource(table: Table) -> dict[str, DeviceClass]:
    by_resource: dict[str, DeviceClass] = {}
    # Classes are sorted by name, because that is the order in which the API server lists them.
    for _, device_class in sorted(table.objects.all(DeviceClass).items()):
        named = device_class.spec.extended_resource_name
        other = by_resource.get(named) if named is not None else None
        is_taken = other is not None and _created(device_class) <= _created(other)
        if not is_taken or table.features.behaviours.every_class_has_its_resource:
            by_resource[f"{IMPLICIT_PREFIX}{device_class.name}"] = device_class
        if named is not None and not is_taken:
            by_resource[named] = device_class
    return by_resource


def _created(device_class: DeviceClass) -> float:
    created = device_class.metadata.creation_timestamp
    return created.timestamp() if created else float("-inf")


def claim_for(pod: Pod) -> ResourceClaim:
    """Returns a claim for the pod's extended resources. It has no requests yet, because these depend on the node."""
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True)
    metadata = ObjectMeta(
        name=CLAIM_NAME,
        namespace=pod.namespace,
        uid=f"{pod.uid}-extended-resources",
        annotations={EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
        owner_references=[owner],
    )
    return ResourceClaim(metadata=metadata)


def with_requests(claim: ResourceClaim, pod: Pod, classes: Mapping[str, DeviceClass]) -> ResourceClaim:
    """Returns a copy of the claim with the device requests of the pod's containers.

    `classes`: the device class of each extended resource.
    """
    devices = DeviceClaim(requests=requests_and_mappings(pod, classes)[0])
    return msgspec.structs.replace(claim, spec=ResourceClaimSpec(devices=devices))


def requests_and_mappings(
    pod: Pod, classes: Mapping[str, DeviceClass]
) -> tuple[list[DeviceRequest], list[RequestMapping]]:
    """Returns the device requests for the pod's containers, and a mapping from containers to requests.

    An init container that runs to completion uses the devices of containers that start later. It requests only the
    devices that it needs beyond those.
    """
    requests: list[DeviceRequest] = []
    mappings: list[RequestMapping] = []
    for resource in sorted(classes):
        containers = _ContainerRequests(pod, resource, classes[resource].name)
        requests += containers.requests()
        mappings += containers.mappings
    return sorted(requests, key=lambda request: request.name), mappings


class _ContainerRequests:
    """Computes the device requests of all containers of a pod for one extended resource."""

    def __init__(self, pod: Pod, resource: str, class_name: str) -> None:
        self._resource = resource
        self._class_name = class_name
        self._init = len(pod.init_containers)
        self._containers = [*pod.init_containers, *pod.containers]
        self._lasting: dict[int, tuple[str, int]] = {}
        self.mappings: list[RequestMapping] = []

    def requests(self) -> Iterator[DeviceRequest]:
        passing = [i for i in range(self._init) if self._containers[i].restart_policy != "Always"]
        for index in sorted(set(range(len(self._containers))) - set(passing)):
            request = self._request(index, ())
            if request is not None:
                self._lasting[index] = request
        lasting = len(self.mappings)
        largest = self._largest(passing)
        if largest is not None:
            own = {_request_name(index, self._containers[index], self._resource) for index in passing}
            self.mappings[lasting:] = [
                msgspec.structs.replace(mapping, request_name=largest[0]) if mapping.request_name in own else mapping
                for mapping in self.mappings[lasting:]
            ]
            yield self._device_request(*largest)
        for request in self._lasting.values():
            yield self._device_request(*request)

    def _largest(self, passing: Sequence[int]) -> tuple[str, int] | None:
        reusable = {index: [self._lasting[i] for i in sorted(self._lasting) if i >= index] for index in passing}
        requests = (self._request(index, reusable[index]) for index in passing)
        return max(filter(None, requests), key=lambda request: request[1], default=None)

    def _request(self, index: int, reusable: Sequence[tuple[str, int]]) -> tuple[str, int] | None:
        """Returns the device request of a container, as (name, number of devices); None if none is needed.

        Adds every request that the container uses to `mappings`.

        `index`: the index of the container. `reusable`: requests of other containers; their devices are used first.
        """
        container = self._containers[index]
        nanos = nano((container.resources.requests or {}).get(self._resource)) if container.resources else 0
        wanted = 0 if nanos % NANO else nanos // NANO
        if not wanted:
            return None
        for name, count in reusable:
            self._map(container, name)
            wanted -= count
            if wanted <= 0:
                return None
        name = _request_name(index, container, self._resource)
        self._map(container, name)
        return name, wanted

    def _map(self, container: Container, request_name: str) -> None:
        self.mappings.append(RequestMapping(container.name, self._resource, request_name))

    def _device_request(self, name: str, count: int) -> DeviceRequest:
        return DeviceRequest(name=name, exactly=ExactDeviceRequest(device_class_name=self._class_name, count=count))


def _request_name(index: int, container: Container, resource: str) -> str:
    requested = sorted((container.resources.requests or {}) if container.resources else ())
    return f"container-{index}-request-{requested.index(resource) if resource in requested else 0}"


@dataclass(frozen=True, slots=True, eq=False)
class PodDeviceClaims:
    """The ResourceClaims of a pod.

    Attributes:
        user: the claims that the pod's spec names, in the order of the spec.
        special: a claim for the pod's extended resources that device classes provide; None if `backed` is empty.
        backed: the pod's extended resources that device classes provide, with these classes.
        unbacked: the pod's other extended resources; empty if `backed` is empty.
        shared: the UIDs of the claims that the members of the pod's group share.
        group: the group whose claims the pod may share; None if there is none.
    """

    pod: Pod
    user: tuple[ResourceClaim, ...]
    special: ResourceClaim | None
    backed: Mapping[str, DeviceClass]
    unbacked: tuple[str, ...]
    shared: frozenset[str] = frozenset()
    group: PodGroup | None = None

    @property
    def all(self) -> tuple[ResourceClaim, ...]:
        return self.user if self.special is None else (*self.user, self.special)

    @property
    def allocated(self) -> list[ResourceClaim]:
        """The allocated claims, with `special` if it is allocated; empty if the pod's spec names no claims."""
        return [claim for claim in self.all if claim.allocation is not None] if self.user else []

    @property
    def to_allocate(self) -> list[ResourceClaim]:
        """The claims that the pod's spec names and that are not allocated yet."""
        return [claim for claim in self.user if claim.allocation is None]


def pod_device_claims(pod: PodInfo, table: Table) -> PodDeviceClaims | Refusal | None:
    """Returns the claims of the pod: None if it has no claims, a Refusal if its claims exclude every node."""
    if not pod.pod.spec.resource_claims and not table.objects.all(DeviceClass):
        return None
    return table.reader(_LatestClaims).of(pod)


class _LatestClaims:
    """Keeps the claims of one pod until the table changes, because filter, score and plan ask for the same ones."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._pod: PodInfo | None = None
        self._position = BEGINNING
        self._claims: PodDeviceClaims | Refusal | None = None

    def of(self, pod: PodInfo) -> PodDeviceClaims | Refusal | None:
        journal = self._table.journal
        if pod is not self._pod or journal.now != self._position:
            self._claims = _find_claims(pod, self._table)
            self._pod = pod
            self._position = journal.now
        return self._claims


def _find_claims(pod: PodInfo, table: Table) -> PodDeviceClaims | Refusal | None:
    backed = backed_resources(pod, table)
    if not pod.pod.spec.resource_claims and not backed:
        return None
    group = sharing_group(pod.pod, table)
    user = existing_claims(pod.pod, lambda key: table.objects.get(ResourceClaim, key), group)
    if isinstance(user, Refusal):
        return user
    if not user and not backed:
        return None
    for claim in user:
        refusal = _unready(claim, table) if claim.allocation is None else _unreadable(claim)
        if refusal is not None:
            return refusal
    if backed or any(claim.allocation is None for claim in user):
        devices = devices_of(table)
        devices.refresh()
        if fault := devices.allocated.fault:
            return failed(NAME, f'running PreFilter plugin "{NAME}": gather allocation state: {fault}')
    unbacked = [name for name, amount in pod.requests.items() if amount and may_be_backed(name) and name not in backed]
    special = _special_claim(pod.pod, table) if backed else None
    names = {f"{pod.pod.namespace}/{name}" for name in _shared_names(pod.pod, group)}
    shared = frozenset(claim.uid for claim in user if claim.key in names)
    return PodDeviceClaims(pod.pod, tuple(user), special, backed, tuple(unbacked) if backed else (), shared, group)


def group_claims(group: PodGroup, table: Table) -> Iterator[ResourceClaim]:
    """Yields the existing claims that the members of the group share."""
    for named in group.spec.resource_claims or ():
        claim = _claim(group, named, lambda key: table.objects.get(ResourceClaim, key))
        if isinstance(claim, ResourceClaim):
            yield claim


def sharing_group(pod: Pod, table: Table) -> PodGroup | None:
    """Returns the group whose claims the pod may share; None if it has no group or the feature gate is off."""
    key = pod.group_key if table.features.group_claims else None
    return None if key is None else table.objects.get(PodGroup, key)


def _shared_names(pod: Pod, group: PodGroup | None) -> Iterator[str]:
    """Yields the names of the claims that the pod shares with its group, except claims that are not created yet."""
    for named in pod.spec.resource_claims or () if group is not None else ():
        if group is not None and named in (group.spec.resource_claims or ()):
            name = named.resource_claim_name or generated_name(group.status.resource_claim_statuses, named.name)
            if name:
                yield name


def generated_name(statuses: Sequence[PodResourceClaimStatus] | None, name: str) -> str | None:
    """Returns the name of the claim generated for the entry `name` of a pod or group; None if there is none yet."""
    return next((each.resource_claim_name for each in statuses or () if each.name == name), None)


def existing_claims(pod: Pod, find: FindClaim, group: PodGroup | None = None) -> list[ResourceClaim] | Refusal:
    """Returns the claims that the pod needs; a Refusal if one is missing (upstream foreachPodResourceClaim).

    For an entry that is equal to an entry of the pod's group, the group's claim is returned (upstream BindTo).
    """
    shared = group.spec.resource_claims or () if group is not None else ()
    claims = [
        _claim(group if group is not None and named in shared else pod, named, find)
        for named in pod.spec.resource_claims or ()
    ]
    refused = next((claim for claim in claims if isinstance(claim, Refusal)), None)
    return refused or [claim for claim in claims if isinstance(claim, ResourceClaim)]


def backed_resources(pod: PodInfo, table: Table) -> dict[str, DeviceClass]:
    """Returns the device class of each resource that the pod requests and that a device class provides."""
    return {
        name: device_class
        for name, amount in pod.requests.items()
        if amount and may_be_backed(name) and (device_class := class_behind(name, table)) is not None
    }


def _special_claim(pod: Pod, table: Table) -> ResourceClaim:
    """Returns the claim that an earlier attempt created for extended resources, or else a new claim."""
    devices = devices_of(table)
    devices.refresh()
    for key in devices.allocated.for_extended_resources.get(pod.uid, ()):
        claim = table.objects.get(ResourceClaim, key)
        if claim is not None and claim.controller is not None and claim.controller.name == pod.name:
            return claim
    return claim_for(pod)


def _claim(owner: Pod | PodGroup, named: PodResourceClaim, find: FindClaim) -> ResourceClaim | Refusal | None:
    """Returns the claim for one entry of the owner's spec: None if no claim is needed, a Refusal if it is missing."""
    kind = "pod" if isinstance(owner, Pod) else "podgroup"
    name, owned = named.resource_claim_name, False
    if name is None:
        if named.resource_claim_template_name is None:
            unset = "none of the supported fields are set"
            return unresolvable(NAME, f'{kind} "{owner.key}", spec.resourceClaim "{named.name}": {unset}')
        statuses = owner.status.resource_claim_statuses or ()
        status = next((entry for entry in statuses if entry.name == named.name), None)
        if status is None:
            return unresolvable(NAME, f'{kind} "{owner.key}": ResourceClaim not created yet')
        name, owned = status.resource_claim_name, True
    return None if name is None else _existing(owner, name, owned, find)


def _existing(owner: Pod | PodGroup, name: str, owned: bool, find: FindClaim) -> ResourceClaim | Refusal:
    key = f"{owner.namespace}/{name}"
    claim = find(key)
    if claim is None:
        return unresolvable(NAME, f'could not find ResourceClaim "{key}"')
    if claim.terminating:
        return unresolvable(NAME, f'resourceclaim "{name}" is being deleted')
    if owned and (claim.controller is None or claim.controller.uid != owner.uid):
        kind = type(owner).__name__
        return unresolvable(NAME, f"ResourceClaim {key} was not created for {kind} {owner.key} ({kind} is not owner)")
    return claim


def _unreadable(claim: ResourceClaim) -> Refusal | None:
    """Returns a Refusal if the node selector of the claim's allocation cannot be parsed, else None.

    Source: upstream NewNodeSelector.
    """
    selector = claim.allocation.node_selector if claim.allocation else None
    if selector is None or all(map(is_well_formed, selector.node_selector_terms or ())):
        return None
    return failed(NAME, f'running PreFilter plugin "{NAME}": claim {claim.key}: cannot parse its node selector')


def _unready(claim: ResourceClaim, table: Table) -> Refusal | None:
    pending = table.objects.get(PendingClaim, claim.key)
    if pending is not None and pending.uid == claim.uid:
        return unresolvable(NAME, f"resource claim {claim.key} is in the process of being allocated")
    for request in claim.requests:
        if request.exactly is None and not request.first_available:
            return unresolvable(NAME, f"resource claim {claim.key}, request {request.name}: unknown request type")
        for name, class_name in _classes(request):
            if not class_name:
                return failed(NAME, f'running PreFilter plugin "{NAME}": request {name}: unsupported request type')
            if table.objects.get(DeviceClass, class_name) is None:
                return unresolvable(NAME, f"request {name}: device class {class_name} does not exist")
    return None


def _classes(request: DeviceRequest) -> Iterator[tuple[str, str]]:
    if request.exactly is not None:
        yield request.name, request.exactly.device_class_name
        return
    for sub in request.first_available or ():
        yield f"{request.name}/{sub.name}", sub.device_class_name


@dataclass(frozen=True, slots=True, eq=False)
class NodeGroup:
    """A group of nodes on which the same claims must be allocated for a pod.

    Attributes:
        mask: bool[n]: True for the rows in the group.
        claims: the claims to allocate.
        allocations: the devices for these claims on each node.
        limit: the time limit for the search on each node.
    """

    mask: BoolColumn
    claims: tuple[ResourceClaim, ...]
    allocations: Allocations
    limit: NodeTimeLimit

    def verdict(self, rows: Rows) -> Iterator[tuple[BoolColumn, Refusal]]:
        """Yields (mask, refusal) for each reason why nodes cannot provide the devices; the mask is bool[n].

        `rows` has n rows of the table. Rows outside this group are not refused.
        """
        outcomes = np.full(len(rows), FITS, np.intp)
        outcomes[self.mask] = self.allocations.outcomes(rows[self.mask], self.limit)
        for index in np.unique(outcomes[outcomes != FITS]).tolist():
            yield outcomes == index, self._refusal(self.allocations.failures[index])

    def _refusal(self, failure: AllocationFailure) -> Refusal:
        text = failure.text if failure.claim is None else f"claim {self.claims[failure.claim].key}{failure.text}"
        if failure.code is Code.ERROR:
            return failed(NAME, f'running "{NAME}" filter plugin: {text}')
        return unresolvable(NAME, text)


class NodeClaims:
    """The claims that must be allocated for one pod on each of n rows.

    Attributes:
        groups: the nodes on which claims must be allocated, grouped by claims; each node is in at most one group.
        refused: the nodes that cannot provide the pod's extended resources; no group contains them.
    """

    def __init__(self, claims: PodDeviceClaims, table: Table, rows: Rows, limit: NodeTimeLimit = UNTIMED) -> None:
        self._claims = claims
        self._table = table
        self._rows = rows
        self._limit = limit._replace(decision=table.deadline)
        self.groups: list[NodeGroup] = []
        self.refused: Verdict = ()
        if claims.special is not None:
            self._place_extended(claims.special)
        elif claims.to_allocate:
            self._add(np.ones(len(rows), np.bool_), claims.to_allocate)

    def delegated(self) -> dict[str, DeviceClass]:
        """Returns the extended resources that devices must provide on the first row, and their device classes.

        These are the resources that no device plugin offers there. Call this only if there is a single row.
        """
        return {name: cls for name, cls in self._claims.backed.items() if not self._allocatable(name)[0]}

    def _add(self, mask: BoolColumn, claims: Sequence[ResourceClaim]) -> None:
        if mask.any():
            self.groups.append(NodeGroup(mask, tuple(claims), devices_of(self._table).allocations(claims), self._limit))

    def _place_extended(self, special: ResourceClaim) -> None:
        # An earlier attempt created the claim, possibly for another node, so the pod cannot use it.
        if special.requests:
            self.refused = [(np.ones(len(self._rows), np.bool_), STALE)]
            return
        unfit = np.zeros(len(self._rows), np.bool_)
        for name in self._claims.unbacked:
            unfit |= ~self._offered(name)
        self.refused = [(unfit, UNFIT)]
        # Each node needs devices for the resources that no device plugin offers there.
        combination = np.zeros(len(self._rows), np.int64)
        for bit, name in enumerate(self._claims.backed):
            combination |= (self._allocatable(name) == 0).astype(np.int64) << bit
        for code in np.unique(combination[~unfit]).tolist():
            classes = {name: c for bit, (name, c) in enumerate(self._claims.backed.items()) if code >> bit & 1}
            if classes or self._claims.user:
                own = with_requests(special, self._claims.pod, classes)
                pending = [own] if special.allocation is None else []
                self._add((combination == code) & ~unfit, [*self._claims.to_allocate, *pending])

    def _allocatable(self, resource: str) -> Rows:
        index = self._table.nodes.resources.get(resource)
        nothing: Rows = np.zeros(len(self._rows), np.int64)
        return nothing if index is None else self._table.nodes.allocatable[index][self._rows]

    def _offered(self, resource: str) -> BoolColumn:
        """Returns bool[n]: True if the node lists the resource, even with an amount of 0."""
        offered = self._table.nodes.facts(_offered_names)
        having = np.array([resource in names for names in offered.values], np.bool_)
        mask: BoolColumn = having[offered.ids[self._rows]]
        return mask


def _offered_names(node: Node) -> frozenset[str]:
    return frozenset(node.allocatable)
