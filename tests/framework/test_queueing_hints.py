"""The names under which a waiting pod is filed, by what it requires of labels."""

from __future__ import annotations

import pytest

from extender.framework.queueing_hints import ANY, names_of_labels, names_of_requirements, names_of_selector
from extender.model.selectors import NOTHING, Requirement


def requirement(operator: str, *values: str) -> Requirement:
    return Requirement("rank", operator, frozenset(values))


@pytest.mark.parametrize(
    "positive",
    [requirement("In", "7", "8"), requirement("Exists"), requirement("Gt", "6"), requirement("Lt", "8")],
    ids=lambda required: required.operator,
)
def test_labels_that_satisfy_a_requirement_have_one_of_its_names(positive: Requirement) -> None:
    names = set(names_of_requirements([positive]))
    assert names & set(names_of_labels({"rank": "7"}))
    assert not names & {ANY, *names_of_labels({"app": "7"})}


@pytest.mark.parametrize(
    "negative", [requirement("NotIn", "7"), requirement("DoesNotExist")], ids=lambda required: required.operator
)
def test_what_labels_must_not_have_gives_no_name(negative: Requirement) -> None:
    assert names_of_requirements([negative]) == [ANY]
    assert names_of_requirements([negative, requirement("Exists")]) == names_of_requirements([requirement("Exists")])


def test_the_rarest_of_several_requirements_gives_the_names() -> None:
    one, two = requirement("In", "7"), Requirement("zone", "In", frozenset(("a", "b")))
    assert names_of_requirements([requirement("Exists"), two, one]) == names_of_requirements([one])


def test_a_selector_that_matches_nothing_has_no_name() -> None:
    assert names_of_selector(NOTHING) == []
