"""A pod shares what was computed for another pod of its template."""

from __future__ import annotations

import gc
from collections.abc import Callable
from weakref import ref

import pytest

from extender.snapshots.objects import to_pod
from extender.table import PodInfo
from extender.table.podinfo import Templates
from tests.builders import PodBuilder, make_pod

PARTS = (
    "group", "requests", "requests_with_defaults",
        "container_requests_with_defaults", "footprint", "host_ports", "images", "claims", "attachables",
    "mounts", "required_affinity", "required_anti_affinity", "preferred_affinity", "preferred_anti_affinity",
)  # fmt: skip
RUNNING = {"containerStatuses": [{"name": "container-0", "allocatedResources": {"cpu": "3"}}]}
INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]

CHANGES: dict[str, Callable[[PodBuilder], PodBuilder]] = {
    "nothing": lambda pod: pod,
    "its node": lambda pod: pod.node("n1"),
    "requests": lambda pod: pod.req(cpu="2"),
    "an init container": lambda pod: pod.init_container(cpu="4"),
    "overhead": lambda pod: pod.overhead(cpu="1"),
    "pod-level requests": lambda pod: pod.pod_level_req(cpu="5"),
    "a port": lambda pod: pod.host_port(80),
    "an image": lambda pod: pod.image("other:1"),
    "affinity": lambda pod: pod.affinity("zone", labelSelector={"matchLabels": {"app": "a"}}),
    "preferred anti-affinity": lambda pod: pod.anti_affinity("zone", weight=5, labelSelector={}),
    "labels": lambda pod: pod.label(app="other"),
    "the token that every pod has": lambda pod: pod.volume("kube-api-access-x", {"projected": {"sources": []}}),
    "a volume of an image": lambda pod: pod.volume("v", {"image": {"reference": "models:2"}}),
    "a claim": lambda pod: pod.pvc("claim"),
    "an ephemeral volume": lambda pod: pod.volume("v", {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
    "what the kubelet has allocated": lambda pod: pod.status(**RUNNING),
    "a resize that cannot be": lambda pod: pod.status(**RUNNING, conditions=INFEASIBLE),
    "what the pod as a whole was given": lambda pod: pod.status(allocatedResources={"cpu": "9"}),
}


def made(name: str, change: str) -> PodInfo:
    return PodInfo(to_pod(CHANGES[change](make_pod(name).label(app="a").req(cpu="1", memory="1Gi")).obj()))


def parts_of(info: PodInfo) -> dict[str, object]:
    return {part: getattr(info, part) for part in PARTS}


@pytest.mark.parametrize("first", CHANGES)
def test_pods_of_one_group_share_only_what_is_equal(first: str) -> None:
    for second in CHANGES:
        templates = Templates()
        for name, change in (("a", first), ("b", second), ("c", first), ("d", second)):
            alone = made(name, change)
            assert parts_of(templates.info(alone.pod)) == parts_of(alone), second


@pytest.mark.parametrize("first", CHANGES)
def test_versions_of_one_pod_share_only_what_is_equal(first: str) -> None:
    before = made("a", first)
    for second in CHANGES:
        alone = made("a", second)
        assert parts_of(Templates().info(alone.pod, before)) == parts_of(alone), second


def test_a_pod_that_got_labels_with_its_node_shares_the_work() -> None:
    before, bound = made("a", "nothing"), made("a", "labels")
    assert Templates().info(bound.pod, before).footprint is before.footprint


@pytest.mark.parametrize("change", ["a port", "the token that every pod has"])
def test_replicas_share_the_work(change: str) -> None:
    templates = Templates()
    one, other = (templates.info(made(name, change).pod) for name in ("a", "b"))
    assert one.requests is other.requests
    assert one.footprint is other.footprint


def test_pods_that_are_gone_are_not_kept() -> None:
    templates = Templates()
    infos = [templates.info(to_pod(make_pod(f"p{number}").label(own=f"{number}").obj())) for number in range(1000)]
    gone = [ref(info) for info in infos]
    later = templates.info(to_pod(make_pod("later").label(own="7").obj()))
    assert later.footprint is infos[7].footprint
    del infos
    assert [each for each in gone if each() is not None] == []


def test_a_later_version_replaces_a_pod_as_template() -> None:
    templates = Templates()
    bound = templates.info(to_pod(make_pod("a").node("n").obj()), templates.info(to_pod(make_pod("a").obj())))
    assert templates.info(to_pod(make_pod("b").obj())).footprint is bound.footprint


def test_the_labels_of_a_pod_that_is_gone_are_not_kept() -> None:
    templates = Templates()
    labels = {f"k{number}": "v" for number in range(1000)}
    info = templates.info(to_pod(make_pod("p").label(labels).obj()))
    group = ref(info.group.labels)
    del info
    gc.collect()
    assert group() is None
