"""What a process does for its cache now and then, and what its cache shows of writes whose outcome is unknown."""

from __future__ import annotations

import msgspec
import pytest

from extender.app.feed import CacheEvidence
from extender.app.serve import assume_unsettled
from extender.app.upkeep import relist_interrupted
from extender.cache.cache import Cache
from extender.cache.changes import Changes
from extender.model import meta
from extender.model.devices import ResourceClaim
from extender.model.node import Node
from extender.model.pod import Pod
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Binding, Telemetry
from tests.builders import Object, make_claim, make_node, make_pod, make_request, make_result, with_allocation
from tests.builders.builder import Builder


class Lister:
    """A ports.Lister of some kinds; `relisted` are those that it was asked to list again."""

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds
        self.relisted: list[str] = []

    def kinds(self) -> tuple[str, ...]:
        return self._kinds

    def list(self, kind: str) -> tuple[str, tuple[meta.Object, ...]]:
        raise NotImplementedError(kind)

    def relist(self, kind: str, why: str) -> None:
        self.relisted.append(kind)

    def has_delivered(self, kind: str, version: str) -> bool:
        raise NotImplementedError(kind, version)


@pytest.mark.parametrize(
    ("kinds", "relisted"),
    [(("Node", "Pod"), ["Node"]), (("Pod",), [])],
    ids=["the interrupted kind is followed", "it is not followed"],
)
def test_a_kind_of_which_a_change_was_interrupted_is_listed_again(
    monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...], relisted: list[str]
) -> None:
    cache, lister = Cache(ManualClock(), Telemetry()), Lister(*kinds)
    relist_interrupted(cache, lister)
    assert lister.relisted == []
    monkeypatch.setattr(Changes, "note", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cache.changed("Node", msgspec.convert(make_node("n").obj(), Node))
    relist_interrupted(cache, lister)
    assert lister.relisted == relisted


BINDING = Binding("default", "p", "u", "n1")
WITHOUT_DEVICES = make_claim("c", make_request("device", "gpu"))
WITH_DEVICES = with_allocation(WITHOUT_DEVICES, make_result("n1", "gpu-0"))


def pod_of(builder: Builder) -> Pod:
    return msgspec.convert(builder.obj(), Pod)


@pytest.fixture
def cache() -> Cache:
    cache = Cache(ManualClock(), Telemetry())
    cache.replaced("Node", [msgspec.convert(make_node("n1").obj(), Node)])
    return cache


@pytest.mark.parametrize(
    ("pods", "claims", "nothing"),
    [
        pytest.param([], [], True, id="an empty cluster"),
        pytest.param([make_pod("p").node("n1")], [WITH_DEVICES], True, id="everything has its place"),
        pytest.param([make_pod("p")], [], False, id="a pod waits"),
        pytest.param([make_pod("p").node("n1")], [WITHOUT_DEVICES], False, id="a claim waits though no pod does"),
    ],
)
def test_nothing_waits(cache: Cache, pods: list[Builder], claims: list[Object], nothing: bool) -> None:
    cache.replaced("Pod", [pod_of(pod) for pod in pods])
    cache.replaced("ResourceClaim", [msgspec.convert(claim, ResourceClaim) for claim in claims])
    assert CacheEvidence(cache).nothing_waits() is nothing


def test_a_pod_that_is_only_assumed_on_a_node_waits(cache: Cache) -> None:
    """Its bind may have failed, and another leader may be binding it elsewhere."""
    cache.replaced("Pod", [pod_of(make_pod("p").uid("u"))])
    assume_unsettled(cache, [BINDING])
    assert not CacheEvidence(cache).nothing_waits()


def test_the_watch_has_shown_a_binding_once_the_pod_has_a_node_or_is_gone(cache: Cache) -> None:
    evidence = CacheEvidence(cache)
    waiting = pod_of(make_pod("p").uid("u"))
    cache.replaced("Pod", [waiting])
    assert not evidence.shows(BINDING)
    assume_unsettled(cache, [BINDING])
    assert not evidence.shows(BINDING)  # it is only assumed
    cache.changed("Pod", pod_of(make_pod("p").uid("u").node("n1")))
    assert evidence.shows(BINDING)
    cache.deleted("Pod", waiting)
    assert evidence.shows(BINDING)


def test_pods_count_where_an_earlier_worker_was_binding_them(cache: Cache) -> None:
    cache.replaced("Pod", [pod_of(make_pod("p").uid("u")), pod_of(make_pod("bound").uid("b").node("n1"))])
    left = [BINDING, Binding("default", "bound", "b", "n1"), Binding("default", "gone", "g", "n1")]
    assume_unsettled(cache, left)
    placement = cache.placement("u")
    assert placement is not None
    assert (placement.node_name, placement.certain) == ("n1", False)
    assert cache.placement("g") is None
    cache.changed("Pod", pod_of(make_pod("p").uid("u").node("n1")))
    assert cache.size().assumed_pods == 0


def test_an_unsettled_bind_keeps_its_place_on_a_node_that_was_deleted_and_is_created_again(cache: Cache) -> None:
    cache.replaced("Pod", [pod_of(make_pod("p").uid("u").req(cpu="1"))])
    assume_unsettled(cache, [Binding("default", "p", "u", "later")])
    assert cache.placement("u") is not None
    later = make_node("later").capacity(cpu="4").obj()
    cache.changed("Node", msgspec.convert(later, Node))
    with cache.snapshot("test") as table:
        assert table.nodes.requested[table.nodes.resources["cpu"], table.nodes.row_of["later"]] == 1000
