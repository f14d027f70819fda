"""A cluster and workloads of every kind, each in a namespace of its own."""

from __future__ import annotations

from typing import Any

from tests.builders import ZONE, Object, make_namespace, make_node

_CONTAINERS = [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}}]
_LABELS = {"app": "web"}
_SELECTOR = {"matchLabels": _LABELS}
_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_JOB = {"restartPolicy": "Never"}


def nodes() -> list[Object]:
    return [
        make_node("plain").label({"disktype": "hdd"}).obj(),
        make_node("ssd").label({"disktype": "ssd", ZONE: "a"}).obj(),
        make_node("tainted").label({"disktype": "ssd"}).taint("dedicated", "db").obj(),
        make_node("drained").unschedulable().taint("node.kubernetes.io/unschedulable").obj(),
        make_node("lost").taint("node.kubernetes.io/unreachable", effect="NoExecute").obj(),
        make_node("offline").taint("node.kubernetes.io/network-unavailable").obj(),
    ]


def template(**spec: Any) -> Object:
    return {"metadata": {"labels": _LABELS}, "spec": {"containers": _CONTAINERS, **spec}}


def workloads() -> list[Object]:
    made = [
        *_replicated("Deployment"),
        *_replicated("ReplicaSet"),
        _of("ReplicationController", replicas=2, selector=_LABELS, template=template()),
        _of("ReplicationController", template=template()),
        *_stateful_sets(),
        *_daemon_sets(),
        *_jobs(),
    ]
    return [_named(obj, number) for number, obj in enumerate(made)]


def namespaces(objects: list[Object]) -> list[Object]:
    return [make_namespace(obj["metadata"]["namespace"]) for obj in objects]


def _named(obj: Object, number: int) -> Object:
    return {**obj, "metadata": {"name": "w", "namespace": f"{obj['kind'].lower()}-{number}"}}


def _of(kind: str, **spec: Any) -> Object:
    version = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1"}.get(kind, "apps/v1")
    return {"apiVersion": version, "kind": kind, "spec": spec}


def _replicated(kind: str) -> list[Object]:
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": _SELECTOR}
    term = {"topologyKey": ZONE, "labelSelector": _SELECTOR, "matchLabelKeys": ["pod-template-hash"]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": _CLAIM}}}
    return [
        _of(kind, replicas=3, selector=_SELECTOR, template=template()),
        _of(kind, selector=_SELECTOR, template=template(topologySpreadConstraints=[spread])),
        _of(kind, replicas=2, selector=_SELECTOR, template=template(affinity={"podAntiAffinity": required})),
        _of(kind, replicas=0, selector=_SELECTOR, template=template()),
        _of(kind, replicas=2, selector=_SELECTOR, template=template(volumes=[volume])),
        _of(kind, selector=_SELECTOR, template=template(hostNetwork=True, schedulingGates=[{"name": "wait"}])),
    ]


def _stateful_sets() -> list[Object]:
    claims = [{"metadata": {"name": "data"}, "spec": _CLAIM}]
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    return [
        _of("StatefulSet", replicas=2, selector=_SELECTOR, template=template()),
        _of("StatefulSet", replicas=2, selector=_SELECTOR, template=template(), ordinals={"start": 5}),
        _of("StatefulSet", replicas=2, selector=_SELECTOR, template=template(), volumeClaimTemplates=claims),
        _of("StatefulSet", selector=_SELECTOR, template=template(volumes=volumes), volumeClaimTemplates=claims),
        _of("StatefulSet", selector=_SELECTOR, template=template(), podManagementPolicy="Parallel", serviceName="w"),
    ]


def _daemon_sets() -> list[Object]:
    expression = {"key": "disktype", "operator": "In", "values": ["ssd"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    preferred = [{"weight": 5, "preference": {"matchExpressions": [expression]}}]
    both = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    tolerations = [{"key": "dedicated", "operator": "Exists"}]
    return [
        _of("DaemonSet", selector=_SELECTOR, template=template()),
        _of("DaemonSet", selector=_SELECTOR, template=template(nodeSelector={"disktype": "ssd"})),
        _of("DaemonSet", selector=_SELECTOR, template=template(affinity={"nodeAffinity": both})),
        _of("DaemonSet", selector=_SELECTOR, template=template(tolerations=tolerations)),
        _of("DaemonSet", selector=_SELECTOR, template=template(hostNetwork=True)),
        _of("DaemonSet", selector=_SELECTOR, template=template(nodeSelector={"disktype": "none"})),
    ]


def _jobs() -> list[Object]:
    specs: list[dict[str, Any]] = [
        {},
        {"parallelism": 3},
        {"parallelism": 3, "completions": 2},
        {"completions": 4},
        {"parallelism": 2, "completions": 5},
        {"parallelism": 0},
        {"suspend": True},
        {"parallelism": 3, "completions": 3, "completionMode": "Indexed"},
        {"manualSelector": True, "selector": _SELECTOR, "parallelism": 2},
    ]
    jobs = [_of("Job", template=template(**_JOB), **spec) for spec in specs]
    cron: list[Object] = [{}, {"parallelism": 3, "completions": 2}, {"suspend": True}]
    made = [
        _of("CronJob", schedule="* * * * *", jobTemplate={"spec": {"template": template(**_JOB), **spec}})
        for spec in cron
    ]
    return [
        *jobs,
        *made,
        _of("CronJob", schedule="* * * * *", suspend=True, jobTemplate={"spec": {"template": template(**_JOB)}}),
    ]
