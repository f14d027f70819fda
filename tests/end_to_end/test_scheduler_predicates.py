"""The loop's predicates: upstream's end-to-end tests of predicates, on the real API server.

Source: test/e2e/scheduling/predicates.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from tests.builders import HOSTNAME, ZONE, Builder, NodeBuilder, Object, PodBuilder, expression, make_pod, node_term
from tests.end_to_end.scheduling import Scene, asking, condition, sized
from tests.stock.api_client import ApiClient
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock

WEB = {"app": "web"}


def yes() -> NodeBuilder:
    """The node that the pod is to go to: nothing but the rule in question speaks for it."""
    return sized("yes", "2")


def no() -> NodeBuilder:
    """The node that every score prefers."""
    return sized("no", "64")


def web(name: str, node: str) -> PodBuilder:
    return asking(name, "100m").label(WEB).node(node)


def pod() -> PodBuilder:
    return asking("p", "1")


def runtime_class(name: str, **overhead: str) -> Object:
    metadata = Builder("node.k8s.io/v1", "RuntimeClass", name).obj()
    return {**metadata, "handler": name, "overhead": {"podFixed": overhead}}


DISK = node_term(expression("disk", "In", "ssd", "nvme"))
BEARD = "example.com/beardsecond"


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        pytest.param([yes(), no(), asking("full", "63500m").node("no")], pod(), id="cpu"),
        pytest.param(
            [yes().capacity({"ephemeral-storage": "10Gi"}), no().capacity({"ephemeral-storage": "1Gi"})],
            pod().req({"ephemeral-storage": "2Gi"}),
            id="ephemeral storage",
        ),
        pytest.param(
            [yes().capacity({"example.com/gpu": "1"}), no()],
            pod().req({"example.com/gpu": "1"}).limit({"example.com/gpu": "1"}),
            id="extended resource",
        ),
        pytest.param([yes(), no().capacity(pods="1"), make_pod("one").node("no")], pod(), id="number of pods"),
        pytest.param([yes().capacity(cpu="70"), no()], pod().init_container(cpu="65"), id="init container"),
        pytest.param([yes().label(disk="ssd"), no().label(disk="hdd")], pod().node_selector(disk="ssd"), id="selector"),
        pytest.param([yes().label(disk="nvme"), no().label(disk="hdd")], pod().require_node(DISK), id="affinity"),
        pytest.param(
            [yes(), no()],
            pod().require_node(node_term(fields=[expression("metadata.name", "In", "yes")])),
            id="affinity by the node's name",
        ),
        pytest.param(
            [yes().label(rank="7"), no().label(rank="5")],
            pod().require_node(node_term(expression("rank", "Gt", "6"))),
            id="affinity by a number",
        ),
        pytest.param(
            [yes().label(disk="hdd").label({ZONE: "z1"}), no().label({ZONE: "z2"})],
            pod().require_node(DISK, node_term(expression(ZONE, "NotIn", "z2"))),
            id="one of two terms of affinity",
        ),
        pytest.param([yes().taint("team", "a"), no().taint("team", "b")], pod().toleration("team", "a"), id="taint"),
        pytest.param([yes(), no().taint("out", effect="NoExecute")], pod(), id="taint that would evict"),
        pytest.param([yes(), no().unschedulable()], pod(), id="cordon"),
        pytest.param(
            [yes(), no(), asking("other", "1").host_port(8080).node("no")], pod().host_port(8080), id="host port"
        ),
        pytest.param([yes().zone("a"), no().zone("b"), web("w", "yes")], pod().affinity(ZONE, labels=WEB), id="near"),
        pytest.param([yes(), no(), web("w", "no")], pod().anti_affinity(HOSTNAME, labels=WEB), id="apart"),
        pytest.param(
            [yes(), no(), asking("hermit", "1").anti_affinity(HOSTNAME, labels=WEB).node("no")],
            pod().label(WEB),
            id="another wants to be apart",
        ),
        pytest.param(
            [yes().zone("a"), no().zone("b"), web("w", "no")], pod().label(WEB).spread(ZONE, labels=WEB), id="spread"
        ),
    ],
)
def test_a_pod_goes_to_the_only_node_that_the_rules_leave(
    scene: Scene, given: Sequence[Builder | Object], asked: PodBuilder
) -> None:
    scene.given(*given)
    scene.create(asked)
    assert scene.place_of("p") == "yes"


@pytest.mark.parametrize(
    ("held", "asked"),
    [
        pytest.param((8080, "TCP", "127.0.0.1"), (8080, "TCP", "127.0.0.2"), id="another host address"),
        pytest.param((8080, "TCP", "127.0.0.1"), (8080, "UDP", "127.0.0.1"), id="another protocol"),
        pytest.param((8080, "TCP", None), (8081, "TCP", None), id="another port"),
    ],
)
def test_host_ports_that_differ_share_a_node(
    scene: Scene, held: tuple[int, str, str | None], asked: tuple[int, str, str | None]
) -> None:
    scene.given(sized("n", "4"))
    scene.create(asking("first", "1").host_port(*held), asking("second", "1").host_port(*asked))
    assert scene.place_of("first") == scene.place_of("second") == "n"


class Refused(NamedTuple):
    """A pod `p` that fits nowhere, until the remedy is applied: then it goes to `n`."""

    given: Sequence[Builder | Object]
    pod: PodBuilder
    reason: str
    remedy: Callable[[ApiClient], object]


def create(*built: Builder) -> Callable[[ApiClient], object]:
    return lambda client: client.create(*(each.obj() for each in built))


def delete(name: str) -> Callable[[ApiClient], object]:
    return lambda client: client.delete("Pod", name)


def change(kind: str, name: str, subresource: str = "", **fields: Object) -> Callable[[ApiClient], object]:
    return lambda client: client.patch(kind, name, fields, subresource=subresource)


def node() -> NodeBuilder:
    return sized("n", "2")


UNWANTED = "node(s) didn't match Pod's node affinity/selector"
REFUSED = [
    pytest.param(Refused([], pod(), "no nodes available to schedule pods", create(node())), id="no node at all"),
    pytest.param(
        Refused([node(), asking("full", "1500m").node("n")], pod(), "1 Insufficient cpu", delete("full")), id="cpu"
    ),
    pytest.param(
        Refused(
            [node()],
            pod().req({"ephemeral-storage": "1Gi"}),
            "1 Insufficient ephemeral-storage",
            change("Node", "n", "status", status={"allocatable": {"ephemeral-storage": "2Gi"}}),
        ),
        id="ephemeral storage, until the node has more",
    ),
    pytest.param(
        Refused(
            [
                runtime_class("heavy", **{BEARD: "250"}),
                node().capacity({BEARD: "1000"}),
                make_pod("filler").req({BEARD: "700"}).limit({BEARD: "700"}).node("n"),
            ],
            pod().req({BEARD: "200"}).limit({BEARD: "200"}).spec(runtimeClassName="heavy"),
            f"1 Insufficient {BEARD}",
            delete("filler"),
        ),
        id="overhead of the runtime class",
    ),
    pytest.param(
        Refused([node().capacity(pods="1"), make_pod("one").node("n")], pod(), "1 Too many pods", delete("one")),
        id="number of pods",
    ),
    pytest.param(
        Refused(
            [node()],
            pod().node_selector(disk="ssd"),
            UNWANTED,
            change("Node", "n", metadata={"labels": {"disk": "ssd"}}),
        ),
        id="node selector, until the node is labelled",
    ),
    pytest.param(
        Refused([sized("other", "2")], pod().require_node(DISK), UNWANTED, create(node().label(disk="ssd"))),
        id="node affinity, until such a node comes",
    ),
    pytest.param(
        Refused(
            [node().taint("team", "a")],
            pod().toleration("team", "b"),
            "node(s) had untolerated taint(s)",
            change("Node", "n", spec={"taints": None}),
        ),
        id="taint, until it is taken away",
    ),
    pytest.param(
        Refused(
            [node().taint("team", "a")],
            pod(),
            "node(s) had untolerated taint(s)",
            change("Pod", "p", spec={"tolerations": [{"key": "team", "operator": "Exists"}]}),
        ),
        id="taint, until the pod tolerates it",
    ),
    pytest.param(
        Refused(
            [node().unschedulable()],
            pod(),
            "1 node(s) were unschedulable",
            change("Node", "n", spec={"unschedulable": None}),
        ),
        id="cordon, until it is lifted",
    ),
    pytest.param(
        Refused(
            [node(), asking("first", "1").host_port(54322).node("n")],
            pod().host_port(54322, ip="127.0.0.1"),
            "1 node(s) didn't have free ports for the requested pod ports",
            delete("first"),
        ),
        id="host port that another holds on all addresses",
    ),
    pytest.param(
        Refused(
            [node(), web("other", "n")],
            pod().anti_affinity(HOSTNAME, labels=WEB),
            "1 node(s) didn't match pod anti-affinity rules",
            change("Pod", "other", metadata={"labels": {"app": "db"}}),
        ),
        id="anti-affinity, until the other is labelled otherwise",
    ),
    pytest.param(
        Refused(
            [node(), asking("hermit", "1").anti_affinity(HOSTNAME, labels=WEB).node("n")],
            pod().label(WEB),
            "1 node(s) didn't satisfy existing pods anti-affinity rules",
            delete("hermit"),
        ),
        id="anti-affinity of another pod",
    ),
    pytest.param(
        Refused(
            [node().zone("a")],
            pod().affinity(ZONE, labels=WEB),
            "1 node(s) didn't match pod affinity rules",
            create(web("w", "n")),
        ),
        id="affinity, until such a pod is there",
    ),
    pytest.param(
        Refused(
            [sized("other", "2").zone("a"), node().zone("b"), web("w", "other"), asking("full", "2").node("n")],
            pod().label(WEB).spread(ZONE, labels=WEB),
            "1 node(s) didn't match pod topology spread constraints",
            delete("full"),
        ),
        id="spread, until the emptier zone has room",
    ),
]


@pytest.mark.parametrize("case", REFUSED)
def test_a_pod_that_fits_nowhere_shows_why_and_is_placed_once_it_fits(scene: Scene, case: Refused) -> None:
    scene.given(*case.given)
    scene.create(case.pod)
    assert case.reason in scene.refusal_of("p")
    case.remedy(scene.client)
    assert scene.place_of("p") == "n"


def test_a_cluster_takes_as_many_pods_as_it_has_room_for(scene: Scene) -> None:
    scene.given(*(sized(f"n{i}", "4") for i in range(3)))
    scene.create(*(asking(f"p{i}", "1") for i in range(14)))
    assert wait_until(lambda: Counter(scene.placed().values()) == {"n0": 4, "n1": 4, "n2": 4})
    waiting = scene.pods() - scene.placed().keys()
    assert len(waiting) == 2
    assert all("3 Insufficient cpu" in scene.refusal_of(name) for name in waiting)


def test_pods_that_spread_are_even(scene: Scene) -> None:
    scene.given(sized("small", "4"), sized("large", "64"))
    scene.create(*(asking(f"p{i}", "100m").label(WEB).spread(HOSTNAME, labels=WEB) for i in range(4)))
    assert wait_until(lambda: Counter(scene.placed().values()) == {"small": 2, "large": 2})


def test_gated_pods_wait_until_the_last_gate_is_gone(scene: Scene) -> None:
    scene.given(sized("n", "4"))
    names = [f"p{i}" for i in range(3)]
    scene.create(*(asking(name, "1").gate("foo").gate("bar") for name in names))
    gated = 'scheduler_pending_pods{queue="gated"}'
    assert wait_until(lambda: scene.scheduler.metric(gated) == 3)
    for name in names:
        scene.client.patch("Pod", name, {"spec": {"schedulingGates": [{"name": "bar"}]}})
    scene.create(asking("free", "1"))  # when it is placed, the changes before it are known
    assert scene.place_of("free") == "n"
    assert scene.placed() == {"free": "n"}
    assert scene.scheduler.metric(gated) == 3
    assert condition(scene.control_plane, "p0")["reason"] == "SchedulingGated"
    for name in names:
        scene.client.patch("Pod", name, {"spec": {"schedulingGates": None}})
    assert wait_until(lambda: scene.placed().keys() >= set(names))
