"""Victims: as few as possible, the least important first, protected ones last."""

from __future__ import annotations

import pytest

from extender.plugins.node_affinity import NodeAffinityFilter
from extender.plugins.node_resources_fit import NodeResourcesFitFilter
from tests.builders import HOSTNAME, ZONE, Object, PodBuilder, make_pod
from tests.preemption.clusters import budget, chosen, node, preempted, preemptor, victim

WEB = {"app": "web"}
FOUR = [victim(name, "n", minute=minute).obj() for minute, name in enumerate("abcd")]
FOUR_WEB = [victim(name, "n", minute=minute, app="web").obj() for minute, name in enumerate("abcd")]
NODE = node("n").obj()


@pytest.mark.parametrize(
    ("pod", "objects", "expected"),
    [
        pytest.param(preemptor("4"), FOUR, (["a", "b", "c", "d"], 0), id="all are needed, the oldest first"),
        pytest.param(preemptor("2"), FOUR, (["c", "d"], 0), id="the youngest go"),
        pytest.param(
            preemptor("2"),
            [victim("low", "n", "2", 1, 0).obj(), victim("high", "n", "2", 2, 9).obj()],
            (["low"], 0),
            id="a lower priority goes before a younger pod",
        ),
        pytest.param(
            preemptor("2"),
            [victim("new", "n", "2", minute=None).obj(), victim("old", "n", "2").obj()],
            (["new"], 0),
            id="one that has not started is the youngest",
        ),
        pytest.param(
            preemptor("2"),
            [victim("big", "n", "3", 2).obj(), victim("small", "n", "1", 1).obj()],
            (["big"], 0),
            id="a lesser pod stays where its going would not help",
        ),
        pytest.param(
            preemptor("1", priority=5),
            [victim("equal", "n", "2", 5).obj(), victim("lesser", "n", "2", 4).obj()],
            (["lesser"], 0),
            id="the same priority is out of reach",
        ),
        pytest.param(
            preemptor("1", priority=-1),
            [victim("lesser", "n", "4", -(2**31)).obj()],
            (["lesser"], 0),
            id="priorities may be negative",
        ),
        pytest.param(
            preemptor("1"),
            [victim("b", "n", "2").obj(), victim("a", "n", "2").obj()],
            (["b"], 0),
            id="of equal pods the last by name",
        ),
        pytest.param(
            preemptor("1").host_port(80),
            [victim("server", "n").host_port(80).obj(), victim("other", "n", minute=1).host_port(81).obj()],
            (["server"], 0),
            id="who holds the port",
        ),
        pytest.param(
            preemptor("1").host_port(80),
            [
                victim("one", "n").host_port(80, ip="10.0.0.1").obj(),
                victim("two", "n", minute=1).host_port(80, ip="10.0.0.2").obj(),
            ],
            (["one", "two"], 0),
            id="a port is wanted on every address",
        ),
        pytest.param(
            preemptor("1").req({"example.com/gpu": "1"}),
            [
                node("n").allocatable({"example.com/gpu": "1"}).obj(),
                victim("user", "n").req({"example.com/gpu": "1"}).obj(),
                victim("other", "n", minute=1).obj(),
            ],
            (["user"], 0),
            id="who uses the device",
        ),
        pytest.param(
            preemptor("1"),
            [node("n", pods="2").obj(), victim("old", "n").obj(), victim("new", "n", minute=1).obj()],
            (["new"], 0),
            id="the number of pods",
        ),
        pytest.param(
            preemptor("1").anti_affinity(HOSTNAME, labels=WEB),
            [victim("web", "n", app="web").obj(), victim("db", "n", minute=1, app="db").obj()],
            (["web"], 0),
            id="whom it does not stand with",
        ),
        pytest.param(
            preemptor("1").label(app="web"),
            [victim("shy", "n").anti_affinity(HOSTNAME, labels=WEB).obj(), victim("db", "n", minute=1).obj()],
            (["shy"], 0),
            id="who does not stand with it",
        ),
    ],
)
def test_victims_on_one_node(pod: PodBuilder, objects: list[Object], expected: tuple[list[str], int]) -> None:
    preemption = preempted(pod, NODE, *objects)
    assert chosen(preemption) == {"n": expected}
    assert (preemption.nominated_node, preemption.reason) == ("n", None)


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([budget("pdb", 0, WEB)], (["c", "d"], 2), id="nothing may be disrupted"),
        pytest.param(
            # The first of the order takes what is allowed, and stays; so the violations are counted as upstream does.
            [budget("pdb", 1, WEB)],
            (["a", "d"], 1),
            id="one may be disrupted",
        ),
        pytest.param([budget("pdb", 4, WEB)], (["c", "d"], 0), id="all may be disrupted"),
        pytest.param([budget("pdb", -1, WEB)], (["c", "d"], 2), id="less than nothing may be disrupted"),
        pytest.param(
            [budget("pdb", 0, WEB, disruptedPods={"c": "2026-11-21T09:00:00Z"})],
            (["c", "d"], 1),
            id="an eviction that was granted violates nothing",
        ),
        pytest.param([budget("pdb", 0, {})], (["c", "d"], 0), id="an empty selector covers no pod"),
        pytest.param([{**budget("pdb", 0, {}), "spec": {}}], (["c", "d"], 0), id="a missing selector covers no pod"),
        pytest.param(
            [budget("pdb", 0, {"app": "db"}), budget("second", 0, WEB)], (["c", "d"], 2), id="another's budget"
        ),
        pytest.param(
            # a violates the first and takes nothing from the second; b takes it; c and d violate.
            [budget("first", 0, {"app": "web", "id": "a"}), budget("second", 1, WEB)],
            (["b", "d"], 1),
            id="two budgets for one pod",
        ),
    ],
)
def test_budgets_are_respected_if_possible(objects: list[Object], expected: tuple[list[str], int]) -> None:
    named = [
        victim(name, "n", minute=minute, app="web", id=name).obj() for minute, name in enumerate(["a", "b", "c", "d"])
    ]
    assert chosen(preempted(preemptor("2"), NODE, *named, *objects)) == {"n": expected}


