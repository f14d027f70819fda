"""Our decisions about groups equal the stock scheduler's on every case of the checked-in set, step by step."""

from __future__ import annotations

from collections import defaultdict
from itertools import permutations

import pytest

from tests.builders import Object
from tests.group_conformance.answered import NEXT, answered
from tests.group_conformance.cases import KINDS, PREEMPTION_TREES, kind_of
from tests.group_conformance.replay import differences
from tests.stock.build import NEXT_MINOR


@pytest.fixture(scope="module")
def by_kind() -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = defaultdict(list)
    for case in answered():
        found[kind_of(case)].append(case)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_case(kind: str, by_kind: dict[str, list[Object]]) -> None:
    assert len(by_kind[kind]) > 15
    found = {case["name"]: differences(case, case["stock"]) for case in by_kind[kind]}
    assert {name: differing for name, differing in found.items() if differing} == {}


def test_the_cases_of_the_next_version() -> None:
    cases = list(answered(NEXT))
    assert {kind_of(case) for case in cases} == set(KINDS)
    found = {case["name"]: differences(case, case["stock"], NEXT_MINOR) for case in cases}
    assert {name: differing for name, differing in found.items() if differing} == {}


def test_the_set_has_groups_that_fit_and_groups_that_do_not(by_kind: dict[str, list[Object]]) -> None:
    for kind, cases in by_kind.items():
        reasons = {each["reason"] for case in cases for each in case["stock"]["conditions"].values()}
        assert reasons >= {"Scheduled", "Unschedulable"}, kind


def test_a_choice_of_stock_with_the_victims_of_another_choice_is_a_difference(by_kind: dict[str, list[Object]]) -> None:
    cases = [case for case in by_kind[PREEMPTION_TREES] if "008 of seed 62002" in case["name"]]
    for case, other in permutations(cases, 2):
        mixed = {**case["stock"], "victims": other["stock"]["victims"]}
        assert bool(differences(case, mixed)) is (case["stock"]["victims"] != other["stock"]["victims"])
