"""Describes nodes as documents for JSON, and their devices: which ones pods get, and what is left over on shared ones.

A device's rest is left over if no typical claim can use it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from extender.devices.allocations import devices_of
from extender.devices.device_requests import quantity_of
from extender.devices.inventory import Amounts, DeviceID, PoolDevice, qualified
from extender.devices.typical_pods import most_frequent
from extender.engine.decision import Chosen
from extender.framework.topology import ZONE
from extender.model.devices import DeviceRequestAllocationResult, ResourceClaim, ResourceSlice
from extender.model.node import LOST_NODE_TAINTS, Node
from extender.model.quantity import NANO, nano
from extender.offline.answers import Documented
from extender.offline.state import ClusterState
from extender.runtime.text import counted, quantity
from extender.table import Table

_Share = frozenset[tuple[str, int]]
"""The amount of each capacity that a claim takes of a device, in billionths."""


class LeftOver(Documented, frozen=True):
    """Amounts on shared devices of one driver that no typical claim can use, because it asks for more.

    Typical are the most frequent shares that claims have of the driver's devices, until they are 95 % of all.

    Attributes:
        driver: the driver of the devices.
        capacity: the name of the capacity, such as `memory`.
        devices: the number of devices that are partly in use and have such an amount.
        amount: the sum of these amounts, as a quantity.
    """

    driver: str
    capacity: str
    devices: int
    amount: str

    def __str__(self) -> str:
        devices = counted(self.devices, "device")
        have = "has" if self.devices == 1 else "have"
        return (
            f"{devices} of {self.driver} {have} {self.amount} of {self.capacity} left over that no typical claim uses"
        )


def chosen_devices(chosen: object) -> list[str]:
    """Returns the devices of a pod that has found its node, as `driver/pool/device`; none if it has not."""
    if not isinstance(chosen, Chosen):
        return []
    allocations = [allocation for _, allocation in chosen.devices.allocate]
    allocations += [claim.allocation for claim in chosen.devices.reserve if claim.allocation is not None]
    return [str(_id(result)) for allocation in allocations for result in allocation.results]


def names(devices: Sequence[str]) -> list[str]:
    """Returns the names of devices without their drivers and pools."""
    return [device.rpartition("/")[2] for device in devices]


def left_over(state: ClusterState) -> list[LeftOver]:
    """Returns what no typical claim can use, for each driver and capacity. Selectors of claims are ignored."""
    return state.table.reader(_LeftOvers).now()


class _LeftOvers:
    """Adds up what is left over; again only after a change, because `explain` asks for each pending pod."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._seen = -1
        self._found: list[LeftOver] = []

    def now(self) -> list[LeftOver]:
        journal = self._table.journal
        if journal.since(self._seen, ResourceClaim.__name__, ResourceSlice.__name__) != []:
            self._found = _add_up(self._table)
        self._seen = journal.now
        return self._found


def _add_up(table: Table) -> list[LeftOver]:
    typical = _typical_shares(table)
    if not typical:  # most clusters share no devices, but may have tens of thousands to look at
        return []
    totals: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for device in _all_devices(table):
        if not (device.shareable and devices_of(table).allocated.holds(device.id)):
            continue
        driver, left = device.id.driver, _left(table, device)
        if any(all(left.get(name, 0) >= amount for name, amount in share) for share in typical[driver]):
            continue
        asked_for = {name for share in typical[driver] for name, _ in share}
        for name, amount in left.items():
            if amount > 0 and name in asked_for:
                totals[driver, name.removeprefix(f"{driver}/")].update(devices=1, amount=amount)
    return [
        LeftOver(driver, name, total["devices"], _text(name, total["amount"]))
        for (driver, name), total in sorted(totals.items())
    ]


def devices_on(state: ClusterState, node_name: str) -> list[dict[str, Any]]:
    """Returns the node's own devices: {"device", "claims", "left"}; `left` has the free amounts of a shared device."""
    claims: dict[DeviceID, list[str]] = defaultdict(list)
    for claim in state.objects.all(ResourceClaim).values():
        for result in claim.allocation.results if claim.allocation else ():
            claims[_id(result)].append(claim.key)
    return [
        {"device": str(device.id), "claims": sorted(claims[device.id]), "left": _left_text(state.table, device)}
        for device in _all_devices(state.table)
        if device.slice.spec.node_name == node_name
    ]


def _left_text(table: Table, device: PoolDevice) -> dict[str, str]:
    left = _left(table, device) if device.shareable else {}
    names = {name: name.removeprefix(f"{device.id.driver}/") for name in left}
    return {names[name]: _text(names[name], amount) for name, amount in sorted(left.items())}


