"""An error in the middle of a change: the next list of the kind repairs what was left half done."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.cache.cache import Cache
from extender.cache.changes import Changes
from extender.cache.observed import PodStore
from extender.cache.pod_states import Placements, PodEvent, PodPlacement
from extender.errors import IllegalTransition
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.storage import PersistentVolume
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.table import PodInfo
from tests.builders import make_node, make_pod, make_pv

NODE = msgspec.convert(make_node("n").obj(), Node)


class Listener:
    """Raises as often as `faults` says; `names` are those of the pods that were reported after that."""

    def __init__(self, cache: Cache, faults: int = 0) -> None:
        self._cache = cache
        self.faults = faults
        self.names: list[str] = []
        self.missed_calls = 0

    def changed(self, kind: str, before: Any, after: Any) -> None:
        if self.faults:
            self.faults -= 1
            raise MemoryError
        if kind == "Pod":
            self.names.append((after or before).pod.name)

    def displaced(self, placement: PodPlacement, event: PodEvent) -> None: ...

    def missed(self) -> None:
        self.missed_calls += 1


def pod(name: str, node_name: str = "", version: str = "1") -> Pod:
    built = make_pod(name).uid(name).req(cpu="1").resource_version(version)
    return msgspec.convert((built.node(node_name) if node_name else built).obj(), Pod)


@pytest.fixture
def cache() -> Cache:
    cache = Cache(ManualClock(), Telemetry())
    cache.changed("Node", NODE)
    return cache


def pods_on_node(cache: Cache) -> list[str]:
    with cache.snapshot("test") as table:
        return sorted(table.pods.slot_of)


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> None:
    """The next call of the method raises; those after it work."""
    original = getattr(owner, method)

    def fail(*_: object) -> None:
        monkeypatch.setattr(owner, method, original)
        raise MemoryError

    monkeypatch.setattr(owner, method, fail)


@pytest.mark.parametrize(
    ("owner", "method"),
    [(PodStore, "put"), (Placements, "confirm"), (Changes, "note")],
    ids=["before anything is stored", "before the pod has its place", "before tables learn of it"],
)
def test_a_pod_whose_event_was_interrupted_counts_once_it_is_listed(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    bound = pod("p", "n")
    fail_once(monkeypatch, owner, method)
    with pytest.raises(MemoryError):
        cache.changed("Pod", bound)
    assert cache.interrupted_kinds() == ["Pod"]
    cache.replaced("Pod", [bound])
    assert pods_on_node(cache) == ["p"]
    assert cache.interrupted_kinds() == []


@pytest.mark.parametrize(
    ("owner", "method"),
    [(PodStore, "remove"), (Placements, "remove"), (Changes, "note")],
    ids=["before anything is removed", "before the place is free", "before tables learn of it"],
)
def test_a_pod_whose_deletion_was_interrupted_keeps_no_place_once_the_others_are_listed(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    cache.replaced("Pod", [pod("p", "n"), pod("stays", "n")])
    assert pods_on_node(cache) == ["p", "stays"]
    fail_once(monkeypatch, owner, method)
    with pytest.raises(MemoryError):
        cache.deleted("Pod", pod("p", "n"))
    cache.replaced("Pod", [pod("stays", "n")])
    assert pods_on_node(cache) == ["stays"]


def test_a_list_that_was_interrupted_is_repaired_by_the_next(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [pod("p", "n"), pod("q", "n")]
    fail_once(monkeypatch, Placements, "confirm")
    with pytest.raises(MemoryError):
        cache.replaced("Pod", pods)
    cache.replaced("Pod", pods)
    assert pods_on_node(cache) == ["p", "q"]


def test_only_the_kind_whose_list_was_interrupted_is_repaired(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_once(monkeypatch, Changes, "note_listed")
    with pytest.raises(MemoryError):
        cache.replaced("Node", [NODE])
    assert cache.interrupted_kinds() == ["Node"]


def test_a_repair_keeps_an_assumed_object_that_no_watch_has_shown(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.assume_object(msgspec.convert(make_pv("new"), PersistentVolume))
    old = msgspec.convert(make_pv("old"), PersistentVolume)
    fail_once(monkeypatch, Changes, "note")
    with pytest.raises(MemoryError):
        cache.changed("PersistentVolume", old)
    cache.replaced("PersistentVolume", [old])
    with cache.snapshot("test") as table:
        assert sorted(table.objects.all(PersistentVolume)) == ["new", "old"]


def test_a_place_that_could_not_be_taken_whole_is_free(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = pod("p")
    cache.changed("Pod", waiting)
    fail_once(monkeypatch, Changes, "note")
    with pytest.raises(MemoryError):
        cache.assume(PodInfo(waiting), "n")
    assert cache.placement("p") is None
    assert cache.interrupted_kinds() == ["Pod"]


def test_the_other_notifications_are_delivered_after_one_has_raised(cache: Cache) -> None:
    listener = Listener(cache, faults=1)
    cache.listen(listener)
    with pytest.raises(MemoryError):
        cache.replaced("Pod", [pod("a"), pod("b"), pod("c")])
    assert listener.names == ["b", "c"]


def test_the_listener_learns_that_it_may_have_missed_changes_and_only_then(cache: Cache) -> None:
    listener = Listener(cache, faults=1)
    cache.listen(listener)
    with pytest.raises(MemoryError):
        cache.changed("Pod", pod("a"))
    assert listener.missed_calls == 0
    for _ in range(2):
        cache.replaced("Pod", [pod("a")])
    assert listener.missed_calls == 1


def test_an_expected_error_interrupts_nothing(cache: Cache) -> None:
    with pytest.raises(IllegalTransition):
        cache.forget("unknown")
    assert cache.interrupted_kinds() == []
