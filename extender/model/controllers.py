"""Defines controllers with their pod templates, and pods with the times of their conditions and what they wait for.

Only offline commands read these fields: they tell which pods a controller makes, and which it deletes first. The kinds
that are watched lack them, because templates take much memory, and times would keep pods from sharing equal conditions.
A class of an object has the name of its kind, which is looked up by it, so four names occur in other modules too.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

from msgspec import field

from extender.model import pod, workloads
from extender.model.meta import Condition, Int32, Object, ObjectMeta, Value


class TimedCondition(Condition, frozen=True):
    last_transition_time: datetime | None = None


class WaitingContainer(Value, frozen=True):
    reason: str = ""


class ContainerState(Value, frozen=True):
    waiting: WaitingContainer | None = None


class RestartedContainer(pod.ContainerStatus, frozen=True):
    restart_count: Int32 = 0
    state: ContainerState | None = None


class TimedPodStatus(pod.PodStatus, frozen=True):
    conditions: list[TimedCondition] | None = None  # type: ignore[assignment]  # lists are only read
    container_statuses: list[RestartedContainer] | None = None  # type: ignore[assignment]  # as above
    init_container_statuses: list[RestartedContainer] | None = None  # type: ignore[assignment]  # as above


class OwnedField(Value, frozen=True):
    """A field that a client owns; what is below it is left out."""


POD_SCHEDULED = 'k:{"type":"PodScheduled"}'
OwnedConditions = TypedDict("OwnedConditions", {'k:{"type":"PodScheduled"}': OwnedField}, total=False)


class OwnedStatus(Value, frozen=True):
    conditions: OwnedConditions | None = field(name="f:conditions", default=None)


class OwnedFields(Value, frozen=True):
    status: OwnedStatus = field(name="f:status", default=OwnedStatus())


class FieldManager(Value, frozen=True):
    """A client that wrote fields of the object, and when it last did."""

    manager: str = ""
    time: datetime | None = None
    fields_v1: OwnedFields = OwnedFields()


class ManagedMeta(ObjectMeta, frozen=True):
    managed_fields: list[FieldManager] | None = None


class Pod(pod.Pod, frozen=True):
    metadata: ManagedMeta = ManagedMeta()
    status: TimedPodStatus = TimedPodStatus()


class TemplatePodSpec(pod.PodSpec, frozen=True):
    tolerations: list[pod.TimedToleration] | None = None  # type: ignore[assignment]  # lists are only read
    runtime_class_name: str | None = None


class PodTemplateSpec(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: TemplatePodSpec = TemplatePodSpec()


class ScaledSpec(workloads.SelectingSpec, frozen=True):
    replicas: Int32 | None = None
    template: PodTemplateSpec | None = None


class Deployment(Object, frozen=True):
    spec: ScaledSpec = ScaledSpec()


class ReplicaSet(workloads.ReplicaSet, frozen=True):
    spec: ScaledSpec = ScaledSpec()


class ScaledStatefulSetSpec(workloads.StatefulSetSpec, frozen=True):
    replicas: Int32 | None = None
    template: PodTemplateSpec | None = None


class StatefulSet(workloads.StatefulSet, frozen=True):
    spec: ScaledStatefulSetSpec = ScaledStatefulSetSpec()


class ScaledReplicationControllerSpec(workloads.ReplicationControllerSpec, frozen=True):
    replicas: Int32 | None = None
    template: PodTemplateSpec | None = None


class ReplicationController(workloads.ReplicationController, frozen=True):
    spec: ScaledReplicationControllerSpec = ScaledReplicationControllerSpec()


class DaemonSetSpec(workloads.SelectingSpec, frozen=True):
    template: PodTemplateSpec | None = None


class DaemonSet(Object, frozen=True):
    spec: DaemonSetSpec = DaemonSetSpec()


class PodConditionPattern(Value, frozen=True):
    type: str = ""
    status: str | None = None


class PodFailureRule(Value, frozen=True):
    action: str = ""
    on_pod_conditions: list[PodConditionPattern] | None = None


class PodFailurePolicy(Value, frozen=True):
    rules: list[PodFailureRule] | None = None


class JobSpec(workloads.SelectingSpec, frozen=True):
    parallelism: Int32 | None = None
    completions: Int32 | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    manual_selector: bool | None = None
    backoff_limit: Int32 | None = None
    backoff_limit_per_index: Int32 | None = None
    max_failed_indexes: Int32 | None = None
    pod_replacement_policy: str | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    template: PodTemplateSpec | None = None


class JobStatus(Value, frozen=True):
    conditions: list[Condition] | None = None
    succeeded: Int32 | None = None
    failed: Int32 | None = None
    failed_indexes: str | None = None


class Job(Object, frozen=True):
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()
