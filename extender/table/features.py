"""Lists the versions of Kubernetes that can be followed, and what differs between their kube-schedulers.

A version differs in its feature gates and in behaviours that no gate switches. Both are fields of `FeatureGates`, so a
rule reads `table.features.storage_capacity_scoring` or `table.features.behaviours.victims_by_uid`, never a version.
`VERSIONS` has the values of each version.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviours:
    """Behaviour of kube-scheduler that depends on its version, not on a gate.

    Up to 1.37 every field is False; 1.38 has all of them.
    """

    empty_spread_selector_counts: bool = False
    """A spread constraint with `labelSelector: {}` counts every pod of the namespace; before 1.38, none.

    Upstream: podtopologyspread/common.go countPodsMatchSelector.
    """
    pod_level_requests_in_score: bool = False
    """NodeResourcesFit scores by the requests in `spec.resources` of the pod; before 1.38, by its containers alone.

    Upstream: noderesources/fit.go getScorer.
    """
    exact_score_fractions: bool = False
    """Scores are exact fractions of amounts up to 2^63; before 1.38, a product of amounts could overflow.

    Upstream: noderesources/resource_allocation.go scaledFraction.
    """
    request_sums_are_capped: bool = False
    """The requests of the pods on a node add up to 2^63 - 1 at most; before 1.38, a larger sum wrapped around.

    Upstream: framework/types.go NodeInfo.updateRequested, SaturatingAdd.
    """
    every_budget_protects: bool = False
    """A budget with `selector: {}` protects all pods of its namespace, and a budget may match pods without labels.

    Before 1.38, neither protected a pod. Upstream: framework/preemption FilterVictimsWithPDBViolation.
    """
    victims_by_uid: bool = False
    """Among equally important victims, the one with the lower UID stays; before 1.38, any of them.

    Upstream: framework/preemption MoreImportantVictim.
    """
    candidates_without_victims: bool = False
    """Preemption offers extenders nodes on which no pod has to go; before 1.38, such a node was an error.

    Upstream: framework/preemption/preemption.go DryRunPreemption, callExtenders.
    """
    incomplete_pools_refuse_the_node: bool = False
    """A claim for all devices of an incomplete or invalid pool refuses that node; before 1.38, the pod failed.

    Upstream: dynamic-resource-allocation/structured/internal/stable/allocator_stable.go.
    """
    capacities_have_domains: bool = False
    """The name of a device's capacity without a domain has that of the driver; before 1.38, names had to be equal.

    Upstream: dynamic-resource-allocation/structured/internal/stable/consumable_capacity.go.
    """
    attributes_fail_when_read: bool = False
    """An attribute without a known value is an error only for what reads it, and versions are compared as semver.

    Before 1.38, it failed every selector of the device, and versions were compared as text. Upstream:
    dynamic-resource-allocation/structured/internal/stable/constraint.go, dynamic-resource-allocation/cel/compile.go.
    """
    shares_prevent_exclusive_use: bool = False
    """A device with a share in use is not given as a whole, although it no longer allows multiple allocations.

    Upstream: dynamic-resource-allocation/structured/internal/stable/allocator_stable.go allocateDevice.
    """
    every_class_has_its_resource: bool = False
    """A DeviceClass keeps its implicit resource if another class provides its extendedResourceName.

    Upstream: dynamic-resource-allocation/deviceclass/extendedresourcecache.
    """
    negative_consumption_fails: bool = False
    """A negative consumedCapacity in an allocated claim fails every pod with claims.

    Upstream: dynamicresources/allocateddevices.go.
    """
    certificate_and_oci_features: bool = False
    """NodeDeclaredFeatures infers PodCertificateMLDSA and SecurityProfileOCI.

    Upstream: component-helpers/nodedeclaredfeatures/features.
    """
    exact_storage_capacity: bool = False
    """A CSIStorageCapacity is compared exactly; before 1.38, rounded up to bytes.

    Upstream: volumebinding/binder.go capacitySufficient.
    """
    shrunk_nomination_wakes: bool = False
    """A pod is tried again when the node that it is nominated to becomes too small for it.

    Upstream: noderesources/fit.go isSchedulableAfterNodeChange.
    """
    placement_fields: bool = False
    """A configuration may have percentageOfPlacementsToScore, placementFeasible, and DefaultPreemption at reserve.

    It may no longer have GangScheduling at permit. Upstream: kube-scheduler/config/v1/types.go,
    gangscheduling/gangscheduling.go.
    """
    whole_trees_are_validated: bool = False
    """All groups and pods of a tree are validated together, and an invalid group has the reason PodGroupError.

    Before 1.38, only the pods were compared with the root, and a tree with too many levels waited. Upstream:
    schedule_one_podgroup.go validatePodGroupHierarchy.
    """
    members_are_evicted_as_pods: bool = False
    """Preemption counts a group member with its own priority, and as a pod if its group is not evicted as a whole.

    Before 1.38, it counted with the priority of the root group, and as a PodGroup. Upstream:
    framework/preemption/types.go NewPodVictim.
    """
    failures_name_the_group: bool = False
    """A member that fails with its group gets the name of the group as the reason; before 1.38, the group's reasons.

    The same holds for a group below one that failed. Upstream: schedule_one_podgroup.go buildAncestorFailureStatus,
    schedule_one.go handleSchedulingFailure, and PlacementFeasible of gangscheduling.
    """
    preemption_ranks_nodes: bool = False
    """A preempting group puts its members on the nodes where the least important victims have to go.

    Before 1.38, only the scores of the emptied nodes counted. Upstream: RankNodes of
    defaultpreemption/default_preemption.go, framework/preemption/util.go CompareVictimSets.
    """
    ongoing_preemption_comes_first: bool = False
    """A group whose victims are leaving keeps waiting for them, even if its preemption policy is Never.

    Before 1.38, the policy was checked first. Upstream: framework/preemption/podgrouppreemption.go Preempt.
    """
    no_victims_is_unschedulable: bool = False
    """A group that finds no victims may release claims; before 1.38, this outcome ended PodGroupPostFilter.

    Upstream: framework/preemption/podgrouppreemption.go Preempt.
    """
    nominated_placement_first: bool = False
    """A PodGroup without parents is placed in the topology domain of its nominated nodes, if a member fits there.

    Before 1.38, the domain with the highest score was chosen. Upstream: algorithm_podgroup.go nominatedPlacement.
    """
    enough_placements_end_the_search: bool = False
    """Only percentageOfPlacementsToScore of the topology domains that can take a group are compared; before 1.38, all.

    Upstream: algorithm_podgroup.go numFeasiblePlacementsToFind.
    """
    empty_labels_are_no_domain: bool = False
    """Nodes whose topology label is empty are in no topology domain; before 1.38, they were in one with an empty name.

    Upstream: topologyaware/topology_placement.go GeneratePlacements.
    """
    composites_have_conditions: bool = False
    """A CompositePodGroup has the condition CompositePodGroupInitiallyScheduled; before 1.38, only PodGroups had one.

    Upstream: schedule_one_podgroup.go submitCompositePodGroupResult.
    """
    recreated_groups_are_new: bool = False
    """A group that is deleted and created again between two watch events wakes its members, as any new group does.

    Before 1.38, it counted as an update. Upstream: eventhandlers.go, backend/queue/scheduling_queue.go.
    """
    group_priorities_have_no_maximum: bool = False
    """A group may have the priority of a system PriorityClass, above 10^9; before 1.38, the API server refused it.

    Upstream: pkg/apis/scheduling/validation.
    """
    more_objects_are_refused: bool = False
    """A claim must not ask for a negative or misnamed capacity, and only a gang may have the disruptionMode `all`.

    Before 1.38, the API server took both. Upstream: pkg/apis/resource/validation, pkg/apis/scheduling/validation.
    """
    composite_placements_are_counted: bool = False
    """The metrics of placements count those of CompositePodGroups; before 1.38, only those of PodGroups.

    Upstream: algorithm_podgroup.go compositePodGroupSchedulingPlacementAlgorithm.
    """
    metrics_have_entities: bool = False
    """Metrics of queues and groups have the label `entity`, and those of preemption the kinds of both sides.

    Before 1.38, the label was `type`, and a tree counted as a podgroup. Upstream: metrics/metrics.go.
    """


@dataclass(frozen=True, slots=True)
class VersionChoices:
    """The gates that a user has set, by name, and a version; None if the version of the cluster is followed."""

    version: str | None = None
    gates: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The feature gates, with the defaults of 1.37, and what else differs between versions.

    `BY_NAME` has the names that kube-scheduler uses for the gates.

    Attributes:
        version: the minor version of Kubernetes that is followed.
        behaviours: what no gate switches in that version.
        choices: what a user has set; the rest has the defaults of `version`.
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
    version: str = "1.37"
    behaviours: Behaviours = Behaviours()
    choices: VersionChoices = field(default=VersionChoices(), compare=False, repr=False)

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
DEPENDENCIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "CompositePodGroup": ("GenericWorkload", "TopologyAwareWorkloadScheduling"),
        "DRAWorkloadResourceClaims": ("GenericWorkload",),
        "PodGroupPreemptionPolicy": ("GenericWorkload",),
        "TopologyAwareWorkloadScheduling": ("GenericWorkload",),
    }
)
"""The gates that need others, in every version that has them: with one of the others off, kube-scheduler ends."""


@dataclass(frozen=True, slots=True)
class KubernetesVersion:
    """A minor version of Kubernetes.

    Attributes:
        features: its defaults.
        locked: the gates of its scheduler that are always on, so that setting them to false is an error.
        gone: the gates that it does not have, so that setting them is an error.
    """

    features: FeatureGates
    locked: Set[str] = frozenset()
    gone: Set[str] = frozenset()


_BEHAVIOURS_OF_1_38 = Behaviours(**{behaviour.name: True for behaviour in fields(Behaviours)})

_LOCKED_UNTIL_1_37 = {
    "DynamicResourceAllocation", "InPlacePodVerticalScaling", "JobManagedBy", "MatchLabelKeysInPodAffinity",
    "PodSchedulingReadiness", "RecoverVolumeExpansionFailure",
}  # fmt: skip
_LOCKED_IN_1_35 = {"NodeInclusionPolicyInPodTopologySpread"}
_LOCKED_IN_1_36 = _LOCKED_IN_1_35 | {
    "DRAAdminAccess", "SELinuxChangePolicy", "SELinuxMountReadWriteOncePod", "VolumeAttributesClass",
}  # fmt: skip
_LOCKED_IN_1_37 = _LOCKED_IN_1_36 | {
    "DRAExtendedResource", "DRAPrioritizedList", "DRAResourceClaimDeviceStatus", "NodeDeclaredFeatures",
}  # fmt: skip
_LOCKED_IN_1_38 = _LOCKED_IN_1_37 | {
    "DRADeviceBindingConditions", "DRADeviceTaintRules", "DRADeviceTaints", "DRAPartitionableDevices",
}  # fmt: skip
_NEW_IN_1_37 = {"CompositePodGroup", "DRAFractionalCapacityRange", "PodGroupPreemptionPolicy"}
_NEW_IN_1_36 = {"DRAWorkloadResourceClaims", "TopologyAwareWorkloadScheduling"}

VERSIONS: Mapping[str, KubernetesVersion] = MappingProxyType(
    {
        "1.35": KubernetesVersion(
            FeatureGates(
                version="1.35", node_declared_features=False, storage_capacity_scoring=False, volume_limit_scaling=False
            ),
            locked=_LOCKED_IN_1_35 | _LOCKED_UNTIL_1_37,
            gone=_NEW_IN_1_36 | _NEW_IN_1_37,
        ),
        "1.36": KubernetesVersion(
            FeatureGates(version="1.36", storage_capacity_scoring=False, volume_limit_scaling=False),
            locked=_LOCKED_IN_1_36 | _LOCKED_UNTIL_1_37,
            gone=_NEW_IN_1_37,
        ),
        "1.37": KubernetesVersion(
            FeatureGates(version="1.37"),
            locked=_LOCKED_IN_1_37 | _LOCKED_UNTIL_1_37,
        ),
        "1.38": KubernetesVersion(
            FeatureGates(
                version="1.38",
                dra_fractional_capacity_range=True,
                pod_group_preemption_policy=True,  # no longer a gate: part of GenericWorkload
                behaviours=_BEHAVIOURS_OF_1_38,
            ),
            locked=_LOCKED_IN_1_38,
            gone=_LOCKED_UNTIL_1_37 | {"PodGroupPreemptionPolicy"},
        ),
    }
)
"""The versions that can be followed, the oldest first. docs/versions.md has the gates as a table."""
RELEASED = "1.37"
"""The newest version that is released: the one that is followed if nothing names another.

When Kubernetes releases the next one, this constant is all that changes here; CONTRIBUTING.md has the other steps.
"""
DEFAULT_FEATURES = VERSIONS[RELEASED].features


def features_of(choices: VersionChoices, cluster: str = RELEASED) -> FeatureGates:
    """Returns the defaults of the chosen version, else of the cluster's, with the chosen gates.

    A chosen gate that the version does not have is ignored.
    """
    version = VERSIONS[choices.version or cluster]
    gates = {name: on for name, on in choices.gates.items() if name not in version.gone}
    return with_values(replace(version.features, choices=choices), gates)


def with_values(features: FeatureGates, gates: Mapping[str, bool]) -> FeatureGates:
    """Returns `features` with these gates, given by name, switched on or off; ignores unknown names."""
    values: dict[str, Any] = {BY_NAME[name]: on for name, on in gates.items() if name in BY_NAME}
    return replace(features, **values)
