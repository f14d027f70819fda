"""Claims that the members of a pod group share, in the loop."""

from __future__ import annotations

from typing import Any

from extender.errors import Refused
from extender.model.devices.claims import ConsumerReference, ResourceClaim
from extender.table.features import FeatureGates
from tests.builders import (
    Object,
    PodBuilder,
    make_device_class,
    make_pod_group,
    make_resource_claim,
    make_resource_slice,
)
from tests.scheduler.test_pod_groups import member, node
from tests.scheduler.world import World

ON = FeatureGates(generic_workload=True, dra_workload_resource_claims=True)
ENTRY = {"name": "shared", "resourceClaimName": "shared"}
OF_GROUP = ConsumerReference("scheduling.k8s.io", "podgroups", "workers", "podgroup-default-workers")


def cluster(*more: Any) -> list[Any]:
    """Two nodes, of which only n2 has a device."""
    device = make_resource_slice("n2", "gpu.example.com", "gpu-0")
    return [node("n1"), node("n2"), make_device_class("gpu"), device, make_resource_claim("shared", "gpu"), *more]


def group(**claim: str) -> Object:
    return make_pod_group("workers", 2, resourceClaims=[{"name": "shared", **claim} if claim else ENTRY])


def sharing(name: str) -> PodBuilder:
    return member(name).resource_claim("shared")


def claim(world: World, name: str = "shared") -> ResourceClaim:
    found = world.objects["ResourceClaim", f"default/{name}"]
    assert isinstance(found, ResourceClaim)
    return found


def nodes_of(world: World) -> list[str]:
    return [world.node_of(name) for name in "ab"]


def test_members_share_a_claim_that_is_reserved_for_their_group() -> None:
    world = World(*cluster(group(), *map(sharing, "ab")), features=ON)
    world.settle()
    assert nodes_of(world) == ["n2", "n2"]
    assert claim(world).status.reserved_for == [OF_GROUP]
    assert claim(world).allocation is not None


def test_a_member_that_comes_later_uses_the_claim_of_its_group() -> None:
    world = World(*cluster(group(), *map(sharing, "ab")), features=ON)
    world.settle()
    world.put(sharing("c"))
    world.pass_time(2)
    assert world.node_of("c") == "n2"
    assert claim(world).status.reserved_for == [OF_GROUP]


def test_without_the_gate_members_reserve_the_claim_for_themselves() -> None:
    world = World(*cluster(group(), *map(sharing, "ab")), features=FeatureGates(generic_workload=True))
    world.settle()
    world.pass_time(10)
    assert nodes_of(world) == ["n2", "n2"]
    assert [consumer.name for consumer in claim(world).status.reserved_for or ()] == ["a", "b"]


def test_members_wait_until_the_claim_of_their_group_is_created() -> None:
    template = {"resourceClaimTemplateName": "shared"}
    members = [member(name).resource_claim("shared", template=True) for name in "ab"]
    made = group(**template)
    world = World(*cluster(made, *members), features=ON)
    world.settle()
    assert nodes_of(world) == ["", ""]
    created = make_resource_claim("workers-shared", "gpu")
    owner = {
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "workers", "uid": OF_GROUP.uid,
        "controller": True,
    }  # fmt: skip
    created["metadata"]["ownerReferences"] = [owner]
    world.put(created)
    world.put(
        {**made, "status": {"resourceClaimStatuses": [{"name": "shared", "resourceClaimName": "workers-shared"}]}}
    )
    world.pass_time(2)
    assert nodes_of(world) == ["n2", "n2"]
    assert claim(world, "workers-shared").status.reserved_for == [OF_GROUP]


def test_all_members_come_back_if_the_claim_cannot_be_written() -> None:
    world = World(*cluster(group(), *map(sharing, "ab")), features=ON)
    world.claims.faults["bind"] = Refused("no", 403)
    world.settle()
    world.pass_time(20)
    assert nodes_of(world) == ["n2", "n2"]
    assert claim(world).status.reserved_for == [OF_GROUP]
    assert world.cache.overview().assumed == []


def test_a_group_whose_claim_has_no_devices_is_not_bound() -> None:
    world = World(*cluster(group(), *map(sharing, "ab")), features=ON)
    world.delete("ResourceSlice", world_slice(world))
    world.settle()
    assert nodes_of(world) == ["", ""]
    assert claim(world).allocation is None


def world_slice(world: World) -> str:
    return next(key for kind, key in world.objects if kind == "ResourceSlice")
