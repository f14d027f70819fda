"""A pod that meets an error in the cache or in a table: no other pod gets the room that it takes of its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from extender.cache.cache import Cache
from extender.cache.changes import POD
from extender.cache.debugger import Comparer
from extender.cache.observed import PodStore
from extender.cache.pod_states import Placements
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.table import PodInfo, Table
from extender.table.podinfo import Templates
from tests.builders import make_node, make_pod

NODE = msgspec.convert(make_node("n").obj(), Node)


class Noting(Telemetry):
    def __init__(self) -> None:
        self.aside: list[str] = []

    def set_aside(self, task: str, item: str, error: Exception) -> None:
        self.aside.append(f"{task} {item}: {error}")


def pod(node_name: str = "", version: int = 1, *, odd: bool = True, phase: str = "", name: str = "p") -> Pod:
    """A pod that takes 2 CPUs. The value that makes an odd pod fail is in its affinity."""
    built = make_pod(name).uid(name).req(cpu="2").resource_version(str(version)).phase(phase)
    built = built.anti_affinity("zone", labels={"app": "x"}) if odd else built
    return msgspec.convert((built.node(node_name) if node_name else built).obj(), Pod)


def is_odd(value: object) -> bool:
    tested = value.pod if isinstance(value, PodInfo) else value
    return isinstance(tested, Pod) and tested.spec.affinity is not None


PLACES = {"the reader": (Templates, "info"), "the cache": (PodStore, "put"), "the table": (Table, "place")}


@pytest.fixture(params=list(PLACES.values()), ids=list(PLACES))
def failing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets one place fail at every odd pod."""
    owner, method = request.param
    original: Callable[..., Any] = getattr(owner, method)

    def fail(self: object, *arguments: object) -> Any:
        if any(map(is_odd, arguments)):
            raise ValueError("odd")
        return original(self, *arguments)

    monkeypatch.setattr(owner, method, fail)


@pytest.fixture
def cache() -> Cache:
    cache = Cache(ManualClock(), Noting())
    cache.changed("Node", NODE)
    return cache


def deliver(cache: Cache, *pods: Pod) -> None:
    """Delivers events as a reflector does: after an error the kind is listed again."""
    for each in pods:
        try:
            cache.changed(POD, each)
        except ValueError:
            cache.replaced(POD, [each])


def cpu_taken(cache: Cache) -> int:
    with cache.snapshot("test") as table:
        return int(table.nodes.requested[table.nodes.resources["cpu"], table.nodes.row_of["n"]])


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize(
    "events",
    [
        pytest.param([pod("n")], id="a new pod"),
        pytest.param([pod(odd=False), pod("n", 2)], id="a pod that waited"),
        pytest.param([pod(), pod("n", 2)], id="a pod that was set aside while it waited"),
        pytest.param([pod("n", odd=False), pod("n", 2)], id="a pod that changes"),
        pytest.param([pod("n"), pod("n", 2)], id="a pod that changes after it was set aside"),
    ],
)
def test_a_pod_on_a_node_keeps_its_room_when_it_is_set_aside(cache: Cache, events: list[Pod]) -> None:
    deliver(cache, *events)
    assert cpu_taken(cache) == 2000
    cache.replaced(POD, [events[-1]])
    assert cpu_taken(cache) == 2000


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("end", ["deleted", "finished", "not listed"])
def test_a_pod_that_was_set_aside_leaves_its_node_when_it_ends(cache: Cache, end: str) -> None:
    deliver(cache, pod("n"))
    assert cpu_taken(cache) == 2000
    if end == "deleted":
        cache.deleted(POD, pod("n", 2))
    elif end == "finished":
        deliver(cache, pod("n", 2, phase="Succeeded"))
    else:
        cache.replaced(POD, [])
    assert cpu_taken(cache) == 0


@pytest.mark.parametrize("owner", [PodStore, Table])
def test_a_pod_whose_binding_is_on_its_way_keeps_its_room_when_it_is_set_aside(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, owner: type
) -> None:
    assumed = PodInfo(pod())
    deliver(cache, assumed.pod)
    monkeypatch.setattr(*failing_at(owner))
    cache.assume(assumed, "n")
    deliver(cache, pod(version=2))
    assert cpu_taken(cache) == 2000
    cache.finish_binding("p")
    deliver(cache, pod("n", 3))
    assert cpu_taken(cache) == 2000
    assert not cache.unconfirmed()


def failing_at(owner: type) -> tuple[type, str, Callable[..., Any]]:
    method = {PodStore: "put", Table: "place"}[owner]
    original: Callable[..., Any] = getattr(owner, method)

    def fail(self: object, info: PodInfo, *arguments: object) -> Any:
        if is_odd(info):
            raise ValueError("odd")
        return original(self, info, *arguments)

    return owner, method, fail


def test_a_pod_whose_room_cannot_be_counted_either_is_left_out(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    confirm = Placements.confirm

    def fail(self: Placements, info: PodInfo) -> None:
        if info.uid == "p":
            raise ValueError("every pod p")
        confirm(self, info)

    monkeypatch.setattr(Placements, "confirm", fail)
    deliver(cache, pod("n"), pod("n", 2, name="other"))
    assert cpu_taken(cache) == 2000
    assert cache.pods().keys() == {"other"}


class Lists:
    """The API server's list of pods, which has been delivered."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = pods
        self.relisted: list[str] = []

    def kinds(self) -> list[str]:
        return [POD]

    def list(self, kind: str) -> tuple[str, tuple[Object, ...]]:
        return "9", self.pods

    def has_delivered(self, kind: str, version: str) -> bool:
        return True

    def relist(self, kind: str, why: str) -> None:
        self.relisted.append(why)


@pytest.mark.usefixtures("failing")
def test_comparisons_go_on_beside_a_pod_that_was_set_aside(cache: Cache) -> None:
    deliver(cache, pod("n"))
    assert cpu_taken(cache) == 2000
    lost = pod("n", odd=False, name="lost")
    lists = Lists(pod("n"), lost)
    report = Comparer(cache, lists, Noting(), lambda _: False).compare()
    assert [each.key for each in report.differences] == ["default/lost"]
    assert cpu_taken(cache) == 4000
