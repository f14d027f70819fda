"""With rankings, remembered scores and tables that follow, the loop decides as if each pod were the only one.

`make backlogs` runs 1,000; BACKLOG_SEED=17 BACKLOGS=1 the one of that seed.
"""

from __future__ import annotations

import os

import pytest

from tests.scheduler.backlogs import Backlog, Placement
from tests.stock.oracle import Oracle

FIRST, COUNT = int(os.environ.get("BACKLOG_SEED") or 0), int(os.environ.get("BACKLOGS") or 15)
JUDGED_BY_STOCK = 10  # one in so many


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_each_pod_of_a_backlog_is_decided_on_as_if_it_were_alone(seed: int) -> None:
    backlog = Backlog(seed)
    backlog.run()
    assert backlog.cycle.differing == []
    assert {placement.pod["metadata"]["name"]: placement.node for placement in backlog.placements} == {
        name: backlog.world.node_of(name) for name in map(_name, backlog.placements)
    }


@pytest.mark.thorough
def test_templates_are_ranked_during_a_backlog() -> None:
    backlogs = [Backlog(seed) for seed in range(5)]
    for backlog in backlogs:
        backlog.run()
    assert sum(backlog.cycle.rankings.used for backlog in backlogs) > 5


@pytest.mark.stock
def test_every_placement_is_one_of_the_best_by_the_stock_plugins(oracle: Oracle) -> None:
    judged = 0
    for seed in range(FIRST, FIRST + COUNT, JUDGED_BY_STOCK):
        backlog = Backlog(seed)
        backlog.run()
        for placement in backlog.placements:
            answer = oracle.answer(placement.items, placement.pod)
            totals = answer.get("total") or dict.fromkeys(answer.get("feasible") or (), 0)
            best = [node for node, total in totals.items() if total == max(totals.values())]
            assert placement.node in best, f"BACKLOG_SEED={seed}: {_name(placement)} on {placement.node}: {answer}"
            judged += 1
    assert judged


def _name(placement: Placement) -> str:
    name: str = placement.pod["metadata"]["name"]
    return name
