"""Claims that the members of a pod group share, in the loop."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.devices.plan import DevicePlan
from extender.engine.decision import Chosen
from extender.engine.group_members import reserved
from extender.errors import OutcomeUnknown, Refused
from extender.model.devices import ConsumerReference, ResourceClaim, ResourceClaimStatus
from extender.model.pod import Pod
from extender.table import PodInfo
from extender.table.features import FeatureGates
from tests.builders import (
    Object,
    PodBuilder,
    make_device_class,
    make_pod,
    make_pod_group,
    make_resource_claim,
    make_resource_slice,
    make_result,
    with_allocation,
)
from tests.scheduler.binding.test_claims import pending, taken
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


@pytest.mark.parametrize("users", [(), ("other",), ("other", "a")], ids=["free", "in use", "reserved before"])
def test_a_placed_member_joins_those_that_an_allocated_claim_is_reserved_for(users: tuple[str, ...]) -> None:
    info = PodInfo(msgspec.convert(sharing("a").obj(), Pod))
    references = [ConsumerReference("", "pods", name, name) for name in users]
    found = msgspec.convert(make_resource_claim("shared", "gpu"), ResourceClaim)
    found = msgspec.structs.replace(found, status=ResourceClaimStatus(reserved_for=references or None))
    (assumed,) = list(reserved(info.pod, Chosen("n2", devices=DevicePlan(reserve=(found,))))) or [found]
    assert isinstance(assumed, ResourceClaim)
    assert [user.name for user in assumed.status.reserved_for or ()] == [*(name for name in users if name != "a"), "a"]


def test_a_member_is_bound_at_once_while_its_sibling_writes_the_claim() -> None:
    world = World(*cluster(group(), *map(sharing, "ab")), features=ON)
    world.watch()
    world.attempt()
    first, second = world.binders.tasks
    world.binders.tasks = [first]
    world.claims.while_binding = second
    world.binders.work()
    assert nodes_of(world) == ["n2", "n2"]
    assert world.conditions == []


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


def test_a_claim_that_members_share_keeps_its_device_beside_their_own_claims() -> None:
    devices = make_resource_slice("n2", "gpu.example.com", "gpu-0", "gpu-1", "gpu-2")
    own = [make_resource_claim(f"own-{name}", "gpu") for name in "ab"]
    members = [sharing(name).resource_claim(f"own-{name}") for name in "ab"]
    world = World(*cluster(make_pod_group("workers", 2), devices, *own, *members), features=ON)
    world.settle()
    world.pass_time(10)
    assert nodes_of(world) == ["n2", "n2"]
    allocations = [claim(world, name).allocation for name in ("shared", "own-a", "own-b")]
    assert sorted((each.devices.results or [])[0].device for each in allocations if each) == ["gpu-0", "gpu-1", "gpu-2"]


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


@pytest.mark.parametrize("is_written", [True, False], ids=["it was written", "it was not"])
def test_the_devices_of_a_group_stay_taken_until_the_outcome_of_the_write_is_known(*, is_written: bool) -> None:
    world = World(*cluster(group(), *map(sharing, "ab")), features=ON)
    world.watch()
    bind, release = world.claims.bind, world.claims.release

    def unanswered(*arguments: Any, **options: Any) -> Any:
        if is_written and not options:
            bind(*arguments)
        raise OutcomeUnknown("silence")

    world.claims.bind = world.claims.release = unanswered  # type: ignore[method-assign]  # for this world alone
    world.attempt()
    world.binders.work()
    assert (taken(world), world.cache.overview().assumed) == ({"gpu-0"}, [])
    world.claims.bind, world.claims.release = bind, release  # type: ignore[method-assign]
    world.device_claims.resolve()
    assert (pending(world), taken(world)) == ([], {"gpu-0"} if is_written else set())
    world.pass_time(10)
    assert nodes_of(world) == ["n2", "n2"]
    assert claim(world).status.reserved_for == [OF_GROUP]


def test_a_member_is_bound_whose_sibling_writes_the_claim_after_it_was_read() -> None:
    world = World(*cluster(group(), *map(sharing, "ab")), features=ON)
    world.watch()
    world.attempt()
    effective, unwritten = world.cache.effective, claim(world)
    written_by_first = iter([True])

    def reads_too_early(kind: str, key: str) -> Any:
        """Answers the second member's first call; the one before checks that the first member's devices are ready."""
        if kind == "ResourceClaim" and not next(written_by_first, False):
            world.cache.effective = effective  # type: ignore[method-assign]  # for the next call
            return unwritten
        return effective(kind, key)

    world.cache.effective = reads_too_early  # type: ignore[method-assign]  # for this world alone
    world.binders.work()
    assert nodes_of(world) == ["n2", "n2"]
    assert claim(world).status.reserved_for == [OF_GROUP]


def test_devices_stay_taken_while_a_sibling_writes_the_claim_that_another_gives_up() -> None:
    world = World(*cluster(group(), *map(sharing, "ab")), features=ON)
    world.watch()
    world.attempt()
    first, second = world.binders.tasks
    taken_by_now: list[set[str]] = []

    def first_gives_up() -> None:
        world.claims.faults["bind"] = Refused("no", 403)
        first()
        taken_by_now.append(taken(world))

    world.binders.tasks = [second]
    world.claims.while_binding = first_gives_up
    world.binders.work()
    assert taken_by_now == [{"gpu-0"}]
    assert (pending(world), taken(world)) == ([], {"gpu-0"})
    assert claim(world).status.reserved_for == [OF_GROUP]


def test_a_group_whose_claim_has_no_devices_is_not_bound() -> None:
    world = World(*cluster(group(), *map(sharing, "ab")), features=ON)
    world.delete("ResourceSlice", world_slice(world))
    world.settle()
    assert nodes_of(world) == ["", ""]
    assert claim(world).allocation is None


def allocated(name: str, on: str, *reserved_for: Object) -> Object:
    """A claim with the device of a node, which no other node can use."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [on]}]}
    found = with_allocation(
        make_resource_claim(name, "gpu"),
        make_result(on, "gpu-0"),
        nodeSelector={"nodeSelectorTerms": [term]},
    )
    found["status"]["reservedFor"] = list(reserved_for)
    return found


