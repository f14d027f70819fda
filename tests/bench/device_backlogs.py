"""Nodes with devices, and pods that each have a claim of their own: whole devices, shares, and partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from random import Random

from tests.bench.workloads import node_name
from tests.builders import (
    Object,
    make_claim,
    make_device,
    make_device_class,
    make_pod,
    make_request,
    make_resource_slice,
    make_slice,
)

DRIVER = "gpu.example.com"
_DEVICES_PER_NODE, _CARDS_PER_NODE, _SLICES_PER_CARD = 8, 2, 7
_PROFILES = {1: 7, 2: 3, 3: 2, 7: 1}  # slices of a partition -> how many such partitions a card lists
_SEED = 7


@dataclass(frozen=True)
class DeviceBacklog:
    """What a node offers, and what a claim asks for.

    Attributes:
        kind: "whole", "shared" or "partitioned" devices.
    """

    kind: str

    def objects(self, nodes: int) -> Iterator[Object]:
        """Yields the class, and the slices of so many nodes."""
        yield make_device_class("gpu", f'device.driver == "{DRIVER}"')
        for number in range(nodes):
            yield from self._slices(node_name(number))

    def pods(self, count: int) -> Iterator[tuple[Object, Object]]:
        """Yields claims and their pods; every claim has a selector with values of its own."""
        random = Random(_SEED)
        for number in range(count):
            name = f"{self.kind}-{number:05}"
            pod = make_pod(name).req(cpu=f"{random.randrange(100, 900)}m", memory="128Mi").resource_claim(name)
            yield make_claim(name, self._request(random)), pod.obj()

    def _request(self, random: Random) -> Object:
        least = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{random.randrange(8, 40)}Gi")) >= 0'
        match self.kind:
            case "shared":
                share = {"requests": {"memory": f"{random.randrange(1, 20)}Gi"}}
                return make_request("device", "gpu", least, capacity=share)
            case "partitioned":
                slices = random.choice([*_PROFILES][:3])
                return make_request("device", "gpu", f'device.attributes["{DRIVER}"].slices == {slices}')
            case _:
                return make_request("device", "gpu", least)

    def _slices(self, node: str) -> Iterator[Object]:
        if self.kind == "partitioned":
            counters = [
                {"name": f"card-{card}", "counters": {"slices": {"value": f"{_SLICES_PER_CARD}"}}}
                for card in range(_CARDS_PER_NODE)
            ]
            yield make_slice(f"{node}-counters", DRIVER, node, slices=2, sharedCounters=counters, nodeName=node)
            yield make_slice(f"{node}-devices", DRIVER, node, *_partitions(), slices=2, nodeName=node)
            return
        fields: Object = {"allowMultipleAllocations": True} if self.kind == "shared" else {}
        devices = [
            make_device(f"gpu-{index}", {"index": index}, {"memory": "80Gi"}, **fields)
            for index in range(_DEVICES_PER_NODE)
        ]
        yield make_resource_slice(node, DRIVER, *devices)


DEVICE_BACKLOGS: Mapping[str, DeviceBacklog] = {
    "whole-devices": DeviceBacklog("whole"),
    "device-shares": DeviceBacklog("shared"),
    "device-partitions": DeviceBacklog("partitioned"),
}


def _partitions() -> Iterator[Object]:
    for card, (slices, count) in product(range(_CARDS_PER_NODE), _PROFILES.items()):
        consumed = [{"counterSet": f"card-{card}", "counters": {"slices": {"value": f"{slices}"}}}]
        for number in range(count):
            yield make_device(f"card-{card}-{slices}x{number}", {"slices": slices}, consumesCounters=consumed)
