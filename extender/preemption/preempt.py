"""One preemption decided: candidates on every node, the best of them. Source: upstream preemption.Evaluator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.algorithm import Fit, Profile
from extender.framework.candidate_limits import ALL_NODES, CandidateLimits
from extender.framework.status import Code
from extender.preemption.candidates import Candidates
from extender.preemption.eligibility import ineligibility
from extender.preemption.reprieve import select_victims
from extender.preemption.trial import Trial
from extender.preemption.victims import NO_VICTIMS, Victims, potential_victims
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NOT_HELPFUL = "Preemption is not helpful for scheduling"


@dataclass(frozen=True, slots=True)
class Preemption:
    """What became of it.

    Attributes:
        candidates: every node that would do, by name.
        nominated_node: the one chosen; None where there is none.
        reason: why there is none, in the scheduler's words.
    """

    candidates: Candidates
    nominated_node: str | None
    reason: str


def preempt(
    profile: Profile, pod: PodInfo, table: Table, fit: Fit, limits: CandidateLimits = ALL_NODES, offset: int = 0
) -> Preemption:
    """Which pods would have to go so that `pod` could come.

    Args:
        fit: what became of the pod's last attempt; only nodes where eviction may help are tried.
        offset: at which of these the search begins, which matters only within limits.
    """
    reason = ineligibility(pod, table, fit)
    if reason:
        return Preemption(Candidates(table, NO_VICTIMS), None, reason)
    rows = np.roll(fit.with_code(Code.UNSCHEDULABLE), -offset)
    victims = _search(Trial(profile, pod, table), pod, table, rows, limits.enough(len(rows)))
    candidates = Candidates(table, victims)
    return Preemption(candidates, candidates.best, "" if candidates else NOT_HELPFUL)


def _search(trial: Trial, pod: PodInfo, table: Table, rows: Rows, enough: int) -> Victims:
    """Victims on `enough` of the rows or more, taken in their order; on fewer only where no more will do."""
    found = NO_VICTIMS
    for begin in range(0, len(rows), max(enough, 1)):
        more = select_victims(trial, table, potential_victims(pod, table, rows[begin : begin + enough]))
        found = found.joined(more)
        nodes, protected = np.unique(found.rows), np.unique(found.rows[found.violating])
        if len(nodes) >= enough and len(nodes) > len(protected):
            break
    return found
