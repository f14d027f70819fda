"""NodeInfo: a node with its pods and totals is right after every change of the table."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.model.node import Node
from extender.table import PodInfo, Table
from tests.builders import PodBuilder, make_node, make_pod
from tests.framework.cluster import pod_info, table_of

NODES = ("a", "b", "c")
PODS = ("p", "q", "r", "s")


def placed(name: str, node: str) -> PodBuilder:
    return make_pod(name).label(app=name).req(cpu="500m").node(node)


def test_a_node_shows_its_pods_totals_and_images() -> None:
    node = make_node("n").capacity(cpu="4", memory="8Gi", pods="10").image("web:1", size_bytes=5).obj()
    other = make_pod("elsewhere").req(cpu="1").node("m")
    table = table_of(node, make_node("m").obj(), placed("p", "n").obj(), placed("q", "n").obj(), other.obj())
    info = table.infos(table.nodes.rows)[0]
    assert (info.name, sorted(pod.name for pod in info.pods), len(info.pods)) == ("n", ["p", "q"], 2)
    assert info.requested == {"cpu": 1000, "memory": 0, "ephemeral-storage": 0, "pods": 2}
    assert info.allocatable == {"cpu": 4000, "memory": 8 * 2**30, "ephemeral-storage": 0, "pods": 10}
    assert info.images == {"web:1": 5}


def test_pods_are_counted_by_label_namespace_and_owner() -> None:
    pods = [
        make_pod("p", namespace="shop").label(app="web", tier="a").owner("ReplicaSet", "web", uid="uid-web").node("n"),
        make_pod("q", namespace="shop").label(app="web").owner("ReplicaSet", "web", uid="uid-web").node("n"),
        make_pod("r", namespace="lab").label(app="web").node("n"),
    ]
    table = table_of(make_node("n").obj(), *(pod.obj() for pod in pods))
    on_node = table.infos(table.nodes.rows)[0].pods
    assert [on_node.count({"app": "web"}), on_node.count({"app": "web", "tier": "a"}), on_node.count({})] == [3, 1, 3]
    assert [on_node.count({"app": "web"}, "shop"), on_node.count({"app": "web"}, "none")] == [2, 0]
    assert [on_node.count_owned_by("uid-web"), on_node.count_owned_by("uid-other")] == [2, 0]


def test_columns_count_pods_by_label_on_many_nodes_at_once() -> None:
    nodes = [make_node(name).obj() for name in ("n", "m")]
    table = table_of(*nodes, placed("p", "n").obj(), placed("q", "n").label(app="p").obj())
    assert table.pods.count({"app": "p"}, table.nodes.rows).tolist() == [2, 0]
    assert table.pods.count({"app": "p"}, table.nodes.rows, "none").tolist() == [0, 0]
    assert table.pods.count({"app": "p"}, table.nodes.rows[1:]).tolist() == [0]


def test_a_supposed_pod_counts_within_the_block_only() -> None:
    table = table_of(make_node("n").obj())
    with table.hypothetically(placed=[(pod_info(placed("p", "n").obj()), "n")]):
        assert table.infos(table.nodes.rows)[0].pods.count({"app": "p"}) == 1
    assert table.infos(table.nodes.rows)[0].pods.count({"app": "p"}) == 0


class Changes(RuleBasedStateMachine):
    """Pods and nodes come, change and go; each NodeInfo is compared with a count from scratch."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.pods: dict[str, PodInfo] = {}

    @rule(name=st.sampled_from(NODES), cpu=st.sampled_from(["1", "2"]))
    def set_node(self, name: str, cpu: str) -> None:
        self.table.set_node(msgspec.convert(make_node(name).capacity(cpu=cpu).obj(), Node))

    @rule(name=st.sampled_from(NODES))
    def remove_node(self, name: str) -> None:
        self.table.remove_node(name)

    @rule(name=st.sampled_from(PODS), node=st.sampled_from(NODES), app=st.sampled_from(["x", "y"]))
    def place(self, name: str, node: str, app: str) -> None:
        info = pod_info(make_pod(name).label(app=app).req(cpu="1").node(node).obj())
        self.pods[info.uid] = info
        self.table.place(info, node)

    @rule(name=st.sampled_from(PODS))
    def take_away(self, name: str) -> None:
        uid = pod_info(make_pod(name).obj()).uid
        self.pods.pop(uid, None)
        self.table.take_away(uid)

    @invariant()
    def every_node_shows_what_is_there(self) -> None:
        nodes = self.table.nodes
        for row, info in zip(nodes.rows.tolist(), self.table.infos(nodes.rows), strict=True):
            own = [pod.pod for pod in self.pods.values() if pod.pod.node_name == info.name]
            assert info.node is nodes.node(row)
            assert {pod.name: pod for pod in info.pods} == {pod.name: pod for pod in own}
            assert info.requested["cpu"] == 1000 * len(own)
            assert info.allocatable["cpu"] == nodes.allocatable[0][row]
            counts = Counter(pod.labels["app"] for pod in own)
            assert [info.pods.count({"app": app}) for app in "xy"] == [counts["x"], counts["y"]]


TestChanges = Changes.TestCase
TestChanges.settings = settings(stateful_step_count=20)
