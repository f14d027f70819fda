"""Plans hold on a real control plane: every step ends where the plan says, or on a node that is equally good."""

from __future__ import annotations

import os
from collections import Counter
from itertools import islice

import pytest

from tests.offline.plan.carrying_out import SCHEDULER, Differs, Rehearsal
from tests.offline.plan.live_clusters import CLASSES, live_cases
from tests.stock.control_plane import ControlPlane

pytestmark = [pytest.mark.stock, pytest.mark.slow, pytest.mark.timeout(7200)]
CASES = int(os.environ.get("LIVE_PLANS", "10"))
SEED = int(os.environ.get("SEED", "1"))


def test_every_step_of_a_plan_ends_where_the_plan_says(control_plane: ControlPlane) -> None:
    counts = carried_out(control_plane, CASES)
    assert counts["plans"] >= CASES
    assert min(counts["directed"], counts["released"]) >= CASES // 10


def carried_out(plane: ControlPlane, cases: int) -> Counter[str]:
    """Carries out plans for so many cases, and returns the counts of all rehearsals."""
    counts: Counter[str] = Counter()
    differing = []
    plane.client.create(*CLASSES)
    with plane.scheduler(SCHEDULER):
        for number, case in enumerate(islice(live_cases(SEED), cases), start=1):
            rehearsal = Rehearsal(plane, case)
            try:
                rehearsal.run()
            except Differs as error:
                differing.append((case.namespace, str(error)))
            counts += rehearsal.counts
            print(f"{number} of {cases}: {dict(counts)}, {len(differing)} differ", flush=True)
    assert differing == []
    return counts
