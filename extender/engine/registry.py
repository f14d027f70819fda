"""The rules by name, and the profile that the scheduler has by default.

A registry is a value that is passed in, never a module that rules write themselves into.
"""

from __future__ import annotations

from extender.engine.algorithm import Profile, WeightedPriority
from extender.engine.predicates.node_affinity import NodeAffinity
from extender.engine.predicates.node_name import NodeName
from extender.engine.predicates.node_ports import NodePorts
from extender.engine.predicates.node_resources_fit import NodeResourcesFit
from extender.engine.predicates.node_unschedulable import NodeUnschedulable
from extender.engine.predicates.taint_toleration import TaintToleration
from extender.engine.priorities import image_locality, node_affinity, node_resources_fit, taint_toleration
from extender.engine.priorities.node_resources_balanced_allocation import NodeResourcesBalancedAllocation

DEFAULT_SCHEDULER = "default-scheduler"


def default_profile(name: str = DEFAULT_SCHEDULER) -> Profile:
    """The predicates and priorities of kube-scheduler v1.37 in its order, with its weights."""
    return Profile(
        name,
        predicates=(
            NodeName(),
            NodeUnschedulable(),
            TaintToleration(),
            NodeAffinity(),
            NodePorts(),
            NodeResourcesFit(),
        ),
        priorities=(
            WeightedPriority(taint_toleration.TaintToleration(), 3),
            WeightedPriority(node_affinity.NodeAffinity(), 2),
            WeightedPriority(node_resources_fit.NodeResourcesFit(), 1),
            WeightedPriority(NodeResourcesBalancedAllocation(), 1),
            WeightedPriority(image_locality.ImageLocality(), 1),
        ),
    )
