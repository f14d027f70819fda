"""Reads a classic Policy as one profile: its fields, and its predicates and priorities by name.

Source: upstream's Policy API until v1.22.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from extender.framework.policy_fields import LabelKey, Percentage, ResourceSpec, Shape, Strict, points
from extender.framework.profile import Profile, WeightedPriority
from extender.framework.rules import Predicate, Priority
from extender.model.node import NO_EXECUTE
from extender.model.pod_volumes import AWS_EBS, AZURE_DISK, CINDER, GCE_PD
from extender.plugins import image_locality
from extender.plugins.classic import (
    CheckNodeCondition,
    EqualPriority,
    MaxVolumeCount,
    NodeLabelFilter,
    NodeLabelScore,
    NodePreferAvoidPods,
    NodePressure,
    ResourceLimits,
    SelectorSpread,
    ServiceAffinity,
    ServiceAntiAffinity,
)
from extender.plugins.inter_pod_affinity import InterPodAffinityFilter, InterPodAffinityScore
from extender.plugins.node_affinity import NodeAffinityFilter, NodeAffinityScore
from extender.plugins.node_name import NodeName
from extender.plugins.node_ports import NodePorts
from extender.plugins.node_resources import weights
from extender.plugins.node_resources_fit import NodeResourcesFitFilter
from extender.plugins.node_resources_scores import (
    NodeResourcesBalancedAllocation,
    NodeResourcesFitScore,
    RequestedToCapacityRatio,
    least_allocated,
    most_allocated,
)
from extender.plugins.node_unschedulable import NodeUnschedulable
from extender.plugins.node_volume_limits import NodeVolumeLimits
from extender.plugins.pod_topology_spread import PodTopologySpreadFilter, PodTopologySpreadScore
from extender.plugins.registry import DEFAULT_SCHEDULER
from extender.plugins.scheduling_gates import SchedulingGates
from extender.plugins.taint_toleration import TaintTolerationFilter, TaintTolerationScore
from extender.plugins.volume_binding import VolumeBindingFilter
from extender.plugins.volume_restrictions import VolumeRestrictions
from extender.plugins.volume_zone import VolumeZone
from extender.policy.extenders import LegacyExtenderSpec, in_any_case, read_extenders
from extender.policy.faults import Faults
from extender.policy.library import Library
from extender.policy.policy import Policy

Labels = Annotated[tuple[LabelKey, ...], Field(min_length=1)]


class ServiceAffinityArgument(Strict):
    labels: Labels
    """Node labels whose values must be equal for all pods of a Service."""


class LabelsPresenceArgument(Strict):
    labels: Labels
    """The node labels to check."""
    presence: bool = False
    """True: a node must have all of them; false: none of them."""


class _Argument(Strict):
    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"expected exactly one of {', '.join(to_camel(name) for name in type(self).model_fields)}")
        return self


class PredicateArgument(_Argument):
    """The argument of a custom predicate: exactly one of `serviceAffinity` and `labelsPresence`."""

    service_affinity: ServiceAffinityArgument | None = None
    """The predicate keeps the pods of a Service together."""
    labels_presence: LabelsPresenceArgument | None = None
    """The predicate checks node labels."""


class ServiceAntiAffinityArgument(Strict):
    label: LabelKey
    """The node label across whose values the pods of a Service are spread."""


class LabelPreferenceArgument(Strict):
    label: LabelKey
    """The node label to check."""
    presence: bool = False
    """True: nodes with the label are preferred; false: nodes without it."""


class RequestedToCapacityRatioArgument(Strict):
    shape: Shape
    """The points of the curve that maps utilization to a score."""
    resources: tuple[ResourceSpec, ...] = ()
    """The resources that count; default: cpu and memory."""


class PriorityArgument(_Argument):
    """The argument of a custom priority: exactly one of the three fields, each for one kind of priority."""

    service_anti_affinity: ServiceAntiAffinityArgument | None = None
    """The priority spreads the pods of a Service."""
    label_preference: LabelPreferenceArgument | None = None
    """The priority scores nodes by whether they have a label."""
    requested_to_capacity_ratio_arguments: RequestedToCapacityRatioArgument | None = None
    """The priority scores by utilization."""


class PredicateSpec(Strict):
    """A predicate in the list of a Policy."""

    name: str = ""
    """See extender reference policy-names."""
    argument: dict[str, Any] = {}  # noqa: RUF012  never written to: the model is frozen
    """The arguments of a predicate with a name of your choice, or of a user's own rule."""


