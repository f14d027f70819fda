"""A trial leaves a table as it was, whatever was tried, and revert goes back to a mark."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.workloads import Namespace
from extender.table import PodInfo, Table, Trial
from tests.builders import make_namespace, make_node, make_pod

NODES = ("a", "b")


def node(name: str, cpu: str = "4") -> Node:
    return msgspec.convert(make_node(name).allocatable(cpu=cpu, pods="10").obj(), Node)


def info(name: str) -> PodInfo:
    return PodInfo(msgspec.convert(make_pod(name).req(cpu="1").obj(), Pod))


def table() -> Table:
    made = Table()
    for name in NODES:
        made.set_node(node(name))
    made.nominate(info("x"), "a")
    made.place(info("y"), "b")
    return made


def content(of: Table) -> Any:
    return (
        {pod.pod.key: (of.nodes.names[of.pods.row[slot]], slot) for slot, pod in enumerate(of.pods.infos) if pod},
        {name: sorted(pods) for name, pods in of.nominated.items()},
        {of.nodes.names[row]: of.nodes.requested[:, row].tolist() for row in of.nodes.rows.tolist()},
        {of.nodes.names[row]: of.nodes.allocatable[:, row].tolist() for row in of.nodes.rows.tolist()},
        sorted(of.objects.all(Namespace)),
    )


def test_revert_goes_back_to_the_mark() -> None:
    trial = Trial(table())
    trial.place(info("p"), "a")
    at_mark, mark = content(trial.table), trial.mark()
    trial.place(info("q"), "a")
    trial.take_away(info("p").uid)
    trial.revert(mark)
    assert content(trial.table) == at_mark
    trial.revert()
    assert content(trial.table) == content(table())


def test_a_placed_pod_has_no_nomination_until_it_is_reverted() -> None:
    trial = Trial(table())
    trial.place(info("x"), "b")
    assert not trial.table.nominated
    trial.revert()
    assert list(trial.table.nominated) == ["a"]


CHANGE = st.one_of(
    st.tuples(st.just("place"), st.sampled_from("wxyz"), st.sampled_from(("a", "b", "new"))),
    st.tuples(st.just("take_away"), st.sampled_from("wxyz"), st.just("")),
    st.tuples(st.just("withdraw"), st.sampled_from("wxyz"), st.just("")),
    st.tuples(st.just("node"), st.sampled_from(("a", "c")), st.sampled_from(("1", "8"))),
    st.tuples(st.just("namespace"), st.sampled_from("mn"), st.just("")),
)


def change(trial: Trial, kind: str, name: str, value: str) -> None:
    match kind:
        case "place":
            trial.place(info(name), value)
        case "take_away":
            trial.take_away(info(name).uid)
        case "withdraw":
            trial.withdraw(info(name).uid)
        case "node":
            trial.set_object(node(name, value))
        case _:
            trial.set_object(msgspec.convert(make_namespace(name), Namespace))


@given(steps=st.lists(st.one_of(CHANGE, st.just("mark"), st.just("revert")), max_size=12))
def test_a_trial_leaves_no_trace(steps: list[Any]) -> None:
    trial, marks = Trial(table()), []
    for step in steps:
        if step == "mark":
            marks.append((trial.mark(), content(trial.table)))
        elif step == "revert":
            mark, expected = marks.pop() if marks else (0, content(table()))
            trial.revert(mark)
            assert content(trial.table) == expected
        else:
            change(trial, *step)
    trial.revert()
    assert content(trial.table) == content(table())
