"""Counts the moves that let one pod run, as fast as `explain` can wait for it."""

from __future__ import annotations

from extender.offline.explain.explanation import KnownMoves
from extender.offline.plan.findings import SearchLimits
from extender.offline.plan.movable import KeepRules
from extender.offline.plan.search import search
from extender.offline.state import ClusterState
from extender.runtime.clock import SystemClock

_MOST_PODS = 10_000
_MOST_DECISIONS = 100
_FOREVER = 1e9


def find_moves(state: ClusterState, key: str) -> KnownMoves | None:
    """Returns what a short search finds about moves that let the pod `namespace/name` run; None if none do.

    The number of plans that it tries depends on the cluster only, so the answer is the same each time. A large cluster
    is not copied for it, and in a cluster with many waiting pods each try is dear, because every pod is tried again.
    """
    tries = _MOST_DECISIONS // (len(state.pending) + 2)
    if len(state.infos) > _MOST_PODS or not tries:
        return KnownMoves(None, 1)
    limits = SearchLimits(_FOREVER, uses_solver=False, tries=tries)
    found = search(state, [key], [], KeepRules(), limits, SystemClock())
    if found.is_complete and not found.places_all:
        return None
    enough = len(found.moves) if found.places_all else 0  # without a move if pods of others are preempted for it
    return KnownMoves(enough or None, max(found.bound, 1))
