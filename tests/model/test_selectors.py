"""Label selectors and requirements."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.model.meta import LabelSelector
from extender.model.selectors import EVERYTHING, NOTHING, Requirement, compile_selector, selector_from_labels

LABELS = {"app": "web", "rank": "7", "text": "x"}


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        pytest.param("app", "In", ["web", "db"], True, id="In"),
        pytest.param("app", "In", ["db"], False, id="In, another value"),
        pytest.param("absent", "In", ["web"], False, id="In, no label"),
        pytest.param("app", "NotIn", ["db"], True, id="NotIn"),
        pytest.param("app", "NotIn", ["web"], False, id="NotIn, the value"),
        pytest.param("absent", "NotIn", ["web"], True, id="NotIn holds without the label"),
        pytest.param("app", "Exists", [], True, id="Exists"),
        pytest.param("absent", "Exists", [], False, id="Exists, no label"),
        pytest.param("absent", "DoesNotExist", [], True, id="DoesNotExist"),
        pytest.param("app", "DoesNotExist", [], False, id="DoesNotExist, a label"),
        pytest.param("rank", "Gt", ["6"], True, id="Gt"),
        pytest.param("rank", "Gt", ["7"], False, id="Gt is strict"),
        pytest.param("rank", "Lt", ["8"], True, id="Lt"),
        pytest.param("text", "Gt", ["1"], False, id="Gt, the label is no number"),
        pytest.param("rank", "Gt", ["six"], False, id="Gt, the bound is no number"),
        pytest.param("rank", "Gt", ["1", "2"], False, id="Gt wants one bound"),
        pytest.param("absent", "Gt", ["1"], False, id="Gt, no label"),
        pytest.param("app", "Near", ["web"], False, id="an unknown operator"),
    ],
)
def test_requirement(key: str, operator: str, values: list[str], expected: bool) -> None:
    assert Requirement(key, operator, frozenset(values)).matches(LABELS) is expected


def test_no_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert compile_selector(None) is NOTHING
    assert compile_selector(LabelSelector()) is EVERYTHING
    assert not NOTHING.matches({})
    assert EVERYTHING.matches(LABELS)


def test_match_labels_and_expressions_must_all_match() -> None:
    selector = msgspec.json.decode(
        b'{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"rank","operator":"Exists"}]}', type=LabelSelector
    )
    compiled = compile_selector(selector)
    assert compiled.matches(LABELS)
    assert not compiled.matches({"app": "web"})
    assert not compiled.matches({"rank": "7"})


labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), max_size=3)


@given(wanted=labels, given_labels=labels)
def test_selector_from_labels_asks_for_a_subset(wanted: dict[str, str], given_labels: dict[str, str]) -> None:
    assert selector_from_labels(wanted).matches(given_labels) == (wanted.items() <= given_labels.items())


@given(a=labels, b=labels)
def test_equal_selectors_are_one_key(a: dict[str, str], b: dict[str, str]) -> None:
    same = compile_selector(LabelSelector(match_labels=a)) == compile_selector(LabelSelector(match_labels=b))
    assert same == (a == b)


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        pytest.param("app", "In", ["web", ""], True, id="In, the empty value too"),
        pytest.param("app", "In", [], False, id="In without values"),
        pytest.param("app", "Exists", ["web"], False, id="Exists with a value"),
        pytest.param("rank", "Gt", ["7"], True, id="Gt"),
        pytest.param("rank", "Gt", ["-7"], False, id="Gt, a number that is no label value"),
        pytest.param("rank", "Lt", ["1", "2"], False, id="Lt with two values"),
        pytest.param("app", "Like", ["web"], False, id="no such operator"),
        pytest.param("app", "NotIn", ["-web"], False, id="a value that begins with a dash"),
        pytest.param("app", "In", ["a" * 64], False, id="a value that is too long"),
        pytest.param("example.com/app", "In", ["a_b.c-d"], True, id="a key with a prefix"),
        pytest.param("Example.com/app", "Exists", [], False, id="a prefix in upper case"),
        pytest.param("/app", "Exists", [], False, id="an empty prefix"),
        pytest.param("a" * 64, "Exists", [], False, id="a key that is too long"),
        pytest.param("", "Exists", [], False, id="no key"),
    ],
)
def test_requirements_that_the_scheduler_accepts(key: str, operator: str, values: list[str], expected: bool) -> None:
    assert Requirement(key, operator, frozenset(values)).well_formed() is expected
