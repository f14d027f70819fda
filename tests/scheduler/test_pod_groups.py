"""Pod groups in the loop, step by step and without threads."""

from __future__ import annotations

from typing import Any

import pytest

from extender.queue.queued_pod import Tier
from extender.table.features import FeatureGates
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod, make_pod_group
from tests.scheduler.world import NAME, World

ON = FeatureGates(generic_workload=True)


def node(name: str, cpu: str = "4") -> NodeBuilder:
    return make_node(name).capacity(cpu=cpu, memory="16Gi", pods="10").allocatable(cpu=cpu, memory="16Gi", pods="10")


def member(name: str, group: str = "workers", cpu: str = "1") -> PodBuilder:
    return make_pod(name).uid(name).scheduler(NAME).req(cpu=cpu).group(group)


def waiting(world: World, tier: Tier) -> list[str]:
    return [info.pod.name for info in world.queue.pods()[tier]]


def test_members_wait_until_their_pod_group_is_seen() -> None:
    world = World(node("n1"), member("a"), member("b"), features=ON)
    world.pass_time(20)
    assert waiting(world, Tier.GATED) == ["a", "b"]
    assert (world.telemetry.results, world.conditions) == ([], [])
    world.put(make_pod_group("other"))
    world.settle()
    assert waiting(world, Tier.GATED) == ["a", "b"]
    world.put(make_pod_group("workers"))
    world.pass_time(1)
    assert [world.node_of(name) for name in "ab"] == ["n1", "n1"]


def test_members_of_a_basic_group_are_placed_as_far_as_they_fit() -> None:
    world = World(make_pod_group("workers"), node("n1", cpu="2"), *map(member, "abc"), features=ON)
    world.settle()
    assert sorted(world.node_of(name) for name in "abc") == ["", "n1", "n1"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"schedulingConstraints": {"topology": [{"key": "rack"}]}}, "schedulingConstraints.topology"),
        pytest.param({"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}, "resourceClaims"),
        pytest.param({"parentCompositePodGroupName": "tree"}, "parentCompositePodGroupName"),
        pytest.param({"schedulingPolicy": {"gang": {"minCount": 1}}}, "schedulingPolicy.gang"),
    ],
)
def test_no_member_of_a_group_that_is_not_supported_is_placed(spec: dict[str, Any], field: str) -> None:
    world = World(make_pod_group("workers", **spec), node("n1"), member("a"), features=ON)
    world.settle()
    world.put(node("n2"))
    world.pass_time(20)
    assert world.node_of("a") == ""
    message = f"PodGroup default/workers uses spec.{field}, which is not supported, so no member of it is placed"
    assert world.conditions == [("a", "Unschedulable", message, "")]


def test_without_the_gate_members_are_placed_alone() -> None:
    world = World(make_pod_group("workers", 3), node("n1"), member("a"))
    world.settle()
    assert world.node_of("a") == "n1"
