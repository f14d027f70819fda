"""Names to rows, for lists that come again."""

from __future__ import annotations

from tests.builders import make_node
from tests.engine.cluster import table_of


def test_names_that_are_known_each_once() -> None:
    nodes = table_of(*(make_node(name).obj() for name in "abc")).nodes
    rows = nodes.rows_of(["c", "a"])
    assert rows is not None
    assert [nodes.names[row] for row in rows] == ["c", "a"]
    assert nodes.rows_of(["a", "ghost"]) is None
    assert nodes.rows_of(["a", "b", "a"]) is None
    none = nodes.rows_of([])
    assert none is not None
    assert not len(none)


def test_the_same_list_is_looked_up_anew_when_nodes_have_come_or_gone() -> None:
    table = table_of(*(make_node(name).obj() for name in "abc"))
    names = ["a", "b"]
    assert table.nodes.rows_of(names) is table.nodes.rows_of(names)
    table.remove_node("b")
    assert table.nodes.rows_of(names) is None
    table.set_node(table_of(make_node("d").obj()).nodes.node(0))  # takes over the row
    table.set_node(table_of(make_node("b").obj()).nodes.node(0))
    rows = table.nodes.rows_of(names)
    assert rows is not None
    assert [table.nodes.names[row] for row in rows] == names
