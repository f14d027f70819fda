"""The rows of names, for lists that are used repeatedly."""

from __future__ import annotations

from weakref import ref

from hypothesis import given
from hypothesis import strategies as st

from extender.table.journal import Journal
from extender.table.node_columns import NodeColumns
from tests.builders import make_node
from tests.framework.cluster import table_of

NAMES = [f"node-{number}.example.com" for number in range(3000)]


def columns() -> NodeColumns:
    nodes = NodeColumns(Journal())
    for name in NAMES:
        nodes.assign_row(name)
    return nodes


MANY = columns()


def test_rows_are_returned_for_known_names_without_duplicates() -> None:
    nodes = table_of(*(make_node(name).obj() for name in "abc")).nodes
    rows = nodes.rows_of(["c", "a"])
    assert rows is not None
    assert [nodes.names[row] for row in rows] == ["c", "a"]
    assert nodes.rows_of(["a", "ghost"]) is None
    assert nodes.rows_of(["a", "b", "a"]) is None
    none = nodes.rows_of([])
    assert none is not None
    assert not len(none)


def test_a_list_with_more_names_than_rows_is_not_remembered() -> None:
    class Names(list[str]):
        """A list that can be referred to weakly."""

    nodes = table_of(make_node("a").obj()).nodes
    names = Names(f"node-{number}" for number in range(100_000))
    assert nodes.rows_of(names) is None
    kept = ref(names)
    del names
    assert kept() is None


def test_names_have_no_rows_in_an_empty_table() -> None:
    assert table_of().nodes.rows_of(["a"]) is None


@given(st.data())
def test_names_that_share_a_slot_are_found(data: st.DataObject) -> None:
    """With 3,000 names in 32,768 slots, about 130 share a slot."""
    asked = data.draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=600))
    rows = MANY.rows_of(asked)
    assert rows is not None
    assert [MANY.names[row] for row in rows] == asked
    assert MANY.rows_of([*asked, "ghost"]) is None
    assert not asked or MANY.rows_of([*asked, asked[0]]) is None


def test_a_remembered_list_is_looked_up_again_when_nodes_come_or_go() -> None:
    table = table_of(*(make_node(name).obj() for name in "abc"))
    names = ["a", "b"]
    assert table.nodes.rows_of(names) is table.nodes.rows_of(names)
    table.remove_node("b")
    assert table.nodes.rows_of(names) is None
    assert table.nodes.rows_of([""]) is None
    table.set_node(table_of(make_node("d").obj()).nodes.node(0))  # takes over the row
    table.set_node(table_of(make_node("b").obj()).nodes.node(0))
    rows = table.nodes.rows_of(names)
    assert rows is not None
    assert [table.nodes.names[row] for row in rows] == names
