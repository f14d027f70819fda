"""Devices from the decision to the Binding: allocated, reserved, awaited, and undone where that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from extender.devices.allocations import devices_of
from extender.errors import ClusterError, Conflict, OutcomeUnknown, Refused
from extender.model.devices import AllocatedDeviceStatus, PendingClaim, ResourceClaim
from extender.model.meta import Condition
from extender.queue.entries import Tier
from tests.builders import (
    Object,
    make_claim,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_request,
    make_resource_slice,
    make_result,
    make_storage_class,
    with_allocation,
)
from tests.scheduler.world import NAME, Later, World

replace = msgspec.structs.replace
GPU = "gpu.example.com"
PRE_BIND = 'running PreBind plugin "DynamicResources": '
CLASS = make_device_class("gpu", extended_resource="example.com/gpu")


def node(name: str) -> Any:
    return make_node(name).capacity(cpu="4", memory="8Gi", pods="10").allocatable(cpu="4", memory="8Gi", pods="10")


def pod(name: str, *claims: str) -> Any:
    built = make_pod(name).uid(name).scheduler(NAME).req(cpu="1")
    for each in claims:
        built = built.resource_claim(each)
    return built


def wanted(name: str) -> Object:
    return make_claim(name, make_request("device", "gpu"))


def allocated(name: str, device: str, node_name: str = "n1", *reserved: str) -> Object:
    here = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}]}
    built = with_allocation(wanted(name), make_result(node_name, device), nodeSelector=here)
    built["status"]["reservedFor"] = [{"resource": "pods", "name": uid, "uid": uid} for uid in reserved]
    return built


def world_of(*objects: Any, devices: tuple[str | Object, ...] = ("gpu-0",)) -> World:
    return World(node("n1"), CLASS, make_resource_slice("n1", GPU, *devices), *objects)


def claim(world: World, name: str = "c") -> ResourceClaim:
    found = world.objects["ResourceClaim", f"default/{name}"]
    assert isinstance(found, ResourceClaim)
    return found


def standing(world: World, name: str = "c") -> tuple[list[str], list[str]]:
    """The devices that the claim has, and whom it is reserved for."""
    found = claim(world, name)
    results = found.allocation.results if found.allocation else ()
    return [each.device for each in results], [each.uid for each in found.status.reserved_for or ()]


def taken(world: World) -> set[str]:
    """The devices that count as taken in the next decision."""
    with world.cache.snapshot("test") as table:
        devices = devices_of(table)
        devices.refresh()
        return {device.device for device in devices.allocated.devices}


def pending(world: World) -> list[str]:
    with world.cache.snapshot("test") as table:
        return list(table.objects.all(PendingClaim))


def test_the_claim_is_allocated_and_reserved_and_the_pod_bound() -> None:
    world = world_of(wanted("c"), pod("p", "c"))
    world.settle()
    assert world.node_of("p") == "n1"
    assert standing(world) == (["gpu-0"], ["p"])
    assert (pending(world), taken(world), world.cache.overview().assumed) == ([], {"gpu-0"}, [])


def test_a_claim_is_written_while_users_rules_keep_all_their_threads() -> None:
    world = World(
        node("n1"), CLASS, make_resource_slice("n1", GPU, "gpu-0"), wanted("c"), pod("p", "c"), pre_binders=Later()
    )
    world.settle()
    assert (world.node_of("p"), standing(world)) == ("n1", (["gpu-0"], ["p"]))


def test_a_device_is_taken_from_the_decision_on() -> None:
    world = world_of(wanted("c1"), wanted("c2"), pod("first", "c1"), pod("second", "c2"))
    world.attempt()
    assert taken(world) == {"gpu-0"}
    world.attempt()
    assert [each.pod.name for each in world.queue.pods()[Tier.UNSCHEDULABLE]] == ["second"]
    world.settle()
    assert (world.node_of("first"), world.node_of("second")) == ("n1", "")


def test_a_pod_waits_while_the_claim_that_it_shares_is_being_allocated_for_another() -> None:
    world = world_of(wanted("c"), pod("p", "c"), pod("q", "c"), devices=("gpu-0", "gpu-1"))
    world.attempt()
    world.attempt()
    assert [(name, message.partition(" preemption:")[0]) for name, _, message, _ in world.conditions] == [
        ("q", "0/1 nodes are available: resource claim default/c is in the process of being allocated.")
    ]
    world.settle()
    world.pass_time(5)
    assert standing(world) == (["gpu-0"], ["p", "q"])


def test_a_device_that_is_given_back_wakes_those_who_would_like_it() -> None:
    world = world_of(wanted("c1"), wanted("c2"), pod("first", "c1"), pod("second", "c2"))
    world.attempt()
    world.attempt()
    world.claims.faults["bind"] = Refused("no", 403)
    world.binders.work()
    world.delete("Pod", "default/first")
    world.pass_time(3)
    assert world.node_of("second") == "n1"


def test_a_claim_that_has_its_devices_is_reserved_only() -> None:
    world = world_of(allocated("c", "gpu-0", "n1", "other"), pod("p", "c"))
    world.settle()
    assert (world.node_of("p"), standing(world)) == ("n1", (["gpu-0"], ["other", "p"]))


def test_a_claim_that_is_reserved_already_is_not_written() -> None:
    world = world_of(allocated("c", "gpu-0", "n1", "p"), pod("p", "c"))
    world.settle()
    assert (world.node_of("p"), world.claims.calls) == ("n1", [])


def test_pods_share_a_claim() -> None:
    world = world_of(wanted("c"), pod("first", "c"), pod("second", "c"))
    world.settle()
    world.pass_time(3)
    assert (world.node_of("first"), world.node_of("second")) == ("n1", "n1")
    assert standing(world) == (["gpu-0"], ["first", "second"])


@pytest.mark.parametrize("error", [Conflict("changed", 409), Refused("no", 422), OutcomeUnknown("silence")], ids=str)
def test_a_claim_that_cannot_be_written_frees_everything_and_is_tried_again(error: ClusterError) -> None:
    world = world_of(wanted("c"), pod("p", "c"))
    world.claims.faults["bind"] = error
    world.attempt()
    world.binders.work()
    assert (pending(world), taken(world), world.cache.overview().assumed, world.waiting.uids()) == (
        [],
        set(),
        [],
        [],
    )
    assert world.conditions == [("p", "SchedulerError", f"{PRE_BIND}{error}", "")]
    world.pass_time(3)
    assert (world.node_of("p"), standing(world)) == ("n1", (["gpu-0"], ["p"]))


@pytest.mark.parametrize(
    ("objects", "undone", "left"),
    [
        pytest.param([wanted("a"), wanted("b")], ["release b", "release a"], ([], []), id="allocated for the pod"),
        pytest.param(
            [allocated("a", "gpu-0", "n1", "other"), wanted("b")],
            ["release a", "release b"],
            (["gpu-0"], ["other"]),
            id="used by another too",
        ),
        pytest.param(
            [allocated("a", "gpu-0"), wanted("b")],
            ["release a", "release b"],
            (["gpu-0"], []),
            id="allocated before",
        ),
    ],
)
def test_a_failing_binding_undoes_all_in_reverse_order(
    objects: list[Object], undone: list[str], left: tuple[list[str], list[str]]
) -> None:
    world = world_of(*objects, pod("p", "a", "b"), devices=("gpu-0", "gpu-1"))
    world.faults = [Refused("no", 403)]
    world.attempt()
    world.binders.work()
    calls = [f"{method} {name}" for method, name in world.claims.calls]
    assert calls[-2:] == undone
    assert (standing(world, "a"), standing(world, "b")) == (left, ([], []))
    assert (world.cache.overview().assumed, taken(world)) == ([], set(left[0]))
    world.pass_time(3)
    assert world.node_of("p") == "n1"


def test_the_second_of_two_claims_fails_and_the_first_is_released() -> None:
    world = world_of(wanted("a"), allocated("b", "gpu-1"), pod("p", "a", "b"), devices=("gpu-0", "gpu-1"))
    bind = world.claims.bind

    def failing(claim: ResourceClaim, *rest: Any, **named: Any) -> ResourceClaim:
        if claim.name == "b":
            raise Refused("reserved for too many", 422)
        return bind(claim, *rest, **named)

    world.claims.bind = failing  # type: ignore[method-assign]  # for this world alone
    world.attempt()
    world.binders.work()
    assert (standing(world, "a"), standing(world, "b")) == (([], []), (["gpu-1"], []))
    assert world.conditions[-1][2] == f"{PRE_BIND}reserved for too many"


def test_a_write_whose_answer_is_lost_is_found_out_and_undone() -> None:
    world = world_of(wanted("c"), pod("p", "c"))
    bind = world.claims.bind

    def unheard(*arguments: Any, **named: Any) -> ResourceClaim:
        bind(*arguments, **named)
        raise OutcomeUnknown("silence")

    world.claims.bind = unheard  # type: ignore[method-assign]  # for this world alone
    world.attempt()
    world.binders.work()
    assert standing(world) == ([], [])


CORDONED = make_node("n1").unschedulable()


def leave_reserved(world: World) -> None:
    """The binding of p is refused, then n1 is cordoned; nothing can take back what was written for it."""
    world.faults = [Refused("no", 403)]
    world.claims.faults["release"] = OutcomeUnknown("silence")
    world.attempt()
    world.binders.work()
    world.put(CORDONED)
    world.watch()
    assert standing(world) == (["gpu-0"], ["p"])


def test_a_release_that_fails_is_tried_again_until_it_is_known() -> None:
    world = world_of(wanted("c"), pod("p", "c"))
    leave_reserved(world)
    for _ in range(3):
        world.claims.faults["release"] = OutcomeUnknown("silence")
        world.device_claims.resolve()
        assert standing(world) == (["gpu-0"], ["p"])
    world.device_claims.resolve()
    assert (standing(world), taken(world)) == (([], []), set())


def test_no_attempt_uses_a_claim_that_is_being_released() -> None:
    world = world_of(wanted("c"), pod("p", "c"), pod("q", "c"))
    leave_reserved(world)
    world.put(node("n1"))
    world.settle()
    assert (world.node_of("p"), world.node_of("q")) == ("", "")
    released = "ResourceClaim default/c is being released"
    assert world.conditions[-1][2] == f'running Reserve plugin "DynamicResources": {released}'
    world.pass_time(10)
    assert (world.node_of("p"), world.node_of("q")) == ("n1", "n1")
    assert sorted(standing(world)[1]) == ["p", "q"]


def test_a_claim_released_between_the_decision_and_the_reservation_is_not_taken_for_reserved() -> None:
    world = world_of(allocated("c", "gpu-0", "n1", "p"), pod("p", "c"))
    assume = world.cache.assume

    def assume_late(*arguments: Any, **named: Any) -> Any:
        world.leftovers.clean_up()
        return assume(*arguments, **named)

    world.cache.assume = assume_late  # type: ignore[method-assign]  # for this world alone
    world.attempt()
    world.binders.work()
    assert (world.node_of("p"), standing(world)) == ("", ([], []))
    world.cache.assume = assume  # type: ignore[method-assign]
    world.pass_time(3)
    assert (world.node_of("p"), standing(world)) == ("n1", (["gpu-0"], ["p"]))


def test_a_binding_that_expires_keeps_no_claim_of_a_pod_that_waits() -> None:
    world = world_of(wanted("c"), pod("p", "c"))
    world.faults = [OutcomeUnknown("silence")]
    world.settle()
    world.put(CORDONED)
    world.leftovers.release_leaked()
    world.leftovers.release_leaked()
    assert standing(world) == (["gpu-0"], ["p"])  # it may yet be bound
    world.pass_time(60)
    assert (world.node_of("p"), world.cache.overview().assumed) == ("", [])
    world.leftovers.release_leaked()
    assert standing(world) == (["gpu-0"], ["p"])  # its next attempt may go on with it
    world.leftovers.release_leaked()
    assert standing(world) == ([], [])


def test_a_claim_that_a_template_made_for_a_waiting_pod_is_released_and_not_deleted() -> None:
    kept = allocated("c", "gpu-0", "n1", "p")
    controller = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True}
    kept["metadata"]["ownerReferences"] = [controller]
    world = world_of(kept, pod("p", "c"))
    world.put(CORDONED)
    world.watch()
    world.leftovers.release_leaked()
    world.leftovers.release_leaked()
    assert standing(world) == ([], [])


def test_a_failing_binding_releases_what_an_attempt_before_has_left() -> None:
    world = world_of(allocated("c", "gpu-0", "n1", "p"), pod("p", "c"))
    world.faults = [Refused("no", 403)]
    world.attempt()
    world.binders.work()
    assert standing(world) == ([], [])


@pytest.mark.parametrize("heard", [True, False], ids=["it was written", "it was not"])
def test_devices_stay_taken_until_it_is_known_whether_a_claim_has_them(*, heard: bool) -> None:
    world = world_of(wanted("c"), pod("p", "c"))
    bind = world.claims.bind

    def unanswered(*arguments: Any, **named: Any) -> ResourceClaim:
        if heard:
            bind(*arguments, **named)
        raise OutcomeUnknown("silence")

    world.claims.bind = unanswered  # type: ignore[method-assign]  # for this world alone
    world.claims.faults["release"] = OutcomeUnknown("silence")
    world.attempt()
    world.binders.work()
    assert (taken(world), world.cache.overview().assumed) == ({"gpu-0"}, [])
    world.claims.faults["release"] = OutcomeUnknown("silence")
    world.device_claims.resolve()
    assert taken(world) == {"gpu-0"}
    world.device_claims.resolve()
    assert (taken(world), pending(world), standing(world)) == (set(), [], ([], []))
    world.claims.bind = bind  # type: ignore[method-assign]
    world.pass_time(5)
    assert (world.node_of("p"), standing(world)) == ("n1", (["gpu-0"], ["p"]))


def test_a_binding_without_an_answer_keeps_the_reservation() -> None:
    world = world_of(wanted("c"), pod("p", "c"))
    world.faults = [OutcomeUnknown("silence")]
    world.settle()
    assert [placed.info.pod.name for placed in world.cache.overview().assumed] == ["p"]
    assert (standing(world), taken(world)) == ((["gpu-0"], ["p"]), {"gpu-0"})


# ---- extended resources


def extended(name: str) -> Any:
    return pod(name).req({"example.com/gpu": "1"}, cpu="1")


CREATED = "p-extended-resources-1"


def test_a_claim_is_made_for_extended_resources() -> None:
    world = world_of(extended("p"))
    world.settle()
    assert (world.node_of("p"), standing(world, CREATED)) == ("n1", (["gpu-0"], ["p"]))
    assert [(each.resource_name, each.request_name) for each in world.claims.mappings["p"]] == [
        ("example.com/gpu", "container-0-request-1")
    ]
    assert (pending(world), taken(world)) == ([], {"gpu-0"})


def test_two_pods_with_extended_resources_do_not_get_in_each_others_way() -> None:
    world = world_of(extended("p"), extended("q"), devices=("gpu-0", "gpu-1"))
    world.attempt()
    world.attempt()
    assert taken(world) == {"gpu-0", "gpu-1"}
    world.settle()
    assert (world.node_of("p"), world.node_of("q")) == ("n1", "n1")


def test_its_devices_stay_taken_until_the_watch_delivers_the_claim() -> None:
    world = world_of(extended("p"), extended("q"))
    world.attempt()
    world.binders.work()
    world.waiting.poll()
    assert (world.node_of("p"), taken(world)) == ("", {"gpu-0"})
    world.settle()
    assert (world.node_of("p"), world.node_of("q")) == ("n1", "")


def test_its_devices_stay_taken_while_the_watch_shows_the_claim_without_devices() -> None:
    world = world_of(extended("p"), extended("q"))
    world.attempt()
    world.binders.work()
    world.untold.pop(0)()  # the claim as it was created, before its devices were written
    world.waiting.poll()
    world.binders.work()
    world.preemptors.work()
    assert (world.node_of("p"), taken(world)) == ("", {"gpu-0"})
    world.settle()
    assert (world.node_of("p"), world.node_of("q")) == ("n1", "")


@pytest.mark.parametrize("step", ["create", "bind", "describe"])
def test_a_claim_that_was_made_for_nothing_is_deleted(step: str) -> None:
    world = world_of(extended("p"))
    world.claims.faults[step] = Refused("no", 403)
    world.attempt()
    world.binders.work()
    assert (("ResourceClaim", f"default/{CREATED}") in world.objects, pending(world)) == (False, [])
    world.pass_time(3)
    [made] = [each for each in world.objects.values() if isinstance(each, ResourceClaim)]
    assert (world.node_of("p"), standing(world, made.name)) == ("n1", (["gpu-0"], ["p"]))


def test_a_claim_that_an_earlier_attempt_has_left_is_deleted_and_recreated() -> None:
    world = world_of(extended("p"))
    world.faults = [Refused("no", 403)]
    world.claims.faults["delete"] = OutcomeUnknown("silence")
    world.settle()
    assert standing(world, CREATED) == (["gpu-0"], ["p"])
    world.pass_time(10)
    assert world.node_of("p") == "n1"
    assert [method for method, _ in world.claims.calls].count("delete") == 1


# ---- devices that have to be made ready (KEP-5007)

ATTACHED = make_device("gpu-0", bindingConditions=["Attached"], bindingFailureConditions=["Broken"])


def report(world: World, condition: str) -> None:
    """The driver reports a condition of the device as true."""
    found = claim(world)
    conditions = [Condition(type=condition, status="True")]
    device = AllocatedDeviceStatus(driver=GPU, pool="n1", device="gpu-0", conditions=conditions)
    world.put_object(replace(found, status=replace(found.status, devices=[device])))


def test_a_pod_waits_until_its_devices_are_ready() -> None:
    world = world_of(wanted("c"), pod("p", "c"), devices=(ATTACHED,))
    world.settle()
    assert (world.node_of("p"), standing(world)) == ("", (["gpu-0"], ["p"]))
    assert world.events == [("p", "BindingConditionsPending", "waiting for binding conditions for device on node n1")]
    report(world, "Attached")
    world.settle()
    assert world.node_of("p") == "n1"


def test_a_device_that_cannot_be_made_ready_is_given_back() -> None:
    world = world_of(wanted("c"), pod("p", "c"), devices=(ATTACHED,))
    world.settle()
    report(world, "Broken")
    world.watch()
    world.waiting.poll()
    world.binders.work()
    world.preemptors.work()
    assert (standing(world), taken(world), world.cache.overview().assumed) == (([], []), set(), [])
    assert world.conditions[-1][2] == f"{PRE_BIND}device binding failed: claim=c"


def test_a_pod_does_not_wait_for_the_devices_of_a_claim_that_took_the_name_of_its_own() -> None:
    world = world_of(wanted("c"), pod("p", "c"), devices=(ATTACHED,))
    world.settle()
    own = claim(world)
    world.put_object(replace(own, metadata=replace(own.metadata, uid="another")))
    world.watch()
    world.waiting.poll()
    world.binders.work()
    world.preemptors.work()
    assert world.cache.overview().assumed == []
    assert world.conditions[-1][2] == f"{PRE_BIND}claim c no longer exists"


def test_a_pod_does_not_wait_for_the_devices_of_a_claim_that_is_no_longer_reserved_for_it() -> None:
    world = world_of(wanted("c"), pod("p", "c"), devices=(ATTACHED,))
    world.settle()
    own = claim(world)
    world.put_object(replace(own, status=replace(own.status, reserved_for=[])))
    world.watch()
    world.waiting.poll()
    world.binders.work()
    world.preemptors.work()
    assert world.cache.overview().assumed == []
    assert world.conditions[-1][2] == f"{PRE_BIND}claim c is no longer reserved for the pod"


@pytest.mark.parametrize("recorded", [False, True], ids=["before the watch delivers it", "after that"])
@pytest.mark.parametrize(
    ("claims", "waiting", "device"),
    [
        pytest.param([wanted("c")], lambda: pod("p", "c"), ATTACHED, id="allocated"),
        pytest.param([allocated("c", "gpu-0", "n1", "other")], lambda: pod("p", "c"), "gpu-0", id="reserved"),
        pytest.param([], lambda: extended("p"), "gpu-0", id="created"),
    ],
)
def test_a_pod_does_not_wait_for_what_a_restored_server_has_lost(
    claims: list[Object], waiting: Callable[[], Any], device: str | Object, *, recorded: bool
) -> None:
    volume = [
        make_storage_class("late", provisioner="kubernetes.io/no-provisioner"),
        make_pv("v", storage_class="late"),
        make_pvc("volume", storage_class="late"),
    ]
    world = world_of(*volume, *claims, waiting().pvc("volume"), devices=(device,))
    copy = world.objects.copy()
    world.attempt()
    world.binders.work()
    kept = [(kind, key) for kind, key in world.objects if kind.startswith("PersistentVolume")]
    if recorded:
        world.watch()
    copy |= {reference: world.objects[reference] for reference in kept}
    world.restore(copy)
    world.waiting.poll()
    world.binders.work()
    world.preemptors.work()
    assert (world.cache.overview().assumed, world.waiting.uids()) == ([], [])
    assert taken(world) == set(standing(world)[0] if ("ResourceClaim", "default/c") in copy else ())
    world.volumes.complete()
    world.pass_time(5)
    if device is ATTACHED:
        report(world, "Attached")
        world.settle()
    assert world.node_of("p") == "n1"


def test_a_device_that_takes_too_long_is_given_back() -> None:
    world = world_of(wanted("c"), pod("p", "c"), devices=(ATTACHED,))
    world.settle()
    world.clock.advance(601)
    world.waiting.poll()
    world.binders.work()
    world.preemptors.work()
    assert (standing(world), world.cache.overview().assumed) == (([], []), [])
    assert world.conditions[-1][2] == f"{PRE_BIND}device binding timeout: claim=c"


# ---- claims that keep their pod away


@pytest.mark.parametrize(
    ("reserved", "freed"),
    [
        pytest.param((), True, id="no pod uses it"),
        pytest.param(("p",), True, id="only the pod uses it"),
        pytest.param(("other",), False, id="another pod uses it"),
    ],
)
def test_an_allocation_where_the_pod_cannot_go_is_given_up(reserved: tuple[str, ...], freed: bool) -> None:
    world = world_of(allocated("c", "gpu-0", "gone", *reserved), pod("p", "c"))
    world.settle()
    world.pass_time(5)
    assert (world.node_of("p") == "n1") is freed
    assert ("deallocate" in [method for method, _ in world.claims.calls]) is freed


def test_of_two_allocations_the_one_is_given_up_that_keeps_the_pod_away() -> None:
    claims = allocated("a", "gpu-0"), allocated("b", "gpu-1", "gone")
    world = world_of(*claims, pod("p", "a", "b"), devices=("gpu-0", "gpu-1"))
    world.settle()
    world.pass_time(5)
    assert world.node_of("p") == "n1"
    assert [call for call in world.claims.calls if call[0] == "deallocate"] == [("deallocate", "b")]


def test_an_allocation_is_kept_where_something_else_keeps_the_pod_away() -> None:
    world = world_of(allocated("c", "gpu-0", "n1"), pod("p", "c").req(cpu="100"))
    world.settle()
    assert (standing(world), world.claims.calls) == ((["gpu-0"], []), [])
