"""Pods that wait for room cost nothing while they wait: the work for another pod is the same with and without them."""

from __future__ import annotations

from extender.queue.entries import Tier
from tests.builders import PodBuilder, make_node, make_pod
from tests.queue.queueing import function_calls
from tests.scheduler.world import NAME, World

NODES, POD_COUNT = 50, 20


def pod(name: str, cpu: str) -> PodBuilder:
    return make_pod(name).uid(name).scheduler(NAME).req(cpu=cpu)


def calls_to_place_pods(waiting: int) -> int:
    """Counts the functions that are called to place pods beside so many, of different sizes, that fit nowhere."""
    world = World(*(make_node(f"n{i}").capacity(cpu="8") for i in range(NODES)))
    for i in range(waiting):
        world.put(pod(f"large-{i}", f"{9 + i % 50}"))
    world.settle()
    assert len(world.queue.pods()[Tier.UNSCHEDULABLE]) == waiting
    place(world, "warm-up")
    return function_calls(lambda: place(world, "pod"))


def place(world: World, prefix: str) -> None:
    names = [f"{prefix}-{i}" for i in range(POD_COUNT)]
    for name in names:
        world.put(pod(name, "1"))
    world.settle()
    assert all(world.node_of(name) for name in names)


def test_the_work_for_a_pod_is_the_same_however_many_others_wait() -> None:
    assert calls_to_place_pods(1000) < 1.05 * calls_to_place_pods(0)
