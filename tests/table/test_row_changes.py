"""The changes of rows: told as long as they are remembered, and never one too few."""

from __future__ import annotations

from extender.table.row_changes import RowChanges


def test_the_rows_changed_since_a_moment_each_once() -> None:
    changes = RowChanges()
    changes.note(3)
    moment = changes.now
    for row in (7, 1, 7):
        changes.note(row)
    assert changes.since(moment) == {1, 7}
    assert changes.since(changes.now) == set()


def test_what_is_too_long_ago_is_not_told() -> None:
    changes = RowChanges()
    moment = changes.now
    for row in range(10_000):
        changes.note(row)
    assert changes.now == 10_000
    assert changes.since(moment) is None
