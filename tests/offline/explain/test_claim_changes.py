"""The smallest change for volumes and devices: named cases, and generated ones as in test_changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as replaced
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.model.devices.claims import ExactDeviceRequest, ResourceClaim
from extender.offline.explain.changes import SuggestedChange
from tests.builders import (
    Object,
    expression,
    make_claim,
    make_csi_driver,
    make_csi_node,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_request,
    make_resource_claim,
    make_resource_slice,
    make_result,
    make_storage_class,
    node_term,
    with_allocation,
)
from tests.builders.pod import PodBuilder
from tests.offline.explain.test_changes import CASES, ROOMY, cases, changes, explanation, fitting, models

GPU_NODE = [make_node("gpu").obj(), make_resource_slice("gpu", "gpu.example.com", "a", "b"), make_device_class("gpu")]
OLD, FAST = make_storage_class("old", wait=False), make_storage_class("fast")
MINE = make_pod("p").pvc("data").obj()
ASKING = make_pod("p").resource_claim("gpus").obj()


def using(name: str, *devices: str, node: str = "gpu") -> list[Object]:
    """A pod on the node, and its claim to these devices."""
    pod = make_pod(name).resource_claim(name).node(node).obj()
    results = [make_result(node, device) for device in devices]
    claim = with_allocation(make_resource_claim(name, "gpu", count=len(devices)), *results)
    user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
    return [pod, {**claim, "status": {**claim["status"], "reservedFor": [user]}}]


def in_zone(zone: str) -> list[Object]:
    return [node_term(expression("zone", "In", zone))]


@pytest.mark.parametrize(
    ("pod", "objects", "kind", "expected"),
    [
        pytest.param(
            MINE,
            [ROOMY, FAST],
            "volume-claim",
            "create PersistentVolumeClaim default/data of StorageClass fast",
            id="a claim that is missing",
        ),
        pytest.param(
            MINE,
            [ROOMY, OLD, FAST, make_pvc("data", storage_class="old")],
            "volume-claim",
            "make PersistentVolumeClaim default/data anew of StorageClass fast",
            id="a claim that nobody binds",
        ),
        pytest.param(
            MINE,
            [ROOMY, OLD, make_pvc("data", storage_class="old")],
            "volume-claim",
            "make StorageClass old anew with volumeBindingMode WaitForFirstConsumer",
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
            "make PersistentVolumeClaim default/data anew of StorageClass fast, with an empty volume in place of v",
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
            [*GPU_NODE, make_resource_claim("gpus", "gpu", count=2), *using("q", "a"), *using("r", "b")],
            "add-node",
            "add a node like gpu",
            id="a node with its devices",
        ),
        pytest.param(
            ASKING,
            [*GPU_NODE, make_resource_claim("gpus", "gpu"), *using("q", "a", "b")],
            "free-devices",
            "remove default/q, and with it ResourceClaim default/q",
            id="a pod that has the devices",
        ),
    ],
)
def test_the_smallest_change_for_volumes_and_devices(
    pod: Object, objects: list[Object], kind: str, expected: str
) -> None:
    assert changes(pod, *objects)[kind].text == expected


# ---- any case


@st.composite
def cases_of_claims(draw: Any, focus: str) -> tuple[Object, list[Object]]:
    _, objects = draw(cases("node-selection"))
    pod = make_pod("p").label(app="x").priority(10).req(cpu="10m", memory="1Ki")
    nodes = sum(obj["kind"] == "Node" for obj in objects)
    more = _volumes(draw, pod, nodes) if focus == "volumes" else _devices(draw, pod)
    return pod.obj(), [*objects, *more]


def _volumes(draw: Any, pod: PodBuilder, nodes: int) -> list[Object]:
    """Claims in every state, the volumes of those that are bound, their other users, and limits."""
    objects = [
        make_storage_class(name, wait=draw(st.booleans())) for name in draw(st.sampled_from(("", "s", "sf", "sf")))
    ]
    for name in draw(st.sampled_from((("a",), ("a", "b")))):
        pod.pvc(name)
        state = draw(st.sampled_from(("missing", "unbound", "bound", "bound", "bound")))
        mode = draw(st.sampled_from(("ReadWriteOnce", "ReadWriteOncePod")))
        volume = f"v-{name}" if state == "bound" else None
        storage_class = draw(st.sampled_from("sfx"))
        if state != "missing":
            objects.append(make_pvc(name, storage_class=storage_class, access_mode=mode, volume=volume))
        if volume:
            terms = [node_term(expression("rack", "In", draw(st.sampled_from("123"))))] if draw(st.booleans()) else []
            objects.append(make_pv(volume, access_mode=mode, node_terms=terms, claim=f"default/{name}"))
            if draw(st.booleans()):
                objects.append(make_pod(f"user-{name}").pvc(name).priority(draw(st.integers(0, 20))).node("n0").obj())
    if draw(st.booleans()):
        objects += [
            make_csi_node(f"n{number}", {"csi.example.com": draw(st.integers(0, 2))}) for number in range(nodes)
        ]
    return objects


def _devices(draw: Any, pod: PodBuilder) -> list[Object]:
    """Devices on the first node, some of them taken, and a claim to more, to others, or of no class."""
    kinds = [
        make_device(f"d{number}", {"kind": draw(st.sampled_from("ab"))}) for number in range(draw(st.integers(1, 4)))
    ]
    taken = draw(st.integers(0, len(kinds)))
    users = [obj for number in range(taken) for obj in using(f"user-{number}", f"d{number}", node="n0")]
    selectors = draw(
        st.lists(st.sampled_from([f"device.attributes['gpu.example.com'].kind == '{k}'" for k in "abc"]), max_size=2)
    )
    request = make_request(
        "r", draw(st.sampled_from(("gpu",) * 5 + ("none",))), *selectors, count=draw(st.integers(1, 4))
    )
    pod.resource_claim("mine")
    return [
        make_resource_slice("n0", "gpu.example.com", *kinds),
        make_device_class("gpu"),
        make_claim("mine", request),
        *users,
    ]


@pytest.mark.parametrize("focus", ["volumes", "devices"])
@settings(max_examples=CASES // 8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_each_change_of_claims_really_does_and_nothing_less_of_its_kind(focus: str, data: st.DataObject) -> None:
    manifest, objects = data.draw(cases_of_claims(focus))
    found = explanation(manifest, *objects)
    for change in found.changes:
        assert set(fitting(found.pod, change, objects)) >= set(change.nodes), change
        for smaller in _less_of(change, objects):
            assert not fitting(found.pod, smaller, objects), (change, smaller)


def _less_of(change: SuggestedChange, objects: list[Object]) -> Iterator[SuggestedChange]:
    """The same with an object or a removal left out, and with one more device."""
    if change.kind not in ("volume-claim", "device-claim", "free-devices", "remove-pods"):
        return
    for size in range(len(change.set_objects)):
        yield from (replaced(change, set_objects=kept) for kept in combinations(change.set_objects, size))
    for size in range(len(change.removed)) if change.kind == "remove-pods" else ():
        yield from (replaced(change, removed=kept) for kept in combinations(change.removed, size))
    if change.text.startswith("ask for"):
        (claim,) = change.set_objects
        (mine,) = (each for each in models(*objects) if each.key == claim.key)
        assert isinstance(mine, ResourceClaim)
        assert isinstance(claim, ResourceClaim)
        for count in range(_exactly(claim).count + 1, _exactly(mine).count):
            request = replace(mine.requests[0], exactly=replace(_exactly(mine), count=count))
            spec = replace(mine.spec, devices=replace(mine.spec.devices, requests=[request]))
            yield replaced(change, set_objects=(replace(mine, spec=spec),))


def _exactly(claim: ResourceClaim) -> ExactDeviceRequest:
    (request,) = claim.requests
    assert request.exactly
    return request.exactly