def devices_on_two_nodes(*more: Any) -> list[Any]:
    """Two nodes with a device each, of which only n1 has room for two members, and a pod whose eviction is no help."""
    slices = [make_resource_slice(name, "gpu.example.com", "gpu-0") for name in ("n1", "n2")]
    low = make_pod("low").req(cpu="100m").node("n2").priority(-1)
    return [node("n1"), node("n2", cpu="1"), make_device_class("gpu"), *slices, low, *more]


RESERVED = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "workers", "uid": OF_GROUP.uid}


@pytest.mark.parametrize("reserved_for", [(), (RESERVED,)], ids=["no pod", "the group"])
def test_a_group_that_fits_nowhere_gives_back_the_devices_of_its_claim(reserved_for: tuple[Object, ...]) -> None:
    shared = allocated("shared", "n2", *reserved_for)
    world = World(*devices_on_two_nodes(shared, group(), *map(sharing, "ab")), features=ON)
    world.settle()
    world.pass_time(2)
    assert nodes_of(world) == ["n1", "n1"]
    assert claim(world).status.reserved_for == [OF_GROUP]
    reason = "ResourceClaims completed" if not reserved_for else "of PodGroup ResourceClaim completed"
    assert reason in world.group_conditions[0][2]


def test_a_group_keeps_the_devices_of_a_claim_that_others_use() -> None:
    others = {"resource": "pods", "name": "other", "uid": "other"}
    shared = allocated("shared", "n2", RESERVED, others)
    world = World(*devices_on_two_nodes(shared, group(), *map(sharing, "ab")), features=ON)
    world.settle()
    world.pass_time(10)
    assert nodes_of(world) == ["", ""]
    assert claim(world).allocation is not None
    assert [consumer.uid for consumer in claim(world).status.reserved_for or ()] == ["other"]
    assert "ResourceClaim unreserved for PodGroup" in world.group_conditions[0][2]


