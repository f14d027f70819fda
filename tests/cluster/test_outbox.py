"""Writes that wait: the oldest first, one a key, and no caller is held up."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from extender.cluster import outbox as outbox_module
from extender.cluster.outbox import Outbox, TokenBucket
from extender.errors import OutcomeUnknown, Refused
from extender.runtime.clock import SystemClock
from tests.stock.waiting import wait_until

FAST = 1_000_000.0


class Writer:
    """Keeps what was written, and fails on demand; writes wait while the gate is shut."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.dropped: list[str] = []
        self.failing: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def write(self, value: str) -> None:
        self.entered.set()
        self.gate.wait(60)
        failing, self.failing = self.failing, None
        if failing:
            raise failing
        self.written.append(value)


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def outbox(writer: Writer) -> Iterator[Outbox[str, str]]:
    outbox: Outbox[str, str] = Outbox(
        "outbox in test", writer.write, str.__add__, TokenBucket(FAST, 1), SystemClock(), 3, writer.dropped.append
    )
    yield outbox
    writer.gate.set()
    outbox.stop(10)


def test_writes_come_in_order_and_those_of_one_key_become_one(outbox: Outbox[str, str], writer: Writer) -> None:
    for key, text in (("a", "1"), ("b", "2"), ("a", "3")):
        outbox.put(key, text)
    outbox.start()
    assert wait_until(lambda: len(writer.written) == 2)
    assert writer.written == ["13", "2"]


def test_a_write_under_way_is_not_changed(outbox: Outbox[str, str], writer: Writer) -> None:
    writer.gate.clear()
    outbox.start()
    outbox.put("a", "first")
    assert writer.entered.wait(60)
    outbox.put("a", " second")
    writer.gate.set()
    assert wait_until(lambda: len(writer.written) == 2)
    assert writer.written == ["first", " second"]


def test_where_too_many_wait_new_ones_are_dropped(outbox: Outbox[str, str], writer: Writer) -> None:
    for key in "abcd":
        outbox.put(key, key)
    outbox.put("a", "!")
    outbox.start()
    assert wait_until(lambda: len(writer.written) == 3)
    assert (writer.written, writer.dropped) == (["a!", "b", "c"], ["outbox in test"])


@pytest.mark.parametrize("error", [Refused("not allowed", 403), RuntimeError("a fault of ours")], ids=repr)
def test_a_write_that_fails_does_not_stop_the_others(
    outbox: Outbox[str, str], writer: Writer, error: Exception
) -> None:
    writer.failing = error
    outbox.start()
    outbox.put("a", "a")
    outbox.put("b", "b")
    assert wait_until(lambda: writer.written == ["b"])


@pytest.mark.parametrize(
    "error", [OutcomeUnknown("no answer"), Refused("too many", 429), Refused("unreachable", 503)], ids=repr
)
def test_a_write_that_fails_for_a_while_is_tried_again_with_the_newest_content(
    outbox: Outbox[str, str], writer: Writer, error: Exception
) -> None:
    writer.gate.clear()
    writer.failing = error
    outbox.start()
    outbox.put("a", "1")
    outbox.put("b", "2")
    assert writer.entered.wait(60)
    outbox.put("a", "3")
    writer.gate.set()
    assert wait_until(lambda: len(writer.written) == 2)
    assert (sorted(writer.written), writer.dropped) == (["13", "2"], [])


def test_a_write_that_fails_again_and_again_is_given_up_and_counted(
    outbox: Outbox[str, str], writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "LONGEST_PAUSE_SECONDS", 0.001)
    tries: list[str] = []

    def fail(value: str) -> None:
        tries.append(value)
        raise OutcomeUnknown("no answer")

    outbox._write = fail
    outbox.start()
    outbox.put("a", "1")
    assert wait_until(lambda: writer.dropped == ["outbox in test"])
    assert len(tries) == outbox_module.MOST_TRIES


def test_what_is_withdrawn_while_it_fails_is_not_tried_again(outbox: Outbox[str, str], writer: Writer) -> None:
    writer.gate.clear()
    writer.failing = OutcomeUnknown("no answer")
    outbox.start()
    outbox.put("a", "1")
    assert writer.entered.wait(60)
    withdrawing = threading.Thread(target=outbox.withdraw, args=("a",))
    withdrawing.start()
    assert wait_until(lambda: outbox._withdrawn)
    writer.gate.set()
    withdrawing.join(60)
    outbox.put("b", "2")
    assert wait_until(lambda: writer.written == ["2"])


def test_stop_ends_a_thread_that_waits(outbox: Outbox[str, str]) -> None:
    outbox.start()
    outbox.stop(10)
    assert not [thread for thread in threading.enumerate() if thread.name == "outbox in test"]


def test_what_is_withdrawn_is_not_written(outbox: Outbox[str, str], writer: Writer) -> None:
    outbox.put("a", "1")
    outbox.put("b", "2")
    outbox.withdraw("a")
    outbox.start()
    assert wait_until(lambda: writer.written == ["2"])


def test_who_withdraws_waits_for_what_is_being_written(outbox: Outbox[str, str], writer: Writer) -> None:
    writer.gate.clear()
    outbox.start()
    outbox.put("a", "1")
    assert writer.entered.wait(60)
    outbox.put("a", "2")
    seen: list[list[str]] = []

    def withdraw() -> None:
        outbox.withdraw("a")
        seen.append(list(writer.written))

    thread = threading.Thread(target=withdraw)
    thread.start()
    assert wait_until(lambda: outbox._withdrawn)
    outbox.withdraw("b")  # nothing of it is being written
    assert not seen
    writer.gate.set()
    thread.join(60)
    assert seen == [["1"]]
    outbox.put("c", "3")
    assert wait_until(lambda: writer.written == ["1", "3"])
