"""The amounts of a device's capacity that requests consume (KEP-5075)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.devices.device_requests import CapacityError, consumed, has_room, quantity_of
from extender.model.devices import DeviceCapacity
from extender.model.quantity import nano


def capacity(value: str, **policy: Any) -> dict[str, DeviceCapacity]:
    offered = {"value": value} | ({"requestPolicy": policy} if policy else {})
    return {"memory": msgspec.convert(offered, DeviceCapacity)}


RANGE: dict[str, Any] = {"min": "1Gi", "max": "8Gi", "step": "2Gi"}


@pytest.mark.parametrize(
    ("requested", "policy", "taken"),
    [
        pytest.param(None, {}, "80Gi", id="nothing asked: all of it"),
        pytest.param("3Gi", {}, "3Gi", id="as asked"),
        pytest.param(None, {"default": "2Gi"}, "2Gi", id="the default"),
        pytest.param("3Gi", {"default": "2Gi"}, "3Gi", id="no rule but a default"),
        pytest.param("3Gi", {"default": "4Gi", "validValues": ["2Gi", "4Gi"]}, "4Gi", id="up to a valid value"),
        pytest.param("5Gi", {"default": "4Gi", "validValues": ["2Gi", "4Gi"]}, None, id="above all valid values"),
        pytest.param("500Mi", {"default": "1Gi", "validRange": RANGE}, "1Gi", id="up to the minimum"),
        pytest.param("2Gi", {"default": "1Gi", "validRange": RANGE}, "3Gi", id="up to a step"),
        pytest.param("3Gi", {"default": "1Gi", "validRange": RANGE}, "3Gi", id="on a step"),
        pytest.param("8Gi", {"default": "1Gi", "validRange": RANGE}, None, id="a step above the maximum"),
        pytest.param(
            "600m", {"default": "500m", "validRange": {"min": "500m", "step": "250m"}}, "1", id="in whole units"
        ),
        pytest.param("7Gi", {"default": "1Gi", "validRange": {"min": "1Gi"}}, "7Gi", id="no steps"),
    ],
)
def test_a_request_consumes_what_the_policy_says(
    requested: str | None, policy: dict[str, Any], taken: str | None
) -> None:
    wishes = {} if requested is None else {"memory": requested}
    assert consumed(wishes, capacity("80Gi", **policy)) == (None if taken is None else {"memory": nano(taken)})


@pytest.mark.parametrize(
    ("fractional", "taken"), [pytest.param(False, "1", id="off"), pytest.param(True, "750m", id="on")]
)
def test_ranges_have_fractions_only_with_the_feature_gate(fractional: bool, taken: str) -> None:
    offered = capacity("80Gi", default="500m", validRange={"min": "500m", "step": "250m"})
    assert consumed({"memory": "600m"}, offered, fractional=fractional) == {"memory": nano(taken)}


def test_a_device_without_the_requested_capacity_does_not_fit() -> None:
    assert consumed({"cores": "1"}, capacity("80Gi")) is None


@pytest.mark.parametrize(
    ("requested", "policy", "message"),
    [
        pytest.param("-1", {}, "capacity value is negative", id="negative"),
        pytest.param(
            "9223372036854775807",
            {"default": "1", "validRange": {"min": "1", "step": "4"}},
            "passes|representable|exceeds",
            id="beyond int64",
        ),
    ],
)
def test_an_amount_that_cannot_be_represented_is_an_error(requested: str, policy: dict[str, Any], message: str) -> None:
    with pytest.raises(CapacityError, match=message):
        consumed({"memory": requested}, capacity("80Gi", **policy))


ROUNDED_UP: dict[str, Any] = {"default": "1", "validRange": {"min": "1", "step": "1"}}
FRACTIONS: dict[str, Any] = {"default": "500m", "validRange": {"min": "500m", "step": "250m"}}


def test_since_1_38_a_negative_request_is_an_error_even_if_the_range_would_round_it_up() -> None:
    offered = capacity("80Gi", **ROUNDED_UP)
    assert consumed({"memory": "-1"}, offered) == {"memory": nano("1")}
    with pytest.raises(CapacityError) as raised:
        consumed({"memory": "-1"}, offered, domain="gpu.example.com")
    assert str(raised.value) == 'capacity "gpu.example.com/memory": capacity value is negative: request -1'


@pytest.mark.parametrize(
    ("requested", "policy", "message"),
    [
        pytest.param(None, {"default": "-1"}, "capacity value is negative", id="a negative default"),
        pytest.param(
            "9223372036854775807",
            FRACTIONS,
            "capacity request cannot be represented in the device's range arithmetic: request 9223372036854775807 is"
            " not a representable milli value",
            id="beyond int64 in thousandths",
        ),
    ],
)
def test_since_1_38_an_error_has_the_whole_name_of_the_capacity(
    requested: str | None, policy: dict[str, Any], message: str
) -> None:
    wishes = {} if requested is None else {"memory": requested}
    with pytest.raises(CapacityError) as raised:
        consumed(wishes, capacity("80Gi", **policy), fractional=True, domain="gpu.example.com")
    assert str(raised.value) == f'capacity "gpu.example.com/memory": {message}'


@pytest.mark.parametrize("step", ["0", "-2", "0.0"])
@pytest.mark.parametrize("requested", [{}, {"memory": "1"}, {"memory": "4"}])
def test_a_device_whose_range_has_no_valid_step_takes_no_request(step: str, requested: dict[str, Any]) -> None:
    assert consumed(requested, capacity("80Gi", validRange={"min": "1", "step": step})) is None


@given(st.integers(0, 10**6), st.integers(1, 1000), st.integers(1, 1000))
def test_a_request_is_rounded_up_to_the_next_step(requested: int, least: int, step: int) -> None:
    policy = {"default": str(least), "validRange": {"min": str(least), "step": str(step)}}
    amounts = consumed({"memory": str(requested)}, capacity("10M", **policy))
    assert amounts is not None
    taken, rest = divmod(amounts["memory"], 10**9)
    assert (rest, (taken - least) % step) == (0, 0)
    assert taken >= max(requested, least)
    assert taken - step < max(requested, least)


def test_a_share_must_fit_beside_the_others() -> None:
    offered = capacity("10")
    assert has_room({"memory": nano("4")}, offered, {"memory": nano("3")}, {"memory": nano("3")})
    assert not has_room({"memory": nano("4")}, offered, {"memory": nano("3")}, {"memory": nano("4")})


@given(st.integers(0, 10**24))
def test_a_written_amount_is_read_as_the_same_amount(nanos: int) -> None:
    assert nano(quantity_of(nanos)) == nanos
