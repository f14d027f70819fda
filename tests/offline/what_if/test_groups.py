"""Simulations place pod groups as a whole, or not at all."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

import msgspec
import pytest

from extender import Cluster
from extender.errors import MalformedCluster
from extender.offline import rendering
from extender.offline.manifests.templates import read_workloads
from extender.offline.rendering import SiteLinks
from extender.offline.state import ClusterState
from extender.offline.what_if.capacity import as_text as capacity_text
from extender.offline.what_if.comparison import as_text as comparison_text
from extender.offline.what_if.hypothetical import answer_simulation
from extender.offline.what_if.result import SimulationResult, as_text, by_place
from extender.offline.what_if.scenario import Scenario
from extender.snapshots.objects import to_objects
from tests.builders import (
    Object,
    make_composite_pod_group,
    make_device_class,
    make_node,
    make_pod,
    make_pod_group,
    make_resource_claim,
    make_resource_slice,
)
from tests.groups.deciding import members, node
from tests.policy.configurations import profile as configuration

COUNTS = {"placed": 1, "waiting": 0, "lost": 0}


def simulated(*objects: Object, **scenario: object) -> SimulationResult:
    return Cluster.from_objects(objects).simulate(Scenario(**scenario))  # type: ignore[arg-type]  # by its fields


def placed(result: SimulationResult) -> set[str]:
    return {placement.pod.partition("/")[2] for placement in result.placements}


def test_a_gang_that_fits_is_placed_whole() -> None:
    result = simulated(node("a"), node("b"), make_pod_group("g", 4), *members("g", 4, cpu="2"))
    assert placed(result) == {"g-0", "g-1", "g-2", "g-3"}
    assert result.complete


@pytest.mark.parametrize(("resource", "chosen"), [("cpu", "a"), ("memory", "b")])
def test_the_profiles_resources_choose_the_topology_domain(resource: str, chosen: str) -> None:
    strategy = {"type": "LeastAllocated", "resources": [{"name": resource, "weight": 1}]}
    policy = configuration(pluginConfig=[{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}])
    running = [
        make_pod("c").req(cpu="2", memory="1Mi").node("a").obj(),
        make_pod("m").req(cpu="100m", memory="4Gi").node("b").obj(),
    ]
    group = make_pod_group("g", 2, schedulingConstraints={"topology": [{"key": "rack"}]})
    objects = [node("a", rack="r1"), node("b", rack="r2"), *running, group, *members("g", 2)]
    cluster = Cluster.from_objects(objects, policy)
    assert {placement.node for placement in cluster.simulate().placements} == {chosen}
    assert cluster.explain_group("default/g").placed == {"default/g-0": chosen, "default/g-1": chosen}


def test_no_member_of_a_gang_that_does_not_fit_is_placed() -> None:
    result = simulated(node("a"), node("b"), make_pod_group("g", 5), *members("g", 5, cpu="2"))
    assert placed(result) == set()
    lost = "pod group is unschedulable, minCount (5) cannot be satisfied: 4 scheduled, 0 remaining"
    assert result.remaining["default/g-0"] == lost
    assert result.remaining["default/g-4"] == "0/2 nodes are available: 2 Insufficient cpu."


def test_members_below_a_cycle_of_groups_are_left_over() -> None:
    cycle = [
        make_composite_pod_group(name, 1, parentCompositePodGroupName=parent) for name, parent in ("ab", "bc", "ca")
    ]
    group = make_pod_group("g", 1, parentCompositePodGroupName="b")
    result = simulated(node("a"), *cycle, group, *members("g", 1))
    reason = (
        "CompositePodGroup default/a is its own ancestor: its members have no root group, and no event reports this"
    )
    assert (placed(result), result.remaining) == (set(), {"default/g-0": reason})
    capacity = Cluster.from_objects([node("a"), *cycle, group]).capacity([members("g", 1)[0]])
    assert set(capacity.pods) == {"Pod default/g-0"}


def test_a_gang_takes_no_room_from_others_while_it_waits() -> None:
    gang = (make_pod_group("g", 3), *members("g", 3, cpu="2"))
    result = simulated(node("a"), *gang, make_pod("single").req(cpu="4").obj())
    assert placed(result) == {"single"}


def test_a_basic_group_is_placed_as_far_as_it_fits() -> None:
    result = simulated(node("a"), make_pod_group("g"), *members("g", 3, cpu="2"))
    assert len(placed(result)) == 2
    assert list(result.remaining.values()) == ["0/1 nodes are available: 1 Insufficient cpu."]


def test_a_gang_is_placed_once_a_node_is_added() -> None:
    gang = (make_pod_group("g", 4), *members("g", 4, cpu="2"))
    assert placed(simulated(node("a"), *gang)) == set()
    assert len(placed(simulated(node("a"), *gang, add_nodes=[("a", 1)]))) == 4


def test_a_topology_constraint_keeps_a_gang_in_one_rack() -> None:
    racks = [node("a", 2, rack="r1"), node("b", 4, rack="r2")]
    constraint = {"topology": [{"key": "rack"}]}
    gang = (make_pod_group("g", 2, schedulingConstraints=constraint), *members("g", 2, cpu="2"))
    assert {placement.node for placement in simulated(*racks, *gang).placements} == {"b"}


def test_a_gang_evicts_pods_of_lower_priority() -> None:
    running = make_pod("low").req(cpu="4").node("a").priority(-1).obj()
    result = simulated(node("a"), running, make_pod_group("g", 2), *members("g", 2, cpu="2"))
    assert [(eviction.pod, eviction.cause) for eviction in result.evictions] == [
        ("default/low", "preemption by PodGroup default/g")
    ]
    assert placed(result) == {"g-0", "g-1"}


def test_members_wait_for_their_group_and_for_each_other() -> None:
    result = simulated(node("a"), *members("nowhere", 1), make_pod_group("g", 3), *members("g", 2))
    assert "PodGroup default/nowhere does not exist" in result.remaining["default/nowhere-0"]
    assert "2 of 3 pods exist" in result.remaining["default/g-0"]


def tree(needed: int, pods: int) -> list[Object]:
    """A group of `needed` of two gangs of `pods` pods with two CPUs each."""
    children = [make_pod_group(name, pods, parentCompositePodGroupName="t") for name in ("x", "y")]
    return [
        make_composite_pod_group("t", needed),
        *children,
        *members("x", pods, cpu="2"),
        *members("y", pods, cpu="2"),
    ]


def test_a_tree_of_groups_is_placed_whole() -> None:
    assert len(placed(simulated(node("a", 8), *tree(2, 2)))) == 4
    assert placed(simulated(node("a", 7), *tree(2, 2))) == set()
    assert placed(simulated(node("a", 7), *tree(1, 2))) == {"x-0", "x-1"}


def test_a_tree_whose_root_is_missing_waits() -> None:
    result = simulated(node("a", 8), *tree(2, 2)[1:])
    assert "CompositePodGroup default/t does not exist" in result.remaining["default/x-0"]


# ---- groups that are placed whole, in part or not at all


def test_the_members_of_each_group_are_counted() -> None:
    running = make_pod("b-9").group("b").req(cpu="2").node("b").obj()
    groups = [make_pod_group("g", 2), make_pod_group("b"), make_pod_group("none", 9)]
    pods = [*members("g", 2, cpu="2"), *members("b", 1, cpu="2"), *members("none", 9, cpu="2"), running]
    result = simulated(node("a", 6), node("b", 4), *groups, *pods, drain=("b",))
    assert [(each.group, each.placed, each.waiting, each.lost, str(each.place)) for each in result.groups] == [
        ("default/b", 1, 0, 1, "part"),
        ("default/g", 2, 0, 0, "whole"),
        ("default/none", 0, 9, 0, "none"),
    ]
    assert "pod groups: 1 with all members on a node, 1 with some, 1 with none" in list(as_text(result))


def test_groups_that_lose_their_place_under_another_configuration_are_compared() -> None:
    labelled = [node("a", 4, fast="no"), node("b", 4, fast="yes")]
    only_fast = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "pluginConfig": [
                    {
                        "name": "NodeAffinity",
                        "args": {
                            "addedAffinity": {
                                "requiredDuringSchedulingIgnoredDuringExecution": {
                                    "nodeSelectorTerms": [
                                        {"matchExpressions": [{"key": "fast", "operator": "In", "values": ["yes"]}]}
                                    ]
                                }
                            }
                        },
                    }
                ]
            }
        ],
    }
    groups = [make_pod_group("g", 3), make_pod_group("b")]
    cluster = Cluster.from_objects([*labelled, *groups, *members("g", 3, cpu="2"), *members("b", 1, cpu="2")])
    comparison = cluster.compare(only_fast)
    assert [(each.group, str(each.first), str(each.second)) for each in comparison.moved_groups] == [
        ("default/g", "3 of 3", "0 of 3")
    ]
    for result in (comparison.first, comparison.second):
        assert sum(by_place(result.groups).values()) == 2
        assert sum(each.placed + each.waiting + each.lost for each in result.groups) == 4
    rows = [line.split() for line in comparison_text(comparison, ("first", "second"))]
    assert ["pod", "groups", "whole", "2", "1"] in rows
    assert ["default/g", "3", "of", "3", "on", "a", "node", "0", "of", "3", "on", "a", "node"] in rows


def test_the_page_links_each_moved_group_to_its_own_row_of_the_document() -> None:
    moved = [{"group": f"default/{name}", "first": COUNTS, "second": COUNTS} for name in "abc"]
    shares = ("utilisation", "imbalance", "zoneImbalance", "fragmentation")
    balance = {key: {"cpu": 0.0, "memory": 0.0} for key in shares}
    side = {
        "notes": [],
        "placements": [],
        "remaining": {},
        "evictions": [],
        "lost": {},
        "before": balance,
        "after": balance,
    }
    document = {"first": side, "second": side, "moved": [], "movedGroups": moved, "plugins": {}}
    links = SiteLinks("compare", {}, {})
    site: defaultdict[str, object] = defaultdict(str, kept={}, pages=(), arguments={})
    context = {
        "names": ("x", "y"),
        "choices": (),
        "maps": (),
        "site": site,
    }
    page = rendering.page("comparison.html", document, links, **context).decode()
    assert re.findall(r"at=%2FmovedGroups%2F(\d)", page) == ["0", "0", "1", "1", "2", "2"]


# ---- how many more gangs


def more(*objects: Object, pod: Object) -> tuple[int, list[str], list[str]]:
    answer = Cluster.from_objects(objects).capacity([pod])
    (reasons,) = answer.exhausted.values()
    return answer.total, [reason.reason for reason in reasons], list(answer.notes)


WORKER = make_pod("worker").group("g").req(cpu="2").obj()


def test_a_gang_is_counted_whole() -> None:
    counted = more(node("a", 10), node("b", 4), make_pod_group("g", 3), pod=WORKER)
    note = "Pod default/worker: its pods are counted in whole gangs of 3"
    assert counted == (6, ["Insufficient cpu"], [note])


def test_pods_of_a_basic_group_are_counted_one_by_one() -> None:
    total, reasons, notes = more(node("a", 10), make_pod_group("g"), pod=WORKER)
    assert (total, reasons) == (5, ["Insufficient cpu"])
    assert notes[0].endswith("so its pods are counted one by one")


def test_gangs_are_counted_in_each_domain() -> None:
    racks = [node("a", 4, rack="r1"), node("b", 9, rack="r2")]
    gang = make_pod_group("g", 2, schedulingConstraints={"topology": [{"key": "rack"}]})
    answer = Cluster.from_objects([*racks, gang]).capacity([WORKER])
    assert msgspec.to_builtins(answer.gangs["Pod default/worker"]) == {
        "size": 2,
        "count": 3,
        "topologyKey": "rack",
        "byDomain": {"r1": 1, "r2": 2},
    }
    assert "Pod default/worker: 3 whole gangs of 2 pods; by rack: r1 1, r2 2" in list(capacity_text(answer))


def test_an_empty_topology_key_is_no_constraint() -> None:
    gang = make_pod_group("g", 2, schedulingConstraints={"topology": [{"key": ""}]})
    cluster = Cluster.from_objects([node("a", 4), gang, *members("g", 2)])
    assert placed(cluster.simulate()) == {"g-0", "g-1"}
    assert cluster.explain_group("default/g").fits
    (gangs,) = cluster.capacity([make_pod("w").group("g").req(cpu="1").obj()]).gangs.values()
    assert (gangs.count, gangs.topology_key, gangs.by_domain) == (2, None, {})


def test_the_group_may_be_in_the_file_of_the_template() -> None:
    text = json.dumps({"kind": "List", "items": [make_pod_group("g", 3), WORKER]})
    (workload,) = read_workloads(text.encode(), "gang.yaml")
    answer = Cluster.from_objects([node("a", 10)]).capacity([workload])
    assert (answer.total, answer.gangs["Pod default/worker"].count) == (3, 1)


# ---- POST /simulate


LARGE = make_node("large").allocatable(cpu="4", memory="32Gi", pods="110").obj()


def asked(*objects: Object, **request: object) -> dict[str, Any]:
    state = ClusterState(to_objects(objects))
    return answer_simulation(state, json.dumps({"onlyTemplates": True, **request}).encode())


def test_the_fewest_new_nodes_that_admit_a_gang() -> None:
    small = make_node("small").allocatable(cpu="1", memory="32Gi", pods="110").obj()
    answer = asked(
        node("full", 1),
        podGroups=[make_pod_group("g", 5)],
        pods=members("g", 5, cpu="2"),
        nodeTemplates=[{"node": LARGE, "count": 8}, {"node": small, "count": 20}],
        fewestNodes=True,
    )
    assert answer["complete"]
    assert answer["fewestNodes"] == [{"template": "large", "count": 3}, {"template": "small", "count": None}]


def test_no_member_of_a_gang_takes_too_few_new_nodes() -> None:
    template = {"node": LARGE, "count": 2}
    answer = asked(make_pod_group("g", 5), pods=members("g", 5, cpu="2"), nodeTemplates=[template])
    assert (answer["complete"], answer["placements"], len(answer["remaining"])) == (False, [], 5)


def test_a_group_that_is_none_is_refused() -> None:
    with pytest.raises(MalformedCluster, match=r"podGroups\[0\]: expected a PodGroup or a CompositePodGroup"):
        asked(podGroups=[{"kind": "Pod", "metadata": {"name": "x"}}], pods=[])


def sharing_policy(gate: bool) -> Object:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "featureGates": {"GenericWorkload": True, "DRAWorkloadResourceClaims": gate},
    }


def sharing(*devices: str) -> list[Object]:
    """Nodes a, which has these devices, and b; and a gang of two whose members share a claim from a template."""
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "shared", "namespace": "default"},
        "spec": {"spec": make_resource_claim("any", "gpu")["spec"]},
    }
    gang = make_pod_group("g", 2, resourceClaims=[{"name": "shared", "resourceClaimTemplateName": "shared"}])
    slices = [make_device_class("gpu"), make_resource_slice("a", "gpu.example.com", *devices)]
    return [node("a"), node("b"), template, *slices, gang]


def sharing_member(name: str) -> Object:
    return make_pod(name).group("g").resource_claim("shared", template=True).obj()


@pytest.mark.parametrize(("gate", "nodes"), [(True, {"g-0": "a", "g-1": "a"}), (False, {})])
def test_the_claim_that_members_share_is_created_once(gate: bool, nodes: dict[str, str]) -> None:
    """Only one device exists, so that two members cannot have a claim each."""
    objects = [*sharing("gpu-0"), *map(sharing_member, ("g-0", "g-1"))]
    result = Cluster.from_objects(objects, sharing_policy(gate)).simulate(Scenario())
    assert {placement.pod.partition("/")[2]: placement.node for placement in result.placements} == nodes


@pytest.mark.parametrize(("gate", "pods"), [(True, 4), (False, 2)])
def test_capacity_creates_a_claim_for_each_gang_that_shares_one(gate: bool, pods: int) -> None:
    objects = sharing("gpu-0", "gpu-1")
    lines = list(capacity_text(Cluster.from_objects(objects, sharing_policy(gate)).capacity([sharing_member("w")])))
    assert f"{pods} more pods would fit" in lines
    assert any(line.startswith("2      cannot allocate all claims") for line in lines)