def test_a_budget_protects_the_less_important() -> None:
    pods = [victim("old", "n", "2").obj(), victim("protected", "n", "2", minute=1, app="web").obj()]
    assert chosen(preempted(preemptor("2"), NODE, *pods, budget("pdb", 0, WEB))) == {"n": (["old"], 0)}


def test_a_budget_counts_per_node_and_in_its_own_namespace() -> None:
    pods = [victim("a", "n", "4", app="web").obj(), victim("b", "m", "4", app="web").obj()]
    elsewhere = make_pod("c", "other").node("k").req(cpu="4").label(app="web").obj()
    preemption = preempted(
        preemptor(), NODE, node("m").obj(), node("k").obj(), *pods, elsewhere, budget("pdb", 1, WEB), budget("p", 0, {})
    )
    assert chosen(preemption) == {"n": (["a"], 0), "m": (["b"], 0), "k": (["c"], 0)}


def test_a_pod_without_labels_is_covered_by_no_budget() -> None:
    pdb = budget("pdb", 0, {})
    pdb["spec"] = {"selector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}
    labelled = victim("labelled", "m", "4", tier="back").obj()
    preemption = preempted(preemptor(), NODE, node("m").obj(), victim("bare", "n", "4").obj(), labelled, pdb)
    assert chosen(preemption) == {"n": (["bare"], 0), "m": (["labelled"], 1)}


@pytest.mark.parametrize(
    ("pod", "objects"),
    [
        pytest.param(preemptor("8"), [NODE, *FOUR], id="too small even when empty"),
        pytest.param(
            preemptor("4"), [NODE, victim("peer", "n", priority=100).obj(), *FOUR[1:]], id="a peer is in the way"
        ),
        pytest.param(preemptor("4"), [node("n").taint("dedicated").obj(), *FOUR], id="a taint is in the way"),
        pytest.param(
            preemptor("4").host_port(80).node_selector(disk="ssd"), [NODE, *FOUR], id="a label is missing, and more"
        ),
        pytest.param(
            preemptor("4").affinity(HOSTNAME, labels=WEB), [NODE, *FOUR_WEB], id="it wants those that would have to go"
        ),
        pytest.param(preemptor("1"), [NODE, victim("peer", "n", "4", 100).obj()], id="no lesser pods"),
    ],
)
def test_preemption_does_not_help(pod: PodBuilder, objects: list[Object]) -> None:
    preemption = preempted(pod, *objects)
    assert chosen(preemption) == {}
    assert preemption.nominated_node is None
    assert preemption.reason == "Preemption is not helpful for scheduling"


def test_a_rule_that_an_earlier_refusal_hid_still_excludes_a_node() -> None:
    """Eviction may help against the first refusal, but not against that of a later rule."""
    pod = preemptor("1").host_port(80).label(app="web").spread(ZONE, labels=WEB)
    objects = [node("in-zone").zone("z").obj(), node("nowhere").obj()]
    pods = [victim(f"on-{name}", name).host_port(80).obj() for name in ("in-zone", "nowhere")]
    assert chosen(preempted(pod, *objects, *pods)) == {"in-zone": (["on-in-zone"], 0)}


def test_spread_checks_each_node_as_if_only_its_own_pods_had_left() -> None:
    pod = preemptor("2").label(app="web").spread(ZONE, labels=WEB)
    nodes = [node(name, "2").zone(zone).obj() for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"))]
    pods = [victim(f"on-{name}", name, "2", app="web").obj() for name in ("a1", "a2", "b1")]
    # In zone a there are two, so one of them may go; in b the only one may.
    assert chosen(preempted(pod, *nodes, *pods)) == {
        "a1": (["on-a1"], 0),
        "a2": (["on-a2"], 0),
        "b1": (["on-b1"], 0),
    }


def test_a_port_becomes_free_when_any_of_its_users_is_evicted() -> None:
    """Upstream keeps a set of ports per node, so it does not notice a second user of a port."""
    stays = victim("stays", "n", priority=500).host_port(80).obj()
    preemption = preempted(preemptor("1").host_port(80), NODE, stays, victim("goes", "n").host_port(80).obj())
    assert chosen(preemption) == {"n": (["goes"], 0)}


def test_a_final_refusal_by_a_later_rule_excludes_a_node() -> None:
    pod = preemptor().node_selector(disk="ssd")
    objects = [NODE, node("ssd").label(disk="ssd").obj(), *FOUR, victim("other", "ssd", "4").obj()]
    assert chosen(preempted(pod, *objects, rules=(NodeResourcesFitFilter(), NodeAffinityFilter()))) == {
        "ssd": (["other"], 0)
    }


def test_the_last_by_name_of_equally_important_pods_is_evicted() -> None:
    started = [3, 1, 2, 1, 3, 2, 2, 1, 3, 3, 1, 2, 3, 1, 2, 3]
    pods = [victim(f"p{number:02}", "n", minute=minute).obj() for number, minute in enumerate(started)]
    assert chosen(preempted(preemptor("2"), node("n", "16").obj(), *pods)) == {"n": (["p12", "p15"], 0)}
    expected = ["p11", "p14", "p00", "p04", "p08", "p09", "p12", "p15"]
    assert chosen(preempted(preemptor("8"), node("n", "16").obj(), *pods)) == {"n": (expected, 0)}


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param("a- b! c- d!", ["b", "d", "a", "c"], id="those that violate a budget first"),
        pytest.param("a! b! c! d!", ["a", "b", "c", "d"], id="all violate it"),
        pytest.param("a- b- c- d-", ["a", "b", "c", "d"], id="none violates it"),
    ],
)
def test_equally_important_victims_that_violate_a_budget_are_listed_first(pods: str, expected: list[str]) -> None:
    """`!` marks a pod that is covered by a budget that allows no disruption."""
    placed = [victim(pod[0], "n").label(WEB if pod[1] == "!" else {}).obj() for pod in pods.split()]
    victims, violations = chosen(preempted(preemptor("4"), NODE, *placed, budget("pdb", 0, WEB)))["n"]
    assert (victims, violations) == (expected, pods.count("!"))


def test_a_budget_protects_the_first_of_equally_important_pods() -> None:
    placed = [victim(f"p{number:02}", "n").label(WEB if number % 3 else {}).obj() for number in range(16)]
    preemption = preempted(preemptor("14"), node("n", "16").obj(), *placed, budget("pdb", 3, WEB))
    expected = [f"p{number:02}" for number in (8, 10, 11, 13, 14, 0, 1, 2, 3, 4, 6, 9, 12, 15)]
    assert chosen(preemption) == {"n": (expected, 5)}
