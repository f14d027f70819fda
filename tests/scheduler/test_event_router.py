"""The events that changes become, and the pods that they wake."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from extender import Node, Pod, predicate
from extender.framework.cluster_events import Change
from extender.framework.profile import Profile
from extender.framework.status import Refusal, unschedulable
from extender.model.kinds import KINDS
from extender.model.meta import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta
from extender.plugins.node_affinity import NodeAffinityFilter
from extender.plugins.registry import default_profile
from extender.plugins.users.predicate import PredicateFunction
from extender.plugins.users.rule_calls import OfflineHost
from extender.queue.entries import Tier
from extender.queue.priority_queue import PriorityQueue
from extender.scheduler.event_router import EventRouter, free_on
from extender.table import PodInfo, Table
from extender.table.features import FeatureGates
from tests.builders import ZONE, Builder, make_device_class, make_node, make_pod_group, make_resource_slice
from tests.builders.storage import make_pv
from tests.framework.cluster import table_of
from tests.scheduler.test_loop import node, pod, waiting
from tests.scheduler.world import NAME, World


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The labels of the events that reach the queue."""
    labels: list[str] = []
    move = PriorityQueue.move

    def noted(queue: PriorityQueue, change: Change, **how: Any) -> int:
        labels.append(change.event.label)
        return move(queue, change, **how)

    monkeypatch.setattr(PriorityQueue, "move", noted)
    return labels


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        pytest.param(None, node("n1"), ["NodeAdd"], id="a node comes"),
        pytest.param(node("n1"), node("n1").label(a="b"), ["NodeUpdateNodeLabel"], id="a label"),
        pytest.param(node("n1"), node("n1").taint("a"), ["NodeUpdateNodeTaint"], id="a taint"),
        pytest.param(node("n1"), node("n1", cpu="8"), ["NodeUpdateNodeAllocatable"], id="room"),
        pytest.param(make_node("n1"), make_node("n1"), [], id="nothing that counts"),
        pytest.param(None, make_pv("v"), ["PersistentVolumeAdd"], id="a volume"),
        pytest.param(None, pod("p").node("n1"), ["AssignedPodAdd"], id="a pod on a node"),
        pytest.param(None, pod("p"), [], id="a pod that waits"),
        pytest.param(pod("p"), pod("p").node("n1"), ["AssignedPodAdd"], id="a pod is bound"),
        pytest.param(
            pod("p").node("n1"), pod("p").node("n1").label(a="b"), ["AssignedPodUpdatePodLabel"], id="a pod's label"
        ),
        pytest.param(pod("p").nominated("n1"), pod("p"), ["AssignedPodDelete"], id="a nomination ends"),
    ],
)
def test_changes_and_their_events(
    before: Builder | dict[str, Any] | None, after: Builder | dict[str, Any], events: list[str], moved: list[str]
) -> None:
    world = World(*([before] if before else []))
    moved.clear()
    world.put(after)
    world.watch()
    assert moved == events


def test_an_object_that_is_delivered_again_is_no_event_unless_its_contents_differ(moved: list[str]) -> None:
    world = World()
    router = EventRouter(world.cache, world.queue, [NAME])
    known = KINDS["PersistentVolume"].type(metadata=ObjectMeta(name="v", uid="v", resource_version="7"))
    router.changed("PersistentVolume", known, structs.replace(known))
    assert moved == []
    router.changed(
        "PersistentVolume", known, structs.replace(known, metadata=structs.replace(known.metadata, labels={"a": "b"}))
    )
    router.changed(
        "PersistentVolume",
        known,
        structs.replace(known, metadata=structs.replace(known.metadata, resource_version="8")),
    )
    assert moved == ["PersistentVolumeUpdate"] * 2


def test_a_pod_leaves_its_node(moved: list[str]) -> None:
    world = World(pod("p").node("n1"))
    moved.clear()
    world.delete("Pod", "default/p")
    world.watch()
    assert moved == ["AssignedPodDelete"]


# ---- whom an event wakes


class AnyObject:
    """A user's rule: it refuses pods until an object of a kind that it reads is there."""

    def __init__(self, kind: str) -> None:
        self.name, self._kind = "AnyObject", kind

    def prepare(self, pod: PodInfo, table: Table) -> Refusal | None:
        there = table.nodes.rows.size > 1 if self._kind == "Node" else list(table.objects.all(KINDS[self._kind].type))
        return None if there else unschedulable(self.name, f"no {self._kind}")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "Pod"])
