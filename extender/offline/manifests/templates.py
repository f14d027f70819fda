"""Reads pods as users write them: alone, or as the template of a Deployment, a Job or another object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from extender.errors import MalformedCluster
from extender.model.kinds import KINDS
from extender.model.meta import Object
from extender.model.workloads import StatefulSet
from extender.offline.manifests import schema, structure
from extender.offline.manifests.admission import companion
from extender.runtime.text import with_suggestion
from extender.snapshots.files import Text, documents, is_object, objects_in
from extender.snapshots.objects import READ_KINDS, WORKLOADS, applied, is_kubernetes, named, plain

Dict = dict[str, Any]

POD_INDEX, POD_NAME = "apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name"
"""The labels that have a different value for each pod of a StatefulSet."""

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""The label that has a different value for each pod of an indexed Job."""

POD_HASH = "pod-template-hash"
"""The label that tells the pods of a Deployment's ReplicaSets apart."""
_GENERATED = "template"  # replaces a UID, or a part of a name, that a controller would generate
_OWNERS = {
    "Deployment": "ReplicaSet",
    "ReplicaSet": "ReplicaSet",
    "StatefulSet": "StatefulSet",
    "ReplicationController": "ReplicationController",
}
_JOB_NAMES = ("job-name", "batch.kubernetes.io/job-name")
_JOB_UIDS = ("controller-uid", "batch.kubernetes.io/controller-uid")
# The tolerations that the DaemonSet controller adds to its pods (upstream daemon/util AddOrUpdateDaemonPodTolerations).
_DAEMON_TOLERATED = (
    *((key, "NoExecute") for key in ("not-ready", "unreachable")),
    *((key, "NoSchedule") for key in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")),
)


@dataclass(frozen=True, slots=True)
class Workload:
    """The pods of one object, such as a Deployment, which share a template.

    Attributes:
        source: the kind and name of the object with the template, for messages, such as "Deployment shop/web".
        manifest: the manifest of the first pod; the other pods differ only in their names.
        replicas: the object's number of replicas; None means one for each node (DaemonSet).
        owner: the controller, whose selector the default spread constraints use.
        companions: the other objects in the same file that scheduling reads, which are created with the pods.
        notes: remarks on what else is in the file.
    """

    source: str
    manifest: Mapping[str, Any]
    replicas: int | None = 1
    owner: Object | None = None
    companions: Sequence[Object] = ()
    notes: Sequence[str] = ()

    def names(self, count: int) -> list[str]:
        """Returns names for `count` pods of the workload."""
        name = self.manifest["metadata"]["name"]
        # The manifest of a StatefulSet or an indexed Job has the name of the first replica, such as web-0.
        if isinstance(self.owner, StatefulSet) or COMPLETION_INDEX in self.manifest["metadata"].get("labels", {}):
            base, _, first = name.rpartition("-")
            return [f"{base}-{number}" for number in range(int(first), int(first) + count)]
        return [name] if count == 1 else [f"{name}-{number}" for number in range(count)]

    def pod(self, name: str) -> Dict:
        """Returns the manifest of the pod with this name."""
        return {**self.manifest, "metadata": {**self.manifest["metadata"], "name": name, "uid": ""}}


def read_workloads(data: bytes, source: str, namespace: str = "") -> list[Workload]:
    """Returns the workloads in one text. Arguments and errors are those of `read_files`."""
    return read_files([Text(source, data)], namespace)


def read_files(texts: Sequence[Text], namespace: str = "") -> list[Workload]:
    """Returns the workloads in YAML or JSON texts of one or more documents.

    Every workload gets the other objects that scheduling reads, from all texts, as `kubectl apply` would create them.
    The first workload's notes name what is left out.

    Args:
        namespace: the namespace of objects that name none.

    Raises:
        MalformedCluster: an object is not valid, kubectl would refuse its kind or version, or no object has pods. The
            message has the name of the text and the paths.
    """
    found: list[Workload] = []
    companions: list[Object] = []
    kinds: list[str] = []
    notes: list[str] = []
    without_objects: list[str] = []
    for source, data, in_folder in texts:
        found_documents = documents(data, source, notes)
        if in_folder and not any(map(is_object, found_documents)):
            without_objects.append(source)
            continue
        left_out: Counter[str] = Counter()
        for where, item in _items(found_documents, source):
            _check_named(item, where)
            workload = workload_of(item, where, namespace)
            kinds.append(_named_kind(item))
            found += [workload] if workload else []
            obj = None if workload else companion(item, where, namespace)
            companions += [obj] if obj else []
            if workload is None and obj is None:
                left_out[kinds[-1]] += 1
        if left_out:
            listed = ", ".join(f"{count} {kind}" for kind, count in left_out.items())
            notes.append(f"{source}: left out, because they are neither pods nor what pods need: {listed}")
    if without_objects:
        notes.append(f"left out, because they hold no objects: {', '.join(without_objects)}")
    if not found:
        sources = ", ".join(text.source for text in texts)
        raise MalformedCluster(
            f"{sources}: expected a Pod or an object with a pod template, got {', '.join(kinds) or 'nothing'}"
        )
    found[0] = replace(found[0], notes=[*notes, *found[0].notes])
    return [replace(workload, companions=companions) for workload in found]


def _items(found: Sequence[object], source: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, document in enumerate(found, 1):
        if document is not None:
            yield from objects_in(f"{source}: document {number}" if len(found) > 1 else source, document)


def _check_named(item: Mapping[str, Any], place: str) -> None:
    """Raises MalformedCluster if the object has no apiVersion or kind, or a kind that kubectl would not find."""
    for field in ("apiVersion", "kind"):
        if not item.get(field):
            raise MalformedCluster(f"{place}: {field} is missing, so kubectl would refuse the file")
    kind, known = str(item["kind"]), {*WORKLOADS, *READ_KINDS}
    path = _template_path(kind, item)
    is_misspelt = kind not in known and (path is not None or kind.casefold() in map(str.casefold, known))
    if is_misspelt and is_kubernetes(str(item["apiVersion"])):
        text = f'{place}: no matches for kind "{kind}" in version "{item["apiVersion"]}"'
        raise MalformedCluster(with_suggestion(text, kind, known))


def workload_of(item: Mapping[str, Any], place: str, namespace: str = "") -> Workload | None:
    """Returns the workload that an object describes; None if it has no pods.

    Raises:
        MalformedCluster: the object is not valid; the message has the path of every fault.
    """
    kind = _named_kind(item)
    if kind in WORKLOADS and item.get("apiVersion"):
        applied(item, WORKLOADS[kind], place)
    path = _template_path(kind, item)
    if path is None and kind != "Pod":
        return None
    item = schema.without_nulls(kind, item)
    template = item if path is None else schema.without_nulls("PodTemplateSpec", _get(item, path))
    template_path = ".".join(path or ())
    notes: list[str] = []
    if path is not None and kind not in WORKLOADS:
        template = _as_pods_have_it(template, f"{place}: {template_path}", notes)
    if faults := schema.faults(kind, item, template, template_path):
        raise MalformedCluster(f"{place}: {'; '.join(faults)}")
    metadata: Any = item.get("metadata") or {}
    if not isinstance(metadata, Mapping):  # there is no schema for this kind, so `metadata` is unchecked
        raise MalformedCluster(f"{place}: metadata: expected a mapping")
    own = named(metadata, namespace, place)
    if not own.get("name"):
        raise MalformedCluster(f"{place}: metadata.name is missing")
    item = {**item, "metadata": own}
    if faults := list(structure.faults(kind, item, template, template_path)):
        raise MalformedCluster(f"{place}: {'; '.join(faults)}")
    if path is None:
        return Workload(f"Pod {own['namespace']}/{own['name']}", {**item, "kind": "Pod"})
    workload = _of_template(kind, item, template, own["namespace"])
    return replace(workload, notes=notes) if notes else workload


def _as_pods_have_it(template: Mapping[str, Any], path: str, notes: list[str]) -> Mapping[str, Any]:
    """Returns the template of a custom kind without its own fields, which a note names, and with named containers.

    Knative, for one, has fields such as containerConcurrency there, and names the containers itself.
    """
    spec, containers = template.get("spec"), _get(template, ("spec", "containers"))
    if not (isinstance(spec, Mapping) and isinstance(containers, list)):
        return template
    own = schema.unknown_fields("PodSpec", spec)
    if own:
        notes.append(f"{path}.spec: left out, because pods have no such fields: {', '.join(own)}")
    named_containers = [
        {"name": f"container-{number}", **container} if isinstance(container, Mapping) else container
        for number, container in enumerate(containers)
    ]
    kept = {key: value for key, value in spec.items() if key not in own}
    return {**template, "spec": {**kept, "containers": named_containers}}


def stored_workload(obj: Object) -> Workload:
    """Returns the workload of a controller that is in the cluster, so its template needs no checks."""
    kind, item = type(obj).__name__, msgspec.to_builtins(obj)
    return _of_template(kind, item, _get(item, ("spec", "template")), obj.namespace)


def _named_kind(item: Mapping[str, Any]) -> str:
    """Returns the kind, such as Job.batch.volcano.sh if Kubernetes has a kind of this name in another group."""
    kind, api_version = str(item.get("kind", "Pod")), str(item.get("apiVersion", ""))
    is_foreign = not is_kubernetes(api_version) and (kind in WORKLOADS or kind in READ_KINDS)
    return f"{kind}.{api_version.rpartition('/')[0]}" if is_foreign else kind


def required_workload(item: Mapping[str, Any]) -> Workload:
    """Returns the workload that an object describes. Raises MalformedCluster if it is not valid or has no pods."""
    workload = workload_of(item, "template")
    if workload is None:
        raise MalformedCluster("template: expected a Pod or an object with a pod template")
    return workload


def _of_template(kind: str, item: Mapping[str, Any], template: Mapping[str, Any], namespace: str) -> Workload:
    name = str(item["metadata"]["name"])
    metadata = template.get("metadata") or {}
    pod_spec = dict(template.get("spec") or {})
    labels = dict(metadata.get("labels") or {})
    source = f"{kind} {namespace}/{name}"
    if kind == "Deployment":
        labels[POD_HASH] = _GENERATED
    if kind == "DaemonSet":
        pod_spec["tolerations"] = [*(pod_spec.get("tolerations") or ()), *_daemon_tolerations(pod_spec)]
    owner = _owner(kind, name, namespace, labels, item)
    if kind in ("Job", "CronJob"):
        name = name if kind == "Job" else f"{name}-{_GENERATED}"
        references = [_reference("Job", name, None)]
        name, labels = _of_job(name, labels, _job_spec(kind, item))
    else:
        references = [_reference(kind, name, owner)]
    if isinstance(owner, StatefulSet):
        name = f"{name}-{owner.first_ordinal}"
        labels |= {POD_INDEX: str(owner.first_ordinal), POD_NAME: name}
        templates = [each.name for each in owner.spec.volume_claim_templates or ()]
        pod_spec["volumes"] = [
            *({"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{name}"}} for each in templates),
            *(each for each in pod_spec.get("volumes") or () if each.get("name") not in templates),
        ]
    pod_metadata = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": references}
    if metadata.get("annotations"):
        pod_metadata["annotations"] = metadata["annotations"]
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": pod_metadata, "spec": pod_spec}
    return Workload(source, manifest, _replicas(kind, item), owner)


def _daemon_tolerations(pod_spec: Mapping[str, Any]) -> list[Dict]:
    network = [("network-unavailable", "NoSchedule")] if pod_spec.get("hostNetwork") else []
    return [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
        for key, effect in (*_DAEMON_TOLERATED, *network)
    ]


def _job_spec(kind: str, item: Mapping[str, Any]) -> Mapping[str, Any]:
    job: Mapping[str, Any] = _get(item, ("spec",) if kind == "Job" else ("spec", "jobTemplate", "spec"))
    return job


def _of_job(name: str, labels: Mapping[str, str], spec: Mapping[str, Any]) -> tuple[str, Dict]:
    """Returns the name and the labels of a Job's first pod."""
    own: Dict = {}
    if not spec.get("manualSelector"):
        own = {**dict.fromkeys(_JOB_NAMES, name), **dict.fromkeys(_JOB_UIDS, _GENERATED)}
    if spec.get("completionMode") == "Indexed":
        return f"{name}-0", {**own, **labels, COMPLETION_INDEX: "0"}
    return name, {**own, **labels}


def _owner(kind: str, name: str, namespace: str, labels: Mapping[str, str], item: Mapping[str, Any]) -> Object | None:
    if kind not in _OWNERS:
        return None
    is_plain = kind == "ReplicationController"  # a ReplicationController's selector is a map of labels
    selector: Dict = dict(_get(item, ("spec", "selector")) or (labels if is_plain else {"matchLabels": labels}))
    if kind == "Deployment":
        name = f"{name}-{_GENERATED}"
        selector = {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), POD_HASH: _GENERATED}}
    document: Dict = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"{kind}/{namespace}/{name}"},
        "spec": {"selector": selector},
    }
    if kind == StatefulSet.__name__:
        spec = item.get("spec") or {}
        document["spec"] |= {field: spec.get(field) for field in ("ordinals", "volumeClaimTemplates")}
    try:
        return msgspec.convert(document, KINDS[_OWNERS[kind]].type)
    except msgspec.ValidationError as error:
        raise MalformedCluster(f"{kind} {namespace}/{name}: {plain(error, document)}") from None


