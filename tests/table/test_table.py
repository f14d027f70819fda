"""The columns always equal a recount from the objects."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.model.meta import NodeSelectorRequirement
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.selectors import EVERYTHING, Requirement, compile_requirement, selector_from_labels
from extender.table import HypotheticalRemovals, PodCountQuery, PodInfo, Table
from extender.table.node_columns import BUILT_IN, CPU, PODS
from extender.table.podinfo import HostPort
from tests.builders import ZONE, make_node, make_pod

QUESTIONS = [
    PodCountQuery(None, EVERYTHING),
    PodCountQuery(frozenset({"default"}), selector_from_labels({"app": "web"})),
    PodCountQuery(None, selector_from_labels({"app": "web"}), terminating=False),
]
NAMES = [f"n{i}" for i in range(40)]  # more than the first capacity, so that columns grow


def node(obj: Any) -> Node:
    return msgspec.convert(obj, Node)


def info(obj: Any) -> PodInfo:
    return PodInfo(msgspec.convert(obj, Pod))


class TableMachine(RuleBasedStateMachine):
    """Makes random changes to a table, and to a model of plain dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, tuple[PodInfo, str]] = {}
        self.asked: set[PodCountQuery] = set()

    @rule(
        name=st.sampled_from(NAMES),
        zone=st.sampled_from([None, "z0", "z1"]),
        cpu=st.integers(1, 8),
        device=st.sampled_from([None, "example.com/gpu", "example.com/fpga", "example.com/nic"]),
        tainted=st.booleans(),
    )
    def set_node(self, name: str, zone: str | None, cpu: int, device: str | None, tainted: bool) -> None:
        builder = make_node(name).allocatable(cpu=str(cpu), memory="8Gi", pods="10")
        builder = builder.allocatable({device: "4"}) if device else builder
        builder = builder.label({ZONE: zone}) if zone else builder
        builder = builder.taint("dedicated") if tainted else builder
        self.nodes[name] = node(builder.image(f"img-{cpu}", size_bytes=cpu).obj())
        self.table.set_node(self.nodes[name])

    @rule(name=st.sampled_from(NAMES))
    def remove_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.table.remove_node(name)

    @rule(
        uid=st.integers(0, 30),
        name=st.sampled_from(NAMES),
        app=st.sampled_from(["web", "db"]),
        namespace=st.sampled_from(["default", "other"]),
        devices=st.sampled_from([{}, {"example.com/gpu": "1"}, {"example.com/gpu": "2", "example.com/fpga": "3"}]),
        port=st.sampled_from([0, 80]),
        terminating=st.booleans(),
    )
    def place(
        self, uid: int, name: str, app: str, namespace: str, devices: dict[str, str], port: int, terminating: bool
    ) -> None:
        builder = (
            make_pod(f"p{uid // 2}", namespace)
            .uid(f"u{uid}")
            .created(f"2026-01-01T00:00:{uid:02}Z")
            .req({"cpu": "100m", **devices})
            .label(app=app)
        )
        builder = builder.host_port(port) if port else builder
        builder = builder.deleted() if terminating else builder
        pod = info(builder.obj())
        self.pods[pod.uid] = (pod, name)
        self.table.place(pod, name)

    @rule(uid=st.integers(0, 30))
    def take_away(self, uid: int) -> None:
        self.pods.pop(f"u{uid}", None)
        self.table.take_away(f"u{uid}")

    @rule(uid=st.integers(0, 30), namespace=st.sampled_from(["default", "other"]))
    def look_up(self, uid: int, namespace: str) -> None:
        """Two pods may have one name, because one was created again."""
        key = f"{namespace}/p{uid // 2}"
        created = {pod.pod.metadata.created_seconds: pod for pod, _ in self.pods.values() if pod.pod.key == key}
        assert self.table.pods.named(key) is (created[max(created)] if created else None)

    @rule(which=st.integers(0, len(QUESTIONS) - 1))
    def ask(self, which: int) -> None:
        self.asked.add(QUESTIONS[which])

    @rule(uid=st.integers(0, 30), name=st.sampled_from(NAMES))
    def suppose(self, uid: int, name: str) -> None:
        imagined = info(make_pod("imagined").req(cpu="1").label(app="web").obj())
        with self.table.hypothetically(placed=[(imagined, name)], removed=[f"u{uid}"]):
            assert imagined.uid in self.table.pods.slot_of
            assert f"u{uid}" not in self.table.pods.slot_of

    @invariant()
    def rows_are_those_of_the_nodes(self) -> None:
        rows = self.table.nodes.rows
        assert {self.table.nodes.names[row] for row in rows} == self.nodes.keys()
        for row in rows:
            known = self.nodes[self.table.nodes.names[row]]
            assert self.table.nodes.node(row) is known
            assert self.table.nodes.allocatable[CPU, row] == int(str(known.allocatable["cpu"])) * 1000
            assert self.table.nodes.taint_sets[self.table.nodes.taint_set[row]] == tuple(known.taints)
            zones = self.table.nodes.labels[ZONE]
            assert zones.values[zones.ids[row]] == known.labels.get(ZONE, "")

    @invariant()
    def aggregates_are_the_sums_over_the_pods(self) -> None:
        nodes = self.table.nodes
        standing = [(pod, nodes.row_of[name]) for pod, name in self.pods.values()]
        assert len(self.table.pods) == len(standing)
        offered = {name for each in self.nodes.values() for name in each.allocatable}
        assert nodes.resources.keys() == offered.union(BUILT_IN)
        for resource in ("cpu", *(offered - set(BUILT_IN))):
            index, want = nodes.resources[resource], np.zeros(nodes.capacity, np.int64)
            for pod, row in standing:
                want[row] += pod.requests.get(resource, 0)
                assert self.table.pods.requested[index, self.table.pods.slot_of[pod.uid]] == pod.requests.get(
                    resource, 0
                )
            assert np.array_equal(nodes.requested[index], want)
        counts = np.bincount([row for _, row in standing] or [0], minlength=nodes.capacity)
        assert np.array_equal(nodes.requested[PODS], counts if standing else np.zeros(nodes.capacity))

    @invariant()
    def standing_answers_equal_a_recount(self) -> None:
        for question in self.asked:
            answer = self.table.matching(question)
            want = np.zeros(self.table.nodes.capacity, np.int64)
            for pod, name in self.pods.values():
                if question.matches(pod.group) and (question.terminating or not pod.pod.terminating):
                    want[self.table.nodes.row_of[name]] += 1
            assert np.array_equal(answer.by_node, want)
            assert answer.total == want.sum()

    @invariant()
    def ports_and_images_are_where_they_are_used(self) -> None:
        rows = self.table.nodes.row_of
        taken = {rows[name] for pod, name in self.pods.values() if pod.host_ports}
        in_use = self.table.ports.conflicting([HostPort("TCP", 80, "0.0.0.0")])
        assert {row for _, rows in in_use for row in rows} == taken
        for image, held in self.table.nodes.images.items():
            held_by = {n: [each.names for each in known.status.images or ()] for n, known in self.nodes.items()}
            holders = {rows[n] for n, names in held_by.items() if names == [[image]]}
            assert held.rows == holders


TableMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=40)
test_table_machine = TableMachine.TestCase


def labelled_table() -> Table:
    table = Table()
    table.set_node(node(make_node("a").label({"rank": "3"}).obj()))
    table.set_node(node(make_node("b").label({"rank": "10"}).obj()))
    table.set_node(node(make_node("c").label({"rank": "x"}).obj()))
    table.set_node(node(make_node("d").obj()))
    return table


@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near"])
@pytest.mark.parametrize("values", [["3"], ["3", "x"], ["9"], []], ids=str)
@pytest.mark.parametrize("key", ["rank", "absent"])
def test_a_requirement_over_rows_decides_like_one_over_labels(key: str, operator: str, values: list[str]) -> None:
    table = labelled_table()
    requirement: Requirement = compile_requirement(NodeSelectorRequirement(key=key, operator=operator, values=values))
    want = [requirement.matches(table.nodes.node(row).labels) for row in table.nodes.rows]
    assert table.nodes.labels.satisfying(requirement, table.nodes.rows).tolist() == want
    table.set_node(node(make_node("later").label({"rank": "4"}).obj()))
    want.append(requirement.matches({"rank": "4"}))
    assert table.nodes.labels.satisfying(requirement, table.nodes.rows).tolist() == want


def test_pods_of_a_removed_node_count_again_when_it_comes_back() -> None:
    table = Table()
    table.place(info(make_pod("early").req(cpu="2").obj()), "n")
    assert not len(table.nodes.rows)
    table.set_node(node(make_node("n").obj()))
    table.remove_node("n")
    table.set_node(node(make_node("n").obj()))
    assert table.nodes.requested[CPU, table.nodes.row_of["n"]] == 2000
    table.remove_node("n")
    table.take_away("pod-default-early")
    assert "n" not in table.nodes.row_of


def test_removals_free_what_the_pods_request() -> None:
    table = Table()
    for name in ("n", "m"):
        table.set_node(node(make_node(name).obj()))
    for i, name in enumerate(["n", "n", "m"]):
        table.place(info(make_pod(f"p{i}").req(cpu="1").label(app="web" if i else "db").obj()), name)
    gone = HypotheticalRemovals(
        table, np.array([table.pods.slot_of["pod-default-p0"], table.pods.slot_of["pod-default-p2"]])
    )
    rows = np.array([table.nodes.row_of["n"], table.nodes.row_of["m"]])
    assert gone.freed(CPU)[rows].tolist() == [1000, 1000]
    assert gone.matching(QUESTIONS[1])[rows].tolist() == [0, 1]
    assert (gone.free(CPU, rows) - gone.free_beside(CPU, gone.initial)).tolist() == [1000, 1000]


