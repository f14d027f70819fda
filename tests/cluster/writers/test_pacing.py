"""The time that a caller has to wait for its turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.writers.pacing import TokenBucket, YieldingBucket


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
