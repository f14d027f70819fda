"""Defines PodGroup and CompositePodGroup, which describe pods that must be scheduled together.

A CompositePodGroup is a group of groups. Its children are PodGroups, or CompositePodGroups in turn. Most PodGroups have
no parent. An API server serves both kinds only if its `--runtime-config` enables them.

A PodGroup of the coscheduling plugin (scheduling.x-k8s.io, for clusters before Kubernetes 1.37) is also read as a
PodGroup. Pods name it in a label.
"""

from __future__ import annotations

from typing import NamedTuple

from extender.model.meta import Condition, Int32, Object, Value
from extender.model.pod import Pod, PodResourceClaim, PodResourceClaimStatus

COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
"""The label with which a pod names its coscheduling PodGroup."""
MAX_TREE_DEPTH = 4
"""The levels that a tree of groups may have, PodGroups included (upstream WorkloadMaxTreeDepth)."""


class BasicPolicy(Value, frozen=True):
    """Members are scheduled one by one, without a minimum number."""


class GangPolicy(Value, frozen=True):
    """Members are scheduled only if at least `min_count` members can be."""

    min_count: Int32 = 1


class SchedulingPolicy(Value, frozen=True):
    """The policy of a PodGroup; exactly one field is set."""

    basic: BasicPolicy | None = None
    gang: GangPolicy | None = None


class TopologyConstraint(Value, frozen=True):
    """All members must be on nodes with the same value of the label `key`."""

    key: str = ""


class SchedulingConstraints(Value, frozen=True):
    topology: list[TopologyConstraint] | None = None


class DisruptionScope(Value, frozen=True):
    """An empty object. A field of DisruptionMode is set to it, because only the presence of the field matters."""


class DisruptionMode(Value, frozen=True):
    """Says if preemption evicts one pod at a time (`single`) or the whole group (`all`)."""

    single: DisruptionScope | None = None
    all: DisruptionScope | None = None


class WorkloadReference(Value, frozen=True):
    """The Workload whose template a group was created from."""

    workload_name: str = ""


class GroupSpec(Value, frozen=True):
    """The fields that both kinds of groups have."""

    workload_ref: WorkloadReference = WorkloadReference()
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None
    parent_composite_pod_group_name: str | None = None


class PodGroupSpec(GroupSpec, frozen=True):
    """The spec of a PodGroup. Only PodGroups of the coscheduling plugin have `min_member`."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    resource_claims: list[PodResourceClaim] | None = None
    min_member: Int32 | None = None


class PodGroupStatus(Value, frozen=True):
    conditions: list[Condition] | None = None
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None


class CompositePodGroupStatus(Value, frozen=True):
    conditions: list[Condition] | None = None


class SchedulingGroup(Object, frozen=True):
    """A PodGroup or a CompositePodGroup."""

    spec: GroupSpec = GroupSpec()
    status: PodGroupStatus | CompositePodGroupStatus = CompositePodGroupStatus()

    @property
    def initially_scheduled(self) -> str:
        """The type of the condition that is true once the group has been scheduled."""
        return f"{type(self).__name__}InitiallyScheduled"

    @property
    def priority(self) -> int:
        return self.spec.priority or 0

    @property
    def parent_key(self) -> str | None:
        """The `namespace/name` of the CompositePodGroup that this group belongs to; None if it is a root."""
        name = self.spec.parent_composite_pod_group_name
        return f"{self.namespace}/{name}" if name else None

    @property
    def topology_key(self) -> str | None:
        """The node label that must have the same value for all members; None if there is no such constraint."""
        constraints = self.spec.scheduling_constraints
        return (constraints.topology[0].key or None) if constraints and constraints.topology else None

    @property
    def is_disrupted_whole(self) -> bool:
        """True if preemption evicts all pods of the group together."""
        return self.spec.disruption_mode is not None and self.spec.disruption_mode.all is not None

    @property
    def is_disrupted_singly(self) -> bool:
        """True if the group says that preemption evicts its pods one by one, as it does without any mode."""
        return self.spec.disruption_mode is not None and self.spec.disruption_mode.single is not None


class PodGroup(SchedulingGroup, frozen=True):
    """Pods that are scheduled together; each names the group in `spec.schedulingGroup`."""

    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def is_gang(self) -> bool:
        return self.spec.scheduling_policy.gang is not None or self.spec.min_member is not None

    @property
    def min_count(self) -> int:
        """The number of members that must fit together; 1 under the policy `basic`."""
        gang = self.spec.scheduling_policy.gang
        return (self.spec.min_member or 1) if gang is None else gang.min_count


class CompositeGangPolicy(Value, frozen=True):
    """Members are scheduled only if at least `min_group_count` child groups can be."""

    min_group_count: Int32 = 1


class CompositeSchedulingPolicy(Value, frozen=True):
    """The policy of a CompositePodGroup; exactly one field is set."""

    basic: BasicPolicy | None = None
    gang: CompositeGangPolicy | None = None


class CompositePodGroupSpec(GroupSpec, frozen=True):
    scheduling_policy: CompositeSchedulingPolicy = CompositeSchedulingPolicy()


class CompositePodGroup(SchedulingGroup, frozen=True):
    """A group of groups that are scheduled together. A child names it in `spec.parentCompositePodGroupName`."""

    spec: CompositePodGroupSpec = CompositePodGroupSpec()
    status: CompositePodGroupStatus = CompositePodGroupStatus()

    @property
    def is_gang(self) -> bool:
        return self.spec.scheduling_policy.gang is not None

    @property
    def min_count(self) -> int:
        """The number of child groups that must fit together; 1 under the policy `basic`."""
        gang = self.spec.scheduling_policy.gang
        return 1 if gang is None else gang.min_group_count


class GroupName(NamedTuple):
    """A group's kind and `namespace/name`. The kind is needed because two kinds may have groups of the same name."""

    kind: str
    key: str

    @classmethod
    def of(cls, group: SchedulingGroup) -> GroupName:
        return cls(type(group).__name__, group.key)

    @property
    def entity_key(self) -> str:
        """The group's name in kube-scheduler's messages since 1.38: `podgroup/<namespace>/<name>`."""
        return f"{self.entity}/{self.key}"

    @property
    def entity(self) -> str:
        """The kind as messages and metrics have it: podgroup or compositepodgroup."""
        return self.kind.lower()


def coscheduling_key(pod: Pod) -> str | None:
    """Returns the `namespace/name` of the coscheduling PodGroup in the pod's label; None without this label."""
    name = pod.labels.get(COSCHEDULING_LABEL)
    return f"{pod.namespace}/{name}" if name else None
