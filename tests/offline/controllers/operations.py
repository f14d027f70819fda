"""Generated drains, scale-downs and removals of nodes, and what becomes of the pods in our simulation."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from random import Random
from typing import Any

from extender.offline.state import ClusterState
from extender.offline.what_if.scenario import Scenario, apply
from extender.offline.what_if.simulation import Simulation
from extender.offline.workloads import in_order
from extender.snapshots.objects import to_objects
from tests.builders import Object

_KINDS = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "Job", "DaemonSet", "Pod")
_SCALED = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet")
_VERSIONS = {"Job": "batch/v1", "ReplicationController": "v1", "Pod": "v1"}
_JOB_POLICIES: list[Object] = [
    {},
    {"podReplacementPolicy": "Failed"},
    {"backoffLimit": 0},
    {"completionMode": "Indexed", "backoffLimitPerIndex": 0, "maxFailedIndexes": 0},
    {"completionMode": "Indexed", "backoffLimitPerIndex": 0, "podReplacementPolicy": "Failed"},
    *(
        {
            "backoffLimit": limit,
            "podFailurePolicy": {
                "rules": [{"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
        }
        for limit, action in ((0, "Ignore"), (6, "FailJob"))
    ),
]
_CONTAINERS = [{"name": "c", "image": "nginx"}]


def generated(number: int, seed: int) -> Object:
    """A case: {"name", "objects", "plans": app -> how its pods are when the operation begins, "operation"}."""
    dice = Random(f"{seed}/{number}")
    name = f"case-{number}"
    nodes = [f"{name}-n{index}" for index in range(1, 4)]
    apps = [f"app-{index}" for index in range(dice.randint(1, 3))]
    kinds = dict(zip(apps, dice.sample(_KINDS, len(apps)), strict=True))
    verb = dice.choice(("drain", "drain", "scale", "remove"))
    if verb == "scale":
        kinds[apps[0]] = dice.choice(_SCALED)
    counts = {app: 1 if kinds[app] == "Pod" else dice.randint(1, 6) for app in apps}
    is_dead = verb == "remove" and dice.random() < 0.5
    room = dice.choice((4, 8, 30))
    objects = [
        *(_node(node, name, room, is_dead=is_dead and node == nodes[0]) for node in nodes),
        *(_workload(kinds[app], app, name, counts[app], dice) for app in apps),
        *_budgets(name, apps, dice),
    ]
    plans = {app: [_plan(dice, nodes, is_dead=is_dead) for _ in range(max(counts[app], 3))] for app in apps}
    operation = {"drain": [verb, nodes[0]], "remove": [verb, nodes[0]]}.get(verb)
    target = [verb, kinds[apps[0]], apps[0], dice.randint(0, counts[apps[0]])]
    return {"name": name, "objects": objects, "plans": plans, "operation": operation or target}


def _node(node: str, case: str, room: int, *, is_dead: bool) -> Object:
    resources = {"cpu": "64", "memory": "64Gi", "pods": str(room)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node, "labels": {"case": case, "kubernetes.io/hostname": node}},
        "spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]} if is_dead else {},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "Unknown" if is_dead else "True"}],
        },
    }


def _workload(kind: str, app: str, case: str, count: int, dice: Random) -> Object:
    metadata = {"name": app, "namespace": case, "labels": {"app": app}}
    spec: Object = {"containers": _CONTAINERS, "nodeSelector": {"case": case}, "terminationGracePeriodSeconds": 30}
    head: Object = {"apiVersion": _VERSIONS.get(kind, "apps/v1"), "kind": kind, "metadata": metadata}
    if kind == "Pod":
        return {**head, "spec": spec}
    template = {"metadata": {"labels": {"app": app}}, "spec": spec}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
        policy = dice.choice(_JOB_POLICIES)
        count = min(count, 2)  # each failure doubles the time until the next pod
        return {**head, "spec": {"parallelism": count, "completions": count, "template": template, **policy}}
    labels: Object = {"app": app} if kind == "ReplicationController" else {"matchLabels": {"app": app}}
    scale = {} if kind == "DaemonSet" else {"replicas": count}
    parallel = {"podManagementPolicy": "Parallel"} if kind == "StatefulSet" else {}
    return {**head, "spec": {**scale, **parallel, "selector": labels, "template": template}}


def _budgets(case: str, apps: list[str], dice: Random) -> list[Object]:
    made = []
    for number in range(dice.choice((0, 1, 1, 1, 2))):
        limit = dice.choice(
            ({"minAvailable": dice.randint(0, 3)}, {"maxUnavailable": dice.randint(0, 2)}, {"minAvailable": "50%"})
        )
        selector = {} if dice.random() < 0.25 else {"matchLabels": {"app": dice.choice(apps)}}
        policy = dice.choice(({}, {}, {"unhealthyPodEvictionPolicy": "AlwaysAllow"}))
        metadata = {"name": f"budget-{number}", "namespace": case}
        spec = {"selector": selector, **limit, **policy}
        made.append({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec})
    return made


def _plan(dice: Random, nodes: list[str], *, is_dead: bool) -> Object:
    """How one pod is before the operation. Half of the pods are on the first node, which is drained or removed."""
    node = dice.choice((nodes[0], *nodes))
    state = dice.choice(("ready", "ready", "ready", "unready", "starting"))
    cost = str(dice.randint(-2, 2)) if dice.random() < 0.2 else ""
    is_leaving = dice.random() < (0.4 if is_dead and node == nodes[0] else 0.1)
    return {
        "node": node,
        "state": state,
        "cost": cost,
        "age": dice.choice((30, 300, 3000, 30000)),
        "leaves": is_leaving,
    }


def ours(operation: list[Any], objects: list[Object], now: str) -> Object:
    """What becomes of the pods: {"gone": names, "new": app -> how many, "waiting": how many of these have no node}."""
    namespace = next(obj["metadata"]["namespace"] for obj in objects if obj["kind"] != "Node")
    simulation = Simulation(ClusterState(to_objects(objects)), now=datetime.fromisoformat(now))
    simulation.add(in_order(simulation.state.pending))
    apply(_scenario(operation, namespace), simulation)
    simulation.settle()
    pods = [info.pod for info in simulation.state.infos.values()]
    return outcome(objects, [{"uid": pod.uid, "app": pod.labels.get("app", ""), "node": pod.node_name} for pod in pods])


def _scenario(operation: list[Any], namespace: str) -> Scenario:
    verb, *arguments = operation
    if verb == "scale":
        kind, name, count = arguments
        short = "rc" if kind == "ReplicationController" else kind.lower()
        return Scenario(scale=[(f"{namespace}/{short}/{name}", count)])
    return Scenario(drain=arguments) if verb == "drain" else Scenario(remove_nodes=arguments)


def outcome(objects: list[Object], after: list[Object]) -> Object:
    """Compares the pods before with those after, each {"uid", "app", "node"}; names of new pods are made up.

    Which of the new pods get the last room is a matter of chance, so those that wait are only counted.
    """
    before = {obj["metadata"]["uid"]: obj["metadata"]["name"] for obj in objects if obj["kind"] == "Pod"}
    left = {pod["uid"] for pod in after}
    new = [pod for pod in after if pod["uid"] not in before]
    return {
        "gone": sorted(name for uid, name in before.items() if uid not in left),
        "new": dict(Counter(pod["app"] for pod in new)),
        "waiting": sum(not pod["node"] for pod in new),
    }
