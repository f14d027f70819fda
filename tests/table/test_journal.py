"""A reader gets every change that it has not read, or must start over; and the journal does not grow."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.table.journal import Cursor, Journal

TOPICS = ("a", "b")
KEYS = st.sampled_from([f"key {i}" for i in range(6)])
REMOVED_KEYS_KEPT = 2


class Reader:
    """A copy of what is stored under the keys, kept up to date by a cursor alone."""

    def __init__(self, journal: Journal) -> None:
        self.cursor = Cursor(journal, "a")
        self.copy: dict[str, int] = {}

    def read(self, truth: dict[str, int]) -> None:
        changed = self.cursor.read()
        if changed is None:
            self.copy = dict(truth)
            return
        assert len(set(changed)) == len(changed)
        for key in changed:
            self.copy.pop(key, None)
            if key in truth:
                self.copy[key] = truth[key]


class ReadersOfAJournal(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.journal = Journal(REMOVED_KEYS_KEPT)
        self.truth: dict[str, int] = {}
        self.often, self.seldom = Reader(self.journal), Reader(self.journal)

    @rule(key=KEYS)
    def set(self, key: str) -> None:
        self.journal.note("a", key)
        self.truth[key] = self.journal.now

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        if self.truth.pop(key, None) is not None:
            self.journal.note_removed("a", key)

    @rule(key=KEYS)
    def change_something_else(self, key: str) -> None:
        self.journal.note("b", key)

    @rule()
    def read_at_last(self) -> None:
        self.seldom.read(self.truth)
        assert self.seldom.copy == self.truth
        assert not self.seldom.cursor.advance()

    @invariant()
    def who_reads_often_knows_all(self) -> None:
        self.often.read(self.truth)
        assert self.often.copy == self.truth


TestReadersOfAJournal = ReadersOfAJournal.TestCase
TestReadersOfAJournal.settings = settings(max_examples=50)


def test_each_key_is_returned_once_and_the_latest_change_last() -> None:
    journal = Journal()
    journal.note("rows", 3)
    cursor = journal.now
    for row in (7, 1, 7):
        journal.note("rows", row)
    assert journal.since(cursor, "rows") == [1, 7]
    assert journal.since(journal.now, "rows") == []
    assert journal.since(cursor, "another topic") == []


def test_a_reader_that_has_missed_too_many_removals_starts_over() -> None:
    journal = Journal(REMOVED_KEYS_KEPT)
    for number in range(5):
        journal.note("a", number)
    cursor = journal.now
    for number in range(2):
        journal.note_removed("a", number)
    assert journal.since(cursor, "a") == [0, 1]
    journal.note_removed("a", 2)
    assert journal.since(cursor, "a") is None
    assert journal.since(cursor, "b") == []
    assert journal.since(cursor, "b", "a") is None


def test_a_key_that_is_added_again_stays_in_the_journal() -> None:
    journal = Journal(REMOVED_KEYS_KEPT)
    cursor = journal.now
    for _ in range(5):
        journal.note_removed("a", "flaps")
        journal.note("a", "flaps")
    assert journal.since(cursor, "a") == ["flaps"]


@pytest.mark.parametrize(
    ("present", "kept"), [pytest.param(0, 4096, id="few"), pytest.param(30_000, 10_000, id="many")]
)
def test_the_number_of_kept_removals_is_proportional_to_the_keys(present: int, kept: int) -> None:
    journal = Journal()
    for number in range(present):
        journal.note("a", f"present {number}")
    for number in range(2 * kept):
        journal.note("a", f"gone {number}")
        journal.note_removed("a", f"gone {number}")
    last = journal.now
    assert len(journal.since(last - 2 * (kept - 2), "a") or ()) == kept - 2
    assert journal.since(last - 2 * (kept + 2), "a") is None
