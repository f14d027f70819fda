"""Notes are passed on: soon, in order, each once, and before anything ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from threading import Thread

import pytest

from extender.web.metrics import BatchedNotifier
from tests.stock.waiting import wait_until

TOLD: list[int] = []


@pytest.fixture
def telling() -> Iterator[BatchedNotifier[int]]:
    TOLD.clear()
    telling = BatchedNotifier[int](TOLD.extend)
    telling.start()
    yield telling
    telling.stop()


def eventually_told(count: int) -> list[int]:
    wait_until(lambda: len(TOLD) >= count)
    return TOLD


def test_items_are_passed_on_soon_and_in_order(telling: BatchedNotifier[int]) -> None:
    for begin in (0, 3):
        for item in range(begin, begin + 3):
            telling.note(item)
        assert eventually_told(begin + 3) == list(range(begin + 3))


def test_noting_an_item_does_not_wait_for_the_notification(telling: BatchedNotifier[int]) -> None:
    telling.note(1)
    telling.catch_up()
    assert TOLD == [1]


def test_each_item_is_passed_on_once_from_many_threads(telling: BatchedNotifier[int]) -> None:
    def work(own: range) -> None:
        for item in own:
            telling.note(item)
            if item % 50 == 0:
                telling.catch_up()

    threads = [Thread(target=work, args=(range(start, start + 1000),)) for start in range(0, 4000, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(eventually_told(4000)) == list(range(4000))


def test_items_are_passed_on_at_once_before_start_and_after_stop() -> None:
    reported: list[int] = []
    telling = BatchedNotifier[int](reported.extend)
    telling.note(1)
    assert reported == [1]
    telling.start()
    telling.note(2)
    telling.stop()
    assert reported == [1, 2]
    telling.note(3)
    assert reported == [1, 2, 3]


def test_a_failed_notification_does_not_stop_later_ones(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[float] = []
    telling = BatchedNotifier[int](lambda items: reported.extend(1 / item for item in items))
    telling.start()
    for item in (1, 0, 2):
        telling.note(item)
        telling.catch_up()
    telling.stop()
    assert reported == [1.0, 0.5]
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.processes
def test_items_are_passed_on_before_the_process_ends() -> None:
    program = (
        "from extender.web.metrics import BatchedNotifier;t = BatchedNotifier(print); t.start(); t.note(1); t.note(2)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "[1, 2]\n"
