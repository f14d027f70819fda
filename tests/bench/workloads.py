"""The clusters to decide on, and the pods to place in them: no two pods of a workload ask for the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from tests.builders import (
    HOSTNAME,
    ZONE,
    NodeBuilder,
    Object,
    PodBuilder,
    expression,
    make_node,
    make_pod,
    make_pod_group,
    make_priority_class,
    node_term,
)

PODS_PER_NODE = 4
PLAIN, PREEMPTION, VARIED = "plain", "preemption", "varied"
EVICTING = "evicting-gang"
_RACK, _NODES_PER_RACK = "rack", 50
_PODS_EVICTED_FOR_A_MEMBER = 10
_SEED = 7
_APPS = 50

PREEMPTING = make_priority_class("wave", 1000)

Shape = Callable[[PodBuilder, dict[str, str], Random], PodBuilder]
"""Adds rules to a pod whose label is the second argument."""


@dataclass(frozen=True)
class PodGroups:
    """A backlog of pod groups that are all alike.

    Attributes:
        members: the pods of a group; a gang needs all of them.
        gang: False for groups of the policy `basic`.
        rack: True if all pods of a group must be in one rack.
    """

    members: int
    gang: bool = True
    rack: bool = False


@dataclass(frozen=True)
class LargeCluster:
    """Nodes in three zones, each with some pods; every fifth pod has (anti-)affinity of its own."""

    nodes: list[Object]
    pods: list[Object]

    @property
    def objects(self) -> list[Object]:
        return [*self.nodes, *self.pods]


def large_cluster(nodes: int, pods_per_node: int = PODS_PER_NODE) -> LargeCluster:
    """Returns the same for the same numbers."""
    random = Random(_SEED)
    return LargeCluster(
        [_node(number, random) for number in range(nodes)],
        [_bound_pod(number, nodes, random) for number in range(pods_per_node * nodes)],
    )


def node_name(number: int) -> str:
    return f"node-{number:05}"


def tainted(number: int) -> bool:
    return number % 20 == 0


def pods_to_decide(workload: str, count: int) -> list[PodBuilder]:
    """Returns pods of one of DECISIONS, the same for the same arguments; each has requests and values of its own."""
    random = Random(f"{workload} {_SEED}")
    return [_pod_to_decide(workload, number, random) for number in range(count)]


def _pod_to_decide(workload: str, number: int, random: Random) -> PodBuilder:
    app = {"app": f"web-{random.randrange(_APPS)}"}
    pod = make_pod(f"{workload.replace(' ', '-')}-{number}").scheduler("default-scheduler").priority(0).label(app)
    pod.req(cpu=f"{random.randrange(50, 900)}m", memory=f"{random.randrange(32, 900)}Mi")
    pod.start_time(_moment(random))  # of no account until it is bound
    return DECISIONS[workload](pod, app, random)


def pods_to_schedule(workload: str, count: int) -> list[PodBuilder]:
    """Returns pods of one of BACKLOGS: all but `varied` are replicas of ten templates, as Deployments make them."""
    random = Random(f"{workload} {_SEED}")
    pods = [make_pod(f"{workload}-{number:05}") for number in range(count)]
    for number, pod in enumerate(pods):
        app = {"app": f"a{random.randrange(400) if workload == VARIED else number % 10}"}
        BACKLOGS[workload](pod.label(app).req(cpu="100m", memory="128Mi"), app, random)
    return pods


def standing_pods(nodes: int) -> list[PodBuilder]:
    """Returns pods that leave nothing free on so many of `backlog_node`, two each."""
    return [
        make_pod(f"standing-{number:05}").req(cpu="16", memory="64Gi").node(node_name(number // 2))
        for number in range(2 * nodes)
    ]


def grouped_pods(workload: str, pods: int) -> Iterator[Object]:
    """Yields groups of one of GROUPS with so many pods in all: first the PodGroups, then the pods, group by group."""
    groups = GROUPS[workload]
    names = [f"{workload}-{number:04}" for number in range(pods // groups.members)]
    constraints: Object = {"schedulingConstraints": {"topology": [{"key": _RACK}]}} if groups.rack else {}
    for name in names:
        yield make_pod_group(name, groups.members if groups.gang else None, **constraints)
    for name in names:
        for member in range(groups.members):
            yield make_pod(f"{name}-{member}").group(name).req(cpu="100m", memory="128Mi").obj()


def full_nodes(nodes: int) -> Iterator[Object]:
    """Yields the pods that fill so many of `backlog_node`: ten on each."""
    for number in range(_PODS_EVICTED_FOR_A_MEMBER * nodes):
        name = node_name(number // _PODS_EVICTED_FOR_A_MEMBER)
        yield make_pod(f"standing-{number:05}").req(cpu="3200m").node(name).obj()


def evicting_gang(members: int) -> list[Object]:
    """Returns the members of a gang, each of which needs a whole node and outranks its pods; last the PodGroup."""
    name = PREEMPTING["metadata"]["name"]
    pods = [
        make_pod(f"member-{number}").group(EVICTING).req(cpu="32").priority_class(name) for number in range(members)
    ]
    return [*(pod.obj() for pod in pods), make_pod_group(EVICTING, members, priorityClassName=name)]


def preempting_pods(count: int) -> list[PodBuilder]:
    """Returns pods each of which is as large as a standing one and outranks it, by the class of `PREEMPTING`."""
    name = PREEMPTING["metadata"]["name"]
    return [
        make_pod(f"{PREEMPTION}-{number:05}").req(cpu="16", memory="64Gi").priority_class(name)
        for number in range(count)
    ]


def backlog_node(number: int) -> NodeBuilder:
    rack = {_RACK: f"rack-{number // _NODES_PER_RACK}"}
    return make_node(node_name(number)).zone(f"z{number % 3}", "r1").label(rack).capacity(cpu="32", memory="128Gi")


def _plain(pod: PodBuilder, app: dict[str, str], random: Random) -> PodBuilder:
    return pod


def _varied(pod: PodBuilder, app: dict[str, str], random: Random) -> PodBuilder:
    """One rule of its own, or none, with values of its own."""
    pod.label(run=f"{random.randrange(10**9)}")
    pod.req(cpu=f"{random.randrange(20, 400)}m", memory=f"{random.randrange(32, 900)}Mi")
    match random.randrange(3):
        case 1:
            pod.spread(ZONE, max_skew=random.randrange(3, 9), labels=app)
        case 2:
            pod.anti_affinity(HOSTNAME, weight=random.randrange(1, 100), labels=app)
    return pod


def _varied_decision(pod: PodBuilder, app: dict[str, str], random: Random) -> PodBuilder:
    """Several rules, with values of its own."""
    _varied(pod, app, random)
    if random.random() < 0.4:
        pod.prefer_node(random.randrange(1, 100), node_term(expression("rank", "Gt", f"{random.randrange(10)}")))
    if random.random() < 0.3:
        pod.require_node(node_term(expression("disktype", "NotIn", f"tape-{random.randrange(10**6)}")))
    if random.random() < 0.3:
        pod.toleration("dedicated", random.choice(["infra", f"team-{random.randrange(10**6)}"]))
    if random.random() < 0.2:
        pod.affinity(ZONE, weight=random.randrange(1, 100), labels={"app": f"web-{random.randrange(_APPS)}"})
    return pod


DECISIONS: Mapping[str, Shape] = {
    PLAIN: _plain,
    "node affinity": lambda pod, _, random: pod.require_node(
        node_term(
            expression("disktype", "In", random.choice(["ssd", "hdd"])),
            expression("rank", "Gt", f"{random.randrange(7)}"),
        )
    ),
    "spread": lambda pod, app, random: pod.spread(ZONE, max_skew=random.randrange(5, 40), labels=app).spread(
        HOSTNAME, max_skew=3, soft=True, labels=app
    ),
    "affinity": lambda pod, app, _: pod.affinity(ZONE, labels=app),
    "anti-affinity": lambda pod, app, _: pod.anti_affinity(HOSTNAME, labels=app),
    "preferred": lambda pod, app, random: pod.anti_affinity(
        HOSTNAME, weight=random.randrange(1, 100), labels=app
    ).affinity(ZONE, weight=random.randrange(1, 100), labels={"app": f"web-{random.randrange(_APPS)}"}),
    PREEMPTION: lambda pod, _, random: pod.req(cpu=f"{random.randrange(15_950, 16_001)}m").priority(
        random.randrange(1000, 10_000)
    ),
    VARIED: _varied_decision,
}
"""A way of asking that is costly in a way of its own, each."""

BACKLOGS: Mapping[str, Shape] = {
    "basic": _plain,
    "spread": lambda pod, app, _: pod.spread(ZONE, max_skew=5, labels=app),
    "affinity": lambda pod, app, _: pod.affinity(ZONE, labels=app),
    "antiaffinity": lambda pod, app, _: pod.anti_affinity(HOSTNAME, labels=app),
    "preferred": lambda pod, app, _: pod.anti_affinity(HOSTNAME, weight=50, labels=app),
    VARIED: _varied,
}
"""Pods that wait for a scheduler, all at once."""

GROUPS: Mapping[str, PodGroups] = {
    "gangs": PodGroups(8),
    "basic-groups": PodGroups(8, gang=False),
    "small-gangs": PodGroups(3),
    "large-gangs": PodGroups(1000),
    "rack-gangs": PodGroups(4, rack=True),
}
"""The same, in pod groups."""


def _node(number: int, random: Random) -> Object:
    node = make_node(node_name(number)).zone(f"z{number % 3}", "r1").capacity(cpu="16", memory="64Gi")
    node.label(disktype=random.choice(["ssd", "hdd"]), rank=str(number % 10))
    return node.taint("dedicated", "infra").obj() if tainted(number) else node.obj()


def _bound_pod(number: int, nodes: int, random: Random) -> Object:
    app, solo = f"web-{number % _APPS}", f"{number % 7}"
    pod = make_pod(f"pod-{number}").label(app=app, solo=solo).priority(0)
    pod.req(cpu=random.choice(["100m", "500m", "1"]), memory=random.choice(["128Mi", "512Mi", "2Gi"]))
    if number % 10 == 1:
        pod.anti_affinity(HOSTNAME, labels={"app": f"solo-{solo}"})
    if number % 10 == 2:
        pod.affinity(ZONE, weight=50, labels={"app": app})
    pod.node(node_name(number if number < nodes else random.randrange(nodes)))
    return pod.phase("Running").start_time(_moment(random)).obj()


def _moment(random: Random) -> str:
    """Returns a start of a pod; those of one node differ, for the order of equal victims is not determined."""
    second = random.randrange(30 * 24 * 3600)
    return f"{datetime(2026, 10, 1) + timedelta(seconds=second):%Y-%m-%dT%H:%M:%SZ}"
