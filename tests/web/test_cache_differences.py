"""A difference that the comparer finds is logged in words that are true for its kind."""

from __future__ import annotations

import pytest

from extender.runtime.clock import ManualClock
from extender.web.metrics import Metrics


@pytest.mark.parametrize(
    ("kind", "key", "how", "line"),
    [
        (
            "Pod",
            "default/p",
            "is listed, but not cached",
            "cache corrected, it differed from the API server kind=Pod key=default/p"
            " difference='is listed, but not cached'",
        ),
        (
            "Table",
            "node a1",
            "requested cpu is 400, expected 300",
            "computed values were wrong, computing them again object='node a1'"
            " difference='requested cpu is 400, expected 300'",
        ),
    ],
)
def test_the_line_of_a_difference_says_what_was_wrong(
    kind: str, key: str, how: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    Metrics(ManualClock(), "1").cache_differed(kind, key, how)
    assert caplog.messages == [line]
