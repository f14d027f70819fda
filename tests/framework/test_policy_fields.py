"""The limits of durations and label keys in policy files, and the descriptions of fields."""

from __future__ import annotations

import pytest

from extender.framework.policy_fields import Strict, duration, label_key


@pytest.mark.parametrize(
    ("least_seconds", "text", "is_valid"),
    [
        pytest.param(0, "0", True, id="zero"),
        pytest.param(10, "10s", True, id="the least"),
        pytest.param(10, "9.999s", False, id="less than the least"),
    ],
)
def test_a_duration_is_valid_from_the_least_on(least_seconds: float, text: str, is_valid: bool) -> None:
    if is_valid:
        assert duration(least_seconds)(text) == text
    else:
        with pytest.raises(ValueError, match=f"expected a duration of at least {least_seconds}s"):
            duration(least_seconds)(text)


@pytest.mark.parametrize(("length", "is_valid"), [(253, True), (254, False)])
def test_the_prefix_of_a_label_key_has_at_most_253_characters(length: int, is_valid: bool) -> None:
    key = f"{'a' * length}/rack"
    if is_valid:
        assert label_key(key) == key
    else:
        with pytest.raises(ValueError, match="expected a label key"):
            label_key(key)


class Shelf(Strict):
    height: int = 0
    """Its height in millimetres."""


def test_a_field_is_described_by_the_docstring_below_it() -> None:
    assert Shelf.model_fields["height"].description == "Its height in millimetres."
