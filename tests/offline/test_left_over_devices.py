"""Answers name the devices that pods get, and what is left over on shared devices."""

from __future__ import annotations

from typing import Any

from extender import Cluster
from extender.offline.nodes import left_over
from extender.offline.state import ClusterState
from extender.offline.what_if.capacity import as_text as capacity_text
from extender.offline.what_if.result import as_text as simulation_text
from extender.snapshots.objects import to_objects
from tests.builders import (
    Object,
    make_claim,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_request,
    make_resource_slice,
    make_result,
    with_allocation,
)

DRIVER = "gpu.example.com"
CLASS = make_device_class("gpu", f'device.driver == "{DRIVER}"')


def node(name: str, *devices: str | Object) -> list[Any]:
    room = {"cpu": "8", "memory": "16Gi", "pods": "20"}
    return [make_node(name).capacity(room).allocatable(room).obj(), make_resource_slice(name, DRIVER, *devices)]


def shared(name: str, memory: str = "80Gi") -> Object:
    return make_device(name, {}, {"memory": memory}, allowMultipleAllocations=True)


def share(memory: str) -> Object:
    return make_request("device", "gpu", capacity={"requests": {"memory": memory}})


def asking(name: str, request: Object) -> list[Object]:
    return [make_claim(name, request), make_pod(name).req(cpu="1").resource_claim(name).obj()]


def holding(name: str, device: str, memory: str, node_name: str = "gpu-a1") -> list[Object]:
    """A pod on the node, and its claim with a share of this device."""
    result = make_result(node_name, device, shareID=f"share-{name}", consumedCapacity={"memory": memory})
    claim = with_allocation(make_claim(name, share(memory)), result)
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": name, "uid": name}]
    return [claim, make_pod(name).uid(name).req(cpu="1").node(node_name).resource_claim(name).obj()]


def cluster(*objects: Any) -> Cluster:
    flat = [each for obj in objects for each in (obj if isinstance(obj, list) else [obj])]
    return Cluster.from_objects([CLASS, *flat])


def test_explain_names_the_devices_that_the_pod_gets() -> None:
    explanation = cluster(
        node("gpu-a1", "gpu-0", "gpu-1"), asking("p", make_request("device", "gpu", count=2))
    ).explain("default/p")
    assert explanation.notes == ["fits on gpu-0 and gpu-1 of node gpu-a1"]
    assert explanation.to_dict()["devices"] == [f"{DRIVER}/gpu-a1/gpu-0", f"{DRIVER}/gpu-a1/gpu-1"]


def test_explain_says_what_is_left_over_if_the_devices_are_too_full() -> None:
    """No share is as small as the 20 GiB that are left on each of two devices; the third is not in use."""
    used = [*holding("a", "gpu-0", "60Gi"), *holding("b", "gpu-1", "30Gi"), *holding("c", "gpu-1", "30Gi")]
    one = node("gpu-a1", shared("gpu-0"), shared("gpu-1"), shared("gpu-2"))
    waiting = asking("p", share("90Gi"))
    explanation = cluster(one, *used, waiting).explain("default/p")
    text = f"2 devices of {DRIVER} have 40Gi of memory left over that no typical claim uses"
    assert (explanation.notes, explanation.to_dict()["devices"]) == ([text], [])


def test_what_a_typical_claim_can_use_is_not_left_over() -> None:
    used = [*holding("a", "gpu-0", "60Gi"), *holding("b", "gpu-1", "10Gi")]
    answer = cluster(node("gpu-a1", shared("gpu-0"), shared("gpu-1")), *used, asking("p", share("90Gi")))
    assert answer.explain("default/p").notes == []


def test_simulate_names_the_devices_and_what_is_left_over() -> None:
    pods = [asking(name, share("60Gi")) for name in "ab"]
    result = cluster(node("gpu-a1", shared("gpu-0"), shared("gpu-1")), *pods).simulate()
    assert [each["devices"] for each in result.to_dict()["placements"]] == [
        [f"{DRIVER}/gpu-a1/gpu-0"],
        [f"{DRIVER}/gpu-a1/gpu-1"],
    ]
    assert result.to_dict()["leftOver"] == [{"driver": DRIVER, "capacity": "memory", "devices": 2, "amount": "40Gi"}]
    assert list(simulation_text(result))[:5] == [
        "2 pods placed, 0 pending, 0 evicted",
        f"note: 2 devices of {DRIVER} have 40Gi of memory left over that no typical claim uses",
        "",
        "POD        NODE    DEVICES",
        "default/a  gpu-a1  gpu-0",
    ]


def test_capacity_says_what_is_left_over_once_no_more_pods_fit() -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "share", "namespace": "default"},
        "spec": {"spec": make_claim("share", share("30Gi"))["spec"]},
    }
    pod = make_pod("p").req(cpu="100m").resource_claim("share", template=True).obj()
    answer = cluster(node("gpu-a1", shared("gpu-0"), shared("gpu-1")), template).capacity([pod])
    assert (answer.total, [str(each) for each in answer.left_over]) == (
        4,
        [f"2 devices of {DRIVER} have 40Gi of memory left over that no typical claim uses"],
    )
    assert f"note: {answer.left_over[0]}" in list(capacity_text(answer))


def test_what_is_left_over_is_added_up_again_after_a_change() -> None:
    one = node("gpu-a1", shared("gpu-0"), shared("gpu-1"))
    state = ClusterState(to_objects([CLASS, *one, *holding("a", "gpu-0", "60Gi")]))
    assert [each.amount for each in left_over(state)] == ["20Gi"]
    for obj in to_objects(holding("b", "gpu-1", "60Gi")):
        state.add(obj)
    assert [each.amount for each in left_over(state)] == ["40Gi"]