def test_a_pod_is_found_by_its_name_without_a_search() -> None:
    class Counted(np.ndarray[Any, Any]):
        searches = 0

        def __iter__(self) -> Any:
            self.searches += 1
            return super().__iter__()

    table = Table()
    for number in range(100):
        table.place(info(make_pod(f"p{number}").obj()), "n")
    table.pods.infos = infos = table.pods.infos.view(Counted)
    for number in range(100):
        table.take_away(f"pod-default-p{number}")
        found = [table.pods.named(f"default/p{other}") for other in range(100)]
        assert [each is not None for each in found] == [other > number for other in range(100)]
        table.place(info(make_pod(f"q{number}").obj()), "n")
        assert table.pods.named(f"default/q{number}") is not None
    assert infos.searches == 1


def test_of_a_pod_and_its_successor_the_newer_is_found_by_their_name() -> None:
    table = Table()
    first, second = (
        info(make_pod("web-0").uid(uid).created(created).obj())
        for uid, created in (("first", "2026-01-01T00:00:00Z"), ("second", "2026-01-02T00:00:00Z"))
    )
    assert table.pods.named("default/web-0") is None
    for order in ((first, second), (second, first)):
        for pod in order:
            table.place(pod, "n")
        assert table.pods.named("default/web-0") is second
        with table.hypothetically(removed=["second"]):
            assert table.pods.named("default/web-0") is first
        assert table.pods.named("default/web-0") is second
        table.take_away("first")
        assert table.pods.named("default/web-0") is second
        table.take_away("second")
        assert table.pods.named("default/web-0") is None


def test_a_nomination_moves_and_ends() -> None:
    table = Table()
    pod = info(make_pod("p").obj())
    table.nominate(pod, "n")
    table.nominate(pod, "m")
    assert table.nominated == {"m": {pod.uid: pod}}
    table.withdraw(pod.uid)
    table.withdraw(pod.uid)
    assert table.nominated == {}


def test_resources_that_no_node_offers_take_no_place_in_the_columns() -> None:
    table = Table()
    table.set_node(node(make_node("n").allocatable({"cpu": "8", "example.com/gpu": "4"}).obj()))
    shapes = table.nodes.requested.shape, table.pods.requested.shape
    greedy = info(make_pod("greedy").req({f"example.com/r{number}": "1" for number in range(8000)}).obj())
    waiting = info(make_pod("waiting").req({f"example.com/w{number}": "1" for number in range(8000)}).obj())
    table.place(greedy, "n")
    table.nominate(waiting, "n")
    assert (table.nodes.requested.shape, table.pods.requested.shape) == shapes


def test_a_node_of_many_resources_gives_its_columns_back() -> None:
    """A resource of another node takes the row of one that no node offers."""
    table = Table()
    for number in range(20):
        names = {f"example.com/{number}-{i}": "1" for i in range(500)}
        table.set_node(node(make_node("n").allocatable({"cpu": "8", **names}).obj()))
        assert len(table.nodes.resources) == len(BUILT_IN) + 500
    assert len(table.nodes.allocatable) < 1200
    table.remove_node("n")
    assert set(table.nodes.resources) == set(BUILT_IN)


def test_a_nominated_pods_request_counts_once_a_node_offers_the_resource() -> None:
    table = Table()
    table.set_node(node(make_node("n").allocatable(cpu="8").obj()))
    table.nominate(info(make_pod("waiting").uid("w").priority(5).req({"example.com/gpu": "3"}).obj()), "n")
    table.set_node(node(make_node("n").allocatable({"cpu": "8", "example.com/gpu": "4"}).obj()))
    awaited = table.nominated.awaited_by(info(make_pod("p").priority(0).obj()), lambda _: True)
    assert awaited.taken(table.nodes.resources["example.com/gpu"], table.nodes.capacity).sum() == 3


def test_labels_that_no_node_has_take_no_memory() -> None:
    table = Table()
    table.set_node(node(make_node("stays").label(zone="a").obj()))
    for number in range(100):
        table.set_node(node(make_node("changes").label({f"key-{number}": "v", "zone": f"z{number}"}).obj()))
    labels = table.nodes.labels
    assert set(labels) == {"key-99", "zone"} | make_node("n").obj()["metadata"]["labels"].keys()
    assert len(labels["zone"]) <= 4  # no label, two values, and the one before
    assert [labels["zone"].values[number] for number in labels["zone"].ids[table.nodes.rows]] == ["a", "z99"]
    greater = Requirement("zone", "Gt", frozenset({"5"}))
    for value, expected in (("7", True), ("3", False), ("9", True)):
        table.set_node(node(make_node("changes").label(zone=value).obj()))
        assert labels.satisfying(greater, table.nodes.rows).tolist() == [False, expected]
