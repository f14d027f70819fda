"""Which victims are really needed: all leave, then as many as possible come back.

Source: upstream DefaultPreemption.SelectVictimsOnNode, here for all nodes at once: each round gives every node one pod
back, and takes it away again where the preemptor fits no more.
"""

from __future__ import annotations

import numpy as np

from extender.preemption.trial import Trial
from extender.preemption.victims import Victims
from extender.table import HypotheticalRemovals, Table
from extender.table.labels import BoolColumn


def select_victims(trial: Trial, table: Table, potential: Victims) -> Victims:
    """The fewest of the potential victims that make room on each node; none for nodes where not even all of them do.

    Those that a PodDisruptionBudget protects are reprieved first, then the others, the most important first.
    """
    gone = HypotheticalRemovals(table, potential.slots, trial.awaited)
    rows = potential.rows[potential.begins()[:-1]]
    rows = rows[trial.possible(rows)]
    rows = rows[trial.fits(rows, gone)]
    helps = np.zeros(table.nodes.capacity, np.bool_)
    helps[rows] = True
    removed = potential.only(helps[potential.rows])
    return removed.only(~_reprieved(trial, removed, gone))


def _reprieved(trial: Trial, removed: Victims, gone: HypotheticalRemovals) -> BoolColumn:
    """Whether each of the pods that were removed can stay after all: bool[n]."""
    reprieved = np.zeros(len(removed.slots), np.bool_)
    turn = np.lexsort((~removed.violating, removed.rows))  # stable: importance decides among equals
    begins = removed.begins()
    pods_on_node = np.diff(begins)
    for nth in range(pods_on_node.max(initial=0)):
        asked = turn[begins[:-1][pods_on_node > nth] + nth]
        slots = removed.slots[asked]
        gone.come_back(slots)
        fits = trial.fits(removed.rows[asked], gone)
        gone.leave(slots[~fits])
        reprieved[asked] = fits
    return reprieved
