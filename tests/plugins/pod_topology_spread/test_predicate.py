"""PodTopologySpread, Filter: skew between domains; reasons in upstream's words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from extender.framework.find_fit import find_fit
from extender.framework.profile import Profile
from extender.framework.status import unresolvable, unschedulable
from extender.model.pod import TopologySpreadConstraint
from extender.plugins.pod_topology_spread import PodTopologySpreadFilter
from extender.table import Table
from tests.builders import (
    HOSTNAME,
    ZONE,
    PodBuilder,
    expression,
    make_node,
    make_pod,
    make_service,
    node_term,
)
from tests.framework.cluster import pod_info, refusals, table_of

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


def test_nodes_that_required_node_affinity_excludes_are_no_domain() -> None:
    picky = pod().require_node(node_term(expression(ZONE, "In", "za"))).spread(ZONE, labels=APP)
    assert refusals(PodTopologySpreadFilter(), picky.obj(), *NODES[:3], *web("a1")) == {}


def test_pods_that_a_trial_places_count_beside_those_on_the_same_node() -> None:
    table = table_of(*NODES[:3], *web("a1"))
    spread = pod_info(pod().spread(ZONE, max_skew=2, labels=APP).obj())
    profile = Profile("test", [PodTopologySpreadFilter()], ())
    assert list(find_fit(profile, spread, table, table.nodes.rows).refused()) == []
    with table.hypothetically([(pod_info(make_pod("trial").label(APP).obj()), "a1")]):
        refused = dict(find_fit(profile, spread, table, table.nodes.rows).refused())
    assert refused == {table.nodes.row_of[name]: SKEWED for name in ("a1", "a2")}


def test_a_node_that_fails_two_constraints_is_refused_by_the_first_also_if_all_rules_run() -> None:
    spread = pod().spread(ZONE, labels=APP).spread("rack", labels=APP)
    nodes = [make_node("a").zone("za").obj(), make_node("b").zone("zb").label(rack="r").obj()]
    nodes += [make_node("racked").zone("za").label(rack="r").obj()]
    table = table_of(*nodes, *web("racked"))
    profile = Profile("test", [PodTopologySpreadFilter()], (), check_all_predicates=True)
    refused = dict(find_fit(profile, pod_info(spread.obj()), table, table.nodes.rows).refused())
    assert refused[table.nodes.row_of["a"]] == SKEWED


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
        pytest.param(pod(), [], {}, id="nothing selects the replicas"),
        pytest.param(
            pod().spread("disk", soft=True), [make_service("s", APP)], {}, id="a pod with its own constraints"
        ),
    ],
)
def test_default_constraints(pod: PodBuilder, objects: list[dict[str, Any]], refused: dict[str, Any]) -> None:
    rule = PodTopologySpreadFilter((HARD_DEFAULT,))
    assert refusals(rule, pod.obj(), *NODES[:3], *objects, *web("a1")) == refused


@pytest.mark.parametrize("terminating", [False, True])
def test_a_hypothetically_placed_pod_counts_once_even_if_it_terminates(terminating: bool) -> None:
    table = table_of(*NODES)
    guest = make_pod("guest").label(APP)
    placed = pod_info((guest.deleted() if terminating else guest).obj())
    with table.hypothetically(placed=[(placed, "a1")]):
        allowed = {skew: _allowed(pod().spread(ZONE, max_skew=skew, labels=APP), table) for skew in (1, 2)}
    assert allowed == {1: {"b1"}, 2: {"a1", "a2", "b1"}}


def _allowed(pod: PodBuilder, table: Table) -> set[str]:
    rows = table.nodes.rows
    check = PodTopologySpreadFilter().prepare(pod_info(pod.obj()), table)
    assert check is not None
    refused = np.logical_or.reduce([mask for mask, _ in check.refuse(rows)])
    return {table.nodes.names[row] for row in rows[~refused]}