def test_a_change_of_any_kind_wakes_the_pods_of_a_users_rule(kind: str) -> None:
    world = World(node("n1"), pod("p"))
    cycle = world.cycles[NAME]
    cycle.profile = Profile(NAME, (AnyObject(kind),), ())
    world.settle()
    assert waiting(world, Tier.UNSCHEDULABLE) == ["p"]
    world.put({"kind": kind, "metadata": {"name": "x", "namespace": "default", "uid": "x"}})
    world.settle()
    world.pass_time(3)
    assert world.node_of("p")


@predicate(woken_by={"AssignedPod": "Delete"})
def declared(pod: Pod, node: Node) -> bool:
    return False


@predicate
def undeclared(pod: Pod, node: Node) -> bool:
    return False


@pytest.mark.parametrize("rule", [pytest.param(declared, id="declared"), pytest.param(undeclared, id="any event")])
def test_a_pod_that_leaves_wakes_those_of_a_users_rule_that_sees_no_pods(rule: PredicateFunction[..., bool]) -> None:
    default = default_profile()
    made = rule.rule("rules:mine", {}, OfflineHost())
    profile = replace(default, predicates=[*default.predicates, made])
    world = World(node("n1"), pod("holder").node("n1"), pod("p"), profile=profile)
    world.pass_time(30)
    assert waiting(world, Tier.UNSCHEDULABLE) == ["p"]
    attempts = len(world.telemetry.results)
    world.delete("Pod", "default/holder")
    world.pass_time(30)
    assert len(world.telemetry.results) > attempts


def test_the_last_pod_of_its_like_that_leaves_a_cordoned_zone_wakes_those_that_want_to_be_near_it() -> None:
    world = World(
        node("n1").zone("a").unschedulable(),
        node("n2").zone("b"),
        pod("last").label(app="web").node("n1"),
        pod("p").label(app="web").affinity(ZONE, labels={"app": "web"}),
    )
    world.settle()
    assert waiting(world, Tier.UNSCHEDULABLE) == ["p"]
    world.delete("Pod", "default/last")
    world.pass_time(3)
    assert world.node_of("p") == "n2"


IN_POOL = NodeSelector([NodeSelectorTerm([NodeSelectorRequirement("pool", "In", ["x"])])])


def test_a_node_that_gets_what_a_profile_requires_of_all_wakes_its_pods() -> None:
    default = default_profile()
    predicates = [NodeAffinityFilter(IN_POOL) if each.name == "NodeAffinity" else each for each in default.predicates]
    world = World(node("n1"), pod("p"), profile=replace(default, predicates=predicates))
    world.settle()
    assert waiting(world, Tier.UNSCHEDULABLE) == ["p"]
    world.put(node("n1").label(pool="y"))
    world.pass_time(3)
    assert len(world.telemetry.results) == 1
    world.put(node("n1").label(pool="x"))
    world.pass_time(3)
    assert world.node_of("p") == "n1"


@pytest.mark.parametrize(
    ("leaves", "attempts"),
    [
        pytest.param("small", 1, id="the room is too small"),
        pytest.param("large", 2, id="the room is enough"),
        pytest.param("unrelated", 1, id="another node's room is too small"),
    ],
)
def test_a_pod_that_leaves_wakes_whom_its_room_may_help(leaves: str, attempts: int) -> None:
    bound = [pod("small", cpu="1").node("n1"), pod("large", cpu="3").node("n1"), pod("unrelated").node("n2")]
    world = World(node("n1"), node("n2", cpu="1"), *(each.priority(9) for each in bound), pod("p", cpu="3"))
    world.settle()
    world.delete("Pod", f"default/{leaves}")
    world.pass_time(20)
    assert len(world.telemetry.results) == attempts
    assert world.node_of("p") == ("n1" if attempts == 2 else "")


IMPLICIT = {"deviceclass.resource.kubernetes.io/gpu": "1"}


