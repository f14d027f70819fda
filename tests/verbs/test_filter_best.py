"""filter that answers one node: every verdict as filter gives it, and the best by the scores of prioritize."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from extender.errors import DeadlineExceeded, InvalidAnswer
from extender.extender_v1.messages import ExtenderFilterResult, validate_filter
from extender.framework.profile import Profile, Profiles, WeightedPriority
from extender.runtime.clock import ManualClock, TimeLimit
from extender.runtime.ports import Telemetry
from extender.verbs.filter import Filter
from extender.verbs.prioritize import FilterBest, Prioritize
from tests.builders import make_node, make_pod
from tests.verbs.cluster import PROFILES, SlowRule, answer, args, cache_of

NAMES = ["half", "empty", "twin", "full", "tainted"]
NODES = {
    name: make_node(name).allocatable(cpu="8", memory="16Gi", pods="110")
    for name in ("half", "empty", "twin", "full", "tainted")
}
NODES["tainted"].taint("dedicated", "gpu")
OBJECTS = [
    *(node.obj() for node in NODES.values()),
    make_pod("a").req(cpu="4", memory="8Gi").node("half").obj(),
    make_pod("b").req(cpu="8", memory="16Gi").node("full").obj(),
]
POD = make_pod("p").req(cpu="1", memory="1Gi").obj()


def filter_of(*objects: dict[str, Any], seed: int = 0) -> FilterBest:
    cache = cache_of(*objects)
    return FilterBest(Filter(cache, PROFILES, Telemetry()), Prioritize(cache, PROFILES), random=Random(seed))


def test_the_best_node_is_answered_and_every_refusal() -> None:
    result = answer(filter_of(*OBJECTS), args(POD, names=["half", "empty", "full", "tainted"]))
    assert result == {
        "Nodes": None,
        "NodeNames": ["empty"],
        "FailedNodes": {"full": "Insufficient cpu, Insufficient memory"},
        "FailedAndUnresolvableNodes": {"tainted": "node(s) had untolerated taint(s)"},
        "Error": "",
    }


def test_of_whole_nodes_one_goes_back_as_it_came_whether_the_cache_knows_it_or_not() -> None:
    known = {**NODES["half"].obj(), "spec": {"unknownField": [1, 2.50, "ü"]}}
    template = make_node("template").allocatable(cpu="1001m", memory="16Gi", pods="110").obj()
    result = answer(filter_of(*OBJECTS), args(POD, nodes=[template, known, NODES["full"].obj()]))
    assert result["Nodes"]["items"] == [known]
    assert result["NodeNames"] is None


def test_nodes_that_are_equally_good_have_equal_chances() -> None:
    request = args(POD, names=NAMES)
    answered = [answer(filter_of(*OBJECTS, seed=seed), request)["NodeNames"] for seed in range(64)]
    assert {name for (name,) in answered} == {"empty", "twin"}
    assert 16 < answered.count(["twin"]) < 48


def test_equally_good_nodes_need_no_source_of_random_numbers() -> None:
    cache = cache_of(*OBJECTS)
    verb = FilterBest(Filter(cache, PROFILES, Telemetry()), Prioritize(cache, PROFILES))
    assert answer(verb, args(POD, names=NAMES))["NodeNames"] in (["empty"], ["twin"])


@pytest.mark.parametrize(
    ("names", "answered"),
    [
        pytest.param(["half"], ["half"], id="one that fits"),
        pytest.param(["full", "half"], ["half"], id="one of two fits"),
        pytest.param(["half", "half"], ["half"], id="one asked about twice"),
        pytest.param(["full", "tainted"], [], id="none fits"),
        pytest.param([], [], id="none asked about"),
        pytest.param(["ghost", "half"], ["half"], id="an unknown one"),
    ],
)
def test_few_nodes(names: list[str], answered: list[str]) -> None:
    assert answer(filter_of(*OBJECTS), args(POD, names=names))["NodeNames"] == answered


def test_where_every_node_passes_unjudged_every_node_is_answered() -> None:
    verb = filter_of(*OBJECTS)
    request = verb.decode(args(POD, names=NAMES))
    assert ExtenderFilterResult(node_names=NAMES) == verb.allow_all(request)


def test_the_call_has_one_time_limit_for_both_decisions() -> None:
    clock = ManualClock()
    slow, last = SlowRule(clock, 2.1), SlowRule(clock, 0.0, "Last")
    weighted = [WeightedPriority(slow), WeightedPriority(last)]
    profiles, limit = Profiles([Profile("default-scheduler", [slow], weighted)]), TimeLimit(clock, 4.0)
    cache = cache_of(*OBJECTS, clock=clock)
    verb = FilterBest(Filter(cache, profiles, Telemetry(), limit=limit), Prioritize(cache, profiles), limit)
    with pytest.raises(DeadlineExceeded, match="no decision within 4 s: stopped before Last"):
        verb.decide(verb.decode(args(POD, names=NAMES)))


def test_a_node_that_did_not_pass_is_never_answered_as_the_best() -> None:
    with pytest.raises(InvalidAnswer, match="the best node b is not among the nodes that passed"):
        validate_filter(["a", "b"], ExtenderFilterResult(node_names=["a"], failed_nodes={"b": "full"}, best="b"))
