"""prioritize: integers of 0..10, the best node the highest."""

from __future__ import annotations

import pytest

from extender import Node, Pod, priority
from extender.framework.profile import Profile, Profiles, WeightedPriority
from extender.plugins.users.rule_calls import OfflineHost
from extender.verbs.prioritize import Prioritize, Scale
from tests.builders import make_node, make_pod
from tests.verbs.cluster import PROFILES, answer, args, cache_of

NODES = [make_node(name).allocatable(cpu="8", memory="16Gi", pods="110").obj() for name in ("empty", "half", "full")]
PODS = [
    make_pod("a").req(cpu="4", memory="8Gi").node("half").obj(),
    make_pod("b").req(cpu="8", memory="16Gi").node("full").obj(),
]
POD = make_pod("p").req(cpu="1", memory="1Gi").obj()


def scores(scale: Scale, body: bytes) -> dict[str, int]:
    return {s["Host"]: s["Score"] for s in answer(Prioritize(cache_of(*NODES, *PODS), PROFILES, scale), body)}


def test_relative_scores_use_the_whole_scale() -> None:
    result = scores(Scale.RELATIVE, args(POD, names=["empty", "half", "full"]))
    assert result["empty"] == 10
    assert result["full"] == 0
    assert 0 < result["half"] < 10


def test_absolute_scores_keep_their_distance() -> None:
    result = scores(Scale.ABSOLUTE, args(POD, names=["empty", "half"]))
    assert 0 < result["half"] <= result["empty"] < 10


@priority
def by_name(pod: Pod, node: Node) -> int:
    return {"empty": 100, "half": 50, "full": 0}[node.name]


def test_an_absolute_score_is_the_tenth_of_the_share_of_the_highest_total() -> None:
    weighted = WeightedPriority(by_name.rule("by-name", {}, OfflineHost()), 3)
    verb = Prioritize(cache_of(*NODES), Profiles([Profile("default-scheduler", [], [weighted])]), Scale.ABSOLUTE)
    result = answer(verb, args(POD, names=["empty", "half", "full"]))
    assert {score["Host"]: score["Score"] for score in result} == {"empty": 10, "half": 5, "full": 0}


@pytest.mark.parametrize("scale", Scale)
def test_every_node_asked_about_has_a_score_whichever_way_it_was_asked(scale: Scale) -> None:
    unknown = make_node("template").obj()
    assert scores(scale, args(POD, names=["half", "ghost"])).keys() == {"half", "ghost"}
    assert scores(scale, args(POD, nodes=[NODES[0], unknown])).keys() == {"empty", "template"}
    assert scores(scale, args(POD, names=[])) == {}


def test_one_node_is_as_good_as_it_gets() -> None:
    assert scores(Scale.RELATIVE, args(POD, names=["full"])) == {"full": 10}


def test_a_verb_that_is_passed_over_prefers_no_node() -> None:
    verb = Prioritize(cache_of(*NODES), PROFILES)
    request = verb.decode(args(POD, names=["empty", "half", "empty"]))
    result = verb.allow_all(request)
    assert (list(result.hosts), list(result.scores)) == (["empty", "half"], [0, 0])


def test_the_summary_counts_the_nodes_asked_about_and_those_scored() -> None:
    verb = Prioritize(cache_of(*NODES), PROFILES)
    request = verb.decode(args(POD, names=["empty", "half", "empty"]))
    summary = verb.summary(request, verb.decide(request))
    assert (summary.nodes_in, summary.nodes_out) == (3, 2)
