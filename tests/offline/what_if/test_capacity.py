"""Counting what fits: by arithmetic where nodes are independent, else by trying; both say the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender import Cluster
from extender.errors import ConfigurationError
from extender.offline.what_if.capacity import as_text
from tests.builders import Object, make_node, make_pod


def template(cpu: str = "1") -> Any:
    return make_pod("t").label(app="t").req(cpu=cpu)


@st.composite
def clusters(draw: Any) -> list[Object]:
    objects = []
    for number in range(draw(st.integers(1, 4))):
        node = make_node(f"n{number}").capacity(
            cpu=str(draw(st.integers(0, 5))), memory=f"{draw(st.integers(1, 4))}Gi", pods=str(draw(st.integers(0, 6)))
        )
        if draw(st.integers(0, 3)) == 0:
            node.taint("dedicated")
        objects.append(node.obj())
        if draw(st.booleans()):
            objects.append(make_pod(f"p{number}").req(cpu="700m", memory="1Gi").node(f"n{number}").obj())
    return objects


@settings(max_examples=150, deadline=None)
@given(clusters(), st.sampled_from(("0", "300m", "1")), st.sampled_from(("0", "600Mi", "1Gi")))
def test_arithmetic_says_what_trying_says(objects: list[Object], cpu: str, memory: str) -> None:
    plain = make_pod("t").req(cpu=cpu, memory=memory).obj()
    # A preference for pods that do not exist changes no score, but makes pods depend on each other.
    tried = (
        make_pod("t").req(cpu=cpu, memory=memory).anti_affinity("kubernetes.io/hostname", labels={"no": "pod"}).obj()
    )
    cluster = Cluster.from_objects(objects)
    worked_out, one_by_one = cluster.capacity([plain]), cluster.capacity([tried])
    assert worked_out.by_node == one_by_one.by_node


def test_what_runs_out_first_is_told() -> None:
    found = Cluster.from_objects(
        [make_node("n").capacity(cpu="4").label({"topology.kubernetes.io/zone": "a"}).obj()]
    ).capacity([template().obj()])
    assert (found.total, dict(found.by_zone)) == (4, {"a": 4})
    (reasons,) = found.exhausted.values()
    assert [(each.reason, each.detail) for each in reasons] == [
        ("Insufficient cpu", "requests 1; the most free is 0 on n")
    ]
    assert "4 more pods would fit" in "\n".join(as_text(found))


def test_pods_that_keep_off_each_other_are_counted_one_a_node() -> None:
    keeping_off = template().anti_affinity("kubernetes.io/hostname", labels={"app": "t"}).obj()
    nodes = [make_node(f"n{n}").capacity(cpu="4").label({"kubernetes.io/hostname": f"n{n}"}).obj() for n in range(3)]
    assert Cluster.from_objects(nodes).capacity([keeping_off]).total == 3


def test_several_templates_take_turns_by_weight() -> None:
    other = make_pod("o").req(cpu="1").obj()
    found = Cluster.from_objects([make_node("n").capacity(cpu="8").obj()]).capacity([template().obj(), other], [3, 1])
    assert sorted(found.pods.values()) == [2, 6]


def test_the_search_has_a_limit() -> None:
    found = Cluster.from_objects([make_node("n").capacity(cpu="8").obj()]).capacity([template().obj()], most=3)
    assert (found.total, found.limited) == (3, True)


def test_the_limit_counts_pods_that_fit_and_no_others() -> None:
    cluster = Cluster.from_objects([make_node("n").capacity(cpu="50").obj()])
    huge = make_pod("huge").req(cpu="99").obj()
    found = cluster.capacity([template().obj(), huge], most=10)
    assert (sorted(found.pods.values()), found.limited) == ([0, 10], True)
    assert found.exhausted.keys() == {"Pod default/huge"}
    assert "one more of Pod default/t " not in "\n".join(as_text(found))


def test_no_more_pods_are_looked_for_than_the_limit_says() -> None:
    cluster = Cluster.from_objects([make_node("n").capacity(cpu="50").obj()])
    found = cluster.capacity([template().obj(), make_pod("o").req(cpu="1").obj()], [30, 1], most=10)
    assert (sorted(found.pods.values()), found.limited) == ([0, 10], True)


def test_a_search_that_ends_at_its_limit_with_no_room_left_is_no_limited_one() -> None:
    cluster = Cluster.from_objects([make_node("n").capacity(cpu="2").obj(), make_node("m").capacity(cpu="2").obj()])
    both = [template("2").obj(), make_pod("o").req(cpu="3").obj()]
    assert not cluster.capacity(both, most=3).limited


def test_two_templates_of_one_name_are_refused() -> None:
    cluster = Cluster.from_objects([make_node("n").capacity(cpu="8").obj()])
    with pytest.raises(ConfigurationError, match="Pod default/t is given twice"):
        cluster.capacity([template().obj(), template("2").obj()])


@pytest.mark.parametrize("waiting", [template().obj() | {"metadata": {"name": "w"}}])
def test_pods_that_wait_take_no_room(waiting: Object) -> None:
    assert (
        Cluster.from_objects([make_node("n").capacity(cpu="2").obj(), waiting]).capacity([template().obj()]).total == 2
    )
