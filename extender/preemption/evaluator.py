"""One preemption: who may preempt, a dry run on the nodes that eviction may help, the best of the candidates.

Source: upstream preemption.Evaluator, DefaultPreemption.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from extender.framework.find_fit import Fit
from extender.framework.profile import ALL_NODES, CandidateLimits, Profile
from extender.framework.status import Code
from extender.model.pod import PREEMPTED_CONDITION, PREEMPTED_REASON, Pod
from extender.preemption.candidates import NO_VICTIMS, Candidates, VictimColumns, potential_victims
from extender.preemption.dry_run import DryRun
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, Rows

NEVER = "not eligible due to preemptionPolicy=Never."
WAITS_FOR_VICTIMS = "not eligible due to a terminating pod on the nominated node."
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NOBODY: Mapping[str, Sequence[str]] = {}


@dataclass(frozen=True, slots=True)
class Preemption:
    """The outcome of a preemption.

    Attributes:
        candidates: the nodes that would do, by name.
        nominated_node: the one picked; None without candidates.
        reason: the scheduler's words for having none, else empty.
    """

    candidates: Candidates
    nominated_node: str | None
    reason: str


class ProcessedPreemption(NamedTuple):
    """A scheduler's victims, corrected. Unknown nodes, and those where no eviction helps, are in neither part.

    Attributes:
        candidates: nodes with the victims that have to leave them.
        feasible: names of nodes that can take the pod without any victim, as far as the table knows.
    """

    candidates: Candidates
    feasible: list[str]


def preempt(
    profile: Profile,
    pod: PodInfo,
    table: Table,
    fit: Fit,
    limits: CandidateLimits = ALL_NODES,
    offset: int = 0,
    rows: Rows | None = None,
) -> Preemption:
    """Finds the pods that have to leave so that `pod` fits (upstream Evaluator.Preempt).

    Args:
        fit: the pod's last attempt; only nodes refused as Unschedulable are tried.
        offset: the index among these at which the dry run begins; it matters only within limits.
        rows: those of these that are tried; None: all.
    """
    reason = pod_ineligible_to_preempt_others(pod, table, fit)
    if reason:
        return Preemption(Candidates(table, NO_VICTIMS), None, reason)
    rows = np.roll(fit.with_code(Code.UNSCHEDULABLE) if rows is None else rows, -offset)
    candidates = Candidates(table, _dry_run_preemption(profile, pod, table, rows, limits.enough(len(rows))))
    return Preemption(candidates, candidates.best, "" if candidates else NOT_HELPFUL)


def process_preemption(
    profile: Profile,
    pod: PodInfo,
    table: Table,
    offered: Mapping[str, Sequence[str]],
    unconfirmed: Mapping[str, Sequence[str]] = NOBODY,
) -> ProcessedPreemption:
    """Corrects victims, UIDs by node, that a scheduler has chosen for `pod` (upstream ProcessPreemption).

    Where they suffice, those that need not leave are dropped. Where they do not, or none are offered, victims are
    selected among all pods of a lower priority, of the `unconfirmed` only those that are offered: the scheduler may not
    know of them. Pods of the same or a higher priority are never victims. Raises DeadlineExceeded.
    """
    rows = _known_rows(table, offered)
    potential = potential_victims(pod, table, rows)
    among_offered = _among(table, potential, offered)
    dry_run = DryRun(profile, pod, table)
    table.deadline.check("the dry run with the victims given")
    fitting = dry_run.rows_that_fit(rows, potential.only(among_offered))
    suffices = np.isin(potential.rows, fitting)
    table.deadline.check("who of the victims given may stay")
    fewer = dry_run.select_victims(potential.only(suffices & among_offered))
    table.deadline.check("the choice of other victims")
    known = among_offered | ~_among(table, potential, unconfirmed)
    other = dry_run.select_victims(potential.only(~suffices & known))
    feasible = np.setdiff1d(fitting, fewer.rows).tolist()
    return ProcessedPreemption(Candidates(table, fewer.joined(other)), [table.nodes.names[row] for row in feasible])


def pod_ineligible_to_preempt_others(pod: PodInfo, table: Table, fit: Fit) -> str:
    """Returns why the pod may not preempt others, else "" (upstream PodEligibleToPreemptOthers)."""
    if pod.pod.spec.preemption_policy == "Never":
        return NEVER
    row = table.nodes.row_of.get(pod.pod.status.nominated_node_name, -1)
    may_wait = row in fit.with_code(Code.UNSCHEDULABLE)  # elsewhere no victim's leaving could help
    return WAITS_FOR_VICTIMS if may_wait and _victims_are_leaving(pod, table, row) else ""


def pod_terminating_by_preemption(pod: Pod) -> bool:
    """Tells evicted pods that are still terminating (upstream PodTerminatingByPreemption)."""
    target = next((c for c in pod.status.conditions or () if c.type == PREEMPTED_CONDITION), None)
    return pod.terminating and target is not None and (target.status, target.reason) == ("True", PREEMPTED_REASON)


def _victims_are_leaving(pod: PodInfo, table: Table, row: int) -> bool:
    slots = table.pods.on(row)
    leaving = slots[table.pods.terminating[slots] & (table.pods.priority[slots] < pod.priority)]
    return any(pod_terminating_by_preemption(info.pod) for info in table.pods.at(leaving))


def _dry_run_preemption(profile: Profile, pod: PodInfo, table: Table, rows: Rows, enough: int) -> VictimColumns:
    """Victims on `enough` of the rows or more, taken in order; on fewer only where no more will do."""
    dry_run, found = DryRun(profile, pod, table), NO_VICTIMS
    for begin in range(0, len(rows), max(enough, 1)):
        more = dry_run.select_victims(potential_victims(pod, table, rows[begin : begin + enough]))
        found = found.joined(more)
        nodes, violating = np.unique(found.rows), np.unique(found.rows[found.violating])
        if len(nodes) >= enough and len(nodes) > len(violating):
            break
    return found


def _known_rows(table: Table, names: Mapping[str, object]) -> Rows:
    nodes = table.nodes
    rows = np.array([nodes.row_of[name] for name in names if name in nodes.row_of], np.intp)
    known: Rows = rows[nodes.present[rows]]
    return known


def _among(table: Table, potential: VictimColumns, offered: Mapping[str, Sequence[str]]) -> BoolColumn:
    """Tells the potential victims that are offered for the node that they stand on: bool[n]."""
    pods, names = table.pods, table.nodes.names
    slots = [
        slot
        for node, uids in offered.items()
        for slot in (pods.slot_of.get(uid, -1) for uid in uids)
        if slot >= 0 and names[pods.row[slot]] == node
    ]
    return np.isin(potential.slots, slots)
