"""A KubeSchedulerConfiguration: other plugins, weights and arguments than the default ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.builders import HOSTNAME, ZONE, Object, expression, node_term
from tests.conformance.draft import Dice, Draft

SCORING = ("TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity", "ImageLocality")
RESOURCES, EXTENDED = ("cpu", "memory", "ephemeral-storage"), "example.com/gpu"
IMPLICIT = tuple(f"deviceclass.resource.kubernetes.io/{name}" for name in ("gpu", "any"))
SCORED = (*RESOURCES, EXTENDED, *IMPLICIT)


def add(dice: Dice, draft: Draft) -> None:
    profile: Object = {"schedulerName": "default-scheduler"}
    # NodeResourcesBalancedAllocation of kube-scheduler v1.37 crashes where a device class is behind a resource.
    balanced = RESOURCES if _offered_by_devices(draft) else (*RESOURCES, EXTENDED)
    if dice.chance(60):
        profile["plugins"] = _plugins(dice)
    chosen = dice.some(_ARGUMENTS, 0, 3)
    if chosen:
        profile["pluginConfig"] = [{"name": name, "args": arguments(dice, balanced)} for name, arguments in chosen]
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    draft.config = {**kind, "profiles": [profile]}


def _plugins(dice: Dice) -> Object:
    plugins: Object = {}
    off = dice.some((*SCORING, "NodePorts", "NodeResourcesFit"), 1, 2) if dice.chance(40) else []
    if off:
        plugins["multiPoint"] = {"disabled": _named(off)}
    if dice.chance(60):
        names = dice.some([name for name in SCORING if name not in off], 1, 3)
        weighted = [{"name": name, "weight": dice.one(1, 5, 30)} for name in names]
        plugins["score"] = {"disabled": _named(["*"] if dice.chance(30) else names), "enabled": weighted}
    if dice.chance(25):
        plugins["filter"] = {"disabled": _named(dice.some(("TaintToleration", "NodeUnschedulable", "NodeName"), 1, 2))}
    return plugins


def _named(names: list[str]) -> list[Object]:
    return [{"name": name} for name in names]


def _offered_by_devices(draft: Draft) -> bool:
    return any("extendedResourceName" in obj["spec"] for obj in draft.objects if obj["kind"] == "DeviceClass")


def _shape(dice: Dice, most: int) -> list[Object]:
    return [{"utilization": at, "score": dice.count(0, most)} for at in sorted(dice.some((0, 20, 50, 70, 100), 1, 4))]


def _fit(dice: Dice, _: Sequence[str]) -> Object:
    kind = dice.one("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
    scored = [{"name": name, "weight": dice.one(1, 2, 10)} for name in dice.some(SCORED, 1, 3)]
    strategy: Object = {"type": kind, "resources": scored}
    if kind == "RequestedToCapacityRatio":
        strategy["requestedToCapacityRatio"] = {"shape": _shape(dice, 10)}
    ignored: dict[str, Any] = {"ignoredResources": [EXTENDED]} if dice.chance(25) else {}
    ignored |= {"ignoredResourceGroups": ["example.com"]} if dice.chance(15) else {}
    return {"scoringStrategy": strategy, **ignored}


def _balanced(dice: Dice, resources: Sequence[str]) -> Object:
    return {"resources": [{"name": name, "weight": 1} for name in dice.some(resources, 1, 3)]}


def _inter_pod_affinity(dice: Dice, _: Sequence[str]) -> Object:
    return {
        "hardPodAffinityWeight": dice.one(0, 1, 50, 100),
        "ignorePreferredTermsOfExistingPods": dice.chance(50),
    }


def _node_affinity(dice: Dice, _: Sequence[str]) -> Object:
    term = node_term(expression("disktype", "In", dice.one("ssd", "hdd")))
    added: Object = {}
    if dice.chance(60):
        added["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}
    if dice.chance(60):
        added["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": dice.one(1, 100), "preference": term}]
    return {"addedAffinity": added}


def _topology_spread(dice: Dice, _: Sequence[str]) -> Object:
    constraints = [
        {
            "maxSkew": dice.one(1, 3),
            "topologyKey": key,
            "whenUnsatisfiable": dice.one("DoNotSchedule", "ScheduleAnyway"),
        }
        for key in dice.some((ZONE, HOSTNAME, "disktype"), 0, 2)
    ]
    return {"defaultingType": "List", "defaultConstraints": constraints}


def _volume_binding(dice: Dice, _: Sequence[str]) -> Object:
    return {"shape": _shape(dice, 10)}


_ARGUMENTS = (
    ("NodeResourcesFit", _fit),
    ("NodeResourcesBalancedAllocation", _balanced),
    ("InterPodAffinity", _inter_pod_affinity),
    ("NodeAffinity", _node_affinity),
    ("PodTopologySpread", _topology_spread),
    ("VolumeBinding", _volume_binding),
)
