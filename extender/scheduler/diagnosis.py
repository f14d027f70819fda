"""The reasons why a pod fits nowhere, in the scheduler's words and in the queue's terms.

Source: upstream framework.FitError, Diagnosis.
"""

from __future__ import annotations

from extender.framework.find_fit import Fit
from extender.framework.profile import Profile
from extender.framework.status import Code
from extender.plugins.inter_pod_affinity import NAME as INTER_POD_AFFINITY
from extender.plugins.registry import users_rules
from extender.preemption import rows_per_refusal
from extender.queue.queued_pod import Rejection
from extender.scheduler.extenders import NAME as EXTENDER


def rejection(fit: Fit, profile: Profile) -> Rejection:
    """Returns the plugins that the pod waits for. Nodes that no plugin named count for those that named others."""
    codes: dict[str, set[Code]] = {}
    for refusal, rows in zip(fit.refusals, rows_per_refusal(fit), strict=True):
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


def _names(profile: Profile) -> list[str]:
    return [predicate.name for predicate in profile.predicates]
