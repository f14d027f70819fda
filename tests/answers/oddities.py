"""What the conformance cases lack, because the stock oracle cannot judge it, or because only answers look at it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.builders import Builder, Object, PodBuilder, expression, make_pod, make_pod_group
from tests.conformance.draft import Dice, Draft, Feature

_AMOUNTS = ("1e-1", "0.25", "1500u", "2E-1", "1k", "128974848", "129M", "123Mi", "0", "1e-3")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_WRITTEN_BY_SERVER = ("uid", "creationTimestamp", "resourceVersion")


def _pinned(dice: Dice, draft: Draft) -> None:
    """The target is a DaemonSet's pod, which its controller has bound to one node by name."""
    draft.target.owner("DaemonSet", "agents")
    pinned = [expression("metadata.name", "In", dice.one(*draft.node_names, "gone"))]
    affinity = draft.target.obj()["spec"].get("affinity", {})
    own = affinity.get("nodeAffinity", {}).get(_REQUIRED, {}).get("nodeSelectorTerms") or [{}]
    required = {"nodeSelectorTerms": [{**term, "matchFields": pinned} for term in own]}
    draft.target.spec(affinity={**affinity, "nodeAffinity": {**affinity.get("nodeAffinity", {}), _REQUIRED: required}})


def _nominated(dice: Dice, draft: Draft) -> None:
    draft.target.nominated(dice.one(*draft.node_names, "gone"))


def _strays(dice: Dice, draft: Draft) -> None:
    """Pods on a node that does not exist, pods that have finished, and pods of the target's app that terminate."""
    for number in range(dice.count(1, 3)):
        pod = make_pod(f"stray{number}").label(app="web").req(cpu="1").node(dice.one("gone", *draft.node_names))
        draft.pods.append(pod.phase(dice.one("Running", "Failed", "Succeeded", "Unknown")))
        if dice.chance(40):
            pod.deleted()


def _empty_nodes(dice: Dice, draft: Draft) -> None:
    """Nodes that offer nothing, or have no labels."""
    node = dice.one(*draft.nodes)
    match dice.count(0, 2):
        case 0:
            node.allocatable(cpu="0", memory="0", pods="0")
        case 1:
            node.allocatable(cpu=dice.one(*_AMOUNTS), memory=dice.one(*_AMOUNTS))
        case _:
            node.taint("node.kubernetes.io/unreachable", effect="NoExecute")
            node.taint("node.kubernetes.io/unreachable", effect="NoSchedule")


def _amounts(dice: Dice, draft: Draft) -> None:
    """Requests in every notation."""
    for pod in draft.everyone:
        if dice.chance(50):
            pod.req(cpu=dice.one(*_AMOUNTS), memory=dice.one(*_AMOUNTS))


def _group(dice: Dice, draft: Draft) -> None:
    """The target waits with other members of a basic group or a gang."""
    namespace = draft.target.obj()["metadata"]["namespace"]
    draft.target.group("ring")
    for number in range(dice.count(0, 3)):
        member = make_pod(f"m{number}", namespace).scheduler("default-scheduler").group("ring")
        member.req(cpu=dice.one("250m", "1", "3"), memory="128Mi").priority(0).label(app="web")
        if dice.chance(20):
            member.node(dice.one(*draft.node_names)).phase("Running")
        draft.pods.append(member)
    if dice.chance(95):
        draft.add(make_pod_group("ring", dice.one(None, 1, 2, 3, 4), namespace=namespace))


def _extenders(dice: Dice, draft: Draft) -> None:
    """A policy with an extender, which manages a resource and may be the only one that looks at it."""
    profiles = (draft.config or {}).get("profiles") or [{"schedulerName": "default-scheduler"}]
    # A policy without NodeResourcesFit may not ignore a resource.
    is_ignored = dice.chance(60) and "disabled" not in json.dumps(profiles)
    resource = {"name": "example.com/gpu", "ignoredByScheduler": is_ignored}
    extender: Object = {"urlPrefix": "http://127.0.0.1:1/", "filterVerb": "filter", "managedResources": [resource]}
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    draft.config = {**kind, "profiles": profiles, "extenders": [extender]}
    draft.target.limit({"example.com/gpu": "1"}).req({"example.com/gpu": "1"})


def _limits(dice: Dice, draft: Draft) -> None:
    """A LimitRange and a ResourceQuota of the target's namespace, which only new and changed pods feel."""
    namespace = draft.target.obj()["metadata"]["namespace"]
    item: Object = {"type": dice.one("Container", "Pod")}
    item[dice.one("min", "max")] = {dice.one("cpu", "memory"): dice.one("100m", "1", "1Gi")}
    for kind, spec in (("LimitRange", {"limits": [item]}), ("ResourceQuota", {"hard": {"pods": "1"}})):
        draft.add({**Builder("v1", kind, "rules", namespace).obj(), "spec": spec})


def _far_affinity(dice: Dice, draft: Draft) -> None:
    """Affinity to pods of other namespaces, by name or by label."""
    term: Object = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    match dice.count(0, 2):
        case 0:
            term["namespaces"] = ["team-a", "nowhere"]
        case 1:
            term["namespaceSelector"] = {"matchLabels": {"env": dice.one("prod", "dev")}}
        case _:
            term["namespaceSelector"] = {}
    if dice.chance(30):
        term[dice.one("matchLabelKeys", "mismatchLabelKeys")] = ["tier"]
    _has_terms(dice, draft.target, term)
    if dice.chance(40):
        _has_terms(dice, dice.one(*draft.everyone), term)


def _has_terms(dice: Dice, pod: PodBuilder, term: Object) -> None:
    spec = pod.obj()["spec"]
    kind = dice.one("podAffinity", "podAntiAffinity")
    affinity = {**spec.get("affinity", {})}
    affinity[kind] = {**affinity.get(kind, {}), _REQUIRED: [*affinity.get(kind, {}).get(_REQUIRED, ()), term]}
    pod.spec(affinity=affinity)


def _tolerating(dice: Dice, draft: Draft) -> None:
    """Every pod tolerates everything, or a taint that ends after some seconds."""
    for pod in draft.everyone:
        match dice.count(0, 3):
            case 0:
                pod.toleration()
            case 1:
                pod.spec(tolerations=[{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}])


ODDITIES: Mapping[str, Feature] = {
    "pinned": _pinned,
    "nominated": _nominated,
    "strays": _strays,
    "empty-nodes": _empty_nodes,
    "amounts": _amounts,
    "group": _group,
    "extenders": _extenders,
    "limits": _limits,
    "far-affinity": _far_affinity,
    "tolerating": _tolerating,
}


def by_hand(case: Object) -> Object:
    """Returns the case as a user writes it: without what only a server or a controller sets."""
    items = [_stripped(item) for item in case["cluster"]["items"]]
    return {**case, "cluster": {"items": items}, "pod": _stripped(case["pod"])}


def _stripped(item: Object) -> Object:
    metadata = {key: value for key, value in item["metadata"].items() if key not in _WRITTEN_BY_SERVER}
    stripped = {**item, "metadata": metadata}
    if item.get("kind", "Pod") == "Pod":
        spec = {key: value for key, value in item["spec"].items() if key not in ("schedulerName", "priority")}
        return {**stripped, "spec": {**spec, **_classless(item["spec"])}}
    return stripped


def _classless(spec: Object) -> Object:
    """A pod on a node keeps its priority: a file has it from the API server, and preemption needs it."""
    return {"priority": spec["priority"]} if spec.get("priority") and spec.get("nodeName") else {}
