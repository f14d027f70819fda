"""PodTopologySpread: pods are spread evenly over topology domains. Source: upstream podtopologyspread."""

from __future__ import annotations

from extender.framework.plugin import FILTER, PRE_FILTER, PRE_SCORE, SCORE, Plugin
from extender.plugins.pod_topology_spread.arguments import PodTopologySpreadArgs
from extender.plugins.pod_topology_spread.constraints import NAME
from extender.plugins.pod_topology_spread.hints import INTERESTS
from extender.plugins.pod_topology_spread.predicate import PodTopologySpreadFilter
from extender.plugins.pod_topology_spread.priority import PodTopologySpreadScore

PLUGIN = Plugin(
    NAME,
    PodTopologySpreadArgs,
    lambda args: PodTopologySpreadFilter(args.defaults),
    lambda args: PodTopologySpreadScore(args.defaults),
    weight=2,
    points=frozenset((PRE_SCORE,)),
    needs=((FILTER, PRE_FILTER), (SCORE, PRE_SCORE)),
    interests=INTERESTS,
)
