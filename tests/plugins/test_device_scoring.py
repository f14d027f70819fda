"""DeviceScoring: which node and devices the policies choose, and the faults of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from extender.devices.device_requests import claim_data
from extender.devices.device_scores import steps_of
from extender.devices.typical_pods import TypicalPods
from extender.engine.decide import SchedulingCycle
from extender.engine.decision import Chosen
from extender.errors import ConfigurationError
from extender.framework.find_fit import score
from extender.framework.profile import Profile
from extender.model.devices import DeviceClass, ResourceClaim
from extender.plugins.device_scoring import _States, device_scoring_of, scored_by_first_fit
from extender.policy.faults import Faults
from extender.policy.library import Library, OnlyInTree
from extender.policy.loading import load
from extender.table import Table
from tests.builders import (
    Object,
    make_claim,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_request,
    make_resource_slice,
    make_result,
    make_slice,
    with_allocation,
)
from tests.framework.cluster import pod_info, table_of

GPU = "gpu.example.com"
CLASS = make_device_class("gpu", f'device.driver == "{GPU}"')
FIELDS = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
POLICY = """
profiles:
- plugins: {score: {disabled: [{name: "*"}], enabled: [{name: DeviceScoring}]}}
  pluginConfig: [{name: DeviceScoring, args: %s}]
