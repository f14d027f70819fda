"""The scheduler's own loop without an API server: CPU time a pod, from the queue to the confirmed binding."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from time import process_time

from extender.runtime.process import GC_THRESHOLDS
from tests.bench.workloads import BACKLOGS, backlog_node, pods_to_schedule
from tests.builders import Object, PodBuilder, make_pod
from tests.scheduler.world import NAME, World

PODS, WAITING = 1000, 10_000
_WARM_UP = 20


def measured(nodes: int, pods: int = PODS, waiting: int = WAITING) -> Iterator[tuple[str, float]]:
    """Yields (backlog, CPU milliseconds a pod) on an empty cluster; the last one beside pods that fit nowhere."""
    gc.set_threshold(*GC_THRESHOLDS)
    for workload in BACKLOGS:
        yield workload, _per_pod_ms(_world(nodes), workload, pods)
    yield f"basic, {waiting} pods waiting for room", _per_pod_ms(_world(nodes, waiting), "basic", pods)


def _world(nodes: int, waiting: int = 0) -> World:
    world = World(*(backlog_node(number) for number in range(nodes)))
    for number in range(waiting):
        world.put(_for_loop(make_pod(f"large-{number}").req(cpu="64")))
    world.settle()
    gc.collect()
    gc.freeze()  # as the process does once it has listed everything
    return world


def _per_pod_ms(world: World, workload: str, count: int) -> float:
    pods = [_for_loop(pod).obj() for pod in pods_to_schedule(workload, _WARM_UP + count)]
    _schedule(world, pods[:_WARM_UP])
    begin = process_time()
    _schedule(world, pods[_WARM_UP:])
    return (process_time() - begin) / count * 1000


def _schedule(world: World, pods: Sequence[Object]) -> None:
    for pod in pods:
        world.put(pod)
    world.settle()
    assert all(world.node_of(pod["metadata"]["name"]) for pod in pods)


def _for_loop(pod: PodBuilder) -> PodBuilder:
    return pod.scheduler(NAME)
