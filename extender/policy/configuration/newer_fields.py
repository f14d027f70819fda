"""Refuses the parts of a KubeSchedulerConfiguration that the version of kube-scheduler to follow does not have."""

from __future__ import annotations

from extender.framework.plugin import RESERVE
from extender.plugins.default_preemption import NAME as PREEMPTION
from extender.policy.configuration.configuration_fields import ProfileSpec, SchedulerConfigurationSpec
from extender.policy.faults import Faults


def refuse_placements(spec: SchedulerConfigurationSpec, faults: Faults) -> None:
    """Adds a fault for each field and extension point that kube-scheduler has only since 1.38."""
    places: list[tuple[str, SchedulerConfigurationSpec | ProfileSpec]] = [("", spec)]
    places += [(f"profiles[{index}].", profile) for index, profile in enumerate(spec.profiles)]
    for path, part in places:
        if part.percentage_of_placements_to_score is not None:
            faults.add(f"{path}percentageOfPlacementsToScore", "unknown field before Kubernetes 1.38")
    for index, profile in enumerate(spec.profiles):
        path = f"profiles[{index}].plugins"
        if profile.plugins.placement_feasible is not None:
            faults.add(f"{path}.placementFeasible", "unknown field before Kubernetes 1.38")
        for number, plugin in enumerate(profile.plugins.reserve.enabled):
            if plugin.name == PREEMPTION:
                place = f"{path}.{RESERVE}.enabled[{number}].name"
                faults.add(
                    place, f"{PREEMPTION} does not implement the extension point {RESERVE} before Kubernetes 1.38"
                )
