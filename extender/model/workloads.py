"""Defines the other kinds of objects that rules read, such as namespaces, services, controllers and budgets."""

from __future__ import annotations

from extender.model.meta import Int32, Int64, LabelSelector, Object, Value
from extender.model.pod import TimedToleration
from extender.model.quantity import ResourceList
from extender.model.storage import PersistentVolumeClaim


class Namespace(Object, frozen=True):
    pass


class ServiceSpec(Value, frozen=True):
    selector: dict[str, str] | None = None


class Service(Object, frozen=True):
    spec: ServiceSpec = ServiceSpec()


class ReplicationControllerSpec(Value, frozen=True):
    selector: dict[str, str] | None = None


class ReplicationController(Object, frozen=True):
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class SelectingSpec(Value, frozen=True):
    selector: LabelSelector | None = None


class ReplicaSet(Object, frozen=True):
    spec: SelectingSpec = SelectingSpec()


class StatefulSetOrdinals(Value, frozen=True):
    start: Int32 = 0


class StatefulSetSpec(SelectingSpec, frozen=True):
    ordinals: StatefulSetOrdinals | None = None
    volume_claim_templates: list[PersistentVolumeClaim] | None = None


class StatefulSet(Object, frozen=True):
    spec: StatefulSetSpec = StatefulSetSpec()

    @property
    def first_ordinal(self) -> int:
        """The number at the end of the first pod's name; the other pods are numbered from there."""
        return self.spec.ordinals.start if self.spec.ordinals else 0


class PodDisruptionBudgetSpec(SelectingSpec, frozen=True):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Value, frozen=True):
    disruptions_allowed: Int32 = 0
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    expected_pods: Int32 = 0
    observed_generation: Int64 = 0
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(Object, frozen=True):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class PriorityClass(Object, frozen=True):
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str | None = None


# ---- kinds that the API server applies to new pods; only offline commands read them


class LimitRangeItem(Value, frozen=True):
    type: str = ""
    default: ResourceList | None = None
    default_request: ResourceList | None = None
    min: ResourceList | None = None
    max: ResourceList | None = None
    max_limit_request_ratio: ResourceList | None = None


class LimitRangeSpec(Value, frozen=True):
    limits: list[LimitRangeItem] | None = None


class LimitRange(Object, frozen=True):
    spec: LimitRangeSpec = LimitRangeSpec()


class ResourceQuota(Object, frozen=True):
    """Only the name is read. Offline commands do not check quotas, but print their names in a note."""


class Overhead(Value, frozen=True):
    pod_fixed: ResourceList | None = None


class RuntimeClassScheduling(Value, frozen=True):
    node_selector: dict[str, str] | None = None
    tolerations: list[TimedToleration] | None = None


class RuntimeClass(Object, frozen=True):
    overhead: Overhead | None = None
    scheduling: RuntimeClassScheduling | None = None
