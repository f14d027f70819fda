"""Checks that all members of a group have the same scheduler, priority and preemption policy.

Source: upstream validatePodGroup.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.model.pod_groups import SchedulingGroup
from extender.table import PodInfo
from extender.table.features import FeatureGates


def mismatch(group: SchedulingGroup, infos: Sequence[PodInfo], features: FeatureGates) -> str | None:
    """Returns why the members of a root group cannot be scheduled together; None if they can."""
    for info in infos:
        name, first = info.pod.spec.scheduler_name, infos[0].pod.spec.scheduler_name
        if name != first:
            return (
                "all pods in a single pod group should have the same .spec.schedulerName set, got: "
                f'"{name}" and "{first}"'
            )
        if info.priority != group.priority:
            return (
                "all pods in a single pod group should have the same priority as the pod group's priority, got "
                f"{info.priority} and {group.priority}"
            )
        if (other := _other_policy(group, info, infos[0], features)) is not None:
            return other
    return None


def preemption_policy(spec_policy: str | None) -> str:
    """Returns the preemption policy of a pod or a group; `spec_policy` is the field in its spec."""
    return spec_policy or "PreemptLowerPriority"


def _other_policy(group: SchedulingGroup, info: PodInfo, first: PodInfo, features: FeatureGates) -> str | None:
    """Returns an error message if the preemption policies of a pod and its group differ, otherwise None.

    If the feature gate for policies of groups is off, the policy of the first member counts as the group's policy.
    """
    of_group = features.pod_group_preemption_policy
    expected = preemption_policy(group.spec.preemption_policy if of_group else first.pod.spec.preemption_policy)
    policy = preemption_policy(info.pod.spec.preemption_policy)
    if policy == expected:
        return None
    suffix = " as the pod group's preemption policy" if of_group else ""
    same = f"all pods in a single pod group should have the same preemption policy{suffix}"
    return f"{same}, got {policy} and {expected}"
