"""Plans are as small as the best of an exhaustive search, and "impossible" agrees in every case."""

from __future__ import annotations

import os
from itertools import combinations

import pytest

import extender.offline.plan.search
from extender import Cluster
from extender.offline.manifests.templates import required_workload
from extender.offline.plan.attempts import MOST_MOVES, Score, SearchOptions
from extender.offline.plan.goals import empty, make_room, shape_of
from extender.offline.plan.search import Search
from extender.runtime.clock import ManualClock
from tests.builders import make_pod
from tests.offline.plan.generated import (
    NOW,
    TARGET,
    best_score,
    generated,
    gentlest,
    most_room,
    shortest,
    with_more_targets,
)

pytestmark = pytest.mark.thorough

CASES = int(os.environ.get("PLANS", "10"))


def _options(moves: int = MOST_MOVES, compared: int = 0, *, uses_solver: bool = True) -> SearchOptions:
    clock = ManualClock(NOW.timestamp())
    return SearchOptions(seconds=1000, moves=moves, compared=compared, uses_solver=uses_solver, clock=clock)


@pytest.mark.timeout(max(300, 4 * CASES))
def test_plans_are_as_small_as_the_best_of_an_exhaustive_search() -> None:
    pytest.importorskip("highspy")
    differing = []
    for seed in range(CASES):
        objects = generated(seed)
        cluster = Cluster.from_objects(objects)
        found = Search(cluster._state, [TARGET], [], _options()).run()
        best = shortest(objects)
        ours = len(found.plan.moves) if found.plan is not None and found.places_all else None
        if ours != best or not found.is_complete or (found.proof is not None and best is not None):
            differing.append((seed, ours, best, found.proof))
    assert differing == []


@pytest.mark.slow
@pytest.mark.timeout(max(300, 4 * CASES))
def test_what_is_proved_in_large_clusters_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """There, the solver is asked about a part of the cluster only, and not all orders of evictions are tried."""
    pytest.importorskip("highspy")
    monkeypatch.setattr(extender.offline.plan.search, "_MOST_NODES_AT_ONCE", 0)
    wrong: list[object] = []
    for seed in range(30, 30 + max(15, CASES // 2)):
        objects, targets = with_more_targets(generated(seed), seed)
        cluster = Cluster.from_objects(objects)
        found = Search(cluster._state, targets, [], _options()).run()
        score = best_score(objects, targets)
        ours = found.plan.score if found.plan is not None else Score((), 0)
        places_all = score.placed == tuple(found.levels.values())
        if ours > score or (found.is_complete and ours != score) or tuple(found.at_most) < score.placed:
            wrong.append((seed, ours, score, found.at_most))
        if places_all and (found.proof is not None or found.bound > -score.moves):
            wrong.append((seed, found.proof, found.bound, score))
    assert wrong == []


@pytest.mark.timeout(max(300, 4 * CASES))
def test_plans_for_several_pods_are_as_good_as_the_best_of_an_exhaustive_search() -> None:
    """They place as much by priority, with as few moves, disrupt as few of high priority, and fragment as little."""
    pytest.importorskip("highspy")
    differing: list[object] = []
    for seed in range(CASES):
        objects, targets = with_more_targets(generated(seed), seed)
        cluster = Cluster.from_objects(objects)
        found = Search(cluster._state, targets, [], _options(compared=10_000)).run()
        score = best_score(objects, targets)
        ours = found.plan.score if found.plan is not None else None
        is_proof_wrong = found.proof is not None and score.placed == tuple(found.levels.values())
        if ours != score or not found.is_complete or is_proof_wrong:
            differing.append((seed, ours, score, found.proof))
        elif found.plan is not None and found.moves:
            side = gentlest(objects, targets, score)
            if (not found.is_gentlest and len(found.moves) < 5) or (side is not None and found.plan.side < side):
                differing.append((seed, found.plan.side, side, found.is_gentlest))
    assert differing == []


@pytest.mark.timeout(max(300, 4 * CASES))
def test_the_heuristic_never_finds_less_than_the_best_and_never_calls_it_impossible() -> None:
    wrong = []
    for seed in range(CASES // 2):
        objects = generated(seed)
        cluster = Cluster.from_objects(objects)
        found = Search(cluster._state, [TARGET], [], _options(uses_solver=False)).run()
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
    for seed in range(CASES // 4):
        objects = generated(seed)
        state = Cluster.from_objects(objects)._state
        emptied = state.node_names()[: 1 + seed % 2]
        found = Search(state, [], [], _options(), emptied).run()
        best = shortest(objects, emptied)
        ours = None if found.plan is None else len(found.plan.moves)
        if ours != best or not found.is_complete or (found.proof is not None and best is not None):
            differing.append((seed, ours, best, found.proof))
    assert differing == []


@pytest.mark.timeout(3600)
def test_nodes_are_chosen_that_need_the_fewest_moves_of_all_sets() -> None:
    pytest.importorskip("highspy")
    differing = []
    for seed in range(CASES // 10):
        objects = generated(seed)
        state = Cluster.from_objects(objects)._state
        names = state.node_names()
        count = 1 + seed % 2
        _, found = empty(state, names, count, _options())
        fewest = [moves for each in combinations(names, count) if (moves := shortest(objects, each)) is not None]
        ours = len(found.moves) if found.places_all else None
        if ours != min(fewest, default=None) or not found.is_complete:
            differing.append((seed, ours, fewest, found.proof))
    assert differing == []


@pytest.mark.timeout(3600)
def test_as_much_room_is_made_as_by_an_exhaustive_search() -> None:
    pytest.importorskip("highspy")
    differing = []
    for seed in range(CASES // 6):
        objects, moves = generated(seed), 1 + seed % 3
        pod = make_pod("shape").label(app="xyz"[seed % 3]).req(cpu=str(1 + seed % 3))
        if seed % 5 == 0:
            pod.anti_affinity("kubernetes.io/hostname", labels={"app": "xyz"[seed % 3]})
        workload = required_workload(pod.obj())
        state = Cluster.from_objects(objects)._state.copy()
        shape = shape_of(state, workload, [])
        room, _, found = make_room(state, shape, _options(moves=moves))
        best = most_room(objects, workload, moves, 20)
        if (room.after, len(found.moves)) != best or room.most != room.after:
            differing.append((seed, room, len(found.moves), best))
    assert differing == []