class PrioritySpec(Strict):
    name: str = ""
    """See extender reference policy-names."""
    weight: int = 0
    """The weight of its score."""
    argument: dict[str, Any] = {}  # noqa: RUF012  as above
    """The arguments of a priority with a name of your choice, or of a user's own rule."""


class PolicySpec(Strict):
    """A classic Policy. A missing list means the defaults, an empty list means no predicates or priorities."""

    api_version: Literal["v1", "kubescheduler.config.k8s.io/v1"] = "v1"
    """The API version."""
    kind: Literal["Policy"] = "Policy"
    """The kind of this document."""
    predicates: tuple[PredicateSpec, ...] | None = None
    """The predicates that a node must satisfy; default: those of the algorithm provider."""
    priorities: tuple[PrioritySpec, ...] | None = None
    """The priorities that score nodes; default: those of the algorithm provider."""
    extenders: tuple[LegacyExtenderSpec, ...] = ()
    """HTTP extenders that extender schedule calls."""
    hard_pod_affinity_symmetric_weight: Percentage = 0
    """The weight of other pods' required affinity in scores; 0 means 1."""
    always_check_all_predicates: bool = False
    """If true, a node that one predicate rejects is checked by the others too, to collect all reasons."""


LABEL_PRESENCE = "CheckNodeLabelPresence"
SERVICE_AFFINITY = "CheckServiceAffinity"

# There are no default constraints, because SelectorSpreadPriority spreads the pods that have no constraints.
_NO_DEFAULT_CONSTRAINTS = ()

# The predicates in the order in which they run. The two empty ones are built from the policy's arguments.
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

# These predicates run even if a policy does not name them.
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
    """Returns the priorities that take no argument, by name."""
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


_ORDER = {name: position for position, name in enumerate(PREDICATES)}
_AFTER_ALL = len(_ORDER)
_ARGUED_ORDER = {NodeLabelFilter: _ORDER[LABEL_PRESENCE], ServiceAffinity: _ORDER[SERVICE_AFFINITY]}
_MAX_WEIGHT = 2**31 - 1


def read_policy(document: object, library: Library, faults: Faults) -> Policy | None:
    """Returns the policy with its one profile, and adds its faults to `faults`."""
    if isinstance(document, Mapping) and "extenders" in document:
        document = {**document, "extenders": in_any_case(document["extenders"], LegacyExtenderSpec)}
    spec = faults.read(PolicySpec, document)
    if spec is None:
        return None
    predicates = _PredicateReader(PREDICATES, library, faults).read(spec.predicates)
    # kube-scheduler treats a missing weight as 0, and then uses 1 instead of 0.
    by_name = priorities(spec.hard_pod_affinity_symmetric_weight or 1)
    known = {name: (priority,) for name, priority in by_name.items()}
    weighted = _PriorityReader(known, library, faults).read(spec.priorities)
    return Policy(
        (
            Profile(
                DEFAULT_SCHEDULER,
                predicates,
                weighted,
                check_all_predicates=spec.always_check_all_predicates,
                pre_enqueue=(SchedulingGates(),),
            ),
        ),
        extenders=read_extenders(spec.extenders, faults),
    )


