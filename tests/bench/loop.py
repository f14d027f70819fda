"""The scheduler's own loop without an API server: CPU time a pod, from the queue to the confirmed binding."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from time import process_time

from extender.app.serve import GC_THRESHOLDS
from tests.builders import HOSTNAME, ZONE, NodeBuilder, PodBuilder, make_node, make_pod
from tests.scheduler.world import NAME, World

PODS, WAITING, APPS = 1000, 10_000, 10
_WARM_UP = 20
_MICROSECONDS = 1_000_000

WORKLOADS: dict[str, Callable[[PodBuilder, dict[str, str]], PodBuilder]] = {
    "basic": lambda pod, _: pod,
    "spread": lambda pod, app: pod.spread(ZONE, max_skew=5, labels=app),
    "affinity": lambda pod, app: pod.affinity(ZONE, labels=app),
    "anti-affinity": lambda pod, app: pod.anti_affinity(HOSTNAME, labels=app),
    "preferred": lambda pod, app: pod.anti_affinity(HOSTNAME, weight=50, labels=app),
}


def measured(nodes: int) -> Iterator[tuple[str, float]]:
    """(workload, CPU microseconds a pod) on an empty cluster; the last one beside pods that fit nowhere."""
    gc.set_threshold(*GC_THRESHOLDS)
    for workload in WORKLOADS:
        yield workload, _per_pod(_world(nodes), workload)
    yield f"basic, {WAITING} pods waiting for room", _per_pod(_world(nodes, WAITING), "basic")


def _world(nodes: int, waiting: int = 0) -> World:
    world = World(*(_node(number) for number in range(nodes)))
    for number in range(waiting):
        world.put(_pod(f"large-{number}").req(cpu="64"))
    world.settle()
    gc.collect()
    gc.freeze()  # as the process does once it has listed everything
    return world


def _per_pod(world: World, workload: str) -> float:
    _schedule(world, workload, "warm-up", _WARM_UP)
    begin = process_time()
    _schedule(world, workload, "pod", PODS)
    return (process_time() - begin) / PODS * _MICROSECONDS


def _schedule(world: World, workload: str, prefix: str, pods: int) -> None:
    names = [f"{prefix}-{number}" for number in range(pods)]
    for number, name in enumerate(names):
        app = {"app": f"a{number % APPS}"}
        world.put(WORKLOADS[workload](_pod(name).label(app), app))
    world.settle()
    assert all(world.node_of(name) for name in names)


def _node(number: int) -> NodeBuilder:
    return make_node(f"node-{number:05d}").zone(f"z{number % 3}", "r1").capacity(cpu="32", memory="128Gi")


def _pod(name: str) -> PodBuilder:
    return make_pod(name).uid(name).scheduler(NAME).req(cpu="100m", memory="128Mi")
