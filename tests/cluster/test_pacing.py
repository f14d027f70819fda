"""The time that a caller has to wait for its turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.outbox import PacedBinder, TokenBucket, YieldingBucket
from extender.errors import Refused
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Binding, Check, always


def test_a_burst_comes_at_once_and_the_rest_at_the_rate() -> None:
    bucket = TokenBucket(per_second=10, burst=3)
    assert [round(bucket.reserve(100.0), 6) for _ in range(5)] == [0, 0, 0, 0.1, 0.2]


def test_time_that_passes_gives_turns_back_but_no_more_than_the_burst() -> None:
    bucket = TokenBucket(per_second=10, burst=2)
    for _ in range(4):
        bucket.reserve(100.0)
    assert round(bucket.reserve(100.4), 6) == 0
    assert [round(bucket.reserve(200.0), 6) for _ in range(3)] == [0, 0, 0.1]


@given(st.lists(st.floats(0, 2), min_size=1, max_size=60), st.integers(1, 5))
def test_no_more_turns_than_the_rate_allows_from_any_moment_on(pauses: list[float], burst: int) -> None:
    rate, now, bucket = 5.0, 1000.0, TokenBucket(5.0, burst)
    turns = []
    for pause in pauses:
        now += pause
        turns.append(now + bucket.reserve(now))
    assert turns == sorted(turns)
    for i, begin in enumerate(turns):
        within = sum(turn <= begin + 1.0 for turn in turns[i:])
        assert within <= burst + rate + 1


def test_a_bucket_that_yields_gives_a_tenth_of_its_turns_while_others_are_urgent() -> None:
    bucket, urgent = YieldingBucket(per_second=10, burst=1), True
    bucket.is_urgent = lambda: urgent
    assert [round(bucket.reserve(100.0), 6) for _ in range(3)] == [0.9, 1.9, 2.9]
    urgent = False
    assert [round(bucket.reserve(200.0), 6) for _ in range(3)] == [0, 0.1, 0.2]


class BusyServer:
    """Refuses so many Bindings, and takes those that come after."""

    def __init__(self, refused: int, status: int) -> None:
        self.refused, self.status, self.asked = refused, status, 0

    def bind(self, binding: Binding, check: Check = always) -> None:
        self.asked += 1
        if self.asked <= self.refused:
            raise Refused("no", self.status)


@pytest.mark.parametrize(
    ("refused", "status", "asked", "bound"),
    [
        pytest.param(3, 429, 4, True, id="it has too much to do"),
        pytest.param(100, 429, 11, False, id="for too long"),
        pytest.param(1, 403, 1, False, id="it says no"),
    ],
)
def test_a_bind_is_tried_again_where_the_server_has_too_much_to_do(
    refused: int, status: int, asked: int, bound: bool
) -> None:
    clock, server = ManualClock(), BusyServer(refused, status)
    binder, begin = PacedBinder(server, TokenBucket(100.0, 1), clock, clock.advance), clock.monotonic()
    try:
        binder.bind(Binding("default", "p", "u", "n"))
    except Refused:
        assert not bound
    else:
        assert bound
    assert server.asked == asked
    assert round(clock.monotonic() - begin) == asked - 1