class _Reader(ABC):
    """Reads the predicates or the priorities of a policy.

    An entry names a known rule, a user's own rule, or with an argument a rule that it configures.
    """

    kind: ClassVar[Literal["predicate", "priority"]]

    def __init__(self, known: Mapping[str, tuple[Any, ...]], library: Library, faults: Faults) -> None:
        self._known = known
        self._library = library
        self._faults = faults

    @abstractmethod
    def _argued(self, spec: Any, path: str) -> Iterator[Any]:
        """Yields the rules that the argument of the entry configures."""

    def _rules(self, spec: PredicateSpec | PrioritySpec, path: str) -> Iterator[Any]:
        """Yields the rules of one entry, or else adds a fault that may suggest a known name."""
        if self._known.get(spec.name):
            if spec.argument:
                self._faults.add(f"{path}.argument", f"{spec.name} takes no argument")
            yield from self._known[spec.name]
        elif self._library.has_rule(spec.name):
            yield from self._users_rule(spec, path)
        elif spec.argument or spec.name in self._known:
            yield from self._argued(spec, f"{path}.argument")
        else:
            self._library.find_rule(spec.name, f"{path}.name", self._faults, self._known)

    def _users_rule(self, spec: PredicateSpec | PrioritySpec, path: str) -> Iterator[Any]:
        plugin = self._library.find_rule(spec.name, f"{path}.name", self._faults, self._known)
        if plugin is None:
            return
        factory = getattr(plugin, self.kind)
        if factory is None:
            self._faults.add(f"{path}.name", f"{spec.name} is not a {self.kind}")
            return
        arguments = self._faults.read(plugin.arguments, spec.argument, f"{path}.argument")
        if arguments is not None:
            yield factory(arguments)


class _PredicateReader(_Reader):
    """Reads the predicates of a policy, without duplicates, in the order in which they run."""

    kind = "predicate"

    def read(self, specs: tuple[PredicateSpec, ...] | None) -> list[Predicate]:
        if specs is None:
            specs = tuple(PredicateSpec(name=name) for name in DEFAULT_PREDICATES)
        ranked = [(_ORDER[name], rule) for name in MANDATORY for rule in PREDICATES[name]]
        for index, spec in enumerate(specs):
            rank = _ORDER[spec.name] if PREDICATES.get(spec.name) else _AFTER_ALL
            rules = self._rules(spec, f"predicates[{index}]")
            ranked += [(_ARGUED_ORDER.get(type(rule), rank), rule) for rule in rules]
        in_order = [rule for _, rule in sorted(ranked, key=lambda pair: pair[0])]
        return [rule for index, rule in enumerate(in_order) if rule not in in_order[:index]]

    def _argued(self, spec: PredicateSpec, path: str) -> Iterator[Predicate]:
        argument = self._faults.read(PredicateArgument, spec.argument, path)
        if argument is None:
            return
        if presence := argument.labels_presence:
            yield NodeLabelFilter(presence.labels, presence.presence, spec.name)
        if affinity := argument.service_affinity:
            yield ServiceAffinity(affinity.labels, spec.name)


class _PriorityReader(_Reader):
    """Reads the priorities of a policy, in the order of the policy."""

    kind = "priority"

    def read(self, specs: tuple[PrioritySpec, ...] | None) -> list[WeightedPriority]:
        if specs is None:
            specs = tuple(PrioritySpec(name=name, weight=weight) for name, weight in DEFAULT_PRIORITIES.items())
        weighted: list[WeightedPriority] = []
        for index, spec in enumerate(specs):
            path = f"priorities[{index}]"
            if not 0 < spec.weight <= _MAX_WEIGHT:
                what = f"expected a positive weight of at most {_MAX_WEIGHT}, got {spec.weight}"
                self._faults.add(f"{path}.weight", what)
            if any(spec.name == other.name for other in specs[:index]):
                self._faults.add(f"{path}.name", f"{spec.name} is given twice")
            weighted += [WeightedPriority(priority, spec.weight) for priority in self._rules(spec, path)]
        return weighted

    def _argued(self, spec: PrioritySpec, path: str) -> Iterator[Priority]:
        argument = self._faults.read(PriorityArgument, spec.argument, path)
        if argument is None:
            return
        if anti_affinity := argument.service_anti_affinity:
            yield ServiceAntiAffinity(anti_affinity.label, spec.name)
        if preference := argument.label_preference:
            yield NodeLabelScore(preference.label, preference.presence, spec.name)
        if ratio := argument.requested_to_capacity_ratio_arguments:
            strategy = RequestedToCapacityRatio(points(ratio.shape))
            yield NodeResourcesFitScore(strategy, weights(ratio.resources), spec.name)
