"""Pods of many shapes on nodes of several kinds, and what must hold once they are placed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from random import Random
from typing import Any

import msgspec

from extender.model.node import NO_EXECUTE, NO_SCHEDULE, Node, untolerated
from extender.model.pod import Pod
from extender.model.quantity import amounts
from extender.model.requests import pod_requests
from extender.model.selectors import compile_requirement
from tests.builders import ZONE, Object, expression, make_node, make_pod, node_term


def nodes(count: int, random: Random) -> list[Object]:
    """Nodes in three zones; some fast, some tainted, some with devices."""
    made = []
    for i in range(count):
        node = make_node(f"node-{i:03d}").zone(f"z{i % 3}").label(disk=random.choice(["ssd", "hdd"]), rank=str(i % 7))
        resources = {"cpu": random.choice(["8", "16"]), "memory": "32Gi", "pods": "40"}
        if i % 10 == 3:
            node, resources = node.taint("dedicated", "gpu"), {**resources, "example.com/gpu": "8"}
        made.append(node.allocatable(resources).capacity(resources).obj())
    return made


def pods(count: int, random: Random) -> list[Object]:
    """Pods that all fit on 50 such nodes: sizes, selectors, affinity, tolerations, devices, ports, sidecars."""
    return [_pod(f"pod-{i:04d}", i, random).obj() for i in range(count)]


def _pod(name: str, i: int, random: Random) -> Any:
    pod = make_pod(name).label(app=f"app-{i % 12}")
    pod = pod.req(cpu=random.choice(["50m", "250m", "500m", "900m"]), memory=random.choice(["64Mi", "512Mi", "1Gi"]))
    match i % 10:
        case 0:
            return make_pod(name)
        case 1:
            return pod.node_selector(disk="ssd")
        case 2:
            return pod.require_node(node_term(expression("rank", "Gt", "3"))).prefer_node(
                10, node_term(expression(ZONE, "In", "z1"))
            )
        case 3:
            gpus = {"example.com/gpu": str(1 if i % 100 > 50 else 0)}
            return pod.toleration("dedicated", operator="Exists").req(gpus).limit(gpus)
        case 4:
            return pod.host_port(8000 + i % 4)
        case 5:
            return pod.init_container(cpu="1", memory="1Gi").init_container(sidecar=True, cpu="100m")
        case 6:
            return pod.require_node(node_term(expression(ZONE, "NotIn", "z0")))
        case _:
            return pod


def violations(node_objects: Iterable[Object], pod_objects: Iterable[Object]) -> list[str]:
    """Returns what is wrong with a placement: overfull nodes, ports taken twice, taints and affinity broken."""
    known = {node["metadata"]["name"]: msgspec.convert(node, Node) for node in node_objects}
    placed: defaultdict[str, list[Pod]] = defaultdict(list)
    for obj in pod_objects:
        pod = msgspec.convert(obj, Pod)
        if pod.node_name:
            placed[pod.node_name].append(pod)
    found: list[str] = []
    for name, there in placed.items():
        node = known[name]
        found += [*_overfull(node, there), *_ports_twice(node, there)]
        found += [f"{pod.name} does not tolerate {name}" for pod in there if _repelled(pod, node)]
        found += [f"{pod.name} does not want {name}" for pod in there if not _wanted(pod, node)]
    return found


def _overfull(node: Node, there: list[Pod]) -> list[str]:
    used: Counter[str] = Counter()
    for pod in there:
        used.update({**pod_requests(pod), "pods": 1})
    offered = amounts(node.allocatable)
    return [f"{node.name}: {used[r]} {r} of {offered.get(r, 0)}" for r in used if used[r] > offered.get(r, 0)]


def _ports_twice(node: Node, there: list[Pod]) -> list[str]:
    ports = Counter(
        (port.protocol, port.host_port)
        for pod in there
        for container in pod.containers
        for port in container.ports or ()
        if port.host_port
    )
    return [f"{node.name}: port {port} taken {times} times" for port, times in ports.items() if times > 1]


def _repelled(pod: Pod, node: Node) -> bool:
    return bool(untolerated(node.taints, pod.spec.tolerations or (), (NO_SCHEDULE, NO_EXECUTE)))


def _wanted(pod: Pod, node: Node) -> bool:
    selector = pod.spec.node_selector or {}
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = affinity.required.node_selector_terms if affinity and affinity.required else None
    any_term = terms is None or any(
        all(compile_requirement(wanted).matches(node.labels) for wanted in term.match_expressions or ())
        for term in terms
    )
    return selector.items() <= node.labels.items() and any_term
