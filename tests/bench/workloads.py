"""The cluster to decide on, and the pods to place in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from tests.builders import HOSTNAME, ZONE, Object, PodBuilder, expression, make_node, make_pod, node_term

PODS_PER_NODE = 4
_SEED = 7


@dataclass(frozen=True)
class LargeCluster:
    """Nodes in three zones, each with some pods; every fifth pod has (anti-)affinity of its own."""

    nodes: list[Object]
    pods: list[Object]

    @property
    def objects(self) -> list[Object]:
        return [*self.nodes, *self.pods]


def large_cluster(nodes: int) -> LargeCluster:
    """The same for the same number of nodes."""
    random = Random(_SEED)
    return LargeCluster(
        [_node(number, random) for number in range(nodes)],
        [_pod(number, nodes, random) for number in range(PODS_PER_NODE * nodes)],
    )


def node_name(number: int) -> str:
    return f"node-{number:05}"


def tainted(number: int) -> bool:
    return number % 20 == 0


def workloads() -> Mapping[str, Object]:
    """A pod for each way in which deciding is dear."""
    web = {"app": "web-1"}
    return {
        "plain": _target().obj(),
        "node affinity": _target()
        .require_node(node_term(expression("disktype", "In", "ssd"), expression("rank", "Gt", "3")))
        .obj(),
        "spread": _target()
        .label(web)
        .spread(ZONE, max_skew=5, labels=web)
        .spread(HOSTNAME, max_skew=3, soft=True, labels=web)
        .obj(),
        "affinity": _target().label(web).affinity(ZONE, labels=web).obj(),
        "anti-affinity": _target().label(web).anti_affinity(HOSTNAME, labels=web).obj(),
        "preferred": _target()
        .label(web)
        .anti_affinity(HOSTNAME, weight=50, labels=web)
        .affinity(ZONE, weight=50, labels={"app": "web-2"})
        .obj(),
        "preemption": _target().req(cpu="16").priority(1000).obj(),
    }


def _target() -> PodBuilder:
    return make_pod("target").scheduler("default-scheduler").req(cpu="500m", memory="128Mi").priority(0)


def _node(number: int, random: Random) -> Object:
    node = make_node(node_name(number)).zone(f"z{number % 3}", "r1").capacity(cpu="16", memory="64Gi")
    node.label(disktype=random.choice(["ssd", "hdd"]), rank=str(number % 10))
    return node.taint("dedicated", "infra").obj() if tainted(number) else node.obj()


def _pod(number: int, nodes: int, random: Random) -> Object:
    app, solo = f"web-{number % 50}", f"{number % 7}"
    pod = make_pod(f"pod-{number}").label(app=app, solo=solo).priority(0)
    pod.req(cpu=random.choice(["100m", "500m", "1"]), memory=random.choice(["128Mi", "512Mi", "2Gi"]))
    if number % 10 == 1:
        pod.anti_affinity(HOSTNAME, labels={"app": f"solo-{solo}"})
    if number % 10 == 2:
        pod.affinity(ZONE, weight=50, labels={"app": app})
    pod.node(node_name(number if number < nodes else random.randrange(nodes)))
    return pod.phase("Running").start_time("2026-11-21T09:00:00Z").obj()
