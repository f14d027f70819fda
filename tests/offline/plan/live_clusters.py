"""Random clusters for a real control plane, in which pods wait that only moves help."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random

from extender import Cluster
from tests.builders import (
    ZONE,
    Object,
    make_node,
    make_pdb,
    make_pod,
    make_priority_class,
    make_pv,
    make_pvc,
    make_service,
    node_term,
)
from tests.builders.pod import PodBuilder
from tests.builders.terms import expression

HOSTNAME = "kubernetes.io/hostname"
CLASSES = [
    make_priority_class("medium", 100),
    make_priority_class("patient", 200, preemptionPolicy="Never"),
]
_VERSIONS = {"ReplicationController": "v1"}
_KINDS = ("ReplicaSet", "ReplicaSet", "ReplicationController", "StatefulSet")
_DISK = "disk"
_RULES = 14
"""The number of rules that `_restrict` knows; none is given to a pod twice, which the API server may refuse."""


@dataclass(slots=True)
class LiveCase:
    """A cluster and the pods to place.

    Attributes:
        namespace: the namespace of all pods; names of nodes begin with it.
        nodes: the nodes.
        others: volumes, claims, budgets and services.
        pods: the pods on nodes, which `controllers` adopt.
        controllers: a ReplicaSet, ReplicationController or StatefulSet for each app.
        targets: the pods to place.
        waits: True if `targets` exist before the moves; False if they are created when the moves are done.
    """

    namespace: str
    nodes: list[Object] = field(default_factory=list)
    others: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    controllers: list[Object] = field(default_factory=list)
    targets: list[Object] = field(default_factory=list)
    waits: bool = True

    def needs_moves(self) -> bool:
        """Returns True if a plan places the targets by moving pods."""
        owners = {each["metadata"]["name"]: each for each in self.controllers}
        pods = [_owned(pod, owners.get(pod["metadata"]["labels"]["app"])) for pod in self.pods]
        waiting = self.targets if self.waits else []
        cluster = Cluster.from_objects(
            [*CLASSES, *self.nodes, *self.others, *self.controllers, *pods, *map(_with_priority, waiting)]
        )
        wanted = [f"{self.namespace}/{pod['metadata']['name']}" for pod in waiting]
        return cluster.plan(*wanted or self.targets, seconds=5).outcome == "moves"


def live_cases(seed: int) -> Iterator[LiveCase]:
    """Yields cases without end, of which each needs moves; of ten, one directs a pod, and one releases a node early."""
    for attempt in count():
        made = {3: needing_direction, 7: needing_release}.get(attempt % 10, generated)
        case = made(Random(f"{seed}/{attempt}"), f"case-{attempt}")
        if case.needs_moves():
            yield case


def needing_direction(random: Random, namespace: str) -> LiveCase:
    """Returns a case in which the scheduler would place a replacement on the node that the second target needs."""
    size, own = random.randint(4, 8), random.randint(1, 3)
    case = LiveCase(namespace, waits=random.random() < 0.5)
    source, tight, roomy = _add_nodes(case, [size, size, size])
    _add_replica(case, "app-a", own, source)
    _add_staying(case, size - own, tight)
    first = _target(case, 0, random.randint(size - own + 1, size)).label(role="first").node_selector({HOSTNAME: source})
    second = _target(case, 1, size).node_selector({HOSTNAME: roomy}).affinity(ZONE, labels={"role": "first"})
    case.targets = [first.obj(), second.obj()]
    return case


def needing_release(random: Random, namespace: str) -> LiveCase:
    """Returns a case in which the first target would take the only node of the second one if both were free at once."""
    size = random.randint(4, 8)
    room = random.randint(2, size - 1)
    case = LiveCase(namespace)
    wanted, other, *homes = _add_nodes(case, [size + 1, size, size, size])
    for app, node, home in (("app-a", wanted, homes[0]), ("app-b", other, homes[1])):
        _add_replica(case, app, random.randint(2, room), node, home)
        _add_staying(case, size - room, home)
    case.targets = [_target(case, 0, size).obj(), _target(case, 1, size).node_selector({HOSTNAME: wanted}).obj()]
    return case


def _add_nodes(case: LiveCase, sizes: Sequence[int]) -> Sequence[str]:
    names = [f"{case.namespace}-n{number}" for number in range(len(sizes))]
    for name, cpu in zip(names, sizes, strict=True):
        case.nodes.append(make_node(name).capacity(cpu=str(cpu), memory="16Gi").label({ZONE: "a"}).obj())
    return names


def _add_replica(case: LiveCase, app: str, cpu: int, node: str, home: str = "") -> None:
    """Adds a pod of a ReplicaSet; its replacement has to go to `home`, if that is given."""
    template = make_pod(app, case.namespace).label(app=app).req(cpu=str(cpu))
    if home:  # a selector does not concern a pod that has a node
        template.node_selector({HOSTNAME: home})
    pod = copy.deepcopy(template).node(node).obj()
    pod["metadata"] |= {"name": f"{app}-0", "uid": f"pod-{app}-0"}
    case.pods.append(pod)
    case.controllers.append(_controller("ReplicaSet", app, case.namespace, 1, template, has_volumes=False))


def _add_staying(case: LiveCase, cpu: int, node: str) -> None:
    pod = make_pod(f"agent-{node}", case.namespace).label(app="agent").req(cpu=str(cpu)).node(node)
    case.pods.append(pod.owner("DaemonSet", "agent").obj())


def _target(case: LiveCase, number: int, cpu: int) -> PodBuilder:
    return make_pod(f"target-{number}", case.namespace).label(app="target").req(cpu=str(cpu)).priority_class("patient")


def generated(random: Random, namespace: str) -> LiveCase:
    case = LiveCase(namespace)
    free: dict[str, list[int]] = {}
    for number in range(random.randint(4, 8)):
        cpu, memory = random.randint(4, 12), random.randint(8, 32)
        name = f"{namespace}-n{number}"
        node = make_node(name).capacity(cpu=str(cpu), memory=f"{memory}Gi", pods=str(random.choice((6, 110, 110))))
        node.label({ZONE: random.choice("abc"), _DISK: random.choice(("ssd", "hdd"))})
        if random.random() < 0.15:
            node.taint("dedicated", "db")
        case.nodes.append(node.obj())
        free[name] = [cpu * 1000, memory * 1024]
    for app in [f"app-{letter}" for letter in "abcde"[: random.randint(3, 5)]]:
        _add_app(case, app, free, random)
    _add_lone_pods(case, free, random)
    _add_budgets(case, random)
    _add_targets(case, free, random)
    return case


def _add_app(case: LiveCase, app: str, free: dict[str, list[int]], random: Random) -> None:
    kind = random.choice(_KINDS)
    template = make_pod(app, case.namespace).label(app=app).grace(random.choice((0, 0, 30)))
    cpu, memory = random.choice((500, 1000, 1500, 2000, 3000)), random.choice((256, 512, 1024, 4096))
    template.req(cpu=f"{cpu}m", memory=f"{memory}Mi")
    if random.random() < 0.25:
        template.priority_class("medium")
    for kind_of_rule in random.sample(range(_RULES), random.choice((0, 1, 1, 2))):
        _restrict(template, app, kind_of_rule, random)
    has_volumes = kind == "StatefulSet" and random.random() < 0.5
    placed = 0
    for _ in range(random.randint(2, 6)):
        name = f"{app}-{placed}"
        node = _node_for(template.obj(), case, free, (cpu, memory), random)
        if node is None:
            break
        pod = copy.deepcopy(template).node(node).obj()
        pod["metadata"] |= {"name": name, "uid": f"pod-{name}"}
        if has_volumes:
            _add_volume(case, name, node)
            pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}]
        if kind == "StatefulSet":
            pod["spec"] |= {"hostname": name, "subdomain": app}
            pod["metadata"]["labels"] |= {
                "statefulset.kubernetes.io/pod-name": name,
                "apps.kubernetes.io/pod-index": str(placed),
            }
        case.pods.append(pod)
        placed += 1
    if placed:
        case.controllers.append(_controller(kind, app, case.namespace, placed, template, has_volumes=has_volumes))
    if random.random() < 0.2:
        case.others.append(make_service(app, {"app": app}, namespace=case.namespace))


def _restrict(pod: PodBuilder, app: str, rule: int, random: Random) -> None:
    other = {"app": random.choice(("app-a", "app-b", "app-c"))}
    restrictions = (
        lambda: pod.node_selector({ZONE: random.choice("abc")}),
        lambda: pod.node_selector({_DISK: random.choice(("ssd", "hdd"))}),
        lambda: pod.prefer_node(random.choice((10, 90)), node_term(expression(_DISK, "In", "ssd"))),
        lambda: pod.anti_affinity(HOSTNAME, labels={"app": app}),
        lambda: pod.anti_affinity(HOSTNAME, labels=other),
        lambda: pod.anti_affinity(ZONE, weight=50, labels=other),
        lambda: pod.affinity(ZONE, labels=other),
        lambda: pod.affinity(ZONE, weight=80, labels=other),
        lambda: pod.spread(ZONE, max_skew=random.choice((1, 2)), labels={"app": app}),
        lambda: pod.spread(HOSTNAME, soft=True, labels={"app": app}),
        lambda: pod.host_port(8000 + ord(app[-1])),
        lambda: pod.host_port(7000),
        lambda: pod.toleration("dedicated", operator="Exists"),
        lambda: pod.annotation({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
    )
    restrictions[rule]()


def _node_for(
    pod: Object, case: LiveCase, free: dict[str, list[int]], needs: tuple[int, int], random: Random
) -> str | None:
    """Returns a random node with room, and takes the room there. Nodes that hold pods already are preferred."""
    ports = _ports(pod)
    fitting = []
    for node in case.nodes:
        name = node["metadata"]["name"]
        here = [each for each in case.pods if each["spec"]["nodeName"] == name]
        labels = node["metadata"]["labels"]
        if (
            all(left >= need for left, need in zip(free[name], needs, strict=True))
            and len(here) < int(node["status"]["allocatable"]["pods"])
            and not any(ports & _ports(each) for each in here)
            and all(labels.get(key) == value for key, value in pod["spec"].get("nodeSelector", {}).items())
            and ("tolerations" in pod["spec"] or "taints" not in node["spec"])
            and not ("podAntiAffinity" in pod["spec"].get("affinity", {}) and here)
        ):
            fitting.append(name)
    if not fitting:
        return None
    chosen: str = random.choice(fitting)
    free[chosen] = [left - need for left, need in zip(free[chosen], needs, strict=True)]
    return chosen


def _ports(pod: Object) -> set[int]:
    return {each["hostPort"] for each in pod["spec"]["containers"][0].get("ports", ())}


def _add_volume(case: LiveCase, name: str, node: str) -> None:
    """Adds a claim, and its volume that every node of the zone can use."""
    zone = next(each["metadata"]["labels"][ZONE] for each in case.nodes if each["metadata"]["name"] == node)
    volume, claim = f"{case.namespace}-{name}", f"data-{name}"
    terms = [node_term(expression(ZONE, "In", zone))]
    case.others.append(make_pv(volume, claim=f"{case.namespace}/{claim}", node_terms=terms))
    case.others.append(make_pvc(claim, namespace=case.namespace, volume=volume, storage_class=""))


def _controller(
    kind: str, app: str, namespace: str, replicas: int, template: PodBuilder, *, has_volumes: bool
) -> Object:
    pod = template.obj()
    metadata = {key: value for key, value in pod["metadata"].items() if key in ("labels", "annotations")}
    labels: Object = {"app": app}
    spec: Object = {
        "replicas": replicas,
        "selector": labels if kind == "ReplicationController" else {"matchLabels": labels},
        "template": {"metadata": metadata, "spec": pod["spec"]},
    }
    if kind == "StatefulSet":
        spec |= {"serviceName": app, "podManagementPolicy": "Parallel", "updateStrategy": {"type": "OnDelete"}}
        if has_volumes:
            claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": {**claim, "storageClassName": ""}}]
    return {
        "apiVersion": _VERSIONS.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": {"name": app, "namespace": namespace, "uid": f"{kind.lower()}-{app}", "labels": labels},
        "spec": spec,
    }


def _add_lone_pods(case: LiveCase, free: dict[str, list[int]], random: Random) -> None:
    """Adds pods that stay: of a DaemonSet, and without a controller."""
    for node in case.nodes:
        name = node["metadata"]["name"]
        if random.random() < 0.3 and free[name][0] >= 500:
            pod = make_pod(f"agent-{name}", case.namespace).label(app="agent").req(cpu="500m").node(name)
            if random.random() < 0.5:
                pod.owner("DaemonSet", "agent")
            case.pods.append(pod.obj())
            free[name][0] -= 500


def _add_budgets(case: LiveCase, random: Random) -> None:
    for controller in case.controllers:
        app, replicas = controller["metadata"]["name"], controller["spec"]["replicas"]
        if random.random() < 0.3:
            least = random.choice((max(replicas - 1, 1), max(replicas - 1, 1), replicas, "50%"))
            limit = random.choice(({"maxUnavailable": 1}, {"minAvailable": least}))
            case.others.append(make_pdb(app, {"app": app}, namespace=case.namespace, **limit))


def _add_targets(case: LiveCase, free: dict[str, list[int]], random: Random) -> None:
    cpu = max(left for left, _ in free.values()) + random.choice((250, 500, 500, 1000, 2000))
    case.waits = random.random() < 0.7
    app = random.choice(("app-a", "target", "target"))
    for number in range(random.choice((1, 1, 1, 2, 3))):
        pod = make_pod(f"target-{number}", case.namespace).label(app=app).req(cpu=f"{cpu}m", memory="1Gi")
        pod.priority_class("patient")
        if random.random() < 0.3:
            _restrict(pod, app, random.randrange(_RULES), random)
        pod.label(app="target")
        case.targets.append(pod.obj())


def _with_priority(pod: Object) -> Object:
    return {**pod, "spec": {**pod["spec"], "priority": 200, "preemptionPolicy": "Never"}}


def _owned(pod: Object, controller: Object | None) -> Object:
    """Returns a pod as the controller adopts it and a kubelet runs it."""
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    made = {**pod, "status": status}
    if pod["spec"].get("priorityClassName") == "medium":
        made["spec"] = {**pod["spec"], "priority": 100}
    if controller is None:
        return made
    owner = {key: controller[key] for key in ("apiVersion", "kind")}
    owner |= {key: controller["metadata"][key] for key in ("name", "uid")}
    return {**made, "metadata": {**pod["metadata"], "ownerReferences": [{**owner, "controller": True}]}}
