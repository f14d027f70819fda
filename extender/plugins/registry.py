"""Lists the in-tree plugins in the order of the default profile, and builds that profile.

DefaultPreemption has no module: its arguments and events are here, and `extender.preemption` searches for the victims.

Source: upstream plugins/registry.go, apis/config/v1/default_plugins.go, with the default feature gates of v1.37.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from extender.framework.cluster_events import Action, Resource
from extender.framework.plugin import PRE_ENQUEUE, Arguments, Plugin, Registry
from extender.framework.policy_fields import Percentage
from extender.framework.profile import CandidateLimits, Profile, WeightedPriority
from extender.framework.queueing_hints import EVERYTHING, Interest, Interests, never
from extender.plugins import (
    device_scoring,
    dynamic_resources,
    gang_scheduling,
    image_locality,
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resources,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    scheduling_gates,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from extender.plugins.users.function import CustomRule
from extender.plugins.users.predicate import CustomPredicate
from extender.plugins.users.priority import CustomPriority
from extender.table.features import Behaviours

DEFAULT_SCHEDULER = "default-scheduler"
DEFAULT_PREEMPTION = "DefaultPreemption"


class DefaultPreemptionArgs(Arguments):
    kind: Literal["DefaultPreemptionArgs"] = "DefaultPreemptionArgs"
    min_candidate_nodes_percentage: Percentage = 10
    """Preemption considers at least this percentage of the nodes."""
    min_candidate_nodes_absolute: Annotated[int, Field(ge=0, le=2**31 - 1)] = 100
    """Preemption considers at least this number of nodes."""

    @model_validator(mode="after")
    def _not_both_zero(self) -> Self:
        if not self.min_candidate_nodes_percentage and not self.min_candidate_nodes_absolute:
            raise ValueError("minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be 0")
        return self

    @property
    def limits(self) -> CandidateLimits:
        return CandidateLimits(self.min_candidate_nodes_percentage, self.min_candidate_nodes_absolute)


def _without_rules(name: str, *points: str, default: bool = True) -> Plugin[Arguments]:
    """Returns a plugin that a configuration may name, but that neither filters nor scores here."""
    return Plugin(name, Arguments, points=frozenset(points), default=default)


_PLUGINS: tuple[Plugin[Any], ...] = (
    scheduling_gates.PLUGIN,
    _without_rules("PrioritySort", "queueSort"),
    node_name.PLUGIN,
    node_unschedulable.PLUGIN,
    taint_toleration.PLUGIN,
    node_affinity.PLUGIN,
    node_ports.PLUGIN,
    node_resources.FIT,
    volume_restrictions.PLUGIN,
    node_volume_limits.PLUGIN,
    volume_binding.PLUGIN,
    volume_zone.PLUGIN,
    pod_topology_spread.PLUGIN,
    inter_pod_affinity.PLUGIN,
    dynamic_resources.PLUGIN,
    Plugin(
        DEFAULT_PREEMPTION,
        DefaultPreemptionArgs,
        points=frozenset(("preEnqueue", "postFilter")),
        # `never` wakes no pod: when victims leave, the plugins that refused the pod wake it.
        interests=Interests((Interest(Resource.ASSIGNED_POD, Action.DELETE, never),)),
    ),
    node_resources.BALANCED_ALLOCATION,
    image_locality.PLUGIN,
    _without_rules("DefaultBinder", "bind"),
    node_declared_features.PLUGIN,
    _without_rules("DeferredPodScheduling", "preFilter", "filter", "permit", default=False),
    gang_scheduling.PLUGIN,
    _without_rules("TopologyPlacementGenerator", "placementGenerate", default=False),
    _without_rules("PodGroupPodsCount", "placementScore", default=False),
)

IN_TREE: Registry = {plugin.name: plugin for plugin in _PLUGINS}
REGISTRY: Registry = {**IN_TREE, device_scoring.PLUGIN.name: device_scoring.PLUGIN}
"""The in-tree plugins, and those that kube-scheduler does not have."""
INTERESTS: Mapping[str, Interests] = {
    plugin.name: plugin.interests for plugin in _PLUGINS if plugin.interests is not EVERYTHING
}
"""The events that may help a pod, by the plugin that refused it. For a plugin that is missing, any event may help."""


def interests_of(profiles: Iterable[Profile], behaviours: Behaviours) -> Mapping[str, Interests]:
    """Returns, for each rule including users' rules, the events that may help a pod that the rule refused."""
    interests = dict(INTERESTS)
    if behaviours.shrunk_nomination_wakes:
        fit = node_resources.FIT
        interests[fit.name] = Interests((*fit.interests.of, node_resources.SHRUNK_NOMINATION))
    for rule in (rule for profile in profiles for rule in profile.rules):
        if isinstance(rule, CustomRule):
            interests[rule.name] = rule.interests
        elif isinstance(rule, node_affinity.NodeAffinityFilter):  # each profile may add its own affinity for all pods
            interests[rule.name] = Interests((*interests[rule.name].of, *rule.added_interests))
    return interests


def users_rules(profile: Profile) -> list[CustomPredicate | CustomPriority]:
    """Returns the profile's predicates and priorities that are users' functions."""
    rules = (*profile.predicates, *(weighted.priority for weighted in profile.priorities))
    return [rule for rule in rules if isinstance(rule, CustomPredicate | CustomPriority)]


def default_profile(name: str = DEFAULT_SCHEDULER) -> Profile:
    """Returns the default profile of kube-scheduler v1.37, with the same rules, order and weights."""
    enabled = [(plugin, plugin.arguments()) for plugin in _PLUGINS if plugin.default]
    return Profile(
        name,
        predicates=[plugin.predicate(args) for plugin, args in enabled if plugin.predicate],
        priorities=[
            WeightedPriority(plugin.priority(args), plugin.weight) for plugin, args in enabled if plugin.priority
        ],
        pre_enqueue=tuple(plugin.others[PRE_ENQUEUE](args) for plugin, args in enabled if PRE_ENQUEUE in plugin.others),
    )
