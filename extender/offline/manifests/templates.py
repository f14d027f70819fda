"""Pods as users write them: by themselves, or as the template of a Deployment, a Job or whatever else has one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from extender.errors import MalformedCluster, MalformedInput
from extender.model.kinds import KINDS
from extender.model.meta import Object
from extender.model.workloads import StatefulSet
from extender.offline.manifests import schema
from extender.offline.manifests.objects import DEFAULT_NAMESPACE
from extender.runtime import strict_yaml

Dict = dict[str, Any]

POD_INDEX, POD_NAME = "apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name"
"""The labels by which a StatefulSet's pods differ."""

_HASH = "pod-template-hash"
_OWNERS = {"Deployment": "ReplicaSet", "ReplicaSet": "ReplicaSet", "StatefulSet": "StatefulSet"}
# What the DaemonSet controller lets its pods tolerate (upstream daemon/util AddOrUpdateDaemonPodTolerations).
_DAEMON_TOLERATED = (
    *((key, "NoExecute") for key in ("not-ready", "unreachable")),
    *((key, "NoSchedule") for key in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")),
)
_DAEMON_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect} for key, effect in _DAEMON_TOLERATED
]


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods of one template.

    Attributes:
        source: the object that has the template, for people: "Deployment shop/web".
        manifest: the pod as the API would be sent it, without a name where `replicas` is more than one.
        replicas: how many of them the object asks for; None: as many as there are nodes (DaemonSet).
        owner: the controller by which its pods are spread if they say nothing themselves.
    """

    source: str
    manifest: Mapping[str, Any]
    replicas: int | None = 1
    owner: Object | None = None

    def names(self, count: int) -> list[str]:
        """The names of `count` pods."""
        name = self.manifest["metadata"]["name"]
        if isinstance(self.owner, StatefulSet):  # the manifest is that of its first replica
            base, _, first = name.rpartition("-")
            return [f"{base}-{number}" for number in range(int(first), int(first) + count)]
        return [name] if count == 1 else [f"{name}-{number}" for number in range(count)]

    def pod(self, name: str) -> Dict:
        """The manifest of one of the pods."""
        return {**self.manifest, "metadata": {**self.manifest["metadata"], "name": name, "uid": ""}}


def read_workloads(data: bytes, source: str, namespace: str = "") -> list[Workload]:
    """The workloads in a YAML or JSON text of one or many documents; objects without pods are passed over.

    Args:
        namespace: of those that name none.

    Raises:
        MalformedCluster: with `source` and the path of every fault; or no object has pods.
    """
    try:
        documents = list(strict_yaml.load_all(data))
    except MalformedInput as error:
        raise MalformedCluster(f"{source}: {error}") from None
    many = len(documents) > 1
    found: list[Workload] = []
    kinds: list[str] = []
    for number, document in enumerate(documents, 1):
        place = f"{source}: document {number}" if many else source
        for where, item in _items(place, document):
            workload = workload_of(item, where, namespace)
            kinds.append(str(item.get("kind", "Pod")))
            found += [workload] if workload else []
    if not found:
        raise MalformedCluster(
            f"{source}: want a Pod or an object with a pod template, not {', '.join(kinds) or 'nothing'}"
        )
    return found


def workload_of(item: Mapping[str, Any], place: str, namespace: str = "") -> Workload | None:
    """The workload that an object describes; None where it has no pods.

    Raises:
        MalformedCluster: with the path of every fault.
    """
    kind = str(item.get("kind", "Pod"))
    path = _template_path(kind, item)
    if path is None and kind != "Pod":
        return None
    if found := schema.faults(kind, item, _at(item, path or ()), ".".join(path or ())):
        raise MalformedCluster(f"{place}: {'; '.join(found)}")
    metadata: Mapping[str, Any] = item.get("metadata") or {}
    if path is None:
        name = metadata.get("name") or (metadata.get("generateName") and f"{metadata['generateName']}0")
        own = {**metadata, "name": name, "namespace": metadata.get("namespace") or namespace or DEFAULT_NAMESPACE}
        if not name:
            raise MalformedCluster(f"{place}: metadata.name is missing")
        return Workload(f"Pod {own['namespace']}/{name}", {**item, "kind": "Pod", "metadata": own})
    if not metadata.get("name"):
        raise MalformedCluster(f"{place}: metadata.name is missing")
    return _of_template(kind, item, _at(item, path), metadata.get("namespace") or namespace or DEFAULT_NAMESPACE)


def required_workload(item: Mapping[str, Any]) -> Workload:
    """Returns the workload that an object describes. Raises MalformedCluster, also where it has no pods."""
    found = workload_of(item, "template")
    if found is None:
        raise MalformedCluster("template: want a Pod or an object with a pod template")
    return found


def _of_template(kind: str, item: Mapping[str, Any], template: Mapping[str, Any], namespace: str) -> Workload:
    name = str(item["metadata"]["name"])
    metadata = template.get("metadata") or {}
    pod_spec = dict(template.get("spec") or {})
    labels = dict(metadata.get("labels") or {})
    if kind == "Deployment":
        labels[_HASH] = "template"
    if kind == "DaemonSet":
        pod_spec["tolerations"] = [*(pod_spec.get("tolerations") or ()), *_DAEMON_TOLERATIONS]
    owner = _owner(kind, name, namespace, labels, item)
    references = [_reference(kind, name, owner)]
    source = f"{kind} {namespace}/{name}"
    if isinstance(owner, StatefulSet):
        start = _at(item, ("spec", "ordinals", "start"))
        first = start if isinstance(start, int) else 0
        name = f"{name}-{first}"
        labels |= {POD_INDEX: str(first), POD_NAME: name}
        templates = [each.name for each in owner.spec.volume_claim_templates or ()]
        pod_spec["volumes"] = [
            *(each for each in pod_spec.get("volumes") or () if each.get("name") not in templates),
            *({"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{name}"}} for each in templates),
        ]
    made = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": references}
    if metadata.get("annotations"):
        made["annotations"] = metadata["annotations"]
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": pod_spec}
    return Workload(source, manifest, _replicas(kind, item), owner)


def _owner(kind: str, name: str, namespace: str, labels: Mapping[str, str], item: Mapping[str, Any]) -> Object | None:
    if kind not in _OWNERS:
        return None
    selector: Dict = dict((item.get("spec") or {}).get("selector") or {"matchLabels": labels})
    if kind == "Deployment":
        name, selector = (
            f"{name}-template",
            {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), _HASH: "template"}},
        )
    made: Dict = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"{kind}/{namespace}/{name}"},
        "spec": {"selector": selector},
    }
    if kind == StatefulSet.__name__:
        made["spec"]["volumeClaimTemplates"] = (item.get("spec") or {}).get("volumeClaimTemplates")
    try:
        return msgspec.convert(made, KINDS[_OWNERS[kind]].type)
    except msgspec.ValidationError as error:
        raise MalformedCluster(f"{kind} {namespace}/{name}: {error}") from None


def _reference(kind: str, name: str, owner: Object | None) -> Dict:
    api_version, uid = "batch/v1" if kind.endswith("Job") else "v1", ""
    if owner is not None:
        api_version, kind, name, uid = "apps/v1", type(owner).__name__, owner.name, owner.uid
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


def _replicas(kind: str, item: Mapping[str, Any]) -> int | None:
    spec = item.get("spec") or {}
    if kind == "DaemonSet":
        return None
    if kind == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    count = spec.get("parallelism") if kind.endswith("Job") else spec.get("replicas")
    return count if isinstance(count, int) else 1


def _template_path(kind: str, item: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Returns the path of the object's pod template; None where it has none."""
    if kind == "PodTemplate":
        return ("template",)
    path = ("spec", "jobTemplate", "spec", "template") if kind == "CronJob" else ("spec", "template")
    template = _at(item, path)
    known = kind in ("ReplicationController", "Job", "CronJob", "DaemonSet", *_OWNERS)
    has_containers = isinstance(template, Mapping) and "containers" in (template.get("spec") or {})
    return path if known or has_containers else None


def _at(item: Mapping[str, Any], path: Iterable[str]) -> Any:
    found: Any = item
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if found is not None else {}


def _items(place: str, document: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if document is None:
        return
    if not isinstance(document, Mapping):
        raise MalformedCluster(f"{place}: want an object with a kind, apiVersion and metadata")
    items = document.get("items")
    if not (re.fullmatch(r"\w*List", str(document.get("kind"))) and isinstance(items, list)):
        yield place, document
        return
    for number, item in enumerate(items):
        yield from _items(f"{place}: items[{number}]", item)
