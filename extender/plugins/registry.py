"""The in-tree plugins by name: the rules behind each, their arguments, and the profile that there is by default.

A registry is a value that is passed in, never a module that rules write themselves into.
Source: upstream plugins/registry.go, apis/config/v1/default_plugins.go, with the default feature gates of v1.37.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from extender.framework.algorithm import Profile, WeightedPriority
from extender.framework.rules import Predicate, Priority
from extender.plugins import image_locality
from extender.plugins.arguments import (
    Arguments,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    VolumeBindingArgs,
    duration_seconds,
    points,
)
from extender.plugins.dynamic_resources import priority as dynamic_resources
from extender.plugins.dynamic_resources.predicate import DynamicResources
from extender.plugins.inter_pod_affinity import priority as inter_pod_affinity
from extender.plugins.inter_pod_affinity.predicate import InterPodAffinity
from extender.plugins.node_affinity import priority as node_affinity
from extender.plugins.node_affinity.predicate import NodeAffinity
from extender.plugins.node_declared_features import NodeDeclaredFeatures
from extender.plugins.node_name import NodeName
from extender.plugins.node_ports import NodePorts
from extender.plugins.node_resources import fit_score as node_resources_fit
from extender.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from extender.plugins.node_resources.fit import NodeResourcesFit
from extender.plugins.node_unschedulable import NodeUnschedulable
from extender.plugins.node_volume_limits import NodeVolumeLimits
from extender.plugins.pod_topology_spread import priority as pod_topology_spread
from extender.plugins.pod_topology_spread.predicate import PodTopologySpread
from extender.plugins.taint_toleration import priority as taint_toleration
from extender.plugins.taint_toleration.predicate import TaintToleration
from extender.plugins.volume_binding import priority as volume_binding
from extender.plugins.volume_binding.predicate import VolumeBinding
from extender.plugins.volume_restrictions import VolumeRestrictions
from extender.plugins.volume_zone import VolumeZone

DEFAULT_SCHEDULER = "default-scheduler"

A = TypeVar("A", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Plugin(Generic[A]):
    """An in-tree plugin.

    Attributes:
        arguments: the model of its arguments.
        predicate, priority: make its rules; a plugin that has neither is of no interest here, but a configuration may
            name it.
        weight: of its scores in the default profile.
        points: its extension points other than preFilter and filter of a predicate, and score of a priority.
        default: whether it is enabled by default.
    """

    name: str
    arguments: type[A]
    predicate: Callable[[A], Predicate] | None = None
    priority: Callable[[A], Priority] | None = None
    weight: int = 1
    points: frozenset[str] = frozenset()
    default: bool = True

    def extends(self, point: str) -> bool:
        """Whether it has this extension point."""
        if point in ("preFilter", "filter") and self.predicate is not None:
            return True
        return (point == "score" and self.priority is not None) or point in self.points


Registry = Mapping[str, Plugin[Any]]

_PRE_SCORE = frozenset(("preScore",))

# In the order of the default profile.
_PLUGINS: tuple[Plugin[Any], ...] = (
    Plugin("SchedulingGates", Arguments, points=frozenset(("preEnqueue",))),
    Plugin("PrioritySort", Arguments, points=frozenset(("queueSort",))),
    Plugin("NodeName", Arguments, lambda _: NodeName()),
    Plugin("NodeUnschedulable", Arguments, lambda _: NodeUnschedulable()),
    Plugin(
        "TaintToleration",
        Arguments,
        lambda _: TaintToleration(),
        lambda _: taint_toleration.TaintToleration(),
        weight=3,
        points=_PRE_SCORE,
    ),
    Plugin(
        "NodeAffinity",
        NodeAffinityArgs,
        lambda args: NodeAffinity(args.added.required),
        lambda args: node_affinity.NodeAffinity(tuple(args.added.preferred or ())),
        weight=2,
        points=_PRE_SCORE,
    ),
    Plugin("NodePorts", Arguments, lambda _: NodePorts()),
    Plugin(
        "NodeResourcesFit",
        NodeResourcesFitArgs,
        lambda args: NodeResourcesFit(frozenset(args.ignored_resources), frozenset(args.ignored_resource_groups)),
        lambda args: node_resources_fit.NodeResourcesFit(args.scoring_strategy.strategy, args.resources),
        points=_PRE_SCORE | {"placementScore"},
    ),
    Plugin("VolumeRestrictions", Arguments, lambda _: VolumeRestrictions()),
    Plugin("NodeVolumeLimits", Arguments, lambda _: NodeVolumeLimits()),
    Plugin(
        "VolumeBinding",
        VolumeBindingArgs,
        lambda args: VolumeBinding(args.bind_timeout_seconds),
        lambda args: volume_binding.VolumeBinding(points(args.shape) or volume_binding.LEAST_USED),
        points=_PRE_SCORE | {"reserve", "preBind"},
    ),
    Plugin("VolumeZone", Arguments, lambda _: VolumeZone()),
    Plugin(
        "PodTopologySpread",
        PodTopologySpreadArgs,
        lambda args: PodTopologySpread(args.defaults),
        lambda args: pod_topology_spread.PodTopologySpread(args.defaults),
        weight=2,
        points=_PRE_SCORE,
    ),
    Plugin(
        "InterPodAffinity",
        InterPodAffinityArgs,
        lambda _: InterPodAffinity(),
        lambda args: inter_pod_affinity.InterPodAffinity(
            args.hard_pod_affinity_weight, args.ignore_preferred_terms_of_existing_pods
        ),
        weight=2,
        points=_PRE_SCORE,
    ),
    Plugin(
        "DynamicResources",
        DynamicResourcesArgs,
        lambda args: DynamicResources(duration_seconds(args.binding_timeout)),
        lambda _: dynamic_resources.DynamicResources(),
        weight=2,
        points=frozenset(("preEnqueue", "postFilter", "podGroupPostFilter", "reserve", "preBind")),
    ),
    Plugin("DefaultPreemption", DefaultPreemptionArgs, points=frozenset(("preEnqueue", "postFilter"))),
    Plugin(
        "NodeResourcesBalancedAllocation",
        NodeResourcesBalancedAllocationArgs,
        priority=lambda args: NodeResourcesBalancedAllocation(args.weights),
        points=_PRE_SCORE,
    ),
    Plugin("ImageLocality", Arguments, priority=lambda _: image_locality.ImageLocality()),
    Plugin("DefaultBinder", Arguments, points=frozenset(("bind",))),
    Plugin("NodeDeclaredFeatures", Arguments, lambda _: NodeDeclaredFeatures()),
    Plugin("DeferredPodScheduling", Arguments, points=frozenset(("preFilter", "filter", "permit")), default=False),
    Plugin("GangScheduling", Arguments, points=frozenset(("preEnqueue", "permit")), default=False),
    Plugin("TopologyPlacementGenerator", Arguments, points=frozenset(("placementGenerate",)), default=False),
    Plugin("PodGroupPodsCount", Arguments, points=frozenset(("placementScore",)), default=False),
)

IN_TREE: Registry = {plugin.name: plugin for plugin in _PLUGINS}


def default_profile(name: str = DEFAULT_SCHEDULER) -> Profile:
    """The predicates and priorities of kube-scheduler v1.37 in its order, with its weights."""
    enabled = [(plugin, plugin.arguments()) for plugin in _PLUGINS if plugin.default]
    return Profile(
        name,
        predicates=[plugin.predicate(args) for plugin, args in enabled if plugin.predicate],
        priorities=[
            WeightedPriority(plugin.priority(args), plugin.weight) for plugin, args in enabled if plugin.priority
        ],
    )
