"""`explain` names the cause of a hundred incidents of pod groups; `make test-group-incidents` draws others."""

from __future__ import annotations

import pytest

from tests.answers.group_incidents import INCIDENTS, judged

pytestmark = pytest.mark.slow

SEED = 20261125
COUNT = 100


def test_the_cause_is_named_and_the_smallest_change_holds() -> None:
    faults = {
        f"{number} {INCIDENTS[number % len(INCIDENTS)].__name__}": (lacking, wrong)
        for number, lacking, wrong in judged(SEED, COUNT)
        if lacking is not None or wrong is not None
    }
    assert faults == {}
