"""The historical names of predicates and priorities, and the rules that they stand for.

What became a plugin is that plugin as it is today; what did not has a rule of its own.
Source: pkg/scheduler/algorithm of Kubernetes until v1.17, framework/plugins/legacy_registry.go until v1.22.
"""

from __future__ import annotations

from collections.abc import Mapping

from extender.engine.predicates.inter_pod_affinity import InterPodAffinity
from extender.engine.predicates.max_volume_count import MaxVolumeCount
from extender.engine.predicates.node_affinity import NodeAffinity
from extender.engine.predicates.node_condition import CheckNodeCondition
from extender.engine.predicates.node_name import NodeName
from extender.engine.predicates.node_ports import NodePorts
from extender.engine.predicates.node_pressure import NodePressure
from extender.engine.predicates.node_resources_fit import NodeResourcesFit
from extender.engine.predicates.node_unschedulable import NodeUnschedulable
from extender.engine.predicates.node_volume_limits import NodeVolumeLimits
from extender.engine.predicates.pod_topology_spread import PodTopologySpread
from extender.engine.predicates.taint_toleration import TaintToleration
from extender.engine.predicates.volume_binding import VolumeBinding
from extender.engine.predicates.volume_restrictions import VolumeRestrictions
from extender.engine.predicates.volume_zone import VolumeZone
from extender.engine.priorities import (
    image_locality,
    inter_pod_affinity,
    node_affinity,
    node_resources_fit,
    pod_topology_spread,
    taint_toleration,
)
from extender.engine.priorities.equal import EqualPriority
from extender.engine.priorities.node_prefer_avoid_pods import NodePreferAvoidPods
from extender.engine.priorities.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from extender.engine.priorities.resource_limits import ResourceLimits
from extender.engine.priorities.selector_spread import SelectorSpread
from extender.engine.rules import Predicate, Priority
from extender.engine.scoring_strategies import least_allocated, most_allocated
from extender.model.csi_migration import AWS_EBS, AZURE_DISK, CINDER, GCE_PD
from extender.model.tolerations import NO_EXECUTE

LABEL_PRESENCE, SERVICE_AFFINITY = "CheckNodeLabelPresence", "CheckServiceAffinity"

# Without any of their own, pods are spread by SelectorSpreadPriority.
_NO_DEFAULT_CONSTRAINTS = ()

# In the order in which they run. The two without rules are made by their arguments.
PREDICATES: Mapping[str, tuple[Predicate, ...]] = {
    "CheckNodeCondition": (CheckNodeCondition(),),
    "CheckNodeUnschedulable": (NodeUnschedulable(),),
    "GeneralPredicates": (NodeResourcesFit(), NodeName(), NodePorts(), NodeAffinity()),
    "HostName": (NodeName(),),
    "PodFitsHostPorts": (NodePorts(),),
    "PodFitsPorts": (NodePorts(),),
    "MatchNodeSelector": (NodeAffinity(),),
    "PodFitsResources": (NodeResourcesFit(),),
    "NoDiskConflict": (VolumeRestrictions(),),
    "PodToleratesNodeTaints": (TaintToleration(),),
    "PodToleratesNodeNoExecuteTaints": (TaintToleration((NO_EXECUTE,)),),
    LABEL_PRESENCE: (),
    SERVICE_AFFINITY: (),
    "MaxEBSVolumeCount": (MaxVolumeCount(AWS_EBS, "attachable-volumes-aws-ebs", 39, "EBSLimits"),),
    "MaxGCEPDVolumeCount": (MaxVolumeCount(GCE_PD, "attachable-volumes-gce-pd", 16, "GCEPDLimits"),),
    "MaxCSIVolumeCountPred": (NodeVolumeLimits(),),
    "MaxAzureDiskVolumeCount": (MaxVolumeCount(AZURE_DISK, "attachable-volumes-azure-disk", 16, "AzureDiskLimits"),),
    "MaxCinderVolumeCount": (MaxVolumeCount(CINDER, "attachable-volumes-cinder", 256, "CinderLimits"),),
    "CheckVolumeBinding": (VolumeBinding(),),
    "NoVolumeZoneConflict": (VolumeZone(),),
    "CheckNodeMemoryPressure": (NodePressure("MemoryPressure", "CheckNodeMemoryPressure", best_effort_only=True),),
    "CheckNodePIDPressure": (NodePressure("PIDPressure", "CheckNodePIDPressure"),),
    "CheckNodeDiskPressure": (NodePressure("DiskPressure", "CheckNodeDiskPressure"),),
    "EvenPodsSpread": (PodTopologySpread(_NO_DEFAULT_CONSTRAINTS),),
    "MatchInterPodAffinity": (InterPodAffinity(),),
}

# Whatever a policy says, these run.
MANDATORY = frozenset(("PodToleratesNodeTaints", "CheckNodeUnschedulable"))

DEFAULT_PREDICATES = frozenset(
    (
        "CheckNodeUnschedulable",
        "CheckVolumeBinding",
        "EvenPodsSpread",
        "GeneralPredicates",
        "MatchInterPodAffinity",
        "MaxAzureDiskVolumeCount",
        "MaxCSIVolumeCountPred",
        "MaxEBSVolumeCount",
        "MaxGCEPDVolumeCount",
        "NoDiskConflict",
        "NoVolumeZoneConflict",
        "PodToleratesNodeTaints",
    )
)

DEFAULT_PRIORITIES: Mapping[str, int] = {
    "SelectorSpreadPriority": 1,
    "InterPodAffinityPriority": 1,
    "LeastRequestedPriority": 1,
    "BalancedResourceAllocation": 1,
    "NodePreferAvoidPodsPriority": 10000,
    "NodeAffinityPriority": 1,
    "TaintTolerationPriority": 1,
    "ImageLocalityPriority": 1,
    "EvenPodsSpreadPriority": 2,
}


def priorities(hard_pod_affinity_weight: int) -> Mapping[str, Priority]:
    """The priorities that need no argument, by name."""
    fit = node_resources_fit.NodeResourcesFit
    return {
        "SelectorSpreadPriority": SelectorSpread(),
        "ServiceSpreadingPriority": SelectorSpread(services_only=True, name="ServiceSpreadingPriority"),
        "InterPodAffinityPriority": inter_pod_affinity.InterPodAffinity(hard_pod_affinity_weight),
        "LeastRequestedPriority": fit(least_allocated, name="NodeResourcesLeastAllocated"),
        "MostRequestedPriority": fit(most_allocated, name="NodeResourcesMostAllocated"),
        "BalancedResourceAllocation": NodeResourcesBalancedAllocation(),
        "NodePreferAvoidPodsPriority": NodePreferAvoidPods(),
        "NodeAffinityPriority": node_affinity.NodeAffinity(),
        "TaintTolerationPriority": taint_toleration.TaintToleration(),
        "ImageLocalityPriority": image_locality.ImageLocality(),
        "EqualPriority": EqualPriority(),
        "ResourceLimitsPriority": ResourceLimits(),
        "EvenPodsSpreadPriority": pod_topology_spread.PodTopologySpread(_NO_DEFAULT_CONSTRAINTS),
    }
