"""Random KubeSchedulerConfigurations that kube-scheduler accepts: arguments, plugins, weights."""

from __future__ import annotations

from collections.abc import Callable

from extender.plugins.registry import IN_TREE
from tests.builders import HOSTNAME, REGION, ZONE, Object, expression
from tests.conformance.draft import Dice

RESOURCES = ("cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi", "pods")
FILTERS = [name for name, plugin in IN_TREE.items() if plugin.default and plugin.extends("filter")]
SCORES = [name for name, plugin in IN_TREE.items() if plugin.default and plugin.extends("score")]
# Without these kube-scheduler does not start.
INDISPENSABLE = ({"name": "PrioritySort"}, {"name": "DefaultBinder"})


def profile(**fields: object) -> Object:
    """A configuration of one profile."""
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return {**header, "profiles": [fields]}


def configuration(dice: Dice) -> Object:
    arguments = [{"name": name, "args": draw(dice)} for name, draw in ARGUMENTS.items() if dice.chance(50)]
    return profile(pluginConfig=arguments, plugins=_plugins(dice))


def _fit(dice: Dice) -> Object:
    args: Object = {}
    if dice.chance(30):
        args["ignoredResources"] = ["example.com/gpu"]
    if dice.chance(20):
        args["ignoredResourceGroups"] = ["example.com"]
    if dice.chance(85):
        kind = dice.one("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
        args["scoringStrategy"] = {"type": kind, "resources": _resources(dice, 100)}
        if kind == "RequestedToCapacityRatio":
            args["scoringStrategy"]["requestedToCapacityRatio"] = {"shape": _shape(dice)}
    return args


def _resources(dice: Dice, heaviest: int) -> list[Object]:
    chosen = dice.some(RESOURCES, 0, 4)
    return [{"name": name} | ({"weight": dice.count(0, heaviest)} if dice.chance(80) else {}) for name in chosen]


def _shape(dice: Dice) -> list[Object]:
    utilizations = sorted(dice.some(range(101), 1, 5))
    return [{"utilization": each, "score": dice.count(0, 10)} for each in utilizations]


def _node_affinity(dice: Dice) -> Object:
    affinity: Object = {}
    if dice.chance(50):
        terms = [{"matchExpressions": [_expression(dice)]} for _ in range(dice.count(1, 2))]
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if dice.chance(60):
        preferred = [
            {"weight": dice.count(1, 100), "preference": {"matchExpressions": [_expression(dice)]}}
            for _ in range(dice.count(1, 3))
        ]
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return {"addedAffinity": affinity}


def _expression(dice: Dice) -> Object:
    key = dice.one(ZONE, "disktype", "rank")
    match dice.one("In", "NotIn", "Exists", "DoesNotExist", "Gt"):
        case "In" | "NotIn" as operator:
            return expression(key, operator, *dice.some(("z0", "z1", "ssd", "1"), 1, 3))
        case "Gt" as operator:
            return expression(key, operator, str(dice.count(0, 9)))
        case operator:
            return expression(key, operator)


def _spread(dice: Dice) -> Object:
    if dice.chance(20):
        return {"defaultingType": "System"}
    keys = dice.some((ZONE, HOSTNAME, REGION), 0, 2)
    constraints = [
        {
            "topologyKey": key,
            "maxSkew": dice.count(1, 3),
            "whenUnsatisfiable": dice.one("ScheduleAnyway", "DoNotSchedule"),
        }
        for key in keys
    ]
    return {"defaultingType": "List", "defaultConstraints": constraints}


def _inter_pod_affinity(dice: Dice) -> Object:
    weight = {"hardPodAffinityWeight": dice.one(1, 0, 50, 100)} if dice.chance(80) else {}
    return {**weight, "ignorePreferredTermsOfExistingPods": dice.chance(50)}


ARGUMENTS: dict[str, Callable[[Dice], Object]] = {
    "NodeResourcesFit": _fit,
    "NodeResourcesBalancedAllocation": lambda dice: {"resources": _resources(dice, 1)},
    "NodeAffinity": _node_affinity,
    "PodTopologySpread": _spread,
    "InterPodAffinity": _inter_pod_affinity,
    "VolumeBinding": lambda dice: {"shape": _shape(dice)},
}


def _plugins(dice: Dice) -> Object:
    plugins: Object = {}
    if dice.chance(35):
        plugins["score"] = _set(dice, SCORES)
    if dice.chance(30):
        plugins["filter"] = _set(dice, FILTERS)
    if dice.chance(35):
        plugins["multiPoint"] = _all_anew(dice) if dice.chance(20) else _set(dice, sorted({*FILTERS, *SCORES}))
    return plugins


def _set(dice: Dice, names: list[str]) -> Object:
    disabled = [{"name": name} for name in dice.some(names, 0, 3)]
    return {"disabled": disabled, "enabled": [_weighted(dice, name) for name in dice.some(names, 0, 4)]}


def _all_anew(dice: Dice) -> Object:
    enabled = [_weighted(dice, name) for name in dice.some(sorted({*FILTERS, *SCORES}), 3, 9)]
    return {"disabled": [{"name": "*"}], "enabled": [*INDISPENSABLE, *enabled]}


def _weighted(dice: Dice, name: str) -> Object:
    return {"name": name} | ({"weight": dice.count(0, 9)} if dice.chance(70) else {})
