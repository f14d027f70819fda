"""Our decisions equal the stock scheduler's on every case of the checked-in set, in every respect."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.builders import Object
from tests.conformance.answered import NEXT, answered, kept
from tests.conformance.cases import KINDS
from tests.conformance.deciding import disagreements


@pytest.fixture(scope="module")
def by_kind() -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = defaultdict(list)
    for case in answered():
        found[case["name"].rpartition("-")[0]].append(case)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_case(kind: str, by_kind: dict[str, list[Object]]) -> None:
    assert len(by_kind[kind]) > 30
    found = {case["name"]: list(map(str, disagreements(case, case["stock"]))) for case in by_kind[kind]}
    assert {name: differences for name, differences in found.items() if differences} == {}


def test_the_cases_of_the_next_version() -> None:
    cases = list(answered(NEXT))
    assert len(cases) == 300
    found = {case["name"]: list(map(str, disagreements(case, case["stock"], "1.38"))) for case in cases}
    assert {name: differences for name, differences in found.items() if differences} == {}


@pytest.mark.parametrize("case", kept(), ids=lambda case: case["name"])
def test_a_disagreement_of_the_past(case: Object) -> None:
    assert list(map(str, disagreements(case, case["stock"]))) == []
