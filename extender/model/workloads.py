"""The other kinds of the core, apps, policy and scheduling groups that rules look at."""

from __future__ import annotations

from extender.model.meta import LabelSelector, Object, Value


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


class StatefulSet(Object, frozen=True):
    spec: SelectingSpec = SelectingSpec()


class PodDisruptionBudgetStatus(Value, frozen=True):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(Object, frozen=True):
    spec: SelectingSpec = SelectingSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class PriorityClass(Object, frozen=True):
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None