def test_a_claim_that_every_member_could_use_loses_its_reservation_and_keeps_its_devices() -> None:
    shared = allocated("shared", "n1", RESERVED)
    device = make_resource_slice("n1", "gpu.example.com", "gpu-0")
    members = map(sharing, "ab")
    world = World(node("n1", cpu="1"), make_device_class("gpu"), device, shared, group(), *members, features=ON)
    world.settle()
    assert nodes_of(world) == ["", ""]
    assert claim(world).status.reserved_for == []
    assert claim(world).allocation is not None


def test_a_group_that_gives_up_a_reservation_preempts_in_the_same_attempt() -> None:
    others = {"resource": "pods", "name": "other", "uid": "other"}
    shared = allocated("shared", "n2", RESERVED, others)
    low = make_pod("low").uid("low").req(cpu="4").node("n2").priority(-1)
    device = make_resource_slice("n2", "gpu.example.com", "gpu-0")
    members = map(sharing, "ab")
    world = World(node("n2"), make_device_class("gpu"), device, low, shared, group(), *members, features=ON)
    world.watch()
    world.attempt()
    world.binders.work()
    world.preemptors.work()
    assert [consumer.uid for consumer in claim(world).status.reserved_for or ()] == ["other"]
    assert world.objects["Pod", "default/low"].terminating


def test_a_reservation_that_cannot_be_removed_is_removed_after_a_later_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    others = {"resource": "pods", "name": "other", "uid": "other"}
    shared = allocated("shared", "n2", RESERVED, others)
    world = World(*devices_on_two_nodes(shared, group(), *map(sharing, "ab")), features=ON)
    world.claims.faults["release"] = Refused("no", 403)
    world.settle()
    assert len(claim(world).status.reserved_for or ()) == 2
    assert "unreserving a claim failed claim=default/shared reason='no'" in caplog.messages
    world.put(node("n3", cpu="1"))
    world.pass_time(10)
    assert [consumer.uid for consumer in claim(world).status.reserved_for or ()] == ["other"]


def test_a_member_that_fits_nowhere_gives_back_the_devices_of_its_own_claim() -> None:
    own = [allocated("of-a", "n2"), make_resource_claim("of-b", "gpu")]
    waiting = [member(name, cpu="2").resource_claim(f"of-{name}") for name in "ab"]
    world = World(
        *devices_on_two_nodes(node("n2", cpu="2"), *own, make_pod_group("workers", 2), *waiting),
        make_pod("full").req(cpu="2").node("n2").priority(9),
        features=ON,
    )
    world.settle()
    assert nodes_of(world) == ["", ""]
    assert claim(world, "of-a").allocation is None
    assert "deallocation and deletion of ResourceClaims completed" in world.group_conditions[0][2]


def test_a_group_with_a_topology_constraint_keeps_its_claims() -> None:
    constrained = {**group(), "spec": {**group()["spec"], "schedulingConstraints": {"topology": [{"key": "rack"}]}}}
    features = FeatureGates(
        generic_workload=True, dra_workload_resource_claims=True, topology_aware_workload_scheduling=True
    )
    shared = allocated("shared", "n2", RESERVED)
    world = World(*devices_on_two_nodes(shared, constrained, *map(sharing, "ab")), features=features)
    world.settle()
    assert claim(world).status.reserved_for == [OF_GROUP]
    assert "ResourceClaim" not in world.group_conditions[0][2]


def world_slice(world: World) -> str:
    return next(key for kind, key in world.objects if kind == "ResourceSlice")
