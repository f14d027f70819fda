"""Classic priorities that no plugin has now."""

from __future__ import annotations

import json

import pytest

from extender.plugins.classic import (
    ANNOTATION,
    EqualPriority,
    NodeLabelScore,
    NodePreferAvoidPods,
    ResourceLimits,
    SelectorSpread,
    ServiceAntiAffinity,
)
from tests.builders import Object, PodBuilder, make_node, make_pod, make_service
from tests.framework.cluster import scores

POD = make_pod("p").obj()
WEB = make_service("web", {"app": "web"})


def web(name: str, node: str | None = None) -> PodBuilder:
    pod = make_pod(name).label(app="web")
    return pod.node(node) if node else pod


@pytest.mark.parametrize(("presence", "expected"), [(True, {"ssd": 100, "hdd": 0}), (False, {"ssd": 0, "hdd": 100})])
def test_node_label(presence: bool, expected: dict[str, int]) -> None:
    nodes = [make_node("ssd").label(ssd="").obj(), make_node("hdd").obj()]
    assert scores(NodeLabelScore("ssd", presence, "mine"), POD, *nodes) == expected


def test_equal() -> None:
    assert scores(EqualPriority(), POD, make_node("a").obj(), make_node("b").obj()) == {"a": 1, "b": 1}


RACKS = [make_node(name).label(rack=name[0]).obj() for name in ("a1", "a2", "b1")] + [make_node("none").obj()]


@pytest.mark.parametrize(
    ("pod", "others", "expected"),
    [
        pytest.param(web("p"), [], {"a1": 100, "a2": 100, "b1": 100, "none": 0}, id="no pod is there yet"),
        # 1 of 4 in rack b, 2 of 4 in rack a; the one outside of all racks counts too
        pytest.param(
            web("p"),
            [web("1", "a1"), web("2", "a2"), web("3", "b1"), web("4", "none")],
            {"a1": 50, "a2": 50, "b1": 75, "none": 0},
            id="spread",
        ),
        pytest.param(
            web("p"), [web("1", "a1").deleted()], {"a1": 100, "a2": 100, "b1": 100, "none": 0}, id="leaving pods"
        ),
        pytest.param(
            make_pod("p").label(app="db"),
            [web("1", "a1")],
            {"a1": 100, "a2": 100, "b1": 100, "none": 0},
            id="of no service",
        ),
    ],
)
def test_service_anti_affinity(pod: PodBuilder, others: list[PodBuilder], expected: dict[str, int]) -> None:
    objects = [*RACKS, WEB, *(other.obj() for other in others)]
    assert scores(ServiceAntiAffinity("rack"), pod.obj(), *objects) == expected


PLAIN = [make_node(name).obj() for name in ("a", "b", "c")]
ZONED = [make_node("a").zone("z1").obj(), make_node("b").zone("z1").obj(), make_node("c").zone("z2").obj()]


def in_regions(key: str) -> list[Object]:
    """Returns the nodes a and b in one region, and c in another, without zones."""
    return [make_node(name).label({key: region}).obj() for name, region in (("a", "r1"), ("b", "r1"), ("c", "r2"))]


@pytest.mark.parametrize(
    ("nodes", "others", "expected"),
    [
        pytest.param(PLAIN, [], {"a": 100, "b": 100, "c": 100}, id="no pod is there yet"),
        pytest.param(PLAIN, ["a", "a", "b"], {"a": 0, "b": 50, "c": 100}, id="nodes"),
        # zone z1 has 2 of 2: 0 for its nodes; node b has none of 2: 100 / 3
        pytest.param(ZONED, ["a", "a"], {"a": 0, "b": 33, "c": 100}, id="zones count for two thirds"),
        pytest.param(
            in_regions("topology.kubernetes.io/region"),
            ["a", "a"],
            {"a": 0, "b": 33, "c": 100},
            id="regions count as zones do",
        ),
        pytest.param(
            in_regions("failure-domain.beta.kubernetes.io/region"),
            ["a", "a"],
            {"a": 0, "b": 33, "c": 100},
            id="regions by their old label",
        ),
        pytest.param(
            [*ZONED[:2], make_node("c").obj()], ["a", "b"], {"a": 0, "b": 0, "c": 100}, id="a node without a zone"
        ),
    ],
)
def test_selector_spread(nodes: list[Object], others: list[str], expected: dict[str, int]) -> None:
    pods = [web(str(number), node).obj() for number, node in enumerate(others)]
    assert scores(SelectorSpread(), web("p").obj(), *nodes, WEB, *pods) == expected


