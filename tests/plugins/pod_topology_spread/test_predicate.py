"""PodTopologySpread, Filter: skew between domains; reasons in upstream's words."""

from __future__ import annotations

from typing import Any

import pytest

from extender.framework.status import unresolvable, unschedulable
from extender.model.pod import TopologySpreadConstraint
from extender.plugins.pod_topology_spread.spread import PodTopologySpreadFilter
from tests.builders import HOSTNAME, ZONE, PodBuilder, make_node, make_pod, make_service
from tests.framework.cluster import refusals

REASON = "node(s) didn't match pod topology spread constraints"
SKEWED = unschedulable("PodTopologySpread", REASON)
UNLABELLED = unresolvable("PodTopologySpread", f"{REASON} (missing required label)")
APP = {"app": "web"}

# Two nodes in za, one in zb, one in no zone.
NODES = [
    make_node("a1").zone("za").label(disk="ssd").obj(),
    make_node("a2").zone("za").obj(),
    make_node("b1").zone("zb").label(disk="ssd").taint("dedicated").obj(),
    make_node("bare").obj(),
]


def web(*names: str, namespace: str = "default") -> list[dict[str, Any]]:
    """Returns a web pod on each of the named nodes."""
    return [make_pod(f"{name}-{i}", namespace).label(APP).node(name).obj() for i, name in enumerate(names)]


def pod() -> PodBuilder:
    return make_pod("p").label(APP)


ALL_BUT_BARE = {"bare": UNLABELLED}
SKEWED_A = {"a1": SKEWED, "a2": SKEWED, "bare": UNLABELLED}


@pytest.mark.parametrize(
    ("spread", "standing", "refused"),
    [
        pytest.param(pod().spread(ZONE, labels=APP), web("a1"), SKEWED_A, id="za has one more already"),
        pytest.param(pod().spread(ZONE, labels=APP), web("a1", "b1"), ALL_BUT_BARE, id="equal"),
        pytest.param(pod().spread(ZONE, max_skew=2, labels=APP), web("a1"), ALL_BUT_BARE, id="a larger skew may be"),
        pytest.param(
            make_pod("p").spread(ZONE, labels=APP), web("a1"), ALL_BUT_BARE, id="a pod not selected adds nothing itself"
        ),
        pytest.param(
            make_pod("p").spread(ZONE, labels=APP),
            web("a1", "a2"),
            SKEWED_A,
            id="but may not go where skew is too large",
        ),
        pytest.param(
            pod().spread(ZONE, labels=APP),
            web("a1", namespace="other"),
            ALL_BUT_BARE,
            id="other namespaces do not count",
        ),
        pytest.param(
            pod().spread(ZONE, labels=APP),
            [make_pod("t").label(APP).node("a1").deleted().obj()],
            ALL_BUT_BARE,
            id="terminating pods do not count",
        ),
        pytest.param(
            pod().spread(ZONE, labels=APP), web("bare", "bare", "a1", "b1"), ALL_BUT_BARE, id="nor do pods in no domain"
        ),
        pytest.param(pod().spread(ZONE), web("a1", "a2"), ALL_BUT_BARE, id="no selector selects nothing"),
        pytest.param(
            pod().spread(ZONE, labels={}), web("a1", "a2"), ALL_BUT_BARE, id="an empty selector counts no standing pod"
        ),
        pytest.param(
            pod().spread(ZONE, labels=APP, minDomains=3),
            web("a1", "b1"),
            {"a1": SKEWED, "a2": SKEWED, "b1": SKEWED, "bare": UNLABELLED},
            id="with fewer domains than minDomains the minimum is 0",
        ),
        pytest.param(
            pod().spread(ZONE, labels=APP, minDomains=2), web("a1", "b1"), ALL_BUT_BARE, id="as many as minDomains"
        ),
        pytest.param(
            pod().spread("rack", labels=APP),
            web("a1"),
            dict.fromkeys(("a1", "a2", "b1", "bare"), UNLABELLED),
            id="a key that no node has",
        ),
        pytest.param(
            pod().spread(ZONE, labels=APP).spread(HOSTNAME, labels=APP),
            web("a1", "b1"),
            {"a1": SKEWED, "b1": SKEWED, "bare": UNLABELLED},
            id="both constraints must hold",
        ),
        pytest.param(
            pod().spread(HOSTNAME, labels=APP).spread(ZONE, labels=APP),
            web("bare", "a1", "b1"),
            {"a1": SKEWED, "b1": SKEWED, "bare": UNLABELLED},
            id="a node without all keys does not count, and the first constraint failed gives the reason",
        ),
        pytest.param(
            pod().label(rev="2").spread(ZONE, labels=APP, matchLabelKeys=["rev", "unset"]),
            web("a1"),
            ALL_BUT_BARE,
            id="matchLabelKeys narrow the selector to the pod's own values",
        ),
        pytest.param(pod().spread(ZONE, soft=True, labels=APP), web("a1"), {}, id="ScheduleAnyway refuses nothing"),
        pytest.param(pod(), web("a1"), {}, id="no constraints"),
    ],
)
def test_spread(spread: PodBuilder, standing: list[dict[str, Any]], refused: dict[str, Any]) -> None:
    assert refusals(PodTopologySpreadFilter(), spread.obj(), *NODES, *standing) == refused