"""


def profile_with(args: str) -> Profile:
    return load(FIELDS + POLICY % args, Library()).profiles[0]


def shared(*names: str, memory: str = "40Gi", model: str = "T4") -> list[Object]:
    return [make_device(name, {"model": model}, {"memory": memory}, allowMultipleAllocations=True) for name in names]


def share_of(name: str, memory: str, node: str, device: str) -> Object:
    """Returns a claim that has this share of a device."""
    taken = make_result(node, device, shareID=f"share-{name}", consumedCapacity={"memory": memory})
    return with_allocation(memory_claim(name, memory), taken)


def memory_claim(name: str, *memories: str, **fields: Any) -> Object:
    requests = [
        make_request(f"r{index}", "gpu", capacity={"requests": {"memory": memory}})
        for index, memory in enumerate(memories)
    ]
    return make_claim(name, *requests, **fields)


def nodes(*names: str) -> list[Object]:
    return [make_node(name).capacity({"cpu": "32", "memory": "64Gi", "pods": "110"}).obj() for name in names]


def decided(args: str, *objects: Object, pod: Object | None = None) -> tuple[str, list[list[str]]]:
    """Returns the node for the pod, and the devices of each of its claims."""
    table = table_of(*objects)
    pod = make_pod("p").req(cpu="1").resource_claim("c").obj() if pod is None else pod
    return chosen_for(pod, table, profile_with(args))


def chosen_for(pod: Object, table: Table, profile: Profile) -> tuple[str, list[list[str]]]:
    chosen = SchedulingCycle(profile).decide(pod_info(pod), table).outcome
    assert isinstance(chosen, Chosen), chosen
    return chosen.node_name, [[each.device for each in allocation.results] for _, allocation in chosen.devices.allocate]


def only(policy: str) -> str:
    return f"{{policies: [{{name: {policy}}}]}}"


TWO_NODES = (
    CLASS,
    *nodes("a", "b"),
    make_resource_slice("a", GPU, *shared("gpu-0", "gpu-1")),
    make_resource_slice("b", GPU, *shared("gpu-0", "gpu-1")),
    share_of("x", "10Gi", "b", "gpu-1"),
)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("FirstFit", ("a", [["gpu-0"]])), ("BestFit", ("b", [["gpu-1"]])), ("GpuPacking", ("b", [["gpu-1"]]))],
)
def test_a_policy_chooses_the_node_and_the_device(policy: str, expected: tuple[str, list[list[str]]]) -> None:
    assert decided(only(policy), *TWO_NODES, memory_claim("c", "20Gi")) == expected


def test_a_share_that_does_not_fit_beside_others_gets_another_device() -> None:
    assert decided(only("BestFit"), *TWO_NODES, memory_claim("c", "31Gi")) == ("b", [["gpu-0"]])


def test_three_equal_shares_fill_a_device() -> None:
    third = "13653Mi"  # 40Gi / 3, rounded down; as thousandths, three of them are not 1000
    taken = [share_of("x", third, "a", "gpu-1"), share_of("y", third, "a", "gpu-1")]
    cluster = CLASS, *nodes("a"), make_resource_slice("a", GPU, *shared("gpu-0", "gpu-1"))
    assert decided(only("BestFit"), *cluster, *taken, memory_claim("c", third)) == ("a", [["gpu-1"]])


FGD_GIVEN = "{policies: [{name: FGD}], typicalPods: [{cpu: 1, devices: 1, weight: 9}, {cpu: 1, share: 500}]}"


def test_fgd_keeps_whole_devices_for_typical_pods_that_need_them() -> None:
    given = FGD_GIVEN.replace("cpu: 1", 'cpu: "1"')
    cluster = (CLASS, *nodes("a"), make_resource_slice("a", GPU, *shared("gpu-0", "gpu-1")))
    taken = share_of("x", "20Gi", "a", "gpu-1")
    assert decided(given, *cluster, taken, memory_claim("c", "10Gi")) == ("a", [["gpu-1"]])


def test_fgd_learns_typical_pods_from_the_pods_on_nodes() -> None:
    table = table_of(*TWO_NODES, memory_claim("c", "20Gi"))
    profile = profile_with(only("FGD"))
    scoring = device_scoring_of(profile)
    assert scoring is not None
    state = table.reader(_States).of(scoring)
    part = state.parts()[0]
    table.place(pod_info(make_pod("p").req(cpu="2").resource_claim("c").obj()), "a")
    learned = state.parts()[0]
    assert learned is not part
    assert learned.policy.typical_pods.kinds == {(2000, 500, 1, frozenset()): 1.0}  # type: ignore[attr-defined]  # FGD's
    table.place(pod_info(make_pod("p").req(cpu="4").resource_claim("c").obj()), "a")
    assert state.parts()[0].policy.typical_pods.kinds == {(4000, 500, 1, frozenset()): 1.0}  # type: ignore[attr-defined]  # FGD's
    table.take_away(pod_info(make_pod("p").obj()).uid)
    assert state.parts()[0].policy.typical_pods.kinds == {}  # type: ignore[attr-defined]  # FGD's


def partition(name: str, gpu: str, slices: int) -> Object:
    consumes = [{"counterSet": gpu, "counters": {"slices": {"value": str(slices)}}}]
    return make_device(name, {"model": "A100", "slices": slices}, consumesCounters=consumes)


PARTITIONS = (
    CLASS,
    *nodes("a"),
    make_slice(
        "a-counters", GPU, "a", nodeName="a", slices=2,
        sharedCounters=[{"name": gpu, "counters": {"slices": {"value": "7"}}} for gpu in ("g0", "g1")],
    ),
    make_slice(
        "a-partitions", GPU, "a",
        *(partition(f"{gpu}-{n}-{place}", gpu, n) for gpu in ("g0", "g1") for n in (1, 3) for place in (0, 1)),
        nodeName="a", slices=2,
    ),
)  # fmt: skip


def test_a_partition_is_taken_from_the_fuller_device() -> None:
    taken = with_allocation(make_claim("x", make_request("r", "gpu")), make_result("a", "g1-3-0"))
    claim = make_claim("c", make_request("r", "gpu", 'device.attributes["gpu.example.com"].slices == 1'))
    assert decided(only("FirstFit"), *PARTITIONS, taken, claim) == ("a", [["g0-1-0"]])
    assert decided(only("BestFit"), *PARTITIONS, taken, claim) == ("a", [["g1-1-0"]])


def test_the_search_goes_on_after_the_first_devices_that_fit() -> None:
    """The fullest device for the first request leaves only the emptiest one for the second."""
    devices = [
        *(
            make_device(f"gpu-{i}", {"model": "T4", "rack": rack}, {"memory": "40Gi"}, allowMultipleAllocations=True)
            for i, rack in enumerate("xyy")
        ),
    ]
    taken = [
        share_of("x", "30Gi", "a", "gpu-0"),
        share_of("y", "20Gi", "a", "gpu-1"),
        share_of("z", "20Gi", "a", "gpu-2"),
    ]
    constraint = [{"matchAttribute": f"{GPU}/rack"}]
    claim = memory_claim("c", "5Gi", "20Gi", constraints=constraint)
    cluster = CLASS, *nodes("a"), make_resource_slice("a", GPU, *devices)
    assert decided(only("BestFit"), *cluster, *taken, claim) == ("a", [["gpu-1", "gpu-2"]])


def test_several_whole_devices_are_the_first_idle_ones() -> None:
    taken = with_allocation(make_claim("x", make_request("r", "gpu")), make_result("a", "gpu-0"))
    cluster = CLASS, *nodes("a"), make_resource_slice("a", GPU, "gpu-0", "gpu-1", "gpu-2", "gpu-3")
    claim = make_claim("c", make_request("r", "gpu", count=2))
    assert decided(only("FGD"), *cluster, taken, claim) == ("a", [["gpu-1", "gpu-2"]])


def test_pods_without_devices_are_scored_too() -> None:
    pod = make_pod("p").req(cpu="1").obj()
    table = table_of(*TWO_NODES)
    assert chosen_for(pod, table, profile_with(only("BestFit"))) == ("b", [])


def test_the_webhook_scores_the_devices_that_kube_scheduler_takes() -> None:
    """On node b, kube-scheduler takes gpu-0, although gpu-1 is in use already."""
    table = table_of(*TWO_NODES, memory_claim("c", "20Gi"))
    profile = profile_with(only("PWR"))
    pod = pod_info(make_pod("p").req(cpu="1").resource_claim("c").obj())
    rows = table.nodes.rows
    assert score(profile, pod, table, rows).total.tolist() == [0, 100]
    assert score(scored_by_first_fit(profile), pod, table, rows).total.tolist() == [100, 100]


@pytest.mark.parametrize(("memory", "steps"), [("40Gi", 1), ("41Gi", 0)])
def test_no_policy_counts_on_a_whole_device_that_is_too_small(memory: str, steps: int) -> None:
    device = make_device("gpu-0", {}, {"memory": "40Gi"})
    table = table_of(CLASS, *nodes("a"), make_resource_slice("a", GPU, device), memory_claim("c", memory))
    scoring = device_scoring_of(profile_with(only("BestFit")))
    assert scoring is not None
    [claim] = table.objects.all(ResourceClaim).values()
    data = claim_data(0, claim, table.objects.all(DeviceClass))
    assert len(steps_of(table.reader(_States).of(scoring).columns, (data,))) == steps


def test_devices_of_other_drivers_are_not_seen() -> None:
    args = "{policies: [{name: BestFit}], resources: [{driver: other.example.com}]}"
    assert decided(args, *TWO_NODES, memory_claim("c", "20Gi")) == ("a", [["gpu-0"]])


def test_the_columns_follow_the_journal() -> None:
    """After each change, scores and devices are those of a table that is built from nothing."""
    profile = profile_with(only("FGD"))
    table = table_of(*TWO_NODES)
    cycle = SchedulingCycle(profile)
    placed: list[Object] = []
    for number in range(12):
        claim = memory_claim(f"c{number}", ("5Gi", "20Gi", "30Gi")[number % 3])
        pod = make_pod(f"p{number}").req(cpu="1").resource_claim(f"c{number}").obj()
        apply(table, claim)
        again = table_of(*TWO_NODES, *placed, claim)
        expected = SchedulingCycle(profile).decide(pod_info(pod), again).outcome
        outcome = cycle.decide(pod_info(pod), table).outcome
        assert getattr(outcome, "node_name", "") == getattr(expected, "node_name", "")
        if not isinstance(outcome, Chosen):
            continue
        assert isinstance(expected, Chosen)
        [(_, allocation)], [(_, same)] = outcome.devices.allocate, expected.devices.allocate
        assert [each.device for each in allocation.results] == [each.device for each in same.results]
        device = allocation.results[0]
        memory = str((device.consumed_capacity or {})["memory"])
        claim = share_of(f"c{number}", memory, outcome.node_name, device.device)
        apply(table, claim)
        table.place(pod_info(pod), outcome.node_name)
        placed += [claim, {**pod, "spec": {**pod["spec"], "nodeName": outcome.node_name}}]
    assert len(placed) >= 16


def apply(table: Table, claim: Object) -> None:
    [read] = table_of(claim).objects.of_kind("ResourceClaim").values()
    table.set_object("ResourceClaim", read)


@pytest.mark.parametrize(
    ("args", "faults"),
    [
        (
            "{policies: [{name: BestFitt}]}",
            [
                "policies[0].name: expected FirstFit, BestFit, DotProd, GpuClustering, GpuPacking, FGD, CpuBalance,"
                " PWR, or module:function of your own; got 'BestFitt' (did you mean BestFit?)"
            ],
        ),
        ("{policies: [{weight: 2}]}", ["policies[0].name: required"]),
        ("{policies: [{name: FGD, weight: 0}]}", ["policies[0].weight: "]),
        ("{policies: [{name: FGD}, {name: FGD}]}", [": policies: expected every name once"]),
        ("{resources: [{capacity: memory}]}", ["resources[0].driver: required"]),
        ("{typicalPods: [{cpu: many}]}", ["typicalPods[0].cpu: expected a quantity, like 4 or 500m, got 'many'"]),
        ("{typicalPods: [{devices: 2, share: 500}]}", ["typicalPods[0]: a share below 1000 needs devices: 1"]),
        ("{typicalpods: []}", ["typicalpods: unknown field (did you mean typicalPods?)"]),
    ],
)
def test_every_fault_has_its_path(args: str, faults: Sequence[str]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        profile_with(args)
    assert len(raised.value.faults) == len(faults)
    for fault, expected in zip(raised.value.faults, faults, strict=True):
        assert fault.startswith("profiles[0].pluginConfig"), fault
        assert expected in fault


def test_kube_schedulers_own_configuration_cannot_name_it() -> None:
    faults = Faults()
    assert OnlyInTree().find("DeviceScoring", "name", faults) is None
    assert faults.messages == ["name: unknown plugin 'DeviceScoring'"]


def test_typical_pods_have_shares_by_weight() -> None:
    scoring = device_scoring_of(profile_with(FGD_GIVEN.replace("cpu: 1", 'cpu: "1"')))
    assert scoring is not None
    assert scoring.typical_pods is not None
    assert TypicalPods(dict(scoring.typical_pods)).kinds == {
        (1000, 1000, 1, frozenset()): 0.9,
        (1000, 500, 1, frozenset()): 0.1,
    }


def test_a_pool_that_is_replaced_has_the_slots_of_its_new_devices() -> None:
    table = table_of(CLASS, *nodes("a"), make_resource_slice("a", GPU, *shared("gpu-0", "gpu-1")))
    profile = profile_with(only("BestFit"))
    pod = make_pod("p").req(cpu="1").resource_claim("c").obj()
    apply(table, memory_claim("c", "20Gi"))
    assert chosen_for(pod, table, profile) == ("a", [["gpu-0"]])
    for memory, expected in (("10Gi", "gpu-2"), ("40Gi", "gpu-0"), ("30Gi", "gpu-0")):
        replaced = [*shared("gpu-0", memory=memory), *shared("gpu-2")]
        [new] = table_of(make_resource_slice("a", GPU, *replaced)).objects.of_kind("ResourceSlice").values()
        table.set_object("ResourceSlice", new)
        assert chosen_for(pod, table, profile) == ("a", [[expected]])
