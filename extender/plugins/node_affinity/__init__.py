"""NodeAffinity: a pod's nodeSelector and node affinity, and what a profile adds. Source: upstream nodeaffinity."""

from __future__ import annotations

from extender.framework.plugin import PRE_SCORE, Plugin
from extender.plugins.node_affinity.arguments import NodeAffinityArgs
from extender.plugins.node_affinity.hints import INTERESTS
from extender.plugins.node_affinity.predicate import NAME, NodeAffinityFilter
from extender.plugins.node_affinity.priority import NodeAffinityScore

PLUGIN = Plugin(
    NAME,
    NodeAffinityArgs,
    lambda args: NodeAffinityFilter(args.added.required),
    lambda args: NodeAffinityScore(tuple(args.added.preferred or ())),
    weight=2,
    points=frozenset((PRE_SCORE,)),
    interests=INTERESTS,
)
