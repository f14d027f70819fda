"""Hints are asked once for pods that a rule says are alike: so those must get the same answers, whatever happens."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import msgspec
import pytest

from extender.framework.events.cluster_events import Action, Change, ClusterEvent, Resource
from extender.framework.events.queueing_hints import QueueingHints
from extender.model.volumes.storage import CSIDriver, CSIStorageCapacity, VolumeAttachment
from extender.plugins.registry import INTERESTS
from tests.builders import ZONE, expression, make_node, make_pod, node_term
from tests.queue.queueing import Told, info, node

WEB = {"app": "web"}
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
        make_pod("spread").label(WEB).spread(ZONE, labels=WEB),
        make_pod("spread-by").label(WEB, v="2").spread(ZONE, labels=WEB, matchLabelKeys=["v"]),
        make_pod("claim").pvc("c"),
        make_pod("inline").volume("v", {"csi": {"driver": "d"}}),
        make_pod("disk").volume("v", {"gcePersistentDisk": {"pdName": "d"}}),
        make_pod("gpu").req({"example.com/gpu": "1"}),
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
        make_pod("claim").pvc("c"),
        make_pod("disk").volume("v", {"gcePersistentDisk": {"pdName": "d"}}),
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
CAPACITIES = [CSIStorageCapacity(capacity="1Gi"), CSIStorageCapacity(capacity="2Gi")]
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
        (Resource.CSI_DRIVER, DRIVERS),
        (Resource.CSI_STORAGE_CAPACITY, CAPACITIES),
        (Resource.VOLUME_ATTACHMENT, ATTACHMENTS),
        (Resource.DEVICE_CLASS, [None]),
    ]
    for resource, those in objects:
        found += [Change(ClusterEvent(resource, Action.ADD), None, each) for each in those]
        found += [Change(ClusterEvent(resource, Action.DELETE), each, None) for each in those]
        found += [Change(ClusterEvent(resource, Action.DELETE), each, None, room) for each in those]
        for old, new in [pair for two in combinations(those, 2) for pair in (two, two[::-1])]:
            found += [Change(ClusterEvent(resource, action), old, new) for action in Action if action in Action.UPDATE]
            found.append(Change(ClusterEvent(resource, Action.UPDATE), old, new))
    return found


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule) for rule in sorted(INTERESTS)])
def test_alike_pods_get_the_same_answers(rule: str) -> None:
    told = Told()
    hints = QueueingHints(INTERESTS, told.rule_failed)
    heard = [
        (change, interest)
        for change in changes()
        for interest in hints.interests(rule, change.event)
        if interest.about(change) is None
    ]
    answers: dict[object, tuple[bool, ...]] = {}
    for pod in PODS:
        answer = tuple(hints.helps(rule, interest, pod, change) for change, interest in heard)
        assert answers.setdefault(hints.alike(rule, pod), answer) == answer, pod
    assert not told.failed
