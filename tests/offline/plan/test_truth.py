"""Plans are as small as the best of an exhaustive search, and "impossible" agrees in every case."""

from __future__ import annotations

import os

import pytest

from extender import Cluster
from extender.offline.plan.movable import KeepRules
from extender.offline.plan.search import SearchLimits, search
from extender.runtime.clock import ManualClock
from tests.offline.plan.generated import NOW, TARGET, best_score, generated, shortest, with_more_targets

CASES = int(os.environ.get("PLANS", "60"))


@pytest.mark.timeout(max(300, 4 * CASES))
def test_plans_are_as_small_as_the_best_of_an_exhaustive_search() -> None:
    pytest.importorskip("highspy")
    differing = []
    for seed in range(CASES):
        objects = generated(seed)
        cluster = Cluster.from_objects(objects)
        found = search(cluster._state, [TARGET], [], KeepRules(), SearchLimits(1000), ManualClock(NOW.timestamp()))
        best = shortest(objects)
        ours = len(found.plan.moves) if found.plan is not None and found.places_all else None
        if ours != best or not found.is_complete or (found.proof is not None and best is not None):
            differing.append((seed, ours, best, found.proof))
    assert differing == []


@pytest.mark.timeout(max(300, 4 * CASES))
def test_plans_for_several_pods_place_as_much_by_priority_as_the_best_of_an_exhaustive_search() -> None:
    pytest.importorskip("highspy")
    differing = []
    for seed in range(CASES):
        objects, targets = with_more_targets(generated(seed), seed)
        cluster = Cluster.from_objects(objects)
        found = search(cluster._state, targets, [], KeepRules(), SearchLimits(1000), ManualClock(NOW.timestamp()))
        best = best_score(objects, targets)
        ours = found.plan.score if found.plan is not None else None
        if (
            ours != best
            or not found.is_complete
            or (found.proof is not None and best[0] == tuple(found.levels.values()))
        ):
            differing.append((seed, ours, best, found.proof))
    assert differing == []


@pytest.mark.timeout(max(300, 4 * CASES))
def test_the_heuristic_never_finds_less_than_the_best_and_never_calls_it_impossible() -> None:
    wrong = []
    for seed in range(CASES // 2):
        objects = generated(seed)
        cluster = Cluster.from_objects(objects)
        limits = SearchLimits(1000, uses_solver=False)
        found = search(cluster._state, [TARGET], [], KeepRules(), limits, ManualClock(NOW.timestamp()))
        best = shortest(objects)
        if found.plan is not None and found.places_all and (best is None or len(found.plan.moves) < best):
            wrong.append((seed, "a plan smaller than the best"))
        if found.proof is not None and best is not None:
            wrong.append((seed, found.proof))
    assert wrong == []


@pytest.mark.timeout(3600)
def test_nodes_are_emptied_with_as_few_moves_as_in_an_exhaustive_search() -> None:
    pytest.importorskip("highspy")
    differing = []
    for seed in range(CASES // 2):
        objects = generated(seed)
        state = Cluster.from_objects(objects)._state
        emptied = state.node_names()[: 1 + seed % 2]
        limits = SearchLimits(1000)
        found = search(state, [], [], KeepRules(), limits, ManualClock(NOW.timestamp()), emptied=emptied)
        best = shortest(objects, emptied)
        ours = None if found.plan is None else len(found.plan.moves)
        if ours != best or not found.is_complete or (found.proof is not None and best is not None):
            differing.append((seed, ours, best, found.proof))
    assert differing == []
