"""The form of the classic Policy. Source: k8s.io/kube-scheduler/config/v1 of Kubernetes v1.22, legacy_types.go."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from extender.framework.schema import LabelKey, Percentage, ResourceSpec, Shape, Strict
from extender.policy.extenders import LegacyExtenderSpec

Labels = Annotated[tuple[LabelKey, ...], Field(min_length=1)]


class ServiceAffinityArgument(Strict):
    labels: Labels
    """Node labels in which all pods of a service's must agree."""


class LabelsPresenceArgument(Strict):
    labels: Labels
    """Node labels to look for."""
    presence: bool = False
    """True: a node must have them all; false: none of them."""


class _Argument(Strict):
    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"want one of {' or '.join(to_camel(name) for name in type(self).model_fields)}")
        return self


class PredicateArgument(_Argument):
    """The argument that makes a predicate of any name one of two kinds."""

    service_affinity: ServiceAffinityArgument | None = None
    """Makes the predicate one that keeps the pods of a service together."""
    labels_presence: LabelsPresenceArgument | None = None
    """Makes the predicate one that looks for node labels."""


class ServiceAntiAffinityArgument(Strict):
    label: LabelKey
    """The node label over whose values the pods of a service are spread."""


class LabelPreferenceArgument(Strict):
    label: LabelKey
    """The node label to look for."""
    presence: bool = False
    """True: nodes with it are preferred; false: those without."""


class RequestedToCapacityRatioArgument(Strict):
    shape: Shape
    """Points of the line from the share that is taken to the score."""
    resources: tuple[ResourceSpec, ...] = ()
    """The resources that count; cpu and memory if none are given."""


class PriorityArgument(_Argument):
    """The argument that makes a priority of any name one of three kinds."""

    service_anti_affinity: ServiceAntiAffinityArgument | None = None
    """Makes the priority one that spreads the pods of a service."""
    label_preference: LabelPreferenceArgument | None = None
    """Makes the priority one that looks for a node label."""
    requested_to_capacity_ratio_arguments: RequestedToCapacityRatioArgument | None = None
    """Makes the priority one that scores by the share that is taken."""


class PredicateSpec(Strict):
    """`argument` is read by the predicate that the name stands for."""

    name: str = ""
    """See extender reference policy-names."""
    argument: dict[str, Any] = {}  # noqa: RUF012  never written to: the model is frozen
    """Makes a predicate of a name of your own."""


class PrioritySpec(Strict):
    name: str = ""
    """See extender reference policy-names."""
    weight: int = 0
    """The weight of its score."""
    argument: dict[str, Any] = {}  # noqa: RUF012  as above
    """Makes a priority of a name of your own."""


class PolicySpec(Strict):
    """Predicates or priorities that are not there at all stand for the default ones, an empty list for none."""

    api_version: Literal["v1", "kubescheduler.config.k8s.io/v1"] = "v1"
    """The version of this form."""
    kind: Literal["Policy"] = "Policy"
    """This form."""
    predicates: tuple[PredicateSpec, ...] | None = None
    """The predicates that a node must satisfy; left out: the default ones."""
    priorities: tuple[PrioritySpec, ...] | None = None
    """By what nodes are preferred; left out: the default ones."""
    extenders: tuple[LegacyExtenderSpec, ...] = ()
    """HTTP extenders that extender schedule asks."""
    hard_pod_affinity_symmetric_weight: Percentage = 0
    """The weight of required affinity of other pods when nodes are scored; 0: 1."""
    always_check_all_predicates: bool = False
    """Shows a node that one predicate has refused to the others too, for all the reasons."""
