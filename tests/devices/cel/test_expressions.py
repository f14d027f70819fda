"""Expressions and their verdicts in the stock scheduler: T (true), F (false) or E (error)."""

from __future__ import annotations

from pathlib import Path

import pytest

from extender.devices.cel import values
from extender.devices.cel.device_selectors import SelectorError, matches
from tests.builders import make_claim, make_device_class, make_node, make_pod, make_request, make_slice
from tests.devices.cel.test_device_selectors import DEVICE, DRIVER, device
from tests.stock.oracle import Oracle


def _grown(first: str, times: int, step: str) -> str:
    """Returns an expression that applies a step to a value that many times."""
    return first if not times else f"cel.bind(x, {_grown(first, times - 1, step)}, {step})"


LINES = (Path(__file__).parent / "expressions.txt").read_text().splitlines()
EXPRESSIONS = [(line[2:], line[0]) for line in LINES if line]
ITERATIONS = "lists.range(2000).all(x, lists.range(2000).all(y, y >= 0))"


def written_out(expression: str) -> str:
    by_domain = expression.replace("ATTRIBUTES", f'device.attributes["{DRIVER}"]')
    return by_domain.replace("CAPACITY", f'device.capacity["{DRIVER}"]')


def test_verdicts() -> None:
    found = [(expression, verdict(expression)) for expression, _ in EXPRESSIONS]
    assert [each for each, expected in zip(found, EXPRESSIONS, strict=True) if each != expected] == []


def verdict(expression: str) -> str:
    try:
        return "T" if matches(written_out(expression), device()) else "F"
    except SelectorError:
        return "E"


@pytest.mark.stock
def test_the_verdicts_equal_those_of_the_stock_scheduler(oracle: Oracle) -> None:
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


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(f'!"{"a" * 4000}".matches("(a+)+b")', id="a regular expression that others backtrack on"),
        pytest.param('!"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".matches("(a|a)*b")', id="alternatives that are alike"),
    ],
)
def test_every_regular_expression_ends_soon(expression: str) -> None:
    assert matches(expression, device())


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(ITERATIONS, id="iterations", marks=pytest.mark.slow),
        pytest.param(_grown("'a'", 40, "x + x") + " == ''", id="length of a string"),
        pytest.param("lists.range(9000000).size() == 0", id="length of a list"),
        pytest.param(_grown("'aaaaaaaaaa'", 12, "x.replace('', 'aaaaaaaaaa')") + " == ''", id="what is replaced"),
        pytest.param(_grown("'aaaaaaaaaa'", 12, "[x, x, x, x, x, x].join(x)") + " == ''", id="what is joined"),
        pytest.param(_grown("'aa'", 40, "'%s%s'.format([x, x])") + " == ''", id="what is formatted"),
        pytest.param(_grown("'\"'", 40, "strings.quote(x)") + " == ''", id="what is quoted"),
        pytest.param(f"cel.bind(x, {_grown('[1]', 40, '[x, x]')}, x == x)", id="what a list of lists shares"),
        pytest.param("lists.range(100000).distinct().size() == 0", id="each compared with each"),
        pytest.param("sets.contains(lists.range(100000), lists.range(100000))", id="each of a set with each"),
        pytest.param("lists.range(90000).map(x, [x, x, x, x, x, x, x, x, x, x, x, x]) == []", id="lists made"),
        pytest.param(f"lists.range(90000).all(x, !'{'a' * 5000}'.contains('b'))", id="characters read"),
        pytest.param(f"'{'a' * 5000}'.matches('(a?){{900}}(a?){{900}}b')", id="steps of a regular expression"),
    ],
)
def test_an_evaluation_has_a_limit(expression: str) -> None:
    with pytest.raises(SelectorError, match="cost limit exceeded"):
        matches(expression, device())


def test_iterations_are_among_the_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MAX_COST", 10_000)
    with pytest.raises(SelectorError, match="cost limit exceeded"):
        matches(ITERATIONS, device())


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param('quantity("1e999999999").asApproximateFloat() > 0.0', id="an exponent"),
        pytest.param("int(9223372036854775807u) > 0", id="an unsigned integer"),
        pytest.param(
            f"!isSemver('1.{'9' * 5000}.0') && !isSemver('1.0.0-{'9' * 5000}')", id="a version of 5,000 digits"
        ),
    ],
)
def test_every_number_is_parsed_soon(expression: str) -> None:
    assert matches(expression, device())


def test_an_integer_of_thousands_of_digits_is_an_error_of_the_expression() -> None:
    with pytest.raises(SelectorError, match="type conversion error"):
        matches(f"int('{'9' * 5000}') > 0", device())


@pytest.mark.parametrize("literal", ["9" * 5000, f"-{'9' * 5000}", f"{'9' * 5000}u", f"0x{'f' * 5000}"])
def test_a_literal_of_thousands_of_digits_is_an_error_of_the_expression(literal: str) -> None:
    with pytest.raises(SelectorError, match=r"invalid u?int literal"):
        matches(f"{literal} != 0", device())


@pytest.mark.parametrize("literal", [f"{'0' * 5000}7", f"0x{'0' * 5000}7", "7", "0x7", "7u", "0x7U"])
def test_leading_zeros_of_a_literal_do_not_count(literal: str) -> None:
    assert matches(f"{literal} == {7 if literal[-1] == '7' else '7u'} && 0 == 0x0", device())


def test_a_long_chain_of_operators_is_not_nested() -> None:
    assert matches(" || ".join(f"device.driver == 'd{number}'" for number in range(500)) + " || true", device())


def test_an_expression_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(SelectorError, match="recursion"):
        matches("(" * 300 + "true" + ")" * 300, device())
    with pytest.raises(SelectorError, match="recursion"):
        matches("1" + " + 1" * 2000 + " > 0", device())
