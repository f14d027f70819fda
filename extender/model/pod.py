"""Defines pods, with the fields that scheduling reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from extender.model import storage
from extender.model.meta import Condition, Int32, Int64, LabelSelector, NodeSelector, NodeSelectorTerm, Object, Value
from extender.model.quantity import ResourceList


class ResourceRequirements(Value, frozen=True):
    requests: ResourceList | None = None
    limits: ResourceList | None = None


class ContainerPort(Value, frozen=True):
    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = ""


class ContainerRestartRule(Value, frozen=True):
    action: str = ""


class VolumeMount(Value, frozen=True):
    bind_mount_options: list[str] | None = None


class SeccompProfile(Value, frozen=True):
    type: str = ""


class SecurityContext(Value, frozen=True):
    """The part of a pod's or container's security context that scheduling reads."""

    seccomp_profile: SeccompProfile | None = None


class Container(Value, frozen=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] | None = None
    volume_mounts: list[VolumeMount] | None = None
    security_context: SecurityContext | None = None


class Toleration(Value, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class TimedToleration(Toleration, frozen=True):
    """A toleration with its time limit, which the API server compares when it merges tolerations of pods."""

    toleration_seconds: Int64 | None = None


class PreferredSchedulingTerm(Value, frozen=True):
    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Value, frozen=True):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredSchedulingTerm] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class PodAffinityTerm(Value, frozen=True):
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(Value, frozen=True):
    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Value, frozen=True):
    """The value of podAffinity or podAntiAffinity."""

    required: list[PodAffinityTerm] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[WeightedPodAffinityTerm] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Value, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


# The defaults are written, because the API requires some of these fields.
class TopologySpreadConstraint(Value, frozen=True, omit_defaults=False):
    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class Volume(storage.MigratableSources, frozen=True):
    name: str = ""
    persistent_volume_claim: storage.PersistentVolumeClaimSource | None = None
    ephemeral: dict[str, Any] | None = None
    csi: storage.CSIVolumeSource | None = None
    iscsi: storage.ISCSI | None = None
    rbd: storage.RBD | None = None
    image: storage.ImageVolumeSource | None = None
    projected: storage.ProjectedVolumeSource | None = None


class PodSchedulingGate(Value, frozen=True):
    name: str = ""


class PodSchedulingGroup(Value, frozen=True):
    pod_group_name: str = ""


class PodResourceClaim(Value, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(Value, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    ephemeral_containers: list[Container] | None = None
    overhead: ResourceList | None = None
    resources: ResourceRequirements | None = None
    volumes: list[Volume] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    scheduling_gates: list[PodSchedulingGate] | None = None
    scheduling_group: PodSchedulingGroup | None = None
    resource_claims: list[PodResourceClaim] | None = None
    host_network: bool | None = None
    host_users: bool | None = None
    security_context: SecurityContext | None = None
    termination_grace_period_seconds: Int64 | None = None


class ContainerStatus(Value, frozen=True):
    name: str = ""
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None


class PodResourceClaimStatus(Value, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class PodExtendedResourceClaimStatus(Value, frozen=True):
    resource_claim_name: str = ""


# The condition of a pod that a scheduler has preempted (upstream PodReasonPreemptionByScheduler).
PREEMPTED_CONDITION, PREEMPTED_REASON = "DisruptionTarget", "PreemptionByScheduler"


class PodStatus(Value, frozen=True):
    phase: str = ""
    conditions: list[Condition] | None = None
    nominated_node_name: str = ""
    start_time: datetime | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList | None = None
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class Pod(Object, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def node_name(self) -> str:
        """The node that the pod is bound to; empty if it is not bound."""
        return self.spec.node_name

    @property
    def priority(self) -> int:
        return self.spec.priority or 0

    @property
    def group_key(self) -> str | None:
        """The `namespace/name` of the PodGroup that the pod is a member of; None if it is in no group."""
        group = self.spec.scheduling_group
        return f"{self.namespace}/{group.pod_group_name}" if group and group.pod_group_name else None

    @property
    def finished(self) -> bool:
        """True if the pod has succeeded or failed, so it uses no resources of its node."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def containers(self) -> Sequence[Container]:
        return self.spec.containers or ()

    @property
    def init_containers(self) -> Sequence[Container]:
        return self.spec.init_containers or ()

    def with_spec(self, **fields: Any) -> Pod:
        """Returns a copy with these fields in its spec."""
        return msgspec.structs.replace(self, spec=msgspec.structs.replace(self.spec, **fields))

    def placed_on(self, node_name: str) -> Pod:
        """Returns a copy that is bound to `node_name`."""
        return self.with_spec(node_name=node_name)

    def annotated(self, annotations: Iterable[tuple[str, str]]) -> Pod:
        """Returns a copy with these annotations in addition to its own; a key of both gets the new value."""
        metadata = msgspec.structs.replace(self.metadata, annotations={**self.annotations, **dict(annotations)})
        return msgspec.structs.replace(self, metadata=metadata)

    def preempted(self, now: float) -> Pod:
        """Returns a copy of the pod as if a scheduler had evicted it at `now`, in seconds since the epoch."""
        target = Condition(PREEMPTED_CONDITION, "True", PREEMPTED_REASON)
        others = [condition for condition in self.status.conditions or () if condition.type != PREEMPTED_CONDITION]
        return msgspec.structs.replace(
            self,
            metadata=msgspec.structs.replace(self.metadata, deletion_timestamp=datetime.fromtimestamp(now, UTC)),
            status=msgspec.structs.replace(self.status, conditions=[*others, target]),
        )

    def nominated_to(self, node_name: str) -> Pod:
        """Returns a copy that is nominated to `node_name`; an empty name removes the nomination."""
        return msgspec.structs.replace(self, status=msgspec.structs.replace(self.status, nominated_node_name=node_name))
