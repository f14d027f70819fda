"""The historical names of predicates and priorities, and the rules that they stand for.

What became a plugin is that plugin as it is today; what did not has a rule of its own.
Source: pkg/scheduler/algorithm of Kubernetes until v1.17, framework/plugins/legacy_registry.go until v1.22.
"""

from __future__ import annotations

from collections.abc import Mapping

from extender.framework.rules import Predicate, Priority
from extender.model.tolerations import NO_EXECUTE
from extender.model.volumes.csi_migration import AWS_EBS, AZURE_DISK, CINDER, GCE_PD
from extender.plugins import image_locality
from extender.plugins.classic.equal import EqualPriority
from extender.plugins.classic.max_volume_count import MaxVolumeCount
from extender.plugins.classic.node_condition import CheckNodeCondition
from extender.plugins.classic.node_prefer_avoid_pods import NodePreferAvoidPods
from extender.plugins.classic.node_pressure import NodePressure
from extender.plugins.classic.resource_limits import ResourceLimits
from extender.plugins.classic.selector_spread import SelectorSpread
from extender.plugins.inter_pod_affinity import priority as inter_pod_affinity
from extender.plugins.inter_pod_affinity.predicate import InterPodAffinity
from extender.plugins.node_affinity import priority as node_affinity
from extender.plugins.node_affinity.predicate import NodeAffinity
from extender.plugins.node_name import NodeName
from extender.plugins.node_ports import NodePorts
from extender.plugins.node_resources import fit_score as node_resources_fit
from extender.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from extender.plugins.node_resources.fit import NodeResourcesFit
from extender.plugins.node_resources.scoring_strategies import least_allocated, most_allocated
from extender.plugins.node_unschedulable import NodeUnschedulable
from extender.plugins.node_volume_limits import NodeVolumeLimits
from extender.plugins.pod_topology_spread import priority as pod_topology_spread
from extender.plugins.pod_topology_spread.predicate import PodTopologySpread
from extender.plugins.taint_toleration import priority as taint_toleration
from extender.plugins.taint_toleration.predicate import TaintToleration
from extender.plugins.volume_binding.predicate import VolumeBinding
from extender.plugins.volume_restrictions import VolumeRestrictions
from extender.plugins.volume_zone import VolumeZone

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
