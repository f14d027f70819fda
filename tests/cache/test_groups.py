"""The members of pod groups in the cache, in step with the watch and with what is assumed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import msgspec
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from extender.cache.cache import Cache
from extender.cache.groups import MEMBER_STATES, GroupState, GroupStates
from extender.cache.pod_states import PodState
from extender.errors import UnknownNode
from extender.model.pod_groups import COSCHEDULING_LABEL, CompositePodGroup, PodGroup
from extender.table import PodInfo
from tests.builders import Object, PodBuilder, make_composite_pod_group, make_node, make_pod, make_pod_group
from tests.queue.queueing import function_calls, info
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
    assert cache.assume_all([(each, "n", ()) for each in members], lambda uids: uids) == {}
    assert uids(cache.groups.get(KEY)) == {"assumed": ["a", "b"]}


@pytest.mark.parametrize(("at_least", "assumed"), [(1, ["a"]), (2, [])])
def test_none_is_assumed_if_too_few_can_be(at_least: int, assumed: list[str]) -> None:
    cache, (a, b) = given(member("a"), member("b"))
    errors = cache.assume_all([(a, "n", ()), (b, "gone", ())], lambda uids: uids if len(uids) >= at_least else ())
    assert [type(error) for error in errors.values()] == [UnknownNode]
    assert uids(cache.groups.get(KEY)).get("assumed", []) == assumed


def test_an_empty_group_is_forgotten() -> None:
    cache, (a,) = given(member("a"))
    cache.deleted("Pod", a.pod)
    assert cache.groups.count(KEY) == 0
    assert cache.groups.get(KEY) == GroupState()


# ---- trees

MODELS: dict[str, type[PodGroup | CompositePodGroup]] = {
    "PodGroup": PodGroup,
    "CompositePodGroup": CompositePodGroup,
}
LEAVES, PARENTS = ("a", "b", "c"), ("x", "y", "z")


def states() -> GroupStates:
    return GroupStates(lambda _: nullcontext(), composites=True)


def shown(groups: GroupStates, obj: Object) -> None:
    """The watch shows a version of a group."""
    kind, name = obj["kind"], obj["metadata"]["name"]
    groups.set_object(kind, f"default/{name}", msgspec.convert(obj, MODELS[kind]))


def below(parent: str | None) -> dict[str, str]:
    return {} if parent is None else {"parentCompositePodGroupName": parent}


def parents() -> st.SearchStrategy[str | None]:
    return st.none() | st.sampled_from(PARENTS)


Step = Callable[[GroupStates], None]


def leaf(name: str, minimum: int, parent: str | None) -> Step:
    return lambda groups: shown(groups, make_pod_group(name, minimum, **below(parent)))


def composite(name: str, minimum: int, parent: str | None) -> Step:
    return lambda groups: shown(groups, make_composite_pod_group(name, minimum, **below(parent)))


def gone(kind: str, name: str) -> Step:
    return lambda groups: groups.set_object(kind, f"default/{name}", None)


def pod_of(number: int, group: str | None) -> Step:
    """A pod appears, moves to another group, or (None) goes."""
    built = info(make_pod(f"p{number}").group(group or "a"))
    return lambda groups: groups.update(f"p{number}", None if group is None else built, PodState.INITIAL)


STEPS = st.one_of(
    st.builds(leaf, st.sampled_from(LEAVES), st.integers(1, 3), parents()),
    st.builds(composite, st.sampled_from(PARENTS), st.integers(1, 3), parents()),
    st.builds(gone, st.just("PodGroup"), st.sampled_from(LEAVES)),
    st.builds(gone, st.just("CompositePodGroup"), st.sampled_from(PARENTS)),
    st.builds(pod_of, st.integers(0, 4), st.none() | st.sampled_from(LEAVES)),
)


@drawn(st.lists(STEPS, max_size=25))
def test_a_tree_is_answered_for_as_it_is_now(steps: list[Step]) -> None:
    """What was answered before a change has no part in the answer after it."""
    asked, unasked = states(), states()
    for number, step in enumerate(steps, start=1):
        for groups in (asked, unasked):
            step(groups)
        for name in LEAVES:
            asked.shortage(f"default/{name}")
            asked.family(f"default/{name}")
        if number == len(steps):
            for name in LEAVES:
                assert asked.shortage(f"default/{name}") == unasked.shortage(f"default/{name}")
                assert asked.family(f"default/{name}") == unasked.family(f"default/{name}")


def calls_for_each_member(size: int) -> float:
    """Returns the calls of functions per member, when each of `size` groups is asked about its tree."""
    groups = states()
    shown(groups, make_composite_pod_group("x", size))
    for number in range(size):
        leaf(f"g{number}", 1, "x")(groups)
        groups.update(f"p{number}", info(make_pod(f"p{number}").group(f"g{number}")), PodState.INITIAL)
    shortages: set[str | None] = set()
    calls = function_calls(lambda: shortages.update(groups.shortage(f"default/g{number}") for number in range(size)))
    assert shortages == {None}
    return calls / size


def test_a_wide_tree_is_walked_once_and_not_once_for_each_member() -> None:
    assert calls_for_each_member(200) < 2 * calls_for_each_member(20)
