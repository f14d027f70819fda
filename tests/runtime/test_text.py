"""Amounts, ages and names as text."""

from __future__ import annotations

import pytest

from extender.runtime.text import age, go_duration, printable, quantity, rounded


@pytest.mark.parametrize(
    ("resource", "amount", "exact", "short"),
    [
        pytest.param("cpu", 1500, "1500m", "1.5", id="cpu"),
        pytest.param("cpu", 2000, "2", "2", id="whole cpus"),
        pytest.param("memory", 1536 * 2**20, "1536Mi", "1.5Gi", id="memory"),
        pytest.param("memory", 2**20 + 1, "1048577", "1Mi", id="an odd number of bytes"),
        pytest.param("memory", 2**70, "1024Ei", "1024Ei", id="more than the largest unit"),
        pytest.param("memory", 0, "0", "0", id="nothing"),
        pytest.param("pods", 2048, "2048", "2048", id="pods have no units"),
        pytest.param("example.com/gpu", 2048, "2048", "2048", id="nor have extended resources"),
        pytest.param("example.com/gpu", 1_234_567, "1234567", "1234567", id="a large number in full"),
    ],
)
def test_an_amount_is_written_exactly_or_rounded(resource: str, amount: int, exact: str, short: str) -> None:
    assert (quantity(resource, amount), rounded(resource, amount)) == (exact, short)


@pytest.mark.parametrize(
    ("seconds", "text"), [(119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172799, "47h"), (172800, "2d")]
)
def test_an_age_has_the_largest_unit_of_which_it_has_two(seconds: float, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (2e-9, "2ns"),
        (1.5e-6, "1.5µs"),
        (0.5, "500ms"),
        (1.5, "1.5s"),
        (30, "30s"),
        (90, "1m30s"),
        (300, "5m0s"),
        (3600.25, "1h0m0.25s"),
    ],
)
def test_a_duration_is_written_as_go_does(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


def test_control_characters_in_names_are_escaped() -> None:
    assert [printable(name) for name in ("web", "gr\u00fcn", "a\x1b[2J")] == ["web", "gr\u00fcn", "a\\x1b[2J"]
