"""The README's rules do what they say, and are as short as it says."""

from __future__ import annotations

import inspect

import pytest

from extender.plugins.users.function import RuleFunction
from extender.plugins.users.rule_calls import OfflineHost
from tests.builders import make_node, make_pod
from tests.framework.cluster import refusals, scores
from tests.plugins.users import examples

RAISING = OfflineHost()


def test_pods_go_where_the_rack_has_power_left() -> None:
    rule = examples.spread_by_rack_power.rule("power", {"rack": "rack", "cpus": 10}, RAISING)
    nodes = [make_node(f"{rack}{i}").label(rack=rack).obj() for rack in "ab" for i in (1, 2)]
    busy = make_pod("busy").req(cpu="4").node("a1").obj()
    assert scores(rule, make_pod("p").obj(), *nodes, busy) == {"a1": 60, "a2": 60, "b1": 100, "b2": 100}


@pytest.mark.parametrize(
    ("namespace", "allowed"),
    [pytest.param("ml", "gpu", id="the namespace itself"), pytest.param("web", "plain", id="another")],
)
def test_a_namespace_is_kept_on_its_nodes(namespace: str, allowed: str) -> None:
    arguments = {"namespace": "ml", "label": "pool", "value": "ml"}
    rule = examples.keep_namespace.rule("keep", arguments, RAISING)
    nodes = [make_node("gpu").label(pool="ml").obj(), make_node("plain").obj()]
    refused = refusals(rule, make_pod("p", namespace).obj(), *nodes)
    assert refused.keys() == {"gpu", "plain"} - {allowed}
    assert {refusal.reasons for refusal in refused.values()} == {("node(s) were kept for other namespaces",)}


def test_warm_caches_are_preferred() -> None:
    rule = examples.warm_cache.rule("warm", {}, RAISING)
    annotation = "example.com/models"
    nodes = [
        make_node("both").annotation({annotation: "llama,clip,bert"}).obj(),
        make_node("one").annotation({annotation: "clip"}).obj(),
        make_node("none").obj(),
    ]
    pod = make_pod("p").annotation({annotation: "clip,llama"}).obj()
    assert scores(rule, pod, *nodes) == {"both": 100, "one": 50, "none": 0}


@pytest.mark.parametrize("name", [name for name, rule in vars(examples).items() if isinstance(rule, RuleFunction)])
def test_each_example_is_below_ten_lines(name: str) -> None:
    assert len(inspect.getsource(getattr(examples, name).function).splitlines()) < 10
