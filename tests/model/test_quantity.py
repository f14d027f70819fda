"""Quantities are exact, and rounded up once."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.errors import MalformedQuantity
from extender.model.quantity import INT64_MAX, amounts, milli_from_nano, nano, units

SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15),
    "E": Fraction(10**18), "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
    "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected_milli", "expected_units"),
    [
        pytest.param("100m", 100, 1, id="a fraction of a cpu"),
        pytest.param("1.5", 1500, 2, id="decimals"),
        pytest.param("0.1m", 1, 1, id="less than a milli is a milli"),
        pytest.param("1n", 1, 1, id="the smallest there is"),
        pytest.param("0.0000000001", 1, 1, id="less than the smallest is the smallest"),
        pytest.param("2Gi", 2 * 2**30 * 1000, 2 * 2**30, id="binary suffix"),
        pytest.param("1.5Gi", 1536 * 2**20 * 1000, 1536 * 2**20, id="binary suffix with decimals"),
        pytest.param("8000M", 8 * 10**12, 8 * 10**9, id="decimal suffix"),
        pytest.param("1e3", 10**6, 10**3, id="exponent"),
        pytest.param("1E3", 10**6, 10**3, id="capital exponent"),
        pytest.param("12E-1", 1200, 2, id="negative exponent"),
        pytest.param("5E", INT64_MAX, 5 * 10**18, id="exa is not an exponent"),
        pytest.param("100E", INT64_MAX, INT64_MAX, id="capped at what an int64 holds"),
        pytest.param("1e999999999", INT64_MAX, INT64_MAX, id="absurd exponent"),
        pytest.param("1e-999999999", 1, 1, id="absurdly small"),
        pytest.param("-1.5", -1500, -2, id="negative numbers are rounded away from zero"),
        pytest.param("+3", 3000, 3, id="plus sign"),
        pytest.param(".5", 500, 1, id="no digit before the point"),
        pytest.param("5.", 5000, 5, id="no digit after the point"),
        pytest.param(4, 4000, 4, id="a number, as YAML has it"),
        pytest.param(0.5, 500, 1, id="a float, as YAML has it"),
        pytest.param(None, 0, 0, id="null is nothing"),
        *(pytest.param(text, 0, 0, id=f"no digits: {text}") for text in (".", "+", "-", "m", ".Ki", "e3", "e-9")),
    ],
)
def test_quantity(text: str | float | None, expected_milli: int, expected_units: int) -> None:
    assert (milli_from_nano(nano(text)), units(text)) == (expected_milli, expected_units)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "e-10",
        "1.2.3",
        "1Kii",
        "1ki",
        "0x10",
        "1_000",
        "NaN",
        "inf",
        "1 Gi",
        "\uff11",
        "--1",
        "1e",
        "9" * 999,
        "1" + " " * 999,
    ],
)
def test_texts_that_are_not_quantities(text: str) -> None:
    with pytest.raises(MalformedQuantity, match="is not a quantity"):
        nano(text)


@given(
    whole=st.integers(0, 10**9), fraction=st.text("0123456789", max_size=6), suffix=st.sampled_from(sorted(SUFFIXES))
)
def test_agrees_with_rational_arithmetic(whole: int, fraction: str, suffix: str) -> None:
    exact = Fraction(f"{whole}.{fraction or '0'}") * SUFFIXES[suffix]

    def rounded_up(value: Fraction) -> int:
        return -((-value.numerator) // value.denominator)

    text = f"{whole}.{fraction}{suffix}" if fraction else f"{whole}{suffix}"
    assert nano(text) == rounded_up(exact * 10**9)
    assert units(text) == min(rounded_up(exact), INT64_MAX)


def test_amounts_count_cpu_in_milli_and_all_else_in_units() -> None:
    assert amounts({"cpu": "1500m", "memory": "1Ki", "example.com/gpu": "2"}) == {
        "cpu": 1500,
        "memory": 1024,
        "example.com/gpu": 2,
    }
