"""The listener receives every change, with the value before it, and while the cache's lock is free."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.cache.cache import Cache
from extender.cache.pod_states import PodEvent, PodPlacement
from extender.model.node import Node
from extender.model.pod import Pod
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.table import PodInfo
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod


class RecordingListener:
    """A Listener that keeps lists. It calls the cache, which would hang if the lock were held."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.changes: list[tuple[str, str | None, str | None]] = []
        self.displaced_pods: list[tuple[str, str, PodEvent]] = []

    def changed(self, kind: str, before: Any, after: Any) -> None:
        self._cache.size()
        self.changes.append((kind, _version(before), _version(after)))

    def displaced(self, placement: PodPlacement, event: PodEvent) -> None:
        self._cache.size()
        self.displaced_pods.append((placement.info.pod.name, placement.node_name, event))

    def missed(self) -> None: ...


def _version(known: Any) -> str | None:
    obj = known.pod if isinstance(known, PodInfo) else known
    return obj.metadata.resource_version if obj else None


def node(built: NodeBuilder) -> Node:
    return msgspec.convert(built.obj(), Node)


def pod(built: PodBuilder) -> Pod:
    return msgspec.convert(built.obj(), Pod)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cache(clock: ManualClock) -> Cache:
    return Cache(clock, Telemetry())


@pytest.fixture
def heard(cache: Cache) -> RecordingListener:
    heard = RecordingListener(cache)
    cache.listen(heard)
    return heard


def test_the_listener_learns_that_an_object_was_added_changed_and_deleted(
    cache: Cache, heard: RecordingListener
) -> None:
    for version in ("1", "2"):
        cache.changed("Node", node(make_node("n").resource_version(version)))
    cache.deleted("Node", node(make_node("n").resource_version("3")))
    cache.deleted("Node", node(make_node("n").resource_version("3")))
    assert heard.changes == [("Node", None, "1"), ("Node", "1", "2"), ("Node", "2", None)]


def test_a_list_is_reported_as_the_changes_it_makes(cache: Cache, heard: RecordingListener) -> None:
    cache.replaced("Pod", [pod(make_pod("a").resource_version("1")), pod(make_pod("b").resource_version("1"))])
    heard.changes.clear()
    cache.replaced("Pod", [pod(make_pod("b").resource_version("1")), pod(make_pod("c").resource_version("2"))])
    assert heard.changes == [("Pod", "1", None), ("Pod", None, "2")]


def test_a_finished_pod_is_reported_as_deleted(cache: Cache, heard: RecordingListener) -> None:
    cache.changed("Pod", pod(make_pod("p").node("n").resource_version("1")))
    cache.changed("Pod", pod(make_pod("p").node("n").phase("Succeeded").resource_version("2")))
    assert heard.changes == [("Pod", None, "1"), ("Pod", "1", None)]
    assert heard.displaced_pods == [("p", "n", PodEvent.REMOVE)]


def test_the_listener_learns_of_every_way_to_lose_a_place(
    cache: Cache, heard: RecordingListener, clock: ManualClock
) -> None:
    cache.changed("Node", node(make_node("n")))
    infos = {name: PodInfo(pod(make_pod(name))) for name in ("forgotten", "expired", "confirmed")}
    for info in infos.values():
        cache.assume(info, "n")
    cache.forget(infos["forgotten"].uid)
    cache.finish_binding(infos["expired"].uid)
    cache.changed("Pod", pod(make_pod("confirmed").node("n").resource_version("1")))
    clock.advance(31)
    cache.changed("Pod", pod(make_pod("confirmed").node("n").resource_version("2")))
    cache.expire(cache.overdue(clock.monotonic()), clock.monotonic())
    assert heard.displaced_pods == [("forgotten", "n", PodEvent.FORGET), ("expired", "n", PodEvent.EXPIRE)]


def test_a_place_that_a_list_contradicts_is_reported_as_lost(cache: Cache, heard: RecordingListener) -> None:
    """As after the API server was restored from a copy, or if the comparer corrects the cache."""
    bound = {name: pod(make_pod(name).node("n").resource_version("5")) for name in ("restored", "gone", "moved")}
    for each in bound.values():
        cache.changed("Pod", each)
    cache.replaced("Pod", [pod(make_pod("restored").resource_version("3")), bound["gone"], bound["moved"]])
    now = cache.cursor()
    assert cache.correct(("Pod", bound["gone"].uid), None, now)
    moved = PodInfo(pod(make_pod("moved").node("other").resource_version("6")))
    assert cache.correct(("Pod", moved.uid), moved, now)
    assert heard.displaced_pods == [(name, "n", PodEvent.REMOVE) for name in bound]


def test_a_nomination_counts_in_tables_before_the_status_says_so(cache: Cache) -> None:
    info = PodInfo(pod(make_pod("p").priority(5)))
    cache.changed("Node", node(make_node("n")))
    cache.changed("Pod", info.pod)
    for node_name, nominated in (("n", {"n": [info.uid]}), ("", {})):
        cache.nominate(info.uid, node_name)
        with cache.snapshot("test") as table:
            assert {name: list(infos) for name, infos in table.nominated.items()} == nominated
    cache.nominate("nobody", "n")
