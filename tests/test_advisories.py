"""What is said about advisories: found, none, or not checked."""

from __future__ import annotations

import json

import pytest

from tests.advisories import verdict

SKIPPED = {"name": "b", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "required", "expected"),
    [
        ([{"name": "a", "vulns": [{"id": "CVE-1"}]}, SKIPPED], False, ("a: CVE-1", 1)),
        (
            [{"name": "a", "vulns": []}, SKIPPED],
            False,
            ("advisories: none for the 1 of 2 packages that the index knows", 0),
        ),
        ([SKIPPED], False, ("advisories: NOT CHECKED: the index has none for any of the 1 packages", 0)),
        ([{"name": "a", "vulns": []}, SKIPPED], True, ("advisories: NOT CHECKED for 1 of 2 packages: b", 1)),
        ([{"name": "a", "vulns": []}], True, ("advisories: none for the 1 of 1 packages that the index knows", 0)),
    ],
)
def test_packages_that_no_index_knows_are_not_called_safe(
    packages: list[object], required: bool, expected: tuple[str, int]
) -> None:
    assert verdict(json.dumps({"dependencies": packages}), required=required) == expected
