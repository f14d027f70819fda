"""Drains, scale-downs and removals of nodes end as on a real control plane, recorded."""

from __future__ import annotations

from tests.offline.controllers.live_operations import RECORDED, differences, recorded


def test_the_recorded_operations_end_as_in_the_simulation() -> None:
    cases = recorded()
    assert list(differences(cases)) == []
    assert len(cases) == RECORDED


def test_every_operation_is_recorded() -> None:
    assert {case["operation"][0] for case in recorded()} == {"drain", "remove", "scale"}
