"""The smallest change for volumes and devices: named cases; generated ones are in test_any_claim."""

from __future__ import annotations

import pytest

from tests.builders import (
    Object,
    expression,
    make_alternative,
    make_claim,
    make_csi_driver,
    make_csi_node,
    make_device_class,
    make_node,
    make_pod,
    make_prioritized_list,
    make_pv,
    make_pvc,
    make_request,
    make_resource_claim,
    make_resource_slice,
    make_result,
    make_slice,
    make_storage_class,
    node_term,
    with_allocation,
)
from tests.offline.explain.test_changes import ROOMY, changes

GPU_NODE = [make_node("gpu").obj(), make_resource_slice("gpu", "gpu.example.com", "a", "b"), make_device_class("gpu")]
OLD, FAST = make_storage_class("old", wait=False), make_storage_class("fast")
SECURE = make_storage_class("secure")
SECURE["metadata"] = {"name": "secure", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
MINE = make_pod("p").pvc("data").obj()
ASKING = make_pod("p").resource_claim("gpus").obj()


def using(name: str, *devices: str, node: str = "gpu") -> list[Object]:
    """A pod on the node, and its claim to these devices."""
    pod = make_pod(name).resource_claim(name).node(node).obj()
    results = [make_result(node, device) for device in devices]
    claim = with_allocation(make_resource_claim(name, "gpu", count=len(devices)), *results)
    user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
    return [pod, {**claim, "status": {**claim["status"], "reservedFor": [user]}}]


def either(*alternatives: Object) -> Object:
    """The claim `gpus` to the first of these that can be had."""
    return make_claim("gpus", make_prioritized_list("r", *alternatives))


def in_zone(zone: str) -> list[Object]:
    return [node_term(expression("zone", "In", zone))]


@pytest.mark.parametrize(
    ("pod", "objects", "kind", "expected"),
    [
        pytest.param(
            MINE,
            [ROOMY, FAST],
            "volume-claim",
            "create PersistentVolumeClaim default/data with StorageClass fast",
            id="a claim that is missing",
        ),
        pytest.param(
            MINE,
            [ROOMY, FAST, SECURE],
            "volume-claim",
            "create PersistentVolumeClaim default/data with StorageClass secure",
            id="the default class comes first",
        ),
        pytest.param(
            MINE,
            [ROOMY, OLD, FAST, make_pvc("data", storage_class="old")],
            "volume-claim",
            "recreate PersistentVolumeClaim default/data with StorageClass fast",
            id="a claim that no controller binds",
        ),
        pytest.param(
            MINE,
            [ROOMY, OLD, make_pvc("data", storage_class="old")],
            "volume-claim",
            "recreate StorageClass old with volumeBindingMode WaitForFirstConsumer",
            id="a class that binds at once",
        ),
        pytest.param(
            MINE,
            [ROOMY, make_csi_driver("csi.example.com"), make_pvc("data", storage_class="gone")],
            "volume-claim",
            "create StorageClass gone with provisioner csi.example.com and WaitForFirstConsumer",
            id="a class that is missing",
        ),
        pytest.param(
            MINE,
            [
                make_node("a").label(zone="a").obj(),
                FAST,
                make_pvc("data", storage_class="fast", volume="v"),
                make_pv("v", storage_class="fast", node_terms=in_zone("b"), claim="default/data"),
            ],
            "volume-claim",
            "recreate PersistentVolumeClaim default/data with StorageClass fast, which replaces v by an empty volume",
            id="a volume in a zone without nodes",
        ),
        pytest.param(
            make_pod("p").req(cpu="3").pvc("data").obj(),
            [
                make_node("left").label(zone="a").capacity(cpu="4").obj(),
                make_node("right").label(zone="b").capacity(cpu="4").obj(),
                make_pod("q").req(cpu="2").node("right").obj(),
                make_pvc("data", volume="v"),
                make_pv("v", node_terms=in_zone("b"), claim="default/data"),
            ],
            "add-node",
            "add a node like right",
            id="a node in the zone of the volume",
        ),
        pytest.param(
            MINE,
            [
                ROOMY,
                make_pvc("data", access_mode="ReadWriteOncePod", volume="v"),
                make_pv("v", access_mode="ReadWriteOncePod", claim="default/data"),
                make_pod("q").pvc("data").node("roomy").obj(),
            ],
            "remove-pods",
            "remove default/q from roomy",
            id="the one pod that may use the claim",
        ),
        pytest.param(
            MINE,
            [
                ROOMY,
                make_csi_node("roomy", {"csi.example.com": 1}),
                *(make_pvc(name, volume=f"v-{name}") for name in ("data", "other")),
                *(make_pv(f"v-{name}", claim=f"default/{name}") for name in ("data", "other")),
                make_pod("q").pvc("other").node("roomy").obj(),
            ],
            "remove-pods",
            "remove default/q from roomy",
            id="as many volumes as may be attached",
        ),
        pytest.param(
            ASKING,
            [*GPU_NODE, make_resource_claim("gpus", "gpu", count=4)],
            "device-claim",
            "ask for 2 devices instead of 4 in request device of ResourceClaim default/gpus",
            id="fewer devices",
        ),
        pytest.param(
            ASKING,
            [
                *GPU_NODE,
                make_slice("net", "gpu.example.com", "net", "c", allNodes=True),
                make_resource_claim("gpus", "gpu", count=500),
            ],
            "device-claim",
            "ask for 3 devices instead of 500 in request device of ResourceClaim default/gpus",
            id="far fewer devices, one of them of all nodes",
        ),
        pytest.param(
            ASKING,
            [*GPU_NODE, make_claim("gpus", make_request("r", "gpu", "device.driver == 'other'", "true"))],
            "device-claim",
            "drop the selector device.driver == 'other' in request r of ResourceClaim default/gpus",
            id="a selector that nothing matches",
        ),
        pytest.param(
            ASKING,
            [*GPU_NODE, make_claim("gpus", make_request("r", "none"))],
            "device-claim",
            "name DeviceClass gpu instead of none, which does not exist, in request r of ResourceClaim default/gpus",
            id="a class of devices that is missing",
        ),
        pytest.param(
            ASKING,
            [*GPU_NODE, either(make_alternative("x", "gpu", count=5), make_alternative("y", "gpu", count=3))],
            "device-claim",
            "ask for 2 devices instead of 3 in alternative y in request r of ResourceClaim default/gpus",
            id="fewer devices in the alternative that is nearest",
        ),
        pytest.param(
            ASKING,
            [*GPU_NODE, either(make_alternative("x", "none"), make_alternative("y", "gpu"))],
            "device-claim",
            "drop alternative x of DeviceClass none, which does not exist, in request r of ResourceClaim default/gpus",
            id="an alternative of a class that is missing",
        ),
        pytest.param(
            ASKING,
            [*GPU_NODE, either(make_alternative("x", "none"), make_alternative("y", "gpu", "false"))],
            "device-claim",
            "name DeviceClass gpu instead of none, which does not exist, in alternative x in request r of "
            "ResourceClaim default/gpus",
            id="the class of an alternative, where the others do not help",
        ),
        pytest.param(
            ASKING,
            [
                *GPU_NODE,
                either(make_alternative("x", "none", count=3), make_alternative("y", "gpu", count=3)),
            ],
            "device-claim",
            "drop alternative x of DeviceClass none, which does not exist, and ask for 2 devices instead of 3 in "
            "alternative y in request r of ResourceClaim default/gpus",
            id="one alternative less, and fewer devices in the other",
        ),
        pytest.param(
            ASKING,
            [
                *GPU_NODE,
                make_claim(
                    "gpus",
                    make_prioritized_list("r", make_alternative("x", "none"), make_alternative("y", "gpu")),
                    constraints=[{"requests": ["r/x"], "matchAttribute": "gpu.example.com/kind"}],
                ),
            ],
            "device-claim",
            "name DeviceClass gpu instead of none, which does not exist, in alternative x in request r of "
            "ResourceClaim default/gpus",
            id="an alternative that a constraint refers to is not dropped",
        ),
        pytest.param(
            make_pod("p").toleration("other").resource_claim("gpus").obj(),
            [
                make_node("gpu").taint("dedicated").obj(),
                *GPU_NODE[1:],
                make_resource_claim("gpus", "gpu", count=3),
            ],
            "device-claim+tolerations",
            "ask for 2 devices instead of 3 in request device of ResourceClaim default/gpus, and "
            "tolerate dedicated:NoSchedule",
            id="fewer devices and a toleration",
        ),
        pytest.param(
            make_pod("p").req(cpu="6").toleration("other").resource_claim("gpus").obj(),
            [
                make_node("gpu").capacity(cpu="4").taint("dedicated").obj(),
                *GPU_NODE[1:],
                make_claim("gpus", make_request("r", "none")),
            ],
            "device-claim+requests+tolerations",
            "name DeviceClass gpu instead of none, which does not exist, in request r of ResourceClaim default/gpus, "
            "and request 4 cpu instead of 6, and tolerate dedicated:NoSchedule",
            id="a class of devices, a smaller request and a toleration",
        ),
        pytest.param(
            make_pod("p").req(cpu="6").resource_claim("gpus").obj(),
            [
                make_node("gpu").capacity(cpu="4").obj(),
                make_node("cold").capacity(cpu="1").obj(),
                *GPU_NODE[1:],
                make_resource_slice("cold", "gpu.example.com", "c", "d", "e"),
                make_resource_claim("gpus", "gpu", count=4),
            ],
            "device-claim+requests",
            "ask for 3 devices instead of 4 in request device of ResourceClaim default/gpus, and "
            "request 1 cpu instead of 6",
            id="one device less on the smaller node, not two on the larger",
        ),
        pytest.param(
            make_pod("p").req(cpu="6").pvc("data").obj(),
            [ROOMY, OLD, FAST, make_pvc("data", storage_class="old")],
            "volume-claim+requests",
            "recreate PersistentVolumeClaim default/data with StorageClass fast, and request 4 cpu instead of 6",
            id="a claim that no controller binds, and a smaller request",
        ),
        pytest.param(
            ASKING,
            [*GPU_NODE, make_resource_claim("gpus", "gpu", count=2), *using("q", "a"), *using("r", "b")],
            "add-node",
            "add a node like gpu",
            id="a node with its devices",
        ),
        pytest.param(
            ASKING,
            [*GPU_NODE, make_resource_claim("gpus", "gpu"), *using("q", "a", "b")],
            "free-devices",
            "remove default/q, which frees the devices of ResourceClaim default/q",
            id="a pod that has the devices",
        ),
    ],
)
def test_the_smallest_change_for_volumes_and_devices_is_found(
    pod: Object, objects: list[Object], kind: str, expected: str
) -> None:
    assert changes(pod, *objects)[kind].text == expected