def _reference(kind: str, name: str, owner: Object | None) -> Dict:
    uid = f"{kind}/{name}"
    if owner is not None:
        kind, name, uid = type(owner).__name__, owner.name, owner.uid
    api_version = WORKLOADS.get(kind, "apps/v1")
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


def _replicas(kind: str, item: Mapping[str, Any]) -> int | None:
    """Returns the number of pods: for a Job, its parallelism, but at most its completions; None for a DaemonSet."""
    spec = item.get("spec") or {}
    if kind == "DaemonSet":
        return None
    if kind not in ("Job", "CronJob"):
        count = spec.get("replicas")
        return count if isinstance(count, int) else 1
    job = _job_spec(kind, item)
    if spec.get("suspend") or job.get("suspend"):
        return 0
    parallelism, completions = job.get("parallelism"), job.get("completions")
    parallel = parallelism if isinstance(parallelism, int) else 1
    return min(parallel, completions) if isinstance(completions, int) else parallel


def _template_path(kind: str, item: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Returns the path of the object's pod template; None if the object has no template."""
    if kind == "PodTemplate":
        return ("template",)
    path = ("spec", "jobTemplate", "spec", "template") if kind == "CronJob" else ("spec", "template")
    is_known = kind in ("ReplicationController", "Job", "CronJob", "DaemonSet", *_OWNERS)
    pod_spec = _get(item, (*path, "spec"))
    has_containers = isinstance(pod_spec, Mapping) and "containers" in pod_spec
    return path if is_known or has_containers else None


def _get(item: Mapping[str, Any], path: Iterable[str]) -> Any:
    value: Any = item
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if value is not None else {}
