"""Extended resources that a device class provides are scored by the devices of each node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given

from extender.devices.allocations import devices_of
from extender.model.devices import DeviceClass
from extender.plugins.node_resources_scores import (
    NodeResourcesBalancedAllocation,
    NodeResourcesFitScore,
    ResourceWeight,
    most_allocated,
)
from extender.table import Table
from extender.table.journal import Journal
from tests.builders import (
    Object,
    make_claim,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_request,
    make_result,
    make_slice,
    with_allocation,
)
from tests.devices.strategies import CLASSES, GPU, IN_Z1, NODES
from tests.devices.test_allocations import Change, apply, changes
from tests.framework.cluster import scores, table_of

RESOURCE, IMPLICIT = "example.com/gpu", "deviceclass.resource.kubernetes.io/gpus"
FOUR = [make_device(f"gpu-{number}", {"model": "a100" if number else "t4"}) for number in range(4)]
ON_N = make_slice("s", GPU, "n", *FOUR, nodeName="n")
NODE = make_node("n").zone("z1").obj()


def of_class(*cel: str) -> Object:
    return make_device_class("gpus", *cel, extended_resource=RESOURCE)


def held(device: str, **share: Any) -> Object:
    return with_allocation(
        make_claim(f"of-{device}", make_request("device", "gpus")), make_result("n", device, **share)
    )


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        pytest.param([of_class(), ON_N], 25, id="one of four"),
        pytest.param([of_class(), ON_N, held("gpu-1")], 50, id="what is taken counts"),
        pytest.param([of_class(), ON_N, held("gpu-1", shareID="s")], 50, id="so does what is shared"),
        pytest.param([of_class(), ON_N, held("gpu-1", adminAccess=True)], 25, id="not what is watched"),
        pytest.param([of_class('device.attributes["gpu.example.com"].model == "t4"'), ON_N], 100, id="selected ones"),
        pytest.param([of_class("device.attributes.none"), ON_N], 0, id="a selector that fails"),
        pytest.param([of_class(), make_slice("s", GPU, "n", *FOUR, allNodes=True)], 25, id="on all nodes"),
        pytest.param([of_class(), make_slice("s", GPU, "n", *FOUR, nodeSelector=IN_Z1)], 25, id="on nodes selected"),
        pytest.param([of_class(), make_slice("s", GPU, "n", *FOUR, nodeName="other")], 0, id="on another node"),
        pytest.param(
            [
                of_class(),
                make_slice(
                    "s",
                    GPU,
                    "n",
                    *(make_device(name, nodeName=node) for name, node in (("x", "n"), ("y", "n"), ("z", "other"))),
                    perDeviceNodeSelection=True,
                ),
            ],
            50,
            id="devices that name their nodes",
        ),
        pytest.param(
            [of_class(), ON_N, make_slice("old", GPU, "n", *FOUR, generation=0, nodeName="n")],
            12,
            id="those of other generations too",
        ),
        pytest.param(
            [
                of_class("!device.allowMultipleAllocations"),
                make_slice("s", GPU, "n", make_device("x", allowMultipleAllocations=True), nodeName="n"),
            ],
            100,
            id="selectors do not see multiple allocations",
        ),
        pytest.param([make_device_class("gpus"), ON_N], 0, id="no class behind the resource"),
    ],
)
def test_devices_are_scored(cluster: Sequence[Object], expected: int) -> None:
    rule = NodeResourcesFitScore(most_allocated, (ResourceWeight(RESOURCE),))
    assert scores(rule, make_pod("p").req({RESOURCE: "1"}).obj(), NODE, *cluster) == {"n": expected}


def test_a_resource_of_the_node_counts_before_devices() -> None:
    rule = NodeResourcesFitScore(most_allocated, (ResourceWeight(RESOURCE),))
    plugin = make_node("plugin").allocatable({RESOURCE: "2"}).obj()
    everywhere = make_slice("s", GPU, "n", *FOUR, allNodes=True)
    pod = make_pod("p").req({RESOURCE: "1"}).obj()
    assert scores(rule, pod, NODE, plugin, of_class(), everywhere) == {"n": 25, "plugin": 50}


def test_the_implicit_resource_of_a_class_is_scored() -> None:
    rule = NodeResourcesFitScore(most_allocated, (ResourceWeight(IMPLICIT),))
    pod = make_pod("p").req({IMPLICIT: "1"}).obj()
    assert scores(rule, pod, NODE, make_device_class("gpus"), ON_N) == {"n": 25}


def test_devices_count_in_the_balanced_allocation() -> None:
    rule = NodeResourcesBalancedAllocation((ResourceWeight("cpu"), ResourceWeight(RESOURCE)))
    node = make_node("n").allocatable(cpu="4").obj()
    pod = make_pod("p").req({RESOURCE: "1"}, cpu="3").obj()
    # 3/4 of cpu and 1/4 of the devices differ by 1/4 from their mean; without the pod nothing is used.
    assert scores(rule, pod, node, of_class(), ON_N) == {"n": 50 + (50 + 75 - 100) // 2}


@given(changes())
def test_kept_totals_equal_new_ones(happened: Sequence[Change]) -> None:
    check_kept_totals(happened)


@given(changes())
def test_kept_totals_equal_new_ones_after_the_journal_has_dropped_keys(happened: Sequence[Change]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal.__init__, "__defaults__", (1,))
        check_kept_totals(happened)


def check_kept_totals(happened: Sequence[Change]) -> None:
    """After every change, a table that has followed all changes counts like a new one."""
    present = {("Node", name): make_node(name).obj() for name in NODES}
    table = table_of(*CLASSES, *present.values())
    for change in happened:
        apply(change, table)
        key = change.obj["kind"], change.obj["metadata"]["name"]
        present.pop(key, None)
        if not change.gone:
            present[key] = change.obj
        assert totals(table) == totals(table_of(*CLASSES, *present.values()))


def totals(table: Table) -> dict[tuple[str, str], tuple[int, int]]:
    """Returns (class, node) -> (devices, allocated devices)."""
    rows = table.nodes.rows
    return {
        (each["metadata"]["name"], table.nodes.names[row]): (counted, taken)
        for each in CLASSES
        for row, counted, taken in zip(
            rows.tolist(), *devices_of(table).totals(msgspec.convert(each, DeviceClass)).at(rows), strict=True
        )
    }
