"""Writes the message for a pod that fits on no node, in kube-scheduler's words. Source: upstream framework.FitError."""

from __future__ import annotations

from collections import Counter

import numpy as np

from extender.framework.find_fit import Fit
from extender.preemption.evaluator import NOT_HELPFUL, Preemption
from extender.preemption.units import evictable
from extender.table import PodInfo, Table

NO_NODES = "no nodes available to schedule pods"
NO_VICTIMS_FOUND = "No preemption victims found for incoming pod"


def fit_message(fit: Fit) -> str:
    """Returns a message such as `0/8 nodes are available: 3 Insufficient cpu, 5 node(s) had untolerated taint(s).`

    If a check ended in an error, the whole attempt has failed, and the message is that of the first error.
    """
    if (error := fit.error) is not None:
        text = ", ".join(error.reasons)
        return text if text.startswith("running ") else f"running {error.plugin}: {text}"
    if fit.refused_at_once:
        return f"{_none_of(len(fit.rows))}: {', '.join(fit.refusals[0].reasons)}."
    counts: Counter[str] = Counter()
    for refusal, rows in zip(fit.refusals, rows_per_refusal(fit), strict=True):
        counts.update({reason: rows for reason in refusal.reasons if rows})
    return _histogram(len(fit.rows), counts)


def preemption_message(fit: Fit, preemption: Preemption, pod: PodInfo, table: Table) -> str:
    """Returns what preemption did, or why it nominated no node. The sentence follows `fit_message` in the condition.

    Source: upstream DefaultPreemption.PostFilter, Evaluator.Preempt.

    For nodes where pods could be evicted, but that would refuse the pod even then, the text has the reasons why they
    refuse the pod now.
    Upstream has the reasons that would remain after the evictions. The two are usually the same: a node that lacks cpu
    after all evictions lacks cpu now, too.
    """
    if (node := preemption.nominated_node) is not None:
        victims = len(preemption.candidates[node].victims)
        return f"preemption: found a potential placement for pod on node {node}, preempting {victims} victims"
    if preemption.reason != NOT_HELPFUL:
        return f"preemption: {preemption.reason}"
    with_victims = table.pods.row[evictable(table, np.flatnonzero(table.pods.row >= 0), pod.priority)]
    needless = [table.nodes.row_of[node] for node in preemption.without_victims]
    without_victims = ~np.isin(fit.rows, with_victims) | np.isin(fit.rows, needless)
    counts: Counter[str] = Counter()
    for cause, refusal in enumerate(fit.refusals):
        refused = fit.cause == cause
        if not refusal.may_be_preempted:
            counts[NOT_HELPFUL] += int(refused.sum())
            continue
        counts[NO_VICTIMS_FOUND] += int((refused & without_victims).sum())
        counts.update(dict.fromkeys(refusal.reasons, int((refused & ~without_victims).sum())))
    return f"preemption: {_histogram(len(fit.rows), +counts)}"


def rows_per_refusal(fit: Fit) -> list[int]:
    """Returns how many rows each of `fit.refusals` refuses."""
    counts: list[int] = np.bincount(fit.cause[fit.cause >= 0], minlength=len(fit.refusals)).tolist()
    return counts


def _none_of(nodes: int) -> str:
    return f"0/{nodes} nodes are available"


def _histogram(nodes: int, counts: Counter[str]) -> str:
    parts = ", ".join(sorted(f"{rows} {reason}" for reason, rows in counts.items()))
    return f"{_none_of(nodes)}: {parts}." if parts else f"{_none_of(nodes)}:"
