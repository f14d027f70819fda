"""The remains of an earlier scheduler, as far as the next one puts them right before it begins."""

from __future__ import annotations

from typing import Any

import pytest

from extender.errors import OutcomeUnknown
from extender.model.devices import EXTENDED_RESOURCE_CLAIM_ANNOTATION, ResourceClaim
from tests.builders import Object, make_claim, make_node, make_pod, make_request, make_result, with_allocation
from tests.scheduler.world import NAME, World

NODE = make_node("n1")


def pod(name: str, scheduler: str = NAME) -> Any:
    return make_pod(name).uid(name).scheduler(scheduler).gate("held")


def claim(*reserved: str, owner: str = "") -> Object:
    built = with_allocation(make_claim("c", make_request("device", "gpu")), make_result("n1", "gpu-0"))
    built["status"]["reservedFor"] = [{"resource": "pods", "name": uid, "uid": uid} for uid in reserved]
    if owner:
        built["metadata"]["annotations"] = {EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"}
        built["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": owner, "uid": owner, "controller": True}]
    return built


@pytest.mark.parametrize(
    ("claim", "pods", "left"),
    [
        pytest.param(claim("p"), [pod("p")], (False, []), id="reserved for a pod that waits"),
        pytest.param(claim("p", "q"), [pod("p"), pod("q").node("n1")], (True, ["q"]), id="another pod uses it"),
        pytest.param(claim("p"), [pod("p").node("n1")], (True, ["p"]), id="the pod is bound"),
        pytest.param(claim("p"), [pod("p", "another")], (True, ["p"]), id="the pod is another scheduler's"),
        pytest.param(claim("p"), [], (True, ["p"]), id="the pod is gone"),
        pytest.param(claim(), [pod("p")], (True, []), id="reserved for no pod"),
        pytest.param(claim("p", owner="p"), [pod("p")], None, id="made for a pod that waits"),
        pytest.param(claim("p", owner="p"), [pod("p").node("n1")], (True, ["p"]), id="made for a pod that is bound"),
    ],
)
def test_claims(claim: Object, pods: list[Any], left: tuple[bool, list[str]] | None) -> None:
    world = World(NODE, claim, *pods)
    world.leftovers.clean_up()
    found = world.objects.get(("ResourceClaim", "default/c"))
    if left is None:
        assert found is None
        return
    assert isinstance(found, ResourceClaim)
    assert (found.allocation is not None, [each.uid for each in found.status.reserved_for or ()]) == left


def test_a_claim_that_cannot_be_put_right_does_not_keep_the_others() -> None:
    other = {**claim("p"), "metadata": {"name": "other", "namespace": "default", "uid": "other"}}
    world = World(NODE, claim("p"), other, pod("p"))
    world.claims.faults["release"] = OutcomeUnknown("silence")
    world.leftovers.clean_up()
    assert [method for method, _ in world.claims.calls] == ["release"]


@pytest.mark.parametrize(
    ("nominated", "left"),
    [pytest.param("n1", "n1", id="the node is there"), pytest.param("gone", "", id="the node is gone")],
)
def test_nominations(nominated: str, left: str) -> None:
    world = World(NODE, pod("p").nominated(nominated), pod("q", "another").nominated("gone"))
    world.leftovers.clean_up()
    world.watch()
    assert world.nominations() == ({"p": left} if left else {})
    assert (world.pod("p").status.nominated_node_name, world.pod("q").status.nominated_node_name) == (left, "gone")
