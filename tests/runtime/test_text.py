"""Amounts of resources as text."""

from __future__ import annotations

import pytest

from extender.runtime.text import quantity, rounded


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
