"""An event wakes the pods that a hint of their rules accepts, and the queue calls the hint for few of many pods.

The queue finds these pods by what the hint declares to read. A hint that reads more would not be called for some pods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.framework.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    Action,
    Change,
    ClusterEvent,
    Resource,
)
from extender.framework.queueing_hints import Hint, Interests, QueueingHints
from extender.framework.status import Rejection
from extender.model.devices import DeviceClass
from extender.model.storage import CSIDriver, CSIStorageCapacity, VolumeAttachment
from extender.model.workloads import Namespace, Service
from extender.plugins.registry import INTERESTS
from extender.queue.entries import QueuedPod, Tier
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import ManualClock
from extender.table import PodInfo
from tests.builders import (
    ZONE,
    NodeBuilder,
    Object,
    PodBuilder,
    expression,
    make_device_class,
    make_namespace,
    make_node,
    make_pod,
    make_service,
    node_term,
)
from tests.plugins.hint_case import claim, read
from tests.queue.queueing import QueueRecorder, info, node, refused

WEB = {"app": "web"}
NOT_DB = expression("app", "NotIn", "db")
PODS = [
    info(builder)
    for builder in (
        make_pod("plain"),
        make_pod("another"),
        make_pod("elsewhere", "other"),
        make_pod("web").label(WEB),
        make_pod("small").req(cpu="1"),
        make_pod("large").req(cpu="9"),
        make_pod("important").req(cpu="1").priority(9),
        make_pod("on-ssd").node_selector(disk="ssd"),
        make_pod("on-hdd").require_node(node_term(expression("disk", "In", "hdd"))),
        make_pod("tolerant").toleration("k"),
        make_pod("http").host_port(80),
        make_pod("https").host_port(443),
        make_pod("near").affinity(ZONE, labels=WEB),
        make_pod("far").anti_affinity(ZONE, labels=WEB),
        make_pod("near-all-but").affinity(ZONE, expressions=[NOT_DB]),
        make_pod("far-from-all-but").anti_affinity(ZONE, expressions=[NOT_DB]),
        make_pod("far-from-any").anti_affinity(ZONE, expressions=[expression("app", "Exists")]),
        make_pod("near-in-any-namespace").affinity(ZONE, labels=WEB, namespaceSelector={}),
        make_pod("far-from-teams").anti_affinity(ZONE, labels=WEB, namespaceSelector={"matchLabels": {"team": "a"}}),
        make_pod("spread-all-but").label(WEB).spread(ZONE, labelSelector={"matchExpressions": [NOT_DB]}),
        make_pod("spread").label(WEB).spread(ZONE, labels=WEB),
        make_pod("spread-by").label(WEB, v="2").spread(ZONE, labels=WEB, matchLabelKeys=["v"]),
        make_pod("claim").pvc("c"),
        make_pod("inline").volume("v", {"csi": {"driver": "d"}}),
        make_pod("disk").volume("v", {"gcePersistentDisk": {"pdName": "d"}}),
        make_pod("gpu").req({"example.com/gpu": "1"}),
        make_pod("member").group("g"),
        make_pod("device").req({"deviceclass.resource.kubernetes.io/gpu": "1"}),
    )
]
PLACED = [
    info(builder.node("n1"))
    for builder in (
        make_pod("web").label(WEB, v="1"),
        make_pod("web").label(WEB, v="2"),
        make_pod("web", "other").label(WEB),
        make_pod("http").host_port(80),
        make_pod("minds").anti_affinity(ZONE, labels=WEB),
        make_pod("minds-all-but").anti_affinity(ZONE, expressions=[NOT_DB]),
        make_pod("db").label(app="db"),
        make_pod("claim").pvc("c"),
        make_pod("disk").volume("v", {"gcePersistentDisk": {"pdName": "d"}}),
        make_pod("sibling").group("g"),
        make_pod("shrinks").req(cpu="4"),
        make_pod("shrinks").req(cpu="1"),
    )
]
NODES = [
    node(builder)
    for builder in (
        make_node("n").capacity(cpu="2"),
        make_node("n").capacity(cpu="16").zone("a").label(disk="ssd"),
        make_node("n").zone("b").label(disk="hdd").taint("k"),
        make_node("n").unschedulable().capacity({"example.com/gpu": "4"}),
    )
]
DRIVERS = [
    msgspec.convert({"metadata": {"name": "d"}, "spec": {"storageCapacity": reports}}, CSIDriver)
    for reports in (True, False)
]
NAMESPACES = [
    read(Namespace, made)
    for made in (make_namespace("default"), make_namespace("other"), make_namespace("other", team="a"))
]
CAPACITIES = [CSIStorageCapacity(capacity="1Gi"), CSIStorageCapacity(capacity="2Gi")]
CLASSES = [
    read(DeviceClass, made)
    for made in (
        make_device_class("gpu"),
        make_device_class("gpu", extended_resource="example.com/gpu"),
        make_device_class("gpu", extended_resource="example.com/tpu"),
    )
]
SERVICES = [
    read(Service, made)
    for made in (make_service("s", WEB), make_service("s", {}), make_service("s", WEB, namespace="other"))
]
ATTACHMENTS = [
    msgspec.convert({"metadata": {"name": "a"}, "spec": {"attacher": attacher}}, VolumeAttachment)
    for attacher in ("d", "pd.csi.storage.gke.io")
]


def room(priority: int) -> dict[str, int]:
    return {"cpu": 4000 if priority else 500, "pods": 1}


def changes() -> list[Change]:
    found = []
    objects: list[tuple[Resource, list[Any]]] = [
        (Resource.ASSIGNED_POD, PLACED),
        (Resource.NODE, NODES),
        (Resource.NAMESPACE, NAMESPACES),
        (Resource.CSI_DRIVER, DRIVERS),
        (Resource.CSI_STORAGE_CAPACITY, CAPACITIES),
        (Resource.VOLUME_ATTACHMENT, ATTACHMENTS),
        (Resource.DEVICE_CLASS, CLASSES),
        (Resource.SERVICE, SERVICES),
    ]
    for resource, those in objects:
        found += [Change(ClusterEvent(resource, Action.ADD), None, each) for each in those]
        found += [Change(ClusterEvent(resource, Action.DELETE), each, None) for each in those]
        found += [Change(ClusterEvent(resource, Action.DELETE), each, None, room) for each in those]
        for old, new in [pair for two in combinations(those, 2) for pair in (two, two[::-1])]:
            found += [Change(ClusterEvent(resource, action), old, new) for action in Action if action in Action.UPDATE]
            found.append(Change(ClusterEvent(resource, Action.UPDATE), old, new))
    return found


HINTS = QueueingHints(INTERESTS, QueueRecorder().rule_failed)


def woken(pods: Sequence[PodInfo], rejections: Sequence[Rejection], change: Change) -> list[PodInfo]:
    """Returns the pods that a queue wakes for the change."""
    recorded = QueueRecorder()
    queue = PriorityQueue(recorded, ManualClock(), INTERESTS)
    for pod, rejection in zip(pods, rejections, strict=True):
        queue.add(pod)
        popped = queue.pop(0)
        assert isinstance(popped, QueuedPod)
        queue.add_unschedulable(popped, rejection)
    queue.move(change)
    assert not recorded.failed
    waiting = {pod.uid for pod in queue.pods()[Tier.UNSCHEDULABLE]}
    return [pod for pod in pods if pod.uid not in waiting]


def helped_one_by_one(pods: Sequence[PodInfo], rejections: Sequence[Rejection], change: Change) -> list[PodInfo]:
    """Returns the pods that any hint accepts, by calling every hint for every pod."""
    helped = []
    for pod, rejection in zip(pods, rejections, strict=True):
        rules = rejection.rules - (rejection.unresolvable if change.event.frees_room else frozenset())
        if any(HINTS.help_from(rule, pod, change) for rule in rules):
            helped.append(pod)
    return helped


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule) for rule in sorted(INTERESTS)])
def test_the_queue_wakes_the_pods_that_a_hint_accepts(rule: str) -> None:
    rejections = [refused(rule)] * len(PODS)
    for change in changes():
        if HINTS.interests(rule, change.event):
            assert woken(PODS, rejections, change) == helped_one_by_one(PODS, rejections, change), change


KEYS, VALUES = ("app", "zone", "kubernetes.io/os"), ("1", "2", "3")


def drawn_expression(random: Random) -> Object:
    operator = random.choice(("In", "In", "NotIn", "Exists", "DoesNotExist"))
    values = random.sample(VALUES, random.randint(1, 2)) if operator.endswith("In") else ()
    return expression(random.choice(KEYS), operator, *values)


def drawn_pod(random: Random, number: int) -> PodBuilder:
    """Returns a pod made of few values, so that some pods are equal, some similar, and some different."""
    key, value = partial(random.choice, KEYS), partial(random.choice, VALUES)
    pod = make_pod(f"p{number}", random.choice(("default", "other")))
    features: list[Callable[[], object]] = [
        lambda: pod.label({key(): value()}),
        lambda: pod.label({key(): value()}),
        lambda: pod.req(cpu=value(), memory=f"{value()}Gi"),
        lambda: pod.req({"example.com/gpu": value()}),
        lambda: pod.priority(int(value())),
        lambda: pod.node_selector({key(): value()}),
        lambda: pod.require_node(node_term(drawn_expression(random)), node_term(drawn_expression(random))),
        lambda: pod.require_node(node_term(drawn_expression(random), drawn_expression(random))),
        lambda: pod.require_node(node_term(fields=[expression("metadata.name", "In", f"n{value()}")])),
        lambda: pod.affinity(key(), expressions=[drawn_expression(random)]),
        lambda: pod.affinity(key(), labels={key(): value()}, namespaces=["default", "other"]),
        lambda: pod.anti_affinity(key(), labels={key(): value(), "app": value()}),
        lambda: pod.anti_affinity(key(), expressions=[drawn_expression(random)], namespaceSelector={}),
        lambda: pod.spread(key(), labels={key(): value()}),
        lambda: pod.spread(key(), labelSelector={"matchExpressions": [drawn_expression(random)]}),
        lambda: pod.toleration(key(), random.choice((None, *VALUES))),
        lambda: pod.toleration(effect=random.choice((None, "NoSchedule"))),
        lambda: pod.host_port(int(value())),
        lambda: pod.pvc(value()),
        lambda: pod.resource_claim(value()),
        lambda: pod.volume("v", {"gcePersistentDisk": {"pdName": value(), "readOnly": random.random() < 0.5}}),
        lambda: pod.volume("w", {"csi": {"driver": value()}}),
    ]
    for feature in random.choices(features, k=random.randint(0, 6)):
        feature()
    return pod


def drawn_node(random: Random, name: str) -> NodeBuilder:
    node = make_node(name).capacity(cpu=random.choice(VALUES), memory=f"{random.choice(VALUES)}Gi")
    if random.random() < 0.3:
        node.capacity({"example.com/gpu": random.choice(VALUES)})
    if random.random() < 0.3:
        node.taint(random.choice(KEYS), random.choice(VALUES), random.choice(("NoSchedule", "PreferNoSchedule")))
    return node.label({key: random.choice(VALUES) for key in random.sample(KEYS, random.randint(0, 3))})


def drawn_change(random: Random) -> Change:
    updates = [Action.UPDATE_NODE_ALLOCATABLE, Action.UPDATE_NODE_LABEL, Action.UPDATE_NODE_TAINT]
    if random.random() < 0.5:
        name = f"n{random.choice(VALUES)}"  # which no update changes
        return drawn_change_of(Resource.NODE, updates, lambda: node(drawn_node(random, name)), random)
    updates = [Action.UPDATE_POD_LABEL, Action.UPDATE_POD_SCALE_DOWN]
    return drawn_change_of(Resource.ASSIGNED_POD, updates, lambda: info(drawn_pod(random, 0).node("n1")), random)


def drawn_change_of(resource: Resource, updates: Sequence[Action], draw: Callable[[], Any], random: Random) -> Change:
    action = random.choice((Action.ADD, Action.DELETE, *updates))
    old, new = None if action is Action.ADD else draw(), None if action is Action.DELETE else draw()
    free = {"cpu": random.choice((1500, 2000)), "memory": 2 * 2**30, "pods": random.choice((0, 1, 1))}
    return Change(
        ClusterEvent(resource, action),
        old,
        new,
        random.choice((None, lambda priority: free if priority < 3 else None)),
    )


@given(st.randoms(use_true_random=False))
def test_the_queue_wakes_the_right_pods_for_any_requests_and_rules(random: Random) -> None:
    pods = [info(drawn_pod(random, number)) for number in range(6)]
    rejections = []
    for _ in pods:
        rules = frozenset((random.choice(sorted(INTERESTS)), random.choice(FREQUENT)))
        rejections.append(Rejection(rules, frozenset(), frozenset(rule for rule in rules if random.random() < 0.2)))
    for _ in range(8):
        change = drawn_change(random)
        assert woken(pods, rejections, change) == helped_one_by_one(pods, rejections, change), change


FREQUENT = ("NodeResourcesFit", "NodeAffinity", "InterPodAffinity", "PodTopologySpread", "TaintToleration")
MANY = 500


def unlike_pod(rule: str, number: int) -> PodBuilder:
    """Returns a pod with unique requests and labels, and a unique value in what `rule` reads."""
    own = {"own": f"{number}"}
    pod = make_pod(f"p{number}").label(own).req(cpu=f"{number + 1}m", memory=f"{MANY - number}Mi")
    return {
        "NodeAffinity": lambda: pod.node_selector(own),
        "InterPodAffinity": lambda: pod.affinity(ZONE, labels=own),
        "PodTopologySpread": lambda: pod.spread(ZONE, labels=own),
        "TaintToleration": lambda: pod.toleration("own", f"{number}"),
        "NodePorts": lambda: pod.host_port(number + 1),
        "VolumeRestrictions": lambda: pod.pvc(f"claim-{number}"),
        "NodeVolumeLimits": lambda: pod.pvc(f"claim-{number}"),
        "VolumeBinding": lambda: pod.pvc(f"claim-{number}"),
        "VolumeZone": lambda: pod.pvc(f"claim-{number}"),
    }.get(rule, lambda: pod)()


NEW_NODE = make_node("n").label(own="7").taint("own", "7").capacity(cpu="8m", memory=f"{MANY}Mi")
NEIGHBOUR = make_pod("neighbour").label(own="7").anti_affinity(ZONE, labels={"own": "7"}).pvc("claim-7").host_port(8)
POD_CAME = Change(ASSIGNED_POD_ADD, None, info(NEIGHBOUR.node("n")))
POD_LEFT = Change(ASSIGNED_POD_DELETE, info(NEIGHBOUR.node("n")), room=lambda _: {"cpu": 8, "memory": MANY * 2**20})
NODE_CAME = Change(NODE_ADD, None, node(NEW_NODE))


@pytest.mark.parametrize(
    ("rule", "change", "helped"),
    [
        pytest.param("NodeResourcesFit", NODE_CAME, 8, id="a small node"),
        pytest.param("NodeResourcesFit", POD_LEFT, 8, id="a little room"),
        pytest.param("NodeAffinity", NODE_CAME, 1, id="a node with labels"),
        pytest.param("TaintToleration", NODE_CAME, 1, id="a tainted node"),
        pytest.param("InterPodAffinity", POD_CAME, 1, id="a pod to stand beside"),
        pytest.param("InterPodAffinity", POD_LEFT, 1, id="a pod that stood against others"),
        pytest.param("PodTopologySpread", POD_CAME, 1, id="a pod that counts"),
        pytest.param("NodePorts", POD_LEFT, 1, id="a port"),
        pytest.param("VolumeRestrictions", POD_LEFT, 1, id="a claim in use"),
        *(
            pytest.param(
                rule,
                Change(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD), None, claim("claim-7")),
                1,
                id=f"a claim, {rule}",
            )
            for rule in ("NodeVolumeLimits", "VolumeBinding", "VolumeRestrictions", "VolumeZone")
        ),
    ],
)
def test_the_hint_is_called_for_few_of_many_different_pods(rule: str, change: Change, helped: int) -> None:
    asked: list[str] = []

    def counted(hint: Hint) -> Hint:
        def ask(pod: PodInfo, change: Change) -> bool:
            asked.append(pod.pod.name)
            return hint(pod, change)

        return ask

    interests = Interests(tuple(each._replace(hint=counted(each.hint)) for each in INTERESTS[rule].of))
    queue = PriorityQueue(QueueRecorder(), ManualClock(), {rule: interests})
    for number in range(MANY):
        queue.add(info(unlike_pod(rule, number)))
        popped = queue.pop(0)
        assert isinstance(popped, QueuedPod)
        queue.add_unschedulable(popped, refused(rule))
    assert queue.move(change) == helped
    assert len(asked) <= helped
