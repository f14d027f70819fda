"""`devicePreemption`: a pod whose claim finds no device takes it from pods of lower priority, and from no others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender import Cluster
from extender.errors import OutcomeUnknown, Refused
from extender.framework.profile import Profile, Profiles
from extender.model.devices import ResourceClaim, ResourceClaimStatus
from extender.model.pod import Pod
from extender.model.quantity import nano
from extender.plugins.dynamic_resources import DynamicResourcesFilter
from extender.plugins.registry import default_profile
from extender.policy.configuration import read_scheduler_configuration
from extender.policy.faults import Faults
from extender.policy.library import Library
from extender.policy.loading import read
from extender.table.features import DEFAULT_FEATURES, FeatureGates
from tests.builders import (
    PodBuilder,
    make_claim,
    make_device,
    make_device_class,
    make_pdb,
    make_pod_group,
    make_request,
    make_resource_slice,
    make_slice,
)
from tests.scheduler.test_loop import node, pod
from tests.scheduler.world import World

CLASS = make_device_class("gpu")
GPU = "gpu.example.com"
KINDS = {"left": "1", "right": "1", "whole": "2"}
"""Kind of a partition -> how many slots of its chip it takes."""


def preempting(*, on: bool = True) -> Profile:
    default = default_profile()
    predicates = [
        replace(each, preempts=on) if isinstance(each, DynamicResourcesFilter) else each for each in default.predicates
    ]
    return replace(default, predicates=predicates, device_preemption=on)


def gpus(name: str, *devices: str) -> list[Any]:
    return [node(name, cpu="64"), make_resource_slice(name, "gpu.example.com", *devices)]


def using(name: str, priority: int, count: int = 1) -> list[Any]:
    """A pod and its claim of so many GPUs."""
    claim = make_claim(name, make_request("gpu", "gpu", count=count))
    return [claim, pod(name).resource_claim(name).priority(priority)]


def world_of(*built: Any, on: bool = True) -> World:
    return World(CLASS, *built, profile=preempting(on=on))


def evicted(world: World) -> list[str]:
    return [name for name, reason, _ in world.events if reason == "Preempted"]


def claim_of(world: World, name: str) -> ResourceClaim:
    claim = world.objects["ResourceClaim", f"default/{name}"]
    assert isinstance(claim, ResourceClaim)
    return claim


def devices_of(world: World) -> dict[str, list[str]]:
    """Claim -> its devices, for every allocated claim."""
    claims = [obj for obj in world.objects.values() if isinstance(obj, ResourceClaim) and obj.allocation]
    return {claim.name: [each.device for each in claim.allocation.results] for claim in claims if claim.allocation}


def leave(world: World) -> None:
    """Evicted pods end."""
    for obj in list(world.objects.values()):
        if isinstance(obj, Pod) and obj.terminating:
            world.delete("Pod", obj.key)


def deallocate(world: World) -> None:
    """The claim controller removes the reservations of pods that are gone, and the allocations without any."""
    uids = {obj.uid for obj in world.objects.values() if isinstance(obj, Pod)}
    for obj in list(world.objects.values()):
        if isinstance(obj, ResourceClaim) and (users := obj.status.reserved_for):
            kept = [user for user in users if user.uid in uids]
            if len(kept) < len(users):
                status = msgspec.structs.replace(obj.status, reserved_for=kept) if kept else ResourceClaimStatus()
                world.put_object(msgspec.structs.replace(obj, status=status))


def test_the_victim_leaves_and_its_device_goes_to_the_preemptor() -> None:
    world = world_of(*gpus("n", "gpu-0"), *using("low", 1))
    world.settle()
    for each in using("high", 10):
        world.put(each)
    world.settle()
    assert evicted(world) == ["low"]
    assert world.pod("high").status.nominated_node_name == "n"
    leave(world)
    world.pass_time(60)  # the pod is gone, but its claim is still allocated
    assert (world.node_of("high"), evicted(world)) == ("", ["low"])
    deallocate(world)
    world.pass_time(20)
    assert (world.node_of("high"), devices_of(world)) == ("n", {"high": ["gpu-0"]})


def test_while_devices_are_being_deallocated_no_other_pod_is_evicted() -> None:
    world = world_of(*gpus("n1", "gpu-0"), *using("low", 1))
    world.settle()
    for each in (*gpus("n2", "gpu-0"), *using("other", 2)):
        world.put(each)
    world.settle()
    for each in using("high", 10):
        world.put(each)
    world.settle()
    leave(world)
    world.queue.activate(["high"])
    world.pass_time(60)
    assert evicted(world) == ["low"]
    assert "not eligible because devices that suffice are being deallocated" in world.conditions[-1][2]


def test_without_the_option_nothing_is_evicted() -> None:
    world = world_of(*gpus("n", "gpu-0"), *using("low", 1), on=False)
    world.settle()
    for each in using("high", 10):
        world.put(each)
    world.pass_time(60)
    assert evicted(world) == []
    message = next(text for name, _, text, _ in world.conditions if name == "high")
    assert message == (
        "0/1 nodes are available: 1 cannot allocate all claims. preemption: 0/1 nodes are available:"
        " 1 Preemption is not helpful for scheduling."
    )


def test_pods_of_the_same_priority_keep_their_devices() -> None:
    world = world_of(*gpus("n", "gpu-0"), *using("low", 10))
    world.settle()
    for each in using("high", 10):
        world.put(each)
    world.pass_time(60)
    assert evicted(world) == []


def test_victims_are_for_devices_that_come_together_and_as_few_as_possible() -> None:
    """Two devices on n1 belong to two pods, on n2 to one; n3 has one only."""
    world = world_of(*gpus("n1", "a", "b"), *using("one", 1), *using("two", 1))
    world.settle()
    for each in (*gpus("n2", "c", "d"), *using("both", 1, count=2)):
        world.put(each)
    world.settle()
    for each in (*gpus("n3", "e"), *using("single", 1)):
        world.put(each)
    world.settle()
    for each in using("high", 10, count=2):
        world.put(each)
    world.settle()
    assert evicted(world) == ["both"]


def test_pods_that_need_not_leave_are_reprieved() -> None:
    world = world_of(*gpus("n", "a", "b", "c"), *using("p1", 1), *using("p2", 2), *using("p3", 3), pod("plain"))
    world.settle()
    for each in using("high", 10, count=2):
        world.put(each)
    world.settle()
    assert sorted(evicted(world)) == ["p1", "p2"]


def test_a_claim_that_a_pod_of_higher_priority_shares_is_not_taken() -> None:
    shared = make_claim("shared", make_request("gpu", "gpu"))
    users = [pod(name).resource_claim("shared").priority(priority) for name, priority in (("low", 1), ("boss", 20))]
    world = world_of(*gpus("n", "gpu-0"), shared, *users)
    world.settle()
    for each in using("high", 10):
        world.put(each)
    world.pass_time(60)
    assert evicted(world) == []


def test_a_pod_without_devices_is_no_victim() -> None:
    world = world_of(*gpus("n", "gpu-0"), *using("equal", 10), pod("plain").priority(1))
    world.settle()
    for each in using("high", 10):
        world.put(each)
    world.pass_time(60)
    assert evicted(world) == []


def test_a_budget_is_respected_if_another_node_helps_too() -> None:
    claim, protected = using("protected", 1)
    world = world_of(*gpus("n1", "gpu-0"), make_pdb("db", {"app": "db"}), claim, protected.label(app="db"))
    world.settle()
    for each in (*gpus("n2", "gpu-0"), *using("free", 2)):
        world.put(each)
    world.settle()
    for each in using("high", 10):
        world.put(each)
    world.settle()
    assert evicted(world) == ["free"]


def test_a_pod_of_lower_priority_leaves_the_freed_device_to_the_preemptor() -> None:
    world = world_of(*gpus("n", "gpu-0"), *using("low", 1))
    world.settle()
    for each in using("high", 10):
        world.put(each)
    world.settle()
    leave(world)
    for each in using("thief", 5):
        world.put(each)
    deallocate(world)
    world.watch()
    world.queue.activate(["thief"])
    world.attempt()
    assert world.node_of("thief") == ""
    world.pass_time(60)
    assert (world.node_of("high"), world.node_of("thief")) == ("n", "")


# ---- pod groups


GROUPS = FeatureGates(generic_workload=True)


def gang(size: int, **fields: Any) -> list[Any]:
    """A PodGroup of so many members; each has a claim of one GPU."""
    members = [each for number in range(size) for each in using(f"m{number}", 10)]
    for each in members:
        if isinstance(each, PodBuilder):
            each.group("gang")
    return [make_pod_group("gang", size, priority=10, **fields), *members]


def with_gang(*built: Any, size: int = 2, on: bool = True) -> World:
    """The built pods have their devices when the gang arrives."""
    world = World(CLASS, *built, profile=preempting(on=on), features=GROUPS)
    world.settle()
    for each in gang(size):
        world.put(each)
    world.settle()
    return world


def test_a_gang_evicts_the_pods_whose_devices_its_members_need_together() -> None:
    """One GPU is free, so of the three pods only the least important one has to leave."""
    low = [each for priority in (1, 2, 3) for each in using(f"low{priority}", priority)]
    world = with_gang(*gpus("n1", "a", "b"), *gpus("n2", "c", "d"), *low)
    assert evicted(world) == ["low1"]
    leave(world)
    world.pass_time(60)  # the pod is gone, but its claim is still allocated
    assert [world.node_of(f"m{number}") for number in range(2)] == ["", ""]
    assert evicted(world) == ["low1"]
    deallocate(world)
    world.pass_time(20)
    assert "" not in [world.node_of(f"m{number}") for number in range(2)]
    assert sorted(device for devices in devices_of(world).values() for device in devices) == ["a", "b", "c", "d"]


def test_a_gang_that_needs_all_devices_of_a_node_spares_no_pod_there() -> None:
    """A pod that could stay beside one member cannot stay beside both, whichever device each member would get."""
    world = with_gang(*gpus("n", "a", "b"), *using("low1", 1), *using("low2", 2))
    assert sorted(evicted(world)) == ["low1", "low2"]
    leave(world)
    deallocate(world)
    world.pass_time(20)
    assert [world.node_of(f"m{number}") for number in range(2)] == ["n", "n"]


def test_while_devices_are_being_deallocated_a_gang_evicts_no_other_pod() -> None:
    world = with_gang(*gpus("n1", "a", "b"), *using("low1", 1), *using("low2", 2))
    for each in (*gpus("n2", "c", "d"), *using("other1", 3), *using("other2", 3)):
        world.put(each)
    world.settle()
    leave(world)
    world.pass_time(60)
    world.queue.activate([f"m{number}" for number in range(2)])
    world.settle()
    assert sorted(evicted(world)) == ["low1", "low2"]
    assert "not eligible because devices that suffice are being deallocated" in world.group_conditions[-1][2]


def test_a_gang_for_which_all_evictions_free_too_few_devices_evicts_nothing() -> None:
    world = with_gang(*gpus("n", "a", "b"), *using("low", 1), *using("boss", 20))
    assert evicted(world) == []


def test_without_the_option_a_gang_evicts_no_pod_for_devices() -> None:
    world = with_gang(*gpus("n", "a", "b"), *using("low1", 1), *using("low2", 2), on=False)
    assert evicted(world) == []


SHARED = make_device("shared", {}, {"memory": "40Gi"}, allowMultipleAllocations=True)


class Preempting(RuleBasedStateMachine):
    """Pods with claims come and go, binds fail or get no answer, the loop restarts, the claim controller is slow.

    Two nodes have whole devices, the third one a device to share, which a claim may also take as a whole. Pods of the
    lowest priority have all but 15 GiB of that when it begins.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = world_of(*gpus("n1", "a", "b"), *gpus("n2", "c"), node("n3", cpu="64"))
        self.world.put(make_resource_slice("n3", GPU, SHARED))
        self.names = 0
        self.lives = 0
        self.create(0, count=2)
        self.create(0, count=1)
        self.create_sharer(0, gib=25)

    @rule(priority=st.integers(0, 3), count=st.integers(1, 2))
    def create(self, priority: int, count: int) -> None:
        self._create(priority, count=count)

    @rule(priority=st.integers(0, 3), gib=st.sampled_from([5, 15, 25]))
    def create_sharer(self, priority: int, gib: int) -> None:
        self._create(priority, capacity={"requests": {"memory": f"{gib}Gi"}})

    def _create(self, priority: int, **request: Any) -> None:
        self.names += 1
        self.world.put(make_claim(f"c{self.names}", make_request("gpu", "gpu", **request)))
        self._create_user(priority, f"c{self.names}")

    @rule(priority=st.integers(0, 3), data=st.data())
    def create_user_of_a_claim(self, priority: int, data: st.DataObject) -> None:
        """Creates a pod that uses the claim of an earlier one."""
        claims = [obj.name for obj in self.world.objects.values() if isinstance(obj, ResourceClaim)]
        if claims:
            self.names += 1
            self._create_user(priority, data.draw(st.sampled_from(claims)))

    def _create_user(self, priority: int, claim: str) -> None:
        self.world.put(pod(f"p{self.names}").resource_claim(claim).priority(priority))
        self.world.settle()

    @rule(fault=st.sampled_from([Refused("full", 500), OutcomeUnknown("reset")]))
    def fail(self, fault: Exception) -> None:
        self.world.faults.append(fault)

    @rule(seconds=st.sampled_from([1, 5, 40]))
    def go_on(self, seconds: int) -> None:
        """After 40 s, an assumed pod has expired."""
        self.world.settle()
        self.world.pass_time(seconds)

    @rule()
    def evicted_pods_end(self) -> None:
        leave(self.world)

    @rule()
    def controller(self) -> None:
        deallocate(self.world)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        pods = [key for kind, key in self.world.objects if kind == "Pod"]
        if pods:
            self.world.delete("Pod", data.draw(st.sampled_from(pods)))

    @rule()
    def restart(self) -> None:
        objects = list(self.world.objects.values())
        self.lives += 1
        self.world = World(CLASS, profile=preempting(), seed=self.lives)  # the ids of shares must not repeat
        for obj in objects:
            self.world.put_object(obj)
        self.world.watch()
        self.world.leftovers.clean_up()

    @invariant()
    def no_device_is_overbooked(self) -> None:
        claims = [obj for obj in self.world.objects.values() if isinstance(obj, ResourceClaim) and obj.allocation]
        results = [each for claim in claims if claim.allocation for each in claim.allocation.results]
        whole = Counter((each.pool, each.device) for each in results if each.share_id is None)
        assert all(number == 1 for number in whole.values()), whole
        shares = [each for each in results if each.share_id is not None]
        assert {each.device for each in shares} <= {"shared"}
        assert len({each.share_id for each in shares}) == len(shares)
        assert sum(nano((each.consumed_capacity or {})["memory"]) for each in shares) <= nano("40Gi")

    @invariant()
    def a_bound_pod_has_its_devices(self) -> None:
        for obj in self.world.objects.values():
            if isinstance(obj, Pod) and obj.node_name:
                [name] = [each.resource_claim_name for each in obj.spec.resource_claims or ()]
                claim = claim_of(self.world, str(name))
                assert claim.allocation is not None
                assert claim.is_reserved_for(obj.uid)
                assert {each.pool for each in claim.allocation.results} == {obj.node_name}

    def teardown(self) -> None:
        """In the end, no device stays with a pod that is gone or waits, and none is free while a pod waits for it."""
        self.world.faults.clear()
        for _ in range(12):
            self.world.pass_time(60)
            leave(self.world)
            deallocate(self.world)
            self.world.settle()
            self.world.leftovers.release_leaked()
        placed = self._placed()
        for obj in self.world.objects.values():
            if isinstance(obj, ResourceClaim) and obj.allocation is not None:
                assert {user.uid for user in obj.status.reserved_for or ()} <= placed, obj.name
        self.restart()
        self.go_on(60)
        assert self._placed() == placed

    def _placed(self) -> set[str]:
        return {obj.uid for obj in self.world.objects.values() if isinstance(obj, Pod) and obj.node_name}


