"""Tracks the devices, and the shares of devices, that are allocated to claims. Source: upstream claimTracker."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from extender.devices.device import Amounts, DeviceID, PoolID, qualified
from extender.model.devices import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    DeviceRequestAllocationResult,
    PendingClaim,
    ResourceClaim,
)
from extender.model.quantity import nano
from extender.table import Table
from extender.table.journal import Cursor

_NOTHING: Amounts = {}


class AllocatedState:
    """The devices that are allocated to claims; `refresh` updates them (upstream AllocatedState).

    Attributes:
        devices: the devices that are not shared, with the number of claims that have them.
        shares: the devices that are shared, with the number of shares.
        capacities: for each shared device, the amount of each capacity that claims have taken, in billionths.
        fractional: True if the feature gate DRAFractionalCapacityRange is on.
        behaviours: what no feature gate switches in the version of Kubernetes that the table follows.
        for_extended_resources: pod UID -> the keys of the claims that the scheduler created for the pod's extended
            resources.
    """

    def __init__(self, table: Table) -> None:
        self._objects = table.objects
        self.fractional = table.features.dra_fractional_capacity_range
        self.behaviours = table.features.behaviours
        self._negative: dict[str, str] = {}  # key of a claim -> the share with a negative amount, as a text
        self._changed_claims = Cursor(table.journal, ResourceClaim.__name__, PendingClaim.__name__)
        self._held: dict[str, tuple[DeviceRequestAllocationResult, ...]] = {}
        self._owners: dict[str, str] = {}
        self.devices: Counter[DeviceID] = Counter()
        self.shares: Counter[DeviceID] = Counter()
        self.capacities: dict[DeviceID, Counter[str]] = {}
        self.for_extended_resources: defaultdict[str, list[str]] = defaultdict(list)

    def holds(self, device: DeviceID) -> bool:
        """Returns True if any claim has the device or a share of it (upstream IsDeviceAllocated)."""
        return device in self.devices or device in self.shares

    def capacity(self, device: DeviceID) -> Amounts:
        """Returns, for each capacity of the shared device, the amount that claims have taken, in billionths."""
        return self.capacities.get(device, _NOTHING)

    def capacity_key(self, device: DeviceID, name: str) -> str:
        """Returns the key in `capacity` of a capacity with this name in a claim or slice."""
        return qualified(name, device.driver) if self.behaviours.capacities_have_domains else name

    @property
    def fault(self) -> str:
        """The error because of which no claim can be allocated; "" if there is none."""
        if not self._negative or not self.behaviours.negative_consumption_fails:
            return ""
        key = min(self._negative)
        more = len(self._negative) - 1
        others = f" (and {more} more claims with invalid consumed capacity)" if more else ""
        return f"claim {key}, {self._negative[key]}{others}"

    def refresh(self) -> set[PoolID]:
        """Updates the allocated devices after changes of claims; returns the pools of these devices."""
        keys = self._changed_claims.read()
        if keys is None:
            objects = self._objects
            keys = [*objects.all(ResourceClaim), *objects.all(PendingClaim), *self._held, *self._owners]
        return {pool for key in set(keys) for pool in self._replace(key)}

    def _replace(self, key: str) -> Iterator[PoolID]:
        claim, pending = self._objects.get(ResourceClaim, key), self._objects.get(PendingClaim, key)
        self._own(key, claim)
        holder = claim if claim is not None and claim.allocation is not None else pending
        results = holder.allocation.results if holder is not None and holder.allocation is not None else ()
        taken = tuple(result for result in results if not result.admin_access)
        given_up = self._held.pop(key, ())
        if taken:
            self._held[key] = taken
        if taken == given_up:
            return
        self._count(given_up, -1)
        self._count(taken, 1)
        self._negative.pop(key, None)
        if (share := next(_negative_shares(taken), None)) is not None:
            self._negative[key] = share
        yield from {PoolID(result.driver, result.pool) for result in (*given_up, *taken)}

    def _count(self, results: Iterable[DeviceRequestAllocationResult], sign: int) -> None:
        for result in results:
            device = DeviceID(result.driver, result.pool, result.device)
            counts = self.devices if result.share_id is None else self.shares
            counts[device] += sign
            if not counts[device]:
                del counts[device]
            if result.share_id is not None and result.consumed_capacity is not None:
                amounts = self.capacities.setdefault(device, Counter())
                for name, quantity in result.consumed_capacity.items():
                    full = self.capacity_key(device, name)
                    if full == name or full not in result.consumed_capacity:
                        amounts[full] += sign * nano(quantity)
                if not any(amounts.values()) and device not in self.shares:
                    del self.capacities[device]

    def _own(self, key: str, claim: ResourceClaim | None) -> None:
        owner = self._owners.pop(key, None)
        if owner is not None:
            self.for_extended_resources[owner].remove(key)
            if not self.for_extended_resources[owner]:
                del self.for_extended_resources[owner]
        if claim is not None and claim.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == "true":
            controller = claim.controller
            if controller is not None:
                self._owners[key] = controller.uid
                self.for_extended_resources[controller.uid].append(key)


def _negative_shares(results: Iterable[DeviceRequestAllocationResult]) -> Iterator[str]:
    """Yields a text for each negative amount that a result consumes."""
    for result in results:
        for name, quantity in sorted((result.consumed_capacity or {}).items()):
            if nano(quantity) < 0:
                device = DeviceID(result.driver, result.pool, result.device)
                yield f'device {device}: consumed capacity "{name}" must not be negative, got {quantity}'