@pytest.mark.parametrize(
    ("there", "comes", "goes"),
    [
        pytest.param([make_device_class("gpu")], node("n2"), "", id="a node comes"),
        pytest.param([node("n2")], make_device_class("gpu"), "", id="the class comes"),
        pytest.param(
            [make_device_class("gpu"), node("n2"), pod("used", cpu="4").req(IMPLICIT).node("n2").priority(9)],
            None,
            "default/used",
            id="a pod leaves",
        ),
    ],
)
def test_a_pod_is_woken_that_asks_for_a_device_by_its_class(there: list[Any], comes: Any, goes: str) -> None:
    """Its class stands behind a resource that no node reports."""
    devices = make_resource_slice("n2", "gpu.example.com", "gpu-0", "gpu-1")
    world = World(node("n1", cpu="1"), devices, *there, pod("p", cpu="2").req(IMPLICIT))
    world.settle()
    assert waiting(world, Tier.UNSCHEDULABLE) == ["p"]
    if goes:
        world.delete("Pod", goes)
    else:
        world.put(comes)
    world.pass_time(5)
    assert world.node_of("p") == "n2"


def test_a_bound_pod_wakes_only_pods_whose_affinity_it_matches() -> None:
    world = World(node("n1").zone("z1"), pod("p").affinity(ZONE, labels={"app": "web"}))
    world.settle()
    attempts = len(world.telemetry.results)
    world.put(pod("other").node("n1").label(app="db"))
    world.pass_time(5)
    assert len(world.telemetry.results) == attempts
    world.put(pod("wanted").node("n1").label(app="web"))
    world.pass_time(5)
    assert world.node_of("p") == "n1"


def test_pods_are_woken_by_room_that_they_may_preempt_the_rest_of() -> None:
    bound = [pod("leaves", cpu="1").node("n1").priority(9), pod("lower", cpu="3").node("n1").priority(1)]
    world = World(node("n1"), *bound, pod("p", cpu="4").priority(5))
    world.settle()
    assert waiting(world, Tier.UNSCHEDULABLE) == ["p"]
    world.delete("Pod", "default/leaves")
    world.pass_time(3)
    assert world.pod("lower").terminating


def test_a_preemptor_whose_room_another_took_does_not_keep_the_rest_from_others() -> None:
    """It must hear that its victim left, though the room is not enough, to find out that its nomination is in vain."""
    world = World(node("n1"), pod("victim", cpu="4").node("n1").priority(1), pod("p", cpu="4").priority(5))
    world.settle()
    assert world.nominations() == {"p": "n1"}
    world.put(pod("urgent", cpu="2").node("n1").priority(9))
    world.put(pod("modest", cpu="2").priority(4))
    world.settle()
    world.delete("Pod", "default/victim")
    world.pass_time(10)
    assert (world.node_of("p"), world.node_of("modest")) == ("", "n1")


def test_free_room_counts_the_pods_of_a_group_by_its_priority() -> None:
    n1, group = make_node("n1").capacity(cpu="4", pods="10").obj(), make_pod_group("g", 1, priority=1)
    pods = [placed("high", 7), placed("member", 7)]
    pods[1]["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    free = free_on(table_of(n1, group, *pods, features=FeatureGates(generic_workload=True)), "n1", 5)
    assert free is not None
    assert free["pods"] == 9


def test_free_room_leaves_out_extended_resources_that_the_node_does_not_have() -> None:
    gpu = "example.com/gpu"
    nodes = [
        make_node("n1").capacity({"cpu": "4", "pods": "10", gpu: "2"}),
        make_node("n2").capacity({"cpu": "1", "pods": "5", "hugepages-2Mi": "4Mi"}),
    ]
    table = table_of(*(each.obj() for each in nodes), placed("high", 7), placed("low", 1))
    free = free_on(table, "n1", 5)
    assert free is not None
    assert free["hugepages-2Mi"] == 0  # no device can provide these
    assert {name: free[name] for name in ("cpu", "pods", gpu)} == {"cpu": 3000, "pods": 9, gpu: 1}
    assert gpu not in (free_on(table, "n2", 5) or {gpu})
    assert free_on(table, "gone", 5) == {"pods": 0}


def placed(name: str, priority: int) -> dict[str, Any]:
    return pod(name).req({"cpu": "1", "example.com/gpu": "1"}).priority(priority).node("n1").obj()


def test_a_pod_that_another_version_of_history_has_not_bound_is_tried() -> None:
    """An API server that was restored from a copy gives a version number to another content."""
    world = World(node("n1"), pod("p").node("n1"))
    old = world.pod("p")
    waits = msgspec.structs.replace(old, spec=msgspec.structs.replace(old.spec, node_name=""))
    world.objects["Pod", "default/p"] = waits
    world.cache.changed("Pod", waits)
    world.settle()
    assert world.node_of("p") == "n1"