@pytest.mark.parametrize(
    ("constraint", "refused"),
    [
        pytest.param({}, {}, id="by default zb, where the pod cannot go, is no domain"),
        pytest.param({"nodeAffinityPolicy": "Honor"}, {}, id="nor is it if node affinity is honoured by name"),
        pytest.param({"nodeAffinityPolicy": "Ignore"}, {"a1": SKEWED, "a2": SKEWED}, id="node affinity ignored"),
    ],
)
def test_node_affinity_policy(constraint: dict[str, Any], refused: dict[str, Any]) -> None:
    picky = pod().node_selector({ZONE: "za"}).spread(ZONE, labels=APP, **constraint)
    assert refusals(PodTopologySpreadFilter(), picky.obj(), *NODES[:3], *web("a1")) == refused


@pytest.mark.parametrize(
    ("constraint", "tolerates", "refused"),
    [
        pytest.param({}, False, {"a1": SKEWED, "a2": SKEWED}, id="by default a tainted zone counts"),
        pytest.param({"nodeTaintsPolicy": "Honor"}, False, {}, id="honoured, it does not"),
        pytest.param({"nodeTaintsPolicy": "Honor"}, True, {"a1": SKEWED, "a2": SKEWED}, id="honoured, but tolerated"),
    ],
)
def test_node_taints_policy(constraint: dict[str, Any], tolerates: bool, refused: dict[str, Any]) -> None:
    spread = pod().spread(ZONE, labels=APP, **constraint)
    spread = spread.toleration("dedicated", operator="Exists") if tolerates else spread
    assert refusals(PodTopologySpreadFilter(), spread.obj(), *NODES[:3], *web("a1")) == refused


HARD_DEFAULT = TopologySpreadConstraint(max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule")


@pytest.mark.parametrize(
    ("pod", "objects", "refused"),
    [
        pytest.param(
            pod(), [make_service("s", APP)], {"a1": SKEWED, "a2": SKEWED}, id="replicas selected by a service"
        ),
        pytest.param(pod(), [], {}, id="nothing tells the replicas"),
        pytest.param(
            pod().spread("disk", soft=True), [make_service("s", APP)], {}, id="a pod with its own constraints"
        ),
    ],
)
def test_default_constraints(pod: PodBuilder, objects: list[dict[str, Any]], refused: dict[str, Any]) -> None:
    rule = PodTopologySpreadFilter((HARD_DEFAULT,))
    assert refusals(rule, pod.obj(), *NODES[:3], *objects, *web("a1")) == refused
