"""The members of pod groups in the cache, in step with the watch and with what is assumed."""

from __future__ import annotations

import pytest

from extender.cache.cache import Cache
from extender.cache.groups import MEMBER_STATES, GroupState
from extender.cache.pod_states import PodState
from extender.errors import UnknownNode
from extender.model.pod_groups import COSCHEDULING_LABEL
from extender.table import PodInfo
from tests.builders import PodBuilder, make_node, make_pod
from tests.queue.queueing import info
from tests.verbs.cluster import cache_of, tell

NODE = make_node("n").allocatable(cpu="8", pods="9").obj()
KEY = "default/g"


def member(name: str) -> PodBuilder:
    return make_pod(name).group("g")


def uids(state: GroupState) -> dict[str, list[str]]:
    """Returns the names of the members by their state."""
    fields = {"unscheduled": state.unscheduled, "assumed": state.assumed, "assigned": state.assigned}
    return {name: [each.pod.name for each in members.values()] for name, members in fields.items() if members}


def given(*pods: PodBuilder) -> tuple[Cache, list[PodInfo]]:
    return cache_of(NODE, *(pod.obj() for pod in pods)), [info(pod) for pod in pods]


def test_every_state_of_a_pod_has_its_place_in_the_group() -> None:
    assert MEMBER_STATES.keys() == set(PodState)


def test_a_pod_without_a_group_is_filed_under_none() -> None:
    cache, _ = given(make_pod("single"), make_pod("placed").node("n"))
    assert cache.groups._groups == {}


def test_members_are_counted_as_the_watch_shows_them() -> None:
    cache, _ = given(member("a"), member("b").node("n"), make_pod("single"), member("c").phase("Succeeded"))
    assert uids(cache.groups.get(KEY)) == {"unscheduled": ["a"], "assigned": ["b"]}
    assert cache.groups.count(KEY) == 2
    cache.deleted("Pod", info(member("a")).pod)
    assert uids(cache.groups.get(KEY)) == {"assigned": ["b"]}


def test_the_label_of_the_coscheduling_plugin_takes_the_place_of_the_pods_own_group() -> None:
    cache = cache_of(NODE)
    cache.groups.use_coscheduling_label()
    tell(cache, [member("a").obj(), make_pod("b").label({COSCHEDULING_LABEL: "other"}).obj()])
    assert (cache.groups.count(KEY), cache.groups.count("default/other")) == (0, 1)


def test_a_member_goes_through_its_states() -> None:
    cache, (a,) = given(member("a"))
    cache.assume(a, "n")
    assert uids(cache.groups.get(KEY)) == {"assumed": ["a"]}
    cache.forget(a.uid)
    assert uids(cache.groups.get(KEY)) == {"unscheduled": ["a"]}
    cache.assume(a, "n")
    cache.finish_binding(a.uid)
    assert uids(cache.groups.get(KEY)) == {"assumed": ["a"]}
    tell(cache, [member("a").node("n").obj()])
    assert uids(cache.groups.get(KEY)) == {"assigned": ["a"]}


def test_all_are_assumed_at_once() -> None:
    cache, members = given(member("a"), member("b"))
    assert cache.assume_all([(each, "n") for each in members], lambda uids: uids) == {}
    assert uids(cache.groups.get(KEY)) == {"assumed": ["a", "b"]}


@pytest.mark.parametrize(("at_least", "assumed"), [(1, ["a"]), (2, [])])
def test_none_is_assumed_if_too_few_can_be(at_least: int, assumed: list[str]) -> None:
    cache, (a, b) = given(member("a"), member("b"))
    errors = cache.assume_all([(a, "n"), (b, "gone")], lambda uids: uids if len(uids) >= at_least else ())
    assert [type(error) for error in errors.values()] == [UnknownNode]
    assert uids(cache.groups.get(KEY)).get("assumed", []) == assumed


def test_an_empty_group_is_forgotten() -> None:
    cache, (a,) = given(member("a"))
    cache.deleted("Pod", a.pod)
    assert cache.groups.count(KEY) == 0
    assert cache.groups.get(KEY) == GroupState()