def _all_devices(table: Table) -> Iterator[PoolDevice]:
    """Yields every device of the newest generation of its pool."""
    devices = devices_of(table)
    devices.refresh()
    for _, pool in sorted(devices.inventories.pools.items()):
        for index in pool.newest(range(len(pool.slices))):
            yield from pool.devices(index)


def _left(table: Table, device: PoolDevice) -> Amounts:
    driver = device.id.driver
    taken: Counter[str] = Counter()
    for name, amount in devices_of(table).allocated.capacity(device.id).items():
        taken[qualified(name, driver)] += amount
    offered = {qualified(name, driver): nano(each.value) for name, each in (device.spec.capacity or {}).items()}
    return {name: amount - taken[name] for name, amount in offered.items()}


def _typical_shares(table: Table) -> Mapping[str, Sequence[_Share]]:
    counts: dict[str, Counter[_Share]] = defaultdict(Counter)
    for claim in table.objects.all(ResourceClaim).values():
        for result in claim.allocation.results if claim.allocation else ():
            if result.share_id is not None and result.consumed_capacity:
                consumed = result.consumed_capacity.items()
                share = frozenset((qualified(name, result.driver), nano(each)) for name, each in consumed)
                counts[result.driver][share] += 1
    return defaultdict(list, {driver: list(most_frequent(shares)) for driver, shares in counts.items()})


def _id(result: DeviceRequestAllocationResult) -> DeviceID:
    return DeviceID(result.driver, result.pool, result.device)


def _text(name: str, nanos: int) -> str:
    is_memory = name.rpartition("/")[2] == "memory" and nanos % NANO == 0
    return quantity("memory", nanos // NANO) if is_memory else quantity_of(nanos)


def all_nodes(state: ClusterState) -> dict[str, Any]:
    """Returns a summary of all nodes:
    {"resources": [name, ...], "nodes": [{"name", "zone", "ready", "allocatable", "requested"}]}.

    Nodes are sorted by name. `ready` means that the node takes new pods. Amounts are listed in the order of
    "resources": cpu in millicores, memory in bytes, everything else in whole units.
    """
    offered = {name: columns for name, columns in state.resources().items() if columns[0].any()}
    documents = [
        {
            "name": node.name,
            "zone": node.labels.get(ZONE, ""),
            "ready": _takes_pods(node),
            "allocatable": [int(allocatable[position]) for allocatable, _ in offered.values()],
            "requested": [int(requested[position]) for _, requested in offered.values()],
        }
        for position, node in enumerate(state.nodes())
    ]
    return {"resources": list(offered), "nodes": sorted(documents, key=lambda document: document["name"])}


class NodeUsage(Documented, frozen=True):
    """The resources of a node, by name: cpu in millicores, memory in bytes, the others in whole units.

    Attributes:
        name: the name of the node.
        zone: the node's zone; empty if it has none.
        ready: True if the node takes new pods.
        allocatable: the amounts that the node offers to pods.
        requested: the amounts that the node's pods request.
    """

    name: str
    zone: str
    ready: bool
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]


def node_usage(state: ClusterState) -> list[NodeUsage]:
    """Returns the resources of every node, sorted by name. A resource that no node offers is left out."""
    document = all_nodes(state)
    for node in document["nodes"]:
        for amounts in ("allocatable", "requested"):
            node[amounts] = dict(zip(document["resources"], node[amounts], strict=True))
    return msgspec.convert(document["nodes"], list[NodeUsage])


def _takes_pods(node: Node) -> bool:
    """Returns False if the node is cordoned, not ready or unreachable."""
    ready = next((each.status for each in node.status.conditions or () if each.type == "Ready"), "True")
    is_lost = any(taint.key in LOST_NODE_TAINTS for taint in node.taints)
    return ready == "True" and not node.spec.unschedulable and not is_lost


def one_node(state: ClusterState, name: str) -> dict[str, Any]:
    """Returns {"name", "labels", "taints", "unschedulable", "resources": {name: {"allocatable", "requested"}}, "pods",
    "devices"}; see `devices_on`.

    Raises UnknownNode if the cluster has no such node.
    """
    node = state.node(name)
    position = state.node_names().index(name)
    resources = {
        resource: {"allocatable": int(allocatable[position]), "requested": int(requested[position])}
        for resource, (allocatable, requested) in state.resources().items()
    }
    return {
        "name": name,
        "labels": dict(sorted(node.labels.items())),
        "taints": [f"{each.key}{f'={each.value}' if each.value else ''}:{each.effect}" for each in node.taints],
        "unschedulable": bool(node.spec.unschedulable),
        "resources": {resource: amounts for resource, amounts in resources.items() if any(amounts.values())},
        "pods": sorted(info.pod.key for info in state.pods_on(name)),
        "devices": devices_on(state, name),
    }
