"""The binding cycle besides its writes: pods that are cancelled, and what cannot be undone."""

from __future__ import annotations

from typing import Any

import pytest

from extender.errors import Outdated, Refused
from extender.model.pod import Pod
from tests.builders import (
    make_claim,
    make_device_class,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_request,
    make_resource_slice,
    make_storage_class,
)
from tests.scheduler.world import NAME, World

CLASS = make_storage_class("late", provisioner="kubernetes.io/no-provisioner")


def node(name: str, cpu: str = "4") -> Any:
    return make_node(name).capacity(cpu=cpu, memory="8Gi", pods="10").allocatable(cpu=cpu, memory="8Gi", pods="10")


def pod(name: str, cpu: str = "1") -> Any:
    return make_pod(name).uid(name).scheduler(NAME).req(cpu=cpu)


def test_a_victim_that_is_not_bound_yet_is_cancelled_and_not_deleted() -> None:
    volume, claim = make_pv("v", storage_class="late"), make_pvc("c", storage_class="late")
    world = World(node("n1", cpu="1"), CLASS, volume, claim, pod("low").priority(1).pvc("c"))
    world.settle()
    assert world.waiting.uids() == ["low"]
    world.put(pod("high").priority(2))
    world.settle()
    world.pass_time(3)
    assert (world.node_of("high"), world.node_of("low")) == ("n1", "")
    assert not world.pod("low").terminating
    assert ("low", "SchedulerError", "preempted by DefaultPreemption", "") in world.conditions
    assert ("low", "Preempted", "Preempted by pod high on node n1 before it was bound") in world.events
    assert world.telemetry.victims == [1]


def test_a_pod_that_is_cancelled_while_it_is_written_is_not_bound() -> None:
    volume, claim = make_pv("v", storage_class="late"), make_pvc("c", storage_class="late")
    world = World(node("n1"), CLASS, volume, claim, pod("p").pvc("c"))
    bind = world.volumes.bind

    def cancelled(*arguments: Any, **named: Any) -> Any:
        assert world.waiting.preempt("p", "default/high")
        return bind(*arguments, **named)

    world.volumes.bind = cancelled  # type: ignore[method-assign]  # for this world alone
    world.attempt()
    world.binders.work()
    assert (world.cache.overview().assumed, world.waiting.uids(), world.conditions[-1][2]) == (
        [],
        [],
        "preempted by DefaultPreemption",
    )


def test_a_pod_that_is_cancelled_as_it_begins_to_wait_is_nominated_to_no_node() -> None:
    volume, claim = make_pv("v", storage_class="late"), make_pvc("c", storage_class="late")
    world = World(node("n1"), CLASS, volume, claim, pod("p").pvc("c"))
    nominate = world.nominate

    def cancelled(pod: Pod, nominated_node: str) -> None:
        if nominated_node:
            world.waiting.preempt("p", "default/high")
        nominate(pod, nominated_node)

    world.nominate = cancelled  # type: ignore[method-assign]  # for this world alone
    world.attempt()
    world.binders.work()
    world.watch()
    assert (world.waiting.uids(), world.conditions[-1][2]) == ([], "preempted by DefaultPreemption")
    assert (world.pod("p").status.nominated_node_name, world.nominations()) == ("", {})


def test_a_pod_that_is_being_bound_cannot_be_cancelled() -> None:
    world = World(node("n1"), pod("p"))
    world.attempt()
    assert not world.waiting.preempt("p", "default/high")
    assert not world.waiting.preempt("unknown", "default/high")


@pytest.mark.parametrize(
    ("plugin", "built"),
    [
        pytest.param(
            "VolumeBinding",
            (CLASS, make_pv("v", storage_class="late"), make_pvc("c", storage_class="late"), pod("p").pvc("c")),
            id="a volume",
        ),
        pytest.param(
            "DynamicResources",
            (
                make_device_class("gpu"),
                make_resource_slice("n1", "gpu.example.com", "gpu-0"),
                make_claim("c", make_request("r", "gpu")),
                pod("p").resource_claim("c"),
            ),
            id="a device",
        ),
    ],
)
@pytest.mark.parametrize("error", [Outdated("c was changed"), ZeroDivisionError("a bug")], ids=str)
def test_an_error_at_reserve_names_the_plugin_as_kube_scheduler_does(
    plugin: str, built: tuple[Any, ...], error: Exception
) -> None:
    world = World(node("n1"), *built)
    assume = world.cache.assume_object

    def fails(_obj: object) -> None:
        world.cache.assume_object = assume  # type: ignore[method-assign]  # only the first call fails
        raise error

    world.cache.assume_object = fails  # type: ignore[method-assign, assignment]  # for this world alone
    world.attempt()
    assert world.conditions[-1][:3] == ("p", "SchedulerError", f'running Reserve plugin "{plugin}": {error}')
    assert world.cache.overview().assumed == []


def test_a_pod_whose_reservations_cannot_be_undone_is_reported_and_keeps_its_place_until_it_expires() -> None:
    volume, claim = make_pv("v", storage_class="late"), make_pvc("c", storage_class="late")
    world = World(node("n1"), CLASS, volume, claim, pod("p").pvc("c"))
    world.volumes.faults["bind"] = Refused("no", 403)
    world.attempt()
    world.cache.restore_object = None  # type: ignore[assignment, method-assign]  # a fault in the undoing
    world.binders.work()
    assert world.telemetry.aside == ["binding p: 'NoneType' object is not callable"]
    [placement] = world.cache.overview().assumed
    assert (placement.node_name, placement.certain) == ("n1", False)
    assert placement.expires_at is not None
    world.put(pod("another"))
    world.settle()
    assert world.node_of("another") == "n1"


def test_the_outcome_of_a_bind_that_meets_a_defect_is_unknown() -> None:
    world = World(node("n1"), pod("p"))
    world.faults.append(ZeroDivisionError("as the answer was read"))
    world.attempt()
    world.binders.work()
    assert len(world.cache.overview().assumed) == 1
    world.pass_time(120)
    world.settle()
    assert world.node_of("p") == "n1"


def test_a_pod_that_cannot_be_bound_because_of_what_is_said_of_it_is_tried_again() -> None:
    world = World(node("n1"), pod("p"))
    withdraw, faults = world.withdraw, [Refused("can't start new thread", 503)]

    def failing(pod: Pod) -> None:
        if faults:
            raise faults.pop()
        withdraw(pod)

    world.withdraw = failing  # type: ignore[method-assign]  # for this world alone
    world.attempt()
    world.binders.work()
    world.pass_time(120)
    world.settle()
    assert world.node_of("p") == "n1"


def test_what_is_yet_to_be_said_of_a_pod_is_withdrawn_before_it_is_bound() -> None:
    world = World(node("n1", cpu="100m"), pod("p"))
    world.settle()
    assert world.conditions[0][:2] == ("p", "Unschedulable")
    world.put(node("n2"))
    world.settle()
    world.pass_time(3)
    assert (world.node_of("p"), world.withdrawn) == ("n2", [("p", False)])
