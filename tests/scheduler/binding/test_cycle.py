"""What lies between decision and Binding besides the writes: permission, being called off, who may write at all."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest

from extender.errors import BindingFailed, Refused
from extender.queue.queued_pod import Tier
from extender.scheduler.binding.reservations import Awaited
from extender.table import PodInfo
from tests.builders import make_node, make_pod, make_pv, make_pvc, make_storage_class
from tests.scheduler.world import NAME, World

CLASS = make_storage_class("late", provisioner="kubernetes.io/no-provisioner")


def node(name: str, cpu: str = "4") -> Any:
    return make_node(name).capacity(cpu=cpu, memory="8Gi", pods="10").allocatable(cpu=cpu, memory="8Gi", pods="10")


def pod(name: str, cpu: str = "1") -> Any:
    return make_pod(name).uid(name).scheduler(NAME).req(cpu=cpu)


@dataclass
class Approval:
    """A Permit, and what it has pods wait for: somebody's approval."""

    approved: bool = False
    denied: str = ""
    timeout_seconds: float = 30

    def permit(self, pod: PodInfo, node_name: str) -> Awaited | None:
        return self if pod.pod.name == "p" else None

    def ready(self) -> bool:
        if self.denied:
            raise BindingFailed(self.denied, "Approval")
        return self.approved

    def overdue(self) -> BindingFailed:
        return BindingFailed("rejected due to timeout after waiting 30s at plugin Approval", "Approval")


def test_a_pod_waits_for_permission_and_others_do_not() -> None:
    approval = Approval()
    world = World(node("n1"), pod("p"), pod("other"), permits=[approval])
    world.settle()
    assert (world.node_of("p"), world.node_of("other")) == ("", "n1")
    assert [placed.info.pod.name for placed in world.cache.assumed()] == ["p"]
    approval.approved = True
    world.settle()
    assert world.node_of("p") == "n1"


def test_nothing_is_written_without_permission() -> None:
    approval = Approval()
    volume, claim = make_pv("v", storage_class="late"), make_pvc("c", storage_class="late")
    world = World(node("n1"), CLASS, volume, claim, pod("p").pvc("c"), permits=[approval])
    world.settle()
    assert world.volumes.calls == []
    approval.approved = True
    world.settle()
    assert world.volumes.calls == [("bind", "v")]


@pytest.mark.parametrize(
    ("denied", "told"),
    [
        pytest.param("not today", "not today", id="denied"),
        pytest.param("", "rejected due to timeout after waiting 30s at plugin Approval", id="left without an answer"),
    ],
)
def test_a_pod_without_permission_is_unschedulable(denied: str, told: str) -> None:
    approval = Approval()
    world = World(node("n1"), pod("p"), permits=[approval])
    world.settle()
    approval.denied = denied
    world.clock.advance(31)
    world.settle()
    assert world.conditions == [("p", "Unschedulable", told, "")]
    assert [each.pod.name for each in world.queue.pods()[Tier.UNSCHEDULABLE]] == ["p"]
    assert (world.cache.assumed(), world.waiting.uids(), world.telemetry.results) == ([], [], ["unschedulable"])


def test_a_pod_that_is_turned_away_at_once() -> None:
    class Closed(Approval):
        def permit(self, pod: PodInfo, node_name: str) -> Awaited | None:
            raise BindingFailed("closed", "Closed")

    volume, claim = make_pv("v", storage_class="late"), make_pvc("c", storage_class="late")
    world = World(node("n1"), CLASS, volume, claim, pod("p").pvc("c"), permits=[Closed()])
    world.settle()
    assert world.conditions == [("p", "Unschedulable", "closed", "")]
    assert world.cache.assumed() == []
    with world.cache.snapshot("test") as table:
        assert len(table.storage.unbound.free("late")) == 1


def test_a_victim_that_is_not_bound_yet_is_called_off_and_not_deleted() -> None:
    volume, claim = make_pv("v", storage_class="late"), make_pvc("c", storage_class="late")
    world = World(node("n1", cpu="1"), CLASS, volume, claim, pod("low").priority(1).pvc("c"))
    world.settle()
    assert world.waiting.uids() == ["low"]
    world.put(pod("high").priority(2))
    world.settle()
    world.pass_time(3)
    assert (world.node_of("high"), world.node_of("low")) == ("n1", "")
    assert not world.pod("low").terminating
    assert ("low", "SchedulerError", "preempted by default/high", "") in world.conditions
    assert ("low", "Preempted", "Preempted by pod high on node n1 before it was bound") in world.events
    assert world.telemetry.victims == [1]


def test_a_pod_that_is_called_off_while_it_is_written_is_not_bound() -> None:
    volume, claim = make_pv("v", storage_class="late"), make_pvc("c", storage_class="late")
    world = World(node("n1"), CLASS, volume, claim, pod("p").pvc("c"))
    bind = world.volumes.bind

    def called_off(*arguments: Any) -> Any:
        assert world.waiting.call_off("p", "preempted")
        return bind(*arguments)

    world.volumes.bind = called_off  # type: ignore[method-assign]  # for this world alone
    world.attempt()
    world.binders.work()
    assert (world.cache.assumed(), world.waiting.uids(), world.conditions[-1][2]) == ([], [], "preempted")


def test_a_pod_that_is_being_bound_cannot_be_called_off() -> None:
    world = World(node("n1"), pod("p"))
    world.attempt()
    assert not world.waiting.call_off("p", "preempted")
    assert not world.waiting.call_off("unknown", "preempted")


def test_who_does_not_lead_writes_nothing() -> None:
    volume, claim = make_pv("v", storage_class="late"), make_pvc("c", storage_class="late")
    world = World(node("n1"), CLASS, volume, claim, pod("p").pvc("c"))
    binding = dataclasses.replace(world.scheduler.binding, leading=lambda: False)
    world.scheduler = dataclasses.replace(world.scheduler, binding=binding)
    world.settle()
    assert (world.volumes.calls, world.cache.assumed()) == ([], [])
    assert "not the leader" in world.conditions[0][2]


def test_a_reservation_that_cannot_be_undone_does_not_keep_the_pod() -> None:
    volume, claim = make_pv("v", storage_class="late"), make_pvc("c", storage_class="late")
    world = World(node("n1"), CLASS, volume, claim, pod("p").pvc("c"))
    world.volumes.faults["bind"] = Refused("no", 403)
    world.attempt()
    world.cache.abandon = None  # type: ignore[assignment, method-assign]  # a fault in the undoing
    world.binders.work()
    assert world.cache.assumed() == []
    assert [each.pod.name for each in world.queue.pods()[Tier.BACKOFF]] == ["p"]
