"""The door to a decision: decisions on a table, and suppositions that leave no trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.engine import Engine
from extender.errors import MalformedCluster, MalformedQuantity
from extender.framework.profile import Profiles
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.workloads import Namespace
from extender.plugins.registry import default_profile
from extender.snapshots.objects import to_object, to_pod
from extender.table import PodInfo, Table
from tests.builders import expression, make_node, make_pod, node_term

NODES = ("a", "b")


def node(name: str, cpu: str = "2") -> Node:
    made = to_object(make_node(name).capacity(cpu=cpu).obj(), name)
    assert isinstance(made, Node)
    return made


def pod(name: str, cpu: str = "1", **spec: Any) -> Pod:
    return to_pod(make_pod(name).req(cpu=cpu).obj()).with_spec(**spec)


def engine_of(*names: str) -> Engine:
    table = Table()
    for name in names:
        table.set_node(node(name))
    return Engine(table, Profiles([default_profile()]))


def state(engine: Engine) -> object:
    """Returns everything that rules could see of the table."""
    table = engine.table
    rows = table.nodes.rows.tolist()
    placed = {uid: (slot, table.nodes.names[table.pods.row[slot]]) for uid, slot in table.pods.slot_of.items()}
    return (
        [(table.nodes.names[row], table.nodes.node(row), table.nodes.requested[:, row].tolist()) for row in rows],
        {uid: (*place, table.pods.info(place[0]).pod) for uid, place in placed.items()},
        {name: {uid: info.pod for uid, info in infos.items()} for name, infos in table.nominated.items()},
        {kind: dict(objects) for kind, objects in table.objects.kinds() if objects},
    )


def test_a_decision_has_its_nodes_reasons_and_message() -> None:
    engine = engine_of(*NODES)
    engine.table.place(PodInfo(pod("filler", "2", node_name="a")), "a")
    decision = engine.decide(pod("p"))
    assert (decision.nodes, decision.feasible, decision.best) == (["a", "b"], ["b"], ["b"])
    assert decision.message == "1/2 nodes are available"
    assert engine.decide(pod("big", "9")).message.startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert Engine(Table(), engine.profiles).decide(pod("p")).message == "no nodes available to schedule pods"


def test_a_placed_pod_is_judged_as_if_it_were_not() -> None:
    engine = engine_of("a")
    placed = pod("p", "2", node_name="a")
    engine.table.place(PodInfo(placed), "a")
    assert engine.feasible(placed) == ["a"]
    assert engine.feasible(pod("other", "2")) == []


def test_each_filter_can_be_asked_alone() -> None:
    engine = engine_of(*NODES)
    refused = engine.filter_by("NodeResourcesFit", pod("big", "9", node_selector={"zone": "x"}), NODES)
    assert {name: refusal.reasons for name, refusal in refused.items()} == dict.fromkeys(NODES, ("Insufficient cpu",))
    assert engine.filter_by("NodeResourcesFit", pod("p"), NODES) == {}


def test_a_supposed_pod_counts_as_a_real_one() -> None:
    engine = engine_of(*NODES)
    with engine.suppose(place=[(PodInfo(pod("x", "2")), "a")]):
        assert engine.feasible(pod("p")) == ["b"]
        with engine.suppose(place=[(PodInfo(pod("y", "2")), "b")]):
            assert engine.feasible(pod("p")) == []
            with engine.suppose(remove=[PodInfo(pod("x", "2"))]):
                assert engine.feasible(pod("p")) == ["a"]
        assert engine.feasible(pod("p")) == ["b"]
    assert engine.feasible(pod("p")) == ["a", "b"]


def test_a_nominated_pod_that_is_placed_awaits_no_room() -> None:
    engine = engine_of("a")
    nominated = PodInfo(pod("n"))
    engine.table.nominate(nominated, "a")
    before = state(engine)
    with engine.suppose(place=[(nominated, "a")]):
        assert engine.feasible(pod("p")) == ["a"]
        assert len(engine.table.nominated) == 0
    assert state(engine) == before


def test_an_error_in_the_block_undoes_the_changes() -> None:
    engine = engine_of("a")
    before = state(engine)
    with pytest.raises(RuntimeError), engine.suppose(objects=[node("new")], place=[(PodInfo(pod("x")), "new")]):
        raise RuntimeError
    assert state(engine) == before


def test_a_change_that_cannot_be_made_undoes_those_before_it() -> None:
    engine = engine_of("a")
    before = state(engine)
    bad = replace(node("bad"), status=replace(node("bad").status, allocatable={"cpu": "two"}))
    with pytest.raises(MalformedQuantity), engine.suppose(objects=[node("new"), bad]):
        pytest.fail("the block must not run")
    with (
        pytest.raises(MalformedQuantity),
        engine.suppose(place=[(PodInfo(pod("x")), "a"), (PodInfo(pod("y", "?")), "a")]),
    ):
        pytest.fail("the block must not run")
    assert state(engine) == before


def test_a_malformed_quantity_is_reported_with_the_pods_name() -> None:
    with pytest.raises(MalformedCluster, match="Pod default/p: "):
        engine_of("a").decide(pod("p", "much"))


def unscorable(**fields: Any) -> Pod:
    """A pod that the API server accepts, and that kube-scheduler cannot score."""
    return to_pod(make_pod("p").prefer_node(1, node_term(expression("rank", "Gt", "many"))).obj()).with_spec(**fields)


def test_a_pod_that_cannot_be_scored_fits_nowhere_if_there_is_a_choice() -> None:
    decision = engine_of(*NODES).decide(unscorable())
    assert decision.feasible == decision.best == []
    assert decision.error is not None
    assert decision.message == 'running PreScore plugin "NodeAffinity": preferred term [0] is malformed'


def test_a_pod_that_cannot_be_scored_takes_the_only_node() -> None:
    decision = engine_of("a").decide(unscorable())
    assert decision.best == ["a"]
    assert decision.error is None


def test_a_pod_that_cannot_be_scored_takes_the_node_that_it_is_nominated_to() -> None:
    decision = engine_of(*NODES).decide(unscorable().nominated_to("b"))
    assert decision.best == ["b"]
    assert decision.error is None


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("place"), st.sampled_from("xyz"), st.sampled_from(("a", "b", "c"))),
        st.tuples(st.just("remove"), st.sampled_from("xyz"), st.just("")),
        st.tuples(st.just("node"), st.sampled_from(("a", "b", "c")), st.sampled_from(("1", "4"))),
        st.tuples(st.just("object"), st.sampled_from("mn"), st.just("")),
    ),
    max_size=8,
)


def suppositions(engine: Engine, changes: list[tuple[str, str, str]]) -> Iterator[Any]:
    for kind, name, value in changes:
        if kind == "place":
            yield engine.suppose(place=[(PodInfo(pod(name)), value)])
        elif kind == "remove":
            yield engine.suppose(remove=[PodInfo(pod(name))])
        elif kind == "node":
            yield engine.suppose(objects=[node(name, value)])
        else:
            namespace = to_object({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}, name)
            assert isinstance(namespace, Namespace)
            yield engine.suppose(objects=[namespace])


@given(real=st.lists(st.sampled_from("xyz"), unique=True), changes=CHANGES)
def test_nested_suppositions_leave_no_trace(real: list[str], changes: list[tuple[str, str, str]]) -> None:
    engine = engine_of(*NODES)
    for index, name in enumerate(real):
        if index == 0:
            engine.table.nominate(PodInfo(pod(name)), "a")
        else:
            engine.table.place(PodInfo(pod(name)), "b")
    before, feasible = state(engine), engine.feasible(pod("p"))
    with ExitStack() as stack:
        for supposition in suppositions(engine, changes):
            stack.enter_context(supposition)
            engine.decide(pod("p"))
    assert state(engine) == before
    assert engine.feasible(pod("p")) == feasible
