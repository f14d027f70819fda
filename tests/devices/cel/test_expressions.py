"""Expressions and their verdicts: T, F, or E for an error. As the stock scheduler answers them."""

from __future__ import annotations

from pathlib import Path

import pytest

from extender.devices.cel.selectors import SelectorError, matches
from tests.builders import make_claim, make_device_class, make_node, make_pod, make_request, make_slice
from tests.devices.cel.test_selectors import DEVICE, DRIVER, device
from tests.stock.oracle import Oracle


def _doubled(text: str, times: int) -> str:
    """An expression of a string that is added to itself so many times."""
    return text if not times else f"cel.bind(s{times}, {_doubled(text, times - 1)}, s{times} + s{times})"


LINES = (Path(__file__).parent / "expressions.txt").read_text().splitlines()
EXPRESSIONS = [(line[2:], line[0]) for line in LINES if line]


def written_out(expression: str) -> str:
    by_domain = expression.replace("ATTRIBUTES", f'device.attributes["{DRIVER}"]')
    return by_domain.replace("CAPACITY", f'device.capacity["{DRIVER}"]')


@pytest.mark.parametrize(("expression", "verdict"), EXPRESSIONS, ids=[expression for expression, _ in EXPRESSIONS])
def test_verdict(expression: str, verdict: str) -> None:
    try:
        assert matches(written_out(expression), device()) is {"T": True, "F": False}.get(verdict)
    except SelectorError as error:
        assert verdict == "E", error


@pytest.mark.stock
def test_the_verdicts_are_the_stock_schedulers(oracle: Oracle) -> None:
    offered = make_slice("s", DRIVER, "pool", DEVICE)
    offered["spec"]["nodeName"] = "n"
    claim, pod = make_claim("c", make_request("r", "selected")), make_pod("p").resource_claim("c").obj()
    found = []
    for expression, _ in EXPRESSIONS:
        selected = make_device_class("selected", written_out(expression))
        answer = oracle.answer([make_node("n").obj(), offered, selected, claim], pod)
        refusal = (answer.get("filter") or {}).get("n", {})
        failed = "error" in answer or refusal.get("code") == "Error"
        found.append((expression, "E" if failed else "T" if answer.get("feasible") else "F"))
    assert found == EXPRESSIONS


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(f'!"{"a" * 4000}".matches("(a+)+b")', id="a regular expression that others backtrack on"),
        pytest.param('!"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".matches("(a|a)*b")', id="alternatives that are alike"),
    ],
)
def test_no_regular_expression_takes_long(expression: str) -> None:
    assert matches(expression, device())


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("lists.range(2000).all(x, lists.range(2000).all(y, y >= 0))", id="iterations"),
        pytest.param(_doubled("'a'", 40) + " == ''", id="length of a string"),
        pytest.param("lists.range(9000000).size() == 0", id="length of a list"),
        pytest.param(f"'{'a' * 5000}'.matches('(a?){{900}}(a?){{900}}b')", id="steps of a regular expression"),
    ],
)
def test_an_evaluation_has_a_limit(expression: str) -> None:
    with pytest.raises(SelectorError, match="cost limit exceeded"):
        matches(expression, device())


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "expression",
    [
        pytest.param('quantity("1e999999999").asApproximateFloat() > 0.0', id="an exponent"),
        pytest.param("int(9223372036854775807u) > 0", id="an unsigned integer"),
    ],
)
def test_no_number_takes_long(expression: str) -> None:
    assert matches(expression, device())


def test_long_chains_are_not_deep() -> None:
    assert matches(" || ".join(f"device.driver == 'd{number}'" for number in range(500)) + " || true", device())


def test_what_is_too_deep_is_refused() -> None:
    with pytest.raises(SelectorError, match="recursion"):
        matches("(" * 300 + "true" + ")" * 300, device())
    with pytest.raises(SelectorError, match="recursion"):
        matches("1" + " + 1" * 2000 + " > 0", device())
