"""The nominated node of a waiting pod while the decision and the pod's status differ."""

from __future__ import annotations

import msgspec
import pytest

from extender.cache.cache import Cache
from extender.model.pod import Pod
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from tests.builders import PodBuilder, make_node, make_pod
from tests.queue.queueing import node


@pytest.fixture
def cache() -> Cache:
    cache = Cache(ManualClock(), Telemetry())
    for name in ("n1", "n2", "n3"):
        cache.changed("Node", node(make_node(name)))
    return cache


def pod(nominated: str, **labels: str) -> PodBuilder:
    builder = make_pod("p").uid("p").label(**labels)
    return builder.nominated(nominated) if nominated else builder


def watch(cache: Cache, built: PodBuilder) -> None:
    cache.changed("Pod", msgspec.convert(built.obj(), Pod))


def nominated(cache: Cache) -> dict[str, list[str]]:
    with cache.snapshot("test") as table:
        return {node_name: sorted(infos) for node_name, infos in table.nominated.items()}


@pytest.mark.parametrize(
    ("before", "decided", "after", "expected"),
    [
        pytest.param("", "n1", "", "n1", id="the status has not caught up"),
        pytest.param("", "n1", "n1", "n1", id="the status catches up"),
        pytest.param("", "n1", "n2", "n2", id="the status names another node"),
        pytest.param("n1", "n1", "n2", "n2", id="the status is changed"),
        pytest.param("n1", "n1", "", "", id="the status is cleared"),
        pytest.param("n1", "n2", "n1", "n2", id="the status has not changed"),
        pytest.param("n1", "", "n1", "", id="the status still has an ended nomination"),
        pytest.param("n1", "", "", "", id="the status shows the end"),
        pytest.param("n1", "", "n3", "n3", id="the status names a third node"),
    ],
)
def test_a_nomination_is_valid_until_the_status_changes(
    cache: Cache, before: str, decided: str, after: str, expected: str
) -> None:
    watch(cache, pod(before))
    assert cache.nominate("p", decided) == before
    watch(cache, pod(after, version="2"))
    assert cache.nominated_node("p") == expected
    assert nominated(cache) == ({expected: ["p"]} if expected else {})
    watch(cache, pod(after, version="3"))
    assert cache.nominated_node("p") == expected


def test_the_last_of_several_nominations_is_valid(cache: Cache) -> None:
    watch(cache, pod(""))
    assert [cache.nominate("p", name) for name in ("n1", "n2", "n2")] == ["", "n1", "n2"]
    watch(cache, pod("", version="2"))
    assert nominated(cache) == {"n2": ["p"]}


def test_a_nomination_that_has_changed_since_stays(cache: Cache) -> None:
    watch(cache, pod("n1"))
    watch(cache, pod("n2", version="2"))
    assert cache.nominate("p", "", instead_of="n1") == "n2"
    assert cache.nominated_node("p") == "n2"
    assert cache.nominate("p", "", instead_of="n2") == "n2"
    assert cache.nominated_node("p") == ""


def test_a_pod_that_is_gone_or_bound_is_not_nominated(cache: Cache) -> None:
    assert cache.nominate("p", "n1") == ""
    watch(cache, pod("").node("n2"))
    assert cache.nominate("p", "n1") == ""
    assert (cache.nominated_node("p"), nominated(cache)) == ("", {})


def test_a_recreated_pod_is_not_nominated(cache: Cache) -> None:
    watch(cache, pod(""))
    cache.nominate("p", "n1")
    cache.deleted("Pod", msgspec.convert(pod("").obj(), Pod))
    watch(cache, pod(""))
    assert nominated(cache) == {}


def test_several_pods_can_be_nominated_to_one_node(cache: Cache) -> None:
    watch(cache, pod(""))
    watch(cache, make_pod("q").uid("q"))
    cache.nominate("p", "n1")
    cache.nominate("q", "n1")
    assert nominated(cache) == {"n1": ["p", "q"]}
    cache.nominate("p", "")
    assert nominated(cache) == {"n1": ["q"]}
