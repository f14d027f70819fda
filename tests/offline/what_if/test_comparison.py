"""The same pods under two configurations."""

from __future__ import annotations

import re
from typing import Any

from extender import Cluster, Scenario
from extender.framework.profile import Profiles
from extender.offline.what_if.comparison import as_text
from extender.policy.loading import read
from tests.builders import make_node, make_pod

KIND = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
FULL = make_pod("f").req(cpu="2", memory="2Gi").node("a").obj()
OBJECTS = [*(make_node(name).capacity(cpu="8", memory="8Gi").obj() for name in "ab"), FULL]


def packing() -> dict[str, Any]:
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]}
    arguments = [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}]
    return {**KIND, "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": arguments}]}


def test_the_same_configuration_changes_nothing() -> None:
    found = Cluster.from_objects([*OBJECTS, make_pod("p").req(cpu="1", memory="1Gi").obj()]).compare(None)
    assert found.moved == []
    assert "every pod has the same outcome" in "\n".join(as_text(found, ("one", "other")))


def test_a_comparison_says_which_pods_move_and_by_which_scores() -> None:
    found = Cluster.from_objects([*OBJECTS, make_pod("p").req(cpu="1", memory="1Gi").obj()]).compare(packing())
    assert [(each.pod, each.first, each.second) for each in found.moved] == [("default/p", "b", "a")]
    assert found.plugins["NodeResourcesFit"] > 0
    assert found.second.after.imbalance["cpu"] > found.first.after.imbalance["cpu"]


def test_a_comparison_says_which_pods_stay_pending_under_one_policy_only() -> None:
    off = {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}}
    without = Profiles(read({**KIND, "profiles": [{"schedulerName": "default-scheduler", "plugins": off}]}).profiles)
    found = Cluster.from_objects([*OBJECTS, make_pod("p").req(cpu="9").obj()]).compare(without)
    assert (len(found.first.remaining), len(found.second.remaining)) == (1, 0)
    assert (found.moved[0].first, found.moved[0].first_outcome) == (None, "pending")


def test_the_text_has_the_notes_of_both_simulations() -> None:
    """A note that holds under one configuration only says under which."""
    other = read({**KIND, "profiles": [{"schedulerName": "another"}]}).scheduler_profiles()
    pods = [make_pod("p").scheduler("another").obj(), make_pod("q").scheduler("third").obj()]
    text = "\n".join(as_text(Cluster.from_objects([*OBJECTS, *pods]).compare(other), ("one", "other")))
    assert (
        "\nnote: under one, 1 pod with schedulerName another: judged here by the rules of default-scheduler\n" in text
    )
    assert "\nnote: under other, 1 pod with schedulerName third: judged here by the rules of another\n" in text
    same = Cluster.from_objects([*OBJECTS, *pods]).compare(None)
    notes = [line for line in as_text(same, ("one", "other")) if line.startswith("note: ")]
    assert notes == [f"note: {note}" for note in same.first.notes]


def test_the_page_maps_the_nodes_before_and_after_by_each() -> None:
    cluster = Cluster.from_objects([*OBJECTS, make_pod("p").req(cpu="1", memory="1Gi").obj()])
    found = cluster.compare(packing())
    maps = found.maps(("a", "b"))
    assert [moment for moment, _ in maps] == ["before", "under a", "under b"]
    asked = [{each["name"]: each["requested"][0] for each in nodes["nodes"]} for _, nodes in maps]
    for result, after in zip((found.first, found.second), asked[1:], strict=True):
        (placement,) = result.placements
        assert after == {**asked[0], placement.node: asked[0][placement.node] + 1000}
    titles = re.findall("<figcaption>(.*?)</figcaption>", found.to_html(("a", "b")))
    assert titles == ["free cpu, before", "free cpu, under a", "free cpu, under b"]
    assert re.findall("<figcaption>(.*?)</figcaption>", found.first.to_html()) == [
        "free cpu, before",
        "free cpu, after",
    ]


TAINTED = [make_node("a").capacity(cpu="8").obj(), make_node("b").capacity(cpu="8").taint("dedicated").obj()]


def ignoring_taints() -> dict[str, Any]:
    off = {"multiPoint": {"disabled": [{"name": "TaintToleration"}]}}
    return {**KIND, "profiles": [{"schedulerName": "default-scheduler", "plugins": off}]}


def test_a_running_pod_that_is_evicted_under_one_configuration_alone_is_reported_as_lost() -> None:
    running = make_pod("bare").req(cpu="6").node("a").obj()
    urgent = make_pod("urgent").req(cpu="4").priority(100).obj()
    comparison = Cluster.from_objects([*TAINTED, running, urgent]).compare(ignoring_taints())
    assert {each.pod: (each.first, each.second) for each in comparison.moved} == {
        "default/bare": (None, "a"),
        "default/urgent": ("a", "b"),
    }
    assert comparison.to_dict()["moved"][1] == {
        "pod": "default/bare",
        "first": None,
        "firstOutcome": "lost",
        "second": "a",
        "secondOutcome": "placed",
    }
    assert re.search("default/bare +lost +a\n", "\n".join(as_text(comparison, ("one", "other"))) + "\n")
    assert "<td>lost</td>" in comparison.to_html()


def test_a_running_pod_that_moves_under_one_configuration_alone_is_not_called_pending_under_the_other() -> None:
    running = make_pod("web-1").req(cpu="6").owner("ReplicaSet", "web").toleration("dedicated").node("a").obj()
    urgent = make_pod("urgent").req(cpu="4").priority(100).obj()
    comparison = Cluster.from_objects([*TAINTED, running, urgent]).compare(ignoring_taints())
    outcomes = {each.pod: (each.first, each.second) for each in comparison.moved}
    assert outcomes["default/web-1"] == ("b", "a")


def test_the_scores_of_pods_that_the_scenario_creates_are_compared_too() -> None:
    scenario = Scenario(create=[(make_pod("p").req(cpu="1", memory="1Gi").obj(), 1)])
    comparison = Cluster.from_objects(OBJECTS).compare(packing(), scenario)
    assert comparison.plugins["NodeResourcesFit"] > 0