def test_a_pod_with_spread_constraints_is_not_spread_by_its_service() -> None:
    assert scores(SelectorSpread(), web("p").spread("zone").obj(), *PLAIN, WEB, web("1", "a").obj()) == {}


def test_controllers_count_unless_services_only_is_set() -> None:
    controller = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "rs", "namespace": "default", "uid": "replicaset-rs"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    }
    pod, objects = web("p").owner("ReplicaSet", "rs").obj(), [*PLAIN, controller, web("1", "a").obj()]
    assert scores(SelectorSpread(), pod, *objects) == {"a": 0, "b": 100, "c": 100}
    assert scores(SelectorSpread(services_only=True), pod, *objects) == {"a": 100, "b": 100, "c": 100}


def test_services_only_spreads_the_pods_of_the_services_that_select_the_pod() -> None:
    others = [make_service("db", {"app": "db"}), web("1", "a").obj(), make_pod("2").label(app="db").node("b").obj()]
    spread = scores(SelectorSpread(services_only=True), web("p").obj(), *PLAIN, WEB, *others)
    assert spread == {"a": 0, "b": 100, "c": 100}


def avoiding(kind: str, uid: str) -> str:
    return json.dumps({"preferAvoidPods": [{"podSignature": {"podController": {"kind": kind, "uid": uid}}}]})


@pytest.mark.parametrize(
    ("annotation", "owner", "expected"),
    [
        pytest.param(avoiding("ReplicaSet", "replicaset-rs"), "ReplicaSet", 0, id="avoided"),
        pytest.param(avoiding("ReplicaSet", "other"), "ReplicaSet", 100, id="another controller"),
        pytest.param(avoiding("StatefulSet", "statefulset-rs"), "StatefulSet", 100, id="another kind of controller"),
        pytest.param("not JSON", "ReplicaSet", 100, id="not to be read"),
        pytest.param('{"preferAvoidPods": [{}]}', "ReplicaSet", 100, id="no controller"),
        pytest.param(avoiding("ReplicaSet", "replicaset-rs"), None, 100, id="its own pod"),
    ],
)
def test_node_prefer_avoid_pods(annotation: str, owner: str | None, expected: int) -> None:
    pod = make_pod("p").owner(owner, "rs") if owner else make_pod("p")
    nodes = [make_node("n").annotation({ANNOTATION: annotation}).obj(), make_node("other").obj()]
    assert scores(NodePreferAvoidPods(), pod.obj(), *nodes) == {"n": expected, "other": 100}


def only_init_container(cpu: str) -> PodBuilder:
    """Returns a pod of which only the init container has a limit."""
    init_container = {"name": "init", "image": "busybox", "resources": {"limits": {"cpu": cpu}}}
    return make_pod("p").spec(initContainers=[init_container])


def starting_with(cpu: str) -> PodBuilder:
    """Returns a pod whose container has a limit of 1 cpu, and whose init container has this limit."""
    return only_init_container(cpu).limit(cpu="1")


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(make_pod("p"), {"small": 0, "large": 0}, id="no limits"),
        pytest.param(make_pod("p").limit(cpu="2"), {"small": 0, "large": 1}, id="cpu"),
        pytest.param(make_pod("p").limit(cpu="2", memory="1Gi"), {"small": 1, "large": 1}, id="one of both will do"),
        pytest.param(make_pod("p").limit(cpu="8"), {"small": 0, "large": 1}, id="exactly the node's cpu"),
        pytest.param(make_pod("p").limit(memory="99Gi"), {"small": 0, "large": 0}, id="too much for all"),
        pytest.param(starting_with("2"), {"small": 0, "large": 1}, id="an init container has the larger limit"),
        pytest.param(only_init_container("0"), {"small": 0, "large": 0}, id="a limit of 0 is no limit"),
        pytest.param(starting_with("1m"), {"small": 1, "large": 1}, id="an init container has the smaller limit"),
    ],
)
def test_resource_limits(pod: PodBuilder, expected: dict[str, int]) -> None:
    nodes = [
        make_node("small").allocatable(cpu="1", memory="4Gi").obj(),
        make_node("large").allocatable(cpu="8", memory="8Gi").obj(),
    ]
    assert scores(ResourceLimits(), pod.obj(), *nodes) == expected
