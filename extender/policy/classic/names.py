"""The historical names of predicates and priorities, and the rules that they stand for.

What became a plugin is that plugin as it is today; what did not has a rule of its own.
Source: pkg/scheduler/algorithm of Kubernetes until v1.17, framework/plugins/legacy_registry.go until v1.22.
"""

from __future__ import annotations

from collections.abc import Mapping

from extender.framework.rules import Predicate, Priority
from extender.model.node import NO_EXECUTE
from extender.model.volumes.csi_migration import AWS_EBS, AZURE_DISK, CINDER, GCE_PD
from extender.plugins import image_locality
from extender.plugins.classic.max_volume_count import MaxVolumeCount
from extender.plugins.classic.node_conditions import CheckNodeCondition, NodePressure
from extender.plugins.classic.priorities import EqualPriority, NodePreferAvoidPods, ResourceLimits
from extender.plugins.classic.service_affinity import SelectorSpread
from extender.plugins.inter_pod_affinity.predicate import InterPodAffinityFilter
from extender.plugins.inter_pod_affinity.priority import InterPodAffinityScore
from extender.plugins.node_affinity import NodeAffinityFilter, NodeAffinityScore
from extender.plugins.node_name import NodeName
from extender.plugins.node_ports import NodePorts
from extender.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from extender.plugins.node_resources.fit import NodeResourcesFitFilter
from extender.plugins.node_resources.fit_score import NodeResourcesFitScore, least_allocated, most_allocated
from extender.plugins.node_unschedulable import NodeUnschedulable
from extender.plugins.node_volume_limits import NodeVolumeLimits
from extender.plugins.pod_topology_spread.predicate import PodTopologySpreadFilter
from extender.plugins.pod_topology_spread.priority import PodTopologySpreadScore
from extender.plugins.taint_toleration import TaintTolerationFilter, TaintTolerationScore
from extender.plugins.volume_binding import VolumeBindingFilter
from extender.plugins.volume_restrictions import VolumeRestrictions
from extender.plugins.volume_zone import VolumeZone

LABEL_PRESENCE, SERVICE_AFFINITY = "CheckNodeLabelPresence", "CheckServiceAffinity"

# Without any of their own, pods are spread by SelectorSpreadPriority.
_NO_DEFAULT_CONSTRAINTS = ()

# In the order in which they run. The two without rules are made by their arguments.
PREDICATES: Mapping[str, tuple[Predicate, ...]] = {
    "CheckNodeCondition": (CheckNodeCondition(),),
    "CheckNodeUnschedulable": (NodeUnschedulable(),),
    "GeneralPredicates": (NodeResourcesFitFilter(), NodeName(), NodePorts(), NodeAffinityFilter()),
    "HostName": (NodeName(),),
    "PodFitsHostPorts": (NodePorts(),),
    "PodFitsPorts": (NodePorts(),),
    "MatchNodeSelector": (NodeAffinityFilter(),),
    "PodFitsResources": (NodeResourcesFitFilter(),),
    "NoDiskConflict": (VolumeRestrictions(),),
    "PodToleratesNodeTaints": (TaintTolerationFilter(),),
    "PodToleratesNodeNoExecuteTaints": (TaintTolerationFilter((NO_EXECUTE,)),),
    LABEL_PRESENCE: (),
    SERVICE_AFFINITY: (),
    "MaxEBSVolumeCount": (MaxVolumeCount(AWS_EBS, "attachable-volumes-aws-ebs", 39, "EBSLimits"),),
    "MaxGCEPDVolumeCount": (MaxVolumeCount(GCE_PD, "attachable-volumes-gce-pd", 16, "GCEPDLimits"),),
    "MaxCSIVolumeCountPred": (NodeVolumeLimits(),),
    "MaxAzureDiskVolumeCount": (MaxVolumeCount(AZURE_DISK, "attachable-volumes-azure-disk", 16, "AzureDiskLimits"),),
    "MaxCinderVolumeCount": (MaxVolumeCount(CINDER, "attachable-volumes-cinder", 256, "CinderLimits"),),
    "CheckVolumeBinding": (VolumeBindingFilter(),),
    "NoVolumeZoneConflict": (VolumeZone(),),
    "CheckNodeMemoryPressure": (NodePressure("MemoryPressure", "CheckNodeMemoryPressure", best_effort_only=True),),
    "CheckNodePIDPressure": (NodePressure("PIDPressure", "CheckNodePIDPressure"),),
    "CheckNodeDiskPressure": (NodePressure("DiskPressure", "CheckNodeDiskPressure"),),
    "EvenPodsSpread": (PodTopologySpreadFilter(_NO_DEFAULT_CONSTRAINTS),),
    "MatchInterPodAffinity": (InterPodAffinityFilter(),),
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
    """Returns the priorities that need no argument, by name."""
    fit = NodeResourcesFitScore
    return {
        "SelectorSpreadPriority": SelectorSpread(),
        "ServiceSpreadingPriority": SelectorSpread(services_only=True, name="ServiceSpreadingPriority"),
        "InterPodAffinityPriority": InterPodAffinityScore(hard_pod_affinity_weight),
        "LeastRequestedPriority": fit(least_allocated, name="NodeResourcesLeastAllocated"),
        "MostRequestedPriority": fit(most_allocated, name="NodeResourcesMostAllocated"),
        "BalancedResourceAllocation": NodeResourcesBalancedAllocation(),
        "NodePreferAvoidPodsPriority": NodePreferAvoidPods(),
        "NodeAffinityPriority": NodeAffinityScore(),
        "TaintTolerationPriority": TaintTolerationScore(),
        "ImageLocalityPriority": image_locality.ImageLocality(),
        "EqualPriority": EqualPriority(),
        "ResourceLimitsPriority": ResourceLimits(),
        "EvenPodsSpreadPriority": PodTopologySpreadScore(_NO_DEFAULT_CONSTRAINTS),
    }
