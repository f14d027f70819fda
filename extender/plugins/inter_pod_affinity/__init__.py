"""InterPodAffinity: pods attract and repel one another within topology domains. Source: upstream interpodaffinity."""

from __future__ import annotations

from typing import Literal

from extender.framework.plugin import FILTER, PRE_FILTER, PRE_SCORE, SCORE, Arguments, Plugin
from extender.framework.schema import Percentage
from extender.plugins.inter_pod_affinity.hints import INTERESTS
from extender.plugins.inter_pod_affinity.predicate import NAME, InterPodAffinityFilter
from extender.plugins.inter_pod_affinity.priority import InterPodAffinityScore


class InterPodAffinityArgs(Arguments):
    kind: Literal["InterPodAffinityArgs"] = "InterPodAffinityArgs"
    hard_pod_affinity_weight: Percentage = 1
    """The weight of required affinity of other pods when nodes are scored."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Counts what placed pods prefer only for pods that prefer something themselves."""


PLUGIN = Plugin(
    NAME,
    InterPodAffinityArgs,
    lambda _: InterPodAffinityFilter(),
    lambda args: InterPodAffinityScore(args.hard_pod_affinity_weight, args.ignore_preferred_terms_of_existing_pods),
    weight=2,
    points=frozenset((PRE_SCORE,)),
    needs=((FILTER, PRE_FILTER), (SCORE, PRE_SCORE)),
    interests=INTERESTS,
)
