"""The form of the classic Policy. Source: k8s.io/kube-scheduler/config/v1 of Kubernetes v1.22, legacy_types.go."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from extender.engine.policy.schema import Ignored, LabelKey, Percentage, ResourceSpec, Shape, Strict

Labels = Annotated[tuple[LabelKey, ...], Field(min_length=1)]


class ServiceAffinityArgument(Strict):
    labels: Labels


class LabelsPresenceArgument(Strict):
    labels: Labels
    presence: bool = False


class _Argument(Strict):
    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"want one of {' or '.join(to_camel(name) for name in type(self).model_fields)}")
        return self


class PredicateArgument(_Argument):
    """What turns a predicate of any name into one of two kinds."""

    service_affinity: ServiceAffinityArgument | None = None
    labels_presence: LabelsPresenceArgument | None = None


class ServiceAntiAffinityArgument(Strict):
    label: LabelKey


class LabelPreferenceArgument(Strict):
    label: LabelKey
    presence: bool = False


class RequestedToCapacityRatioArgument(Strict):
    shape: Shape
    resources: tuple[ResourceSpec, ...] = ()


class PriorityArgument(_Argument):
    """What turns a priority of any name into one of three kinds."""

    service_anti_affinity: ServiceAntiAffinityArgument | None = None
    label_preference: LabelPreferenceArgument | None = None
    requested_to_capacity_ratio_arguments: RequestedToCapacityRatioArgument | None = None


class PredicateSpec(Strict):
    """`argument` is read by the predicate that the name stands for."""

    name: str = ""
    argument: dict[str, Any] = {}  # noqa: RUF012  never written to: the model is frozen


class PrioritySpec(Strict):
    name: str = ""
    weight: int = 0
    argument: dict[str, Any] = {}  # noqa: RUF012  as above


class PolicySpec(Strict):
    """Predicates or priorities that are not there at all stand for the default ones, an empty list for none."""

    api_version: Literal["v1", "kubescheduler.config.k8s.io/v1"] = "v1"
    kind: Literal["Policy"] = "Policy"
    predicates: tuple[PredicateSpec, ...] | None = None
    priorities: tuple[PrioritySpec, ...] | None = None
    extenders: tuple[Ignored, ...] = ()
    hard_pod_affinity_symmetric_weight: Percentage = 0
    always_check_all_predicates: bool = False
