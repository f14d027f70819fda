"""Another's choice of victims looked over: the scheduler's, made with its own rules, when it asks an extender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from extender.framework.algorithm import Profile
from extender.preemption.candidates import Candidates
from extender.preemption.reprieve import select_victims
from extender.preemption.trial import Trial
from extender.preemption.victims import Victims, potential_victims
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.labels import BoolColumn, Rows


class Revision(NamedTuple):
    """What became of the nodes offered; hopeless and unknown ones are in neither part.

    Attributes:
        candidates: nodes with the victims that they need.
        needless: nodes that could take the pod as they are, as far as the table knows.
    """

    candidates: Candidates
    needless: list[str]


def revise(profile: Profile, pod: PodInfo, table: Table, offered: Mapping[str, Sequence[str]]) -> Revision:
    """Looks at victims, UIDs by node, that were chosen to make room for `pod`.

    Where they suffice, those that need not go are left out. Where they do not, or none were offered, others are chosen
    among all pods of a lower priority. Pods of the same or a higher priority are never victims.
    """
    rows = _known_rows(table, offered)
    potential = potential_victims(pod, table, rows)
    among_offered = _among(table, potential, offered)
    trial = Trial(profile, pod, table)
    rows = rows[trial.possible(rows)]
    enough = rows[trial.fits(rows, HypotheticalRemovals(table, potential.slots[among_offered], trial.awaited))]
    suffices = np.isin(potential.rows, enough)
    trimmed = select_victims(trial, table, potential.only(suffices & among_offered))
    chosen = select_victims(trial, table, potential.only(~suffices))
    needless = np.setdiff1d(enough, trimmed.rows)
    return Revision(Candidates(table, trimmed.joined(chosen)), [table.nodes.names[row] for row in needless.tolist()])


def _known_rows(table: Table, names: Mapping[str, object]) -> Rows:
    nodes = table.nodes
    rows = np.array([nodes.row_of[name] for name in names if name in nodes.row_of], np.intp)
    known: Rows = rows[nodes.present[rows]]
    return known


def _among(table: Table, potential: Victims, offered: Mapping[str, Sequence[str]]) -> BoolColumn:
    """Whether each of the potential victims was offered, for the node that it stands on: bool[n]."""
    pods, names = table.pods, table.nodes.names
    slots = [
        slot
        for node, uids in offered.items()
        for slot in (pods.slot_of.get(uid, -1) for uid in uids)
        if slot >= 0 and names[pods.row[slot]] == node
    ]
    return np.isin(potential.slots, slots)
