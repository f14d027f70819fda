"""A pod stays out of the active queue, without condition or event, until its claims exist."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from extender.plugins.registry import default_profile
from extender.queue.entries import Tier
from tests.builders import make_claim, make_device_class, make_node, make_pod, make_request, make_resource_slice
from tests.scheduler.world import NAME, World

GPU = "gpu.example.com"


def pod(status: list[dict[str, str]] | None = None, *, template: bool = False) -> dict[str, Any]:
    built = make_pod("p").uid("p").scheduler(NAME).resource_claim("c", template=template).obj()
    built["status"] = {**built.get("status", {}), **({"resourceClaimStatuses": status} if status else {})}
    return built


def world_of(*objects: Any, **options: Any) -> World:
    node = make_node("n1").capacity(cpu="4", pods="10").allocatable(cpu="4", pods="10")
    return World(node, make_device_class("gpu"), make_resource_slice("n1", GPU, "gpu-0"), *objects, **options)


def gated(world: World) -> list[str]:
    return [info.pod.name for info in world.queue.pods()[Tier.GATED]]


def test_a_pod_waits_until_its_claim_exists() -> None:
    world = world_of(pod())
    world.settle()
    assert (gated(world), world.conditions, world.events, world.telemetry.results) == (["p"], [], [], [])
    world.put(make_claim("c", make_request("device", "gpu")))
    world.settle()
    assert (gated(world), world.node_of("p")) == ([], "n1")


def test_a_pod_waits_until_its_status_names_the_claim_made_from_a_template() -> None:
    world = world_of(pod(template=True))
    world.settle()
    assert (gated(world), world.conditions) == (["p"], [])
    world.put(pod([{"name": "c"}], template=True))  # no claim is needed after all
    world.settle()
    assert world.node_of("p") == "n1"


def test_claims_block_no_pod_of_a_profile_without_the_plugin() -> None:
    default = default_profile()
    without = [each for each in default.predicates if each.name != "DynamicResources"]
    world = world_of(pod(), profile=replace(default, predicates=without, reserving=frozenset()))
    world.settle()
    assert world.node_of("p") == "n1"
