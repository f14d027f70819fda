"""Facts about nodes as columns: called once for each node and change; equal values share an id."""

from __future__ import annotations

from extender.model.node import Node
from tests.builders import make_node
from tests.framework.cluster import table_of

asked: list[str] = []


def disk(node: Node) -> str:
    asked.append(node.name)
    return node.annotations.get("disk", "")


def test_a_fact_is_called_once_for_a_node_and_again_when_it_changes() -> None:
    asked.clear()
    table = table_of(*(make_node(f"n{i}").annotation({"disk": "ssd"}).obj() for i in range(3)))
    column = table.nodes.facts(disk)
    assert [column.values[column.ids[row]] for row in table.nodes.rows] == ["ssd"] * 3
    assert table.nodes.facts(disk).values == ["ssd"]
    assert sorted(asked) == ["n0", "n1", "n2"]
    asked.clear()
    table.set_node(table_of(make_node("n1").annotation({"disk": "hdd"}).obj()).nodes.node(0))
    column = table.nodes.facts(disk)
    by_name = {table.nodes.names[row]: column.values[column.ids[row]] for row in table.nodes.rows}
    assert by_name == {"n0": "ssd", "n1": "hdd", "n2": "ssd"}
    assert asked == ["n1"]


def test_a_fact_is_called_for_reused_and_new_rows() -> None:
    table = table_of(make_node("old").annotation({"disk": "ssd"}).obj())
    table.nodes.facts(disk)
    table.remove_node("old")
    for i in range(40):  # beyond the first capacity
        table.set_node(table_of(make_node(f"n{i}").annotation({"disk": str(i % 2)}).obj()).nodes.node(0))
    column = table.nodes.facts(disk)
    by_name = {table.nodes.names[row]: column.values[column.ids[row]] for row in table.nodes.rows}
    assert by_name == {f"n{i}": str(i % 2) for i in range(40)}
