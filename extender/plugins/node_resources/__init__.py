"""NodeResourcesFit and NodeResourcesBalancedAllocation: what pods request, against what nodes offer.

Source: upstream plugin noderesources.
"""

from __future__ import annotations

from extender.framework.plugin import FILTER, PRE_FILTER, PRE_SCORE, Plugin
from extender.plugins.node_resources import balanced_allocation
from extender.plugins.node_resources.arguments import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    weights,
)
from extender.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from extender.plugins.node_resources.fit import NAME, NodeResourcesFitFilter
from extender.plugins.node_resources.fit_score import NodeResourcesFitScore
from extender.plugins.node_resources.hints import INTERESTS

FIT = Plugin(
    NAME,
    NodeResourcesFitArgs,
    lambda args: NodeResourcesFitFilter(frozenset(args.ignored_resources), frozenset(args.ignored_resource_groups)),
    lambda args: NodeResourcesFitScore(args.scoring_strategy.strategy, weights(args.scoring_strategy.resources)),
    points=frozenset((PRE_SCORE, "placementScore")),
    needs=((FILTER, PRE_FILTER),),
    interests=INTERESTS,
)
BALANCED_ALLOCATION = Plugin(
    balanced_allocation.NAME,
    NodeResourcesBalancedAllocationArgs,
    priority=lambda args: NodeResourcesBalancedAllocation(weights(args.resources)),
    points=frozenset((PRE_SCORE,)),
)
