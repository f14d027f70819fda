"""What a process before may have bound: pods keep the places that are known, and a start waits for the others."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from extender.app.process import Readiness, Settling, take_over
from extender.cache.cache import Cache
from extender.errors import OutcomeUnknown
from extender.model.node import Node
from extender.model.pod import Pod
from extender.runtime.bindings_in_flight import BindingInFlight
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Binding, Telemetry
from tests.builders import make_node, make_pod
from tests.builders.builder import Builder

SECONDS = 10.0


class Probe:
    """Says whether the cache is as far as the API server was."""

    def __init__(self) -> None:
        self.is_told = False

    def __call__(self) -> bool:
        return self.is_told


def pod_of(builder: Builder) -> Pod:
    return msgspec.convert(builder.obj(), Pod)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cache(clock: ManualClock) -> Cache:
    cache = Cache(clock, Telemetry())
    cache.replaced("Node", [msgspec.convert(make_node("n1").obj(), Node)])
    return cache


def settling(cache: Cache, clock: ManualClock, ask: Callable[[], Probe], seconds: float = SECONDS) -> Settling:
    return Settling(cache, Readiness(list, lambda: None), ask, clock, seconds)


def waits(it: Settling) -> bool:
    it.advance()
    return it.waiting_for() != ""


def test_a_start_waits_where_pods_do_until_the_watch_has_told_of_what_a_call_may_have_bound(
    cache: Cache, clock: ManualClock
) -> None:
    cache.replaced("Pod", [pod_of(make_pod("p"))])
    probe = Probe()
    it = settling(cache, clock, lambda: probe)
    assert waits(it)
    probe.is_told = True
    clock.advance(SECONDS - 1)
    assert waits(it)  # what is told so far says nothing of a call in flight
    probe.is_told = False
    clock.advance(1)
    assert waits(it)
    probe.is_told = True
    assert not waits(it)


def test_it_is_asked_again_where_nobody_can_tell(cache: Cache, clock: ManualClock) -> None:
    cache.replaced("Pod", [pod_of(make_pod("p"))])
    answers: list[Probe] = []

    def ask() -> Probe:
        if not answers:
            raise OutcomeUnknown("no answer")
        return answers[0]

    it = settling(cache, clock, ask)
    assert waits(it)
    clock.advance(SECONDS)
    assert waits(it)
    answers.append(Probe())
    answers[0].is_told = True
    clock.advance(1)
    assert not waits(it)


def test_a_list_that_the_watch_does_not_get_to_is_asked_for_again(cache: Cache, clock: ManualClock) -> None:
    """As where the API server was restored from a copy since."""
    cache.replaced("Pod", [pod_of(make_pod("p"))])
    probes = [Probe(), Probe()]
    probes[1].is_told = True
    it = settling(cache, clock, lambda: probes.pop(0))
    assert waits(it)
    clock.advance(SECONDS)
    assert waits(it)
    assert waits(it)
    clock.advance(60)
    assert not waits(it)


@pytest.mark.parametrize(
    ("pod", "seconds"),
    [
        pytest.param(make_pod("p").node("n1"), SECONDS, id="no pod waits"),
        pytest.param(make_pod("p"), 0.0, id="told not to"),
    ],
)
def test_a_start_waits_for_nothing(cache: Cache, clock: ManualClock, pod: Builder, seconds: float) -> None:
    cache.replaced("Pod", [pod_of(pod)])
    it = settling(cache, clock, Probe, seconds)
    assert not waits(it)
    cache.changed("Pod", pod_of(make_pod("later")))  # no process before can have known it
    assert not waits(it)


def test_pods_are_counted_where_the_worker_before_was_binding_them(cache: Cache) -> None:
    cache.replaced("Pod", [pod_of(make_pod("p").uid("u")), pod_of(make_pod("bound").uid("b").node("n1"))])
    left = [
        BindingInFlight(Binding("default", name, uid, node), 0.0)
        for name, uid, node in (("p", "u", "n1"), ("bound", "b", "n1"), ("gone", "g", "n1"))
    ]
    take_over(cache, left)
    placement = cache.placement("u")
    assert placement is not None
    assert (placement.node_name, placement.certain) == ("n1", False)
    assert cache.placement("g") is None
    cache.changed("Pod", pod_of(make_pod("p").uid("u").node("n1")))
    assert cache.size().assumed_pods == 0


def test_a_node_that_is_gone_counts_nothing(cache: Cache) -> None:
    cache.replaced("Pod", [pod_of(make_pod("p").uid("u"))])
    take_over(cache, [BindingInFlight(Binding("default", "p", "u", "elsewhere"), 0.0)])
    assert cache.placement("u") is None
