"""The reasons why a pod fits nowhere, in the scheduler's words and in the queue's terms.

Source: upstream framework.FitError, Diagnosis.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from extender.framework.find_fit import Fit
from extender.framework.profile import Profile
from extender.framework.status import Code
from extender.plugins.inter_pod_affinity import NAME as INTER_POD_AFFINITY
from extender.plugins.registry import users_rules
from extender.preemption import NOT_HELPFUL, Preemption
from extender.queue.queued_pod import Rejection
from extender.scheduler.extenders import NAME as EXTENDER
from extender.table import PodInfo, Table

NO_NODES = "no nodes available to schedule pods"
NO_VICTIMS = "No preemption victims found for incoming pod"


def fit_message(fit: Fit) -> str:
    """Returns `0/8 nodes are available: 3 Insufficient cpu, 5 node(s) had untolerated taint(s).`"""
    if fit.refused_at_once:
        return f"{_none_of(len(fit.rows))}: {', '.join(fit.refusals[0].reasons)}."
    counts: Counter[str] = Counter()
    for refusal, rows in zip(fit.refusals, _rows_of_each(fit), strict=True):
        counts.update({reason: rows for reason in refusal.reasons if rows})
    return _histogram(len(fit.rows), counts)


def preemption_message(fit: Fit, preemption: Preemption, pod: PodInfo, table: Table) -> str:
    """Returns what preemption adds to the message; nothing where it makes room.

    A node where evictions could help but would not be enough is counted by what it lacks now. Upstream counts what it
    would lack without the victims, which is the same text as a rule: a node that still lacks cpu lacks it now.
    """
    if preemption.nominated_node is not None:
        return ""
    if preemption.reason != NOT_HELPFUL:
        return f"preemption: {preemption.reason}"
    lesser = table.pods.row[(table.pods.row >= 0) & (table.pods.priority < pod.priority)]
    hopeless = ~np.isin(fit.rows, lesser)
    counts: Counter[str] = Counter()
    for cause, refusal in enumerate(fit.refusals):
        here = fit.cause == cause
        if not refusal.may_be_preempted:
            counts[NOT_HELPFUL] += int(here.sum())
            continue
        counts[NO_VICTIMS] += int((here & hopeless).sum())
        counts.update(dict.fromkeys(refusal.reasons, int((here & ~hopeless).sum())))
    return f"preemption: {_histogram(len(fit.rows), +counts)}"


def rejection(fit: Fit, profile: Profile) -> Rejection:
    """Returns the plugins that the pod waits for. Nodes that no plugin named count for those that named others."""
    codes: dict[str, set[Code]] = {}
    for refusal, rows in zip(fit.refusals, _rows_of_each(fit), strict=True):
        for plugin in [refusal.plugin] if refusal.plugin else fit.narrowed_by or _names(profile):
            if rows:
                codes.setdefault(plugin, set()).add(refusal.code)
    final = {plugin for plugin, given in codes.items() if given == {Code.UNSCHEDULABLE_AND_UNRESOLVABLE}}
    # Nobody knows what these wait for but by what they declare: every event is worth a try (kubernetes#122019). A pod
    # that must be near those like itself may be the first once they are gone.
    final -= {EXTENDER, INTER_POD_AFFINITY, *(rule.name for rule in users_rules(profile))}
    return Rejection(unschedulable=frozenset(codes), unresolvable=frozenset(final))


def rejection_by_all(profile: Profile) -> Rejection:
    """Returns the rejection for a pod that no rule was asked about, for want of nodes: any fitting node wakes it.

    Upstream names no plugin here, so that such pods are tried again and again.
    """
    return Rejection(unschedulable=frozenset(_names(profile)))


def failure(fit: Fit) -> str:
    """Returns the error of a plugin that could not decide; empty where all could."""
    failed = (refusal for refusal in fit.refusals if refusal.code is Code.ERROR)
    return next((f"running {refusal.plugin}: {', '.join(refusal.reasons)}" for refusal in failed), "")


def _rows_of_each(fit: Fit) -> list[int]:
    counts: list[int] = np.bincount(fit.cause[fit.cause >= 0], minlength=len(fit.refusals)).tolist()
    return counts


def _names(profile: Profile) -> list[str]:
    return [predicate.name for predicate in profile.predicates]


def _none_of(nodes: int) -> str:
    return f"0/{nodes} nodes are available"


def _histogram(nodes: int, counts: Counter[str]) -> str:
    parts = ", ".join(sorted(f"{rows} {reason}" for reason, rows in counts.items()))
    return f"{_none_of(nodes)}: {parts}." if parts else f"{_none_of(nodes)}:"
