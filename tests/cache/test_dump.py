"""The dump for the debug page: nodes with their sums, pods with their places, nominated pods by node."""

from __future__ import annotations

import msgspec

from extender.cache.cache import Cache
from extender.cache.debugger import DumpedPod, dump
from extender.model.kinds import KINDS
from extender.model.pod import Pod
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.table import PodInfo
from tests.builders import Builder, make_node, make_pod


def cache_of(*builders: Builder) -> Cache:
    cache = Cache(ManualClock(), Telemetry())
    for obj in (builder.obj() for builder in builders):
        cache.changed(obj["kind"], msgspec.convert(obj, KINDS[obj["kind"]].type))
    return cache


def test_a_node_shows_what_it_offers_and_what_its_pods_request() -> None:
    cache = cache_of(
        make_node("b").allocatable(cpu="4", memory="1Gi", pods="10"),
        make_node("a").allocatable(cpu="2", memory="1Gi", pods="10"),
        make_pod("p").req(cpu="1").node("b"),
        make_pod("q").req(cpu="500m").node("b"),
    )
    shown = [(node.name, node.known, node.allocatable["cpu"], node.requested["cpu"]) for node in dump(cache).nodes]
    assert shown == [("a", True, 2000, 0), ("b", True, 4000, 1500)]


def test_a_node_that_is_gone_is_shown_while_pods_are_on_it() -> None:
    cache = cache_of(make_pod("p").req(cpu="1").node("gone"))
    [node] = dump(cache).nodes
    assert (node.name, node.known, node.allocatable["cpu"], node.requested["cpu"]) == ("gone", False, 0, 1000)


def test_a_pod_shows_where_it_counts_and_how_sure_that_is() -> None:
    assumed = make_pod("assumed").uid("1")
    cache = cache_of(
        make_node("n"),
        make_pod("waits").uid("2"),
        make_pod("bound").uid("3").node("n"),
        assumed,
    )
    cache.assume(PodInfo(msgspec.convert(assumed.obj(), Pod)), "n", lambda _table: None)
    assert dump(cache).pods == [
        DumpedPod("default/assumed", "1", "n", "assumed"),
        DumpedPod("default/bound", "3", "n", "added"),
        DumpedPod("default/waits", "2", "", "waiting"),
    ]


def test_nominated_pods_are_listed_by_node() -> None:
    cache = cache_of(make_node("n"), make_pod("q").nominated("n"), make_pod("p").nominated("n"))
    assert dump(cache).nominated == {"n": ["default/p", "default/q"]}
