"""Describes the single pods and the whole pod groups that preemption would evict for a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from extender.groups.group_preemption import GroupPreemption
from extender.model.pod_groups import PodGroup
from extender.model.workloads import PodDisruptionBudget
from extender.offline.state import ClusterState
from extender.table import PodInfo


@dataclass(frozen=True, slots=True)
class EvictedUnit:
    """Pods that are evicted together.

    Attributes:
        pods: pod -> its node.
        group: the PodGroup that is evicted as a whole (`disruptionMode: all`); None for a single pod.
    """

    pods: Mapping[str, str]
    group: str | None = None


@dataclass(frozen=True, slots=True)
class GroupEvictions:
    """The evictions with which preemption would make room for a group.

    Attributes:
        units: the evicted units, the most important first; empty if the victims are leaving already.
        violated_budgets: the PodDisruptionBudgets that do not allow all of these evictions.
        nominated: member -> the node where it fits once the victims have left.
        message: the outcome in kube-scheduler's words.
    """

    units: Sequence[EvictedUnit]
    violated_budgets: Sequence[str]
    nominated: Mapping[str, str]
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Returns {"units": [{"pods": {pod: node}, "group"}], "violatedBudgets", "nominated", "message"}."""
        return {
            "units": [asdict(unit) for unit in self.units],
            "violatedBudgets": list(self.violated_budgets),
            "nominated": dict(self.nominated),
            "message": self.message,
        }


def evictions(state: ClusterState, preemption: GroupPreemption, members: Sequence[PodInfo]) -> GroupEvictions | None:
    """Returns the evictions of a preemption; None if evicting pods does not help the group."""
    if not preemption.helps:
        return None
    names = {info.uid: info.pod.key for info in members}
    nominated = {names[uid]: node for uid, node in preemption.nominated.items()}
    violated = _violated_budgets(state, preemption.victims)
    return GroupEvictions(_units(state, preemption.victims), violated, nominated, preemption.text)


def _units(state: ClusterState, victims: Sequence[PodInfo]) -> list[EvictedUnit]:
    units: dict[str, EvictedUnit] = {}
    for info in victims:
        group = state.objects.get(PodGroup, info.pod.group_key) if info.pod.group_key is not None else None
        whole = group.key if group is not None and group.is_disrupted_whole else None
        name = f"group {whole}" if whole is not None else f"pod {info.pod.key}"
        pods = units[name].pods if name in units else {}
        units[name] = EvictedUnit({**pods, info.pod.key: info.pod.node_name}, whole)
    return list(units.values())


def _violated_budgets(state: ClusterState, victims: Sequence[PodInfo]) -> list[str]:
    evicted: dict[str, list[str]] = {}
    budgets: dict[str, PodDisruptionBudget] = {}
    for info in victims:
        for budget in state.budgets_of(info):
            budgets[budget.key] = budget
            evicted.setdefault(budget.key, []).append(info.pod.name)
    return sorted(key for key, names in evicted.items() if _exceeds(budgets[key], names))


def _exceeds(budget: PodDisruptionBudget, names: Sequence[str]) -> bool:
    counted = [name for name in names if name not in (budget.status.disrupted_pods or ())]
    return len(counted) > budget.status.disruptions_allowed