TestPreempting = Preempting.TestCase
TestPreempting.settings = settings(max_examples=15, stateful_step_count=25)


# ---- what explain says beforehand


def explained(world: World, *, on: bool = True) -> list[str]:
    cluster = Cluster(list(world.objects.values()), Profiles([preempting(on=on)]))
    return [note for note in cluster.explain("default/high").notes if "evicting" in note]


def test_explain_names_the_devices_that_evictions_free() -> None:
    world = world_of(*gpus("n", "gpu-3", "gpu-4"), *using("train", 1, count=2))
    world.settle()
    for each in using("high", 10, count=2):
        world.put(each)
    assert explained(world) == ["evicting default/train frees gpu-3 and gpu-4 of node n; then the claim fits"]
    assert explained(world, on=False) == []


# ---- devices that come together


def test_devices_with_a_matching_attribute_come_together() -> None:
    """Of four devices, the preemptor needs both of one board, so the victims are the pods of one board."""
    devices = [make_device(name, {"board": board}) for name, board in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"))]
    users = [each for name, priority in (("p1", 1), ("p2", 5), ("p3", 2), ("p4", 2)) for each in using(name, priority)]
    world = world_of(node("n", cpu="64"), make_resource_slice("n", "gpu.example.com", *devices), *users)
    world.settle()
    boards: dict[str, set[str]] = {}
    for name, (device,) in devices_of(world).items():
        boards.setdefault("x" if device in "ab" else "y", set()).add(name)
    constraint = {"requests": ["gpu"], "matchAttribute": "gpu.example.com/board"}
    world.put(make_claim("high", make_request("gpu", "gpu", count=2), constraints=[constraint]))
    world.put(pod("high").resource_claim("high").priority(10))
    world.settle()
    assert set(evicted(world)) in boards.values()
    leave(world)
    deallocate(world)
    world.pass_time(20)
    assert world.node_of("high") == "n"


def test_partitions_that_share_counters_are_freed_together() -> None:
    """The whole chip needs what both of its halves use. The other chip has one user, of a higher priority."""
    counters = [{"name": chip, "counters": {"slots": {"value": "2"}}} for chip in ("c0", "c1")]

    def part(name: str, chip: str, slots: str) -> Any:
        used = [{"counterSet": chip, "counters": {"slots": {"value": slots}}}]
        return make_device(name, {"kind": name.partition("-")[0]}, consumesCounters=used)

    parts = [part(f"{kind}-{chip}", chip, slots) for chip in ("c0", "c1") for kind, slots in KINDS.items()]
    slices = (
        make_slice("counters", GPU, "n", slices=2, nodeName="n", sharedCounters=counters),
        make_slice("devices", GPU, "n", *parts, slices=2, nodeName="n"),
    )
    world = world_of(node("n", cpu="64"), *slices, *using("p1", 1), *using("p2", 1), *using("p3", 20), *using("p4", 1))
    world.settle()
    held = devices_of(world)
    world.put(make_claim("high", make_request("gpu", "gpu", "device.attributes['gpu.example.com'].kind == 'whole'")))
    world.put(pod("high").resource_claim("high").priority(10))
    world.settle()
    spared = next(devices[0][-2:] for name, devices in held.items() if name == "p3")
    assert set(evicted(world)) == {name for name, devices in held.items() if devices[0][-2:] != spared}
    leave(world)
    deallocate(world)
    world.pass_time(20)
    assert devices_of(world)["high"] == [f"whole-{'c1' if spared == 'c0' else 'c0'}"]


def test_kube_schedulers_own_configuration_has_no_such_field() -> None:
    profile = {"pluginConfig": [{"name": "DynamicResources", "args": {"devicePreemption": True}}]}
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    document = {**header, "profiles": [profile]}
    assert read(document).profiles[0].device_preemption
    faults = Faults()
    read_scheduler_configuration(document, Library(), faults, DEFAULT_FEATURES)
    assert faults.messages == ["profiles[0].pluginConfig[0].args.devicePreemption: kube-scheduler has no such field"]
