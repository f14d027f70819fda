"""Defines the feature gates of kube-scheduler that affect decisions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The feature gates, with the defaults of kube-scheduler v1.37.1.

    `BY_NAME` has the names that kube-scheduler uses for them.
    """

    composite_pod_group: bool = False
    dra_fractional_capacity_range: bool = False
    dra_workload_resource_claims: bool = False
    generic_workload: bool = False
    node_declared_features: bool = True
    pod_group_preemption_policy: bool = False
    storage_capacity_scoring: bool = True
    topology_aware_workload_scheduling: bool = False
    volume_limit_scaling: bool = True

    @property
    def group_claims(self) -> bool:
        """True if the members of a PodGroup share the claims in its spec."""
        return self.generic_workload and self.dra_workload_resource_claims

    @property
    def composites(self) -> bool:
        """True if CompositePodGroups may contain PodGroups and form trees."""
        return self.generic_workload and self.topology_aware_workload_scheduling and self.composite_pod_group


BY_NAME = {
    "CompositePodGroup": "composite_pod_group",
    "DRAFractionalCapacityRange": "dra_fractional_capacity_range",
    "DRAWorkloadResourceClaims": "dra_workload_resource_claims",
    "GenericWorkload": "generic_workload",
    "NodeDeclaredFeatures": "node_declared_features",
    "PodGroupPreemptionPolicy": "pod_group_preemption_policy",
    "StorageCapacityScoring": "storage_capacity_scoring",
    "TopologyAwareWorkloadScheduling": "topology_aware_workload_scheduling",
    "VolumeLimitScaling": "volume_limit_scaling",
}
"""The fields of `FeatureGates`, by their names in kube-scheduler's --feature-gates."""
DEFAULT_FEATURES = FeatureGates()
