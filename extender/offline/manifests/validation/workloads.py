"""Checks objects with a pod template: their names, selectors, numbers and strategies, and the template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from extender.model.meta import LabelSelector
from extender.model.selectors import compile_selector
from extender.offline.manifests.validation import formats, pods, schedules, volumes
from extender.offline.manifests.validation.placement import label_selector
from extender.offline.manifests.validation.tree import Fields, at, fields, items, join

_JOBS = ("Job", "CronJob")
_SELECTING = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
_KNOWN = ("Pod", "ReplicationController", *_SELECTING, *_JOBS)
_ALWAYS = "Always"
_LONGEST_CRON_JOB_NAME = 52
# Kind -> field -> the values that the API server accepts; a field may be left out.
_CHOICES: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {
    "Deployment": {("strategy", "type"): ("RollingUpdate", "Recreate")},
    "DaemonSet": {("updateStrategy", "type"): ("RollingUpdate", "OnDelete")},
    "StatefulSet": {
        ("updateStrategy", "type"): ("RollingUpdate", "OnDelete"),
        ("podManagementPolicy",): ("OrderedReady", "Parallel"),
    },
    "Job": {("completionMode",): ("NonIndexed", "Indexed")},
    "CronJob": {
        ("concurrencyPolicy",): ("Allow", "Forbid", "Replace"),
        ("jobTemplate", "spec", "completionMode"): ("NonIndexed", "Indexed"),
    },
}
_COUNTS = (
    "replicas",
    "minReadySeconds",
    "parallelism",
    "completions",
    "backoffLimit",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
)
_JOB_NAMES = ("job-name", "batch.kubernetes.io/job-name")
_JOB_UIDS = ("controller-uid", "batch.kubernetes.io/controller-uid")
_INT32_MAX = 2**31 - 1


def faults(kind: str, item: Fields, template: Fields, path: str) -> Iterator[str]:
    """Yields what the API server would refuse in an object of this kind, whose pod template is at `path`.

    For a kind that is not known here, only the template is checked.
    """
    if kind == "Pod":
        yield from pods.of_pod(item)
        return
    if kind in _KNOWN:
        yield from _metadata(kind, fields(item, "metadata"))
        yield from _of_kind(kind, fields(item, "metadata").get("name") or "", fields(item, "spec"), template, path)
    claims = [fields(claim, "metadata").get("name") or "" for _, claim in _claim_templates(item)]
    yield from pods.of_template(template, path, claims if kind == "StatefulSet" else ())


def _claim_templates(item: Fields) -> Iterator[tuple[str, Fields]]:
    return items(fields(item, "spec"), "volumeClaimTemplates", "spec")


def _metadata(kind: str, metadata: Fields) -> Iterator[str]:
    yield from pods.metadata_faults(metadata, formats.dns_label if kind == "StatefulSet" else formats.dns_subdomain)
    if kind == "CronJob" and len(metadata.get("name") or "") > _LONGEST_CRON_JOB_NAME:
        yield f"metadata.name: is longer than {_LONGEST_CRON_JOB_NAME} characters"


def _of_kind(kind: str, name: str, spec: Fields, template: Fields, path: str) -> Iterator[str]:
    yield from _choices(kind, spec)
    yield from _numbers(spec, "spec")
    pod_spec = fields(template, "spec")
    if kind in _JOBS:
        yield from _job(kind, name, spec, template, path)
    else:
        if pod_spec.get("restartPolicy") not in (None, "", _ALWAYS):
            yield f"{path}.spec.restartPolicy: expected {_ALWAYS}, because a {kind} restarts its pods"
        if pod_spec.get("activeDeadlineSeconds") is not None:
            yield f"{path}.spec.activeDeadlineSeconds: cannot be set in a {kind}"
    if kind in _SELECTING:
        yield from _selector(spec.get("selector"), template, path)
    if kind == "ReplicationController":
        yield from _plain_selector(fields(spec, "selector"), template, path)
    if kind == "StatefulSet":
        yield from _stateful_set(spec)
    if kind == "Deployment":
        yield from _strategy(fields(spec, "strategy"))


def _choices(kind: str, spec: Fields) -> Iterator[str]:
    for keys, values in _CHOICES.get(kind, {}).items():
        chosen = fields(spec, *keys[:-1]).get(keys[-1])
        if chosen and chosen not in values:
            yield f"spec.{'.'.join(keys)}: {chosen!r} is not one of {', '.join(values)}"


def _numbers(spec: Fields, path: str) -> Iterator[str]:
    for field in _COUNTS:
        number = spec.get(field)
        if number is not None and not 0 <= number <= _INT32_MAX:
            yield f"{path}.{field}: expected a number from 0 to {_INT32_MAX}, got {number}"


def _selector(selector: Fields | None, template: Fields, path: str) -> Iterator[str]:
    if not selector or not (selector.get("matchLabels") or selector.get("matchExpressions")):
        yield "spec.selector: is missing or empty; expected labels of the template"
        return
    found = list(label_selector(selector, "spec.selector"))
    yield from found
    if not found and not _matches(selector, template):
        yield f"{path}.metadata.labels: spec.selector does not match them"


def _matches(selector: Fields, template: Fields) -> bool:
    compiled = compile_selector(msgspec.convert(selector, LabelSelector))
    return compiled is not None and compiled.matches(dict(fields(template, "metadata", "labels")))


def _plain_selector(selector: Fields, template: Fields, path: str) -> Iterator[str]:
    labels = fields(template, "metadata", "labels")
    if not selector and not labels:
        yield "spec.selector: is missing or empty; expected labels of the template"
    elif any(labels.get(key) != value for key, value in selector.items()):
        yield f"{path}.metadata.labels: spec.selector does not match them"


def _strategy(strategy: Fields) -> Iterator[str]:
    rolling = fields(strategy, "rollingUpdate")
    if strategy.get("type") == "Recreate" and strategy.get("rollingUpdate") is not None:
        yield "spec.strategy.rollingUpdate: cannot be set for type Recreate"
    if all(rolling.get(field) in (0, "0%") for field in ("maxUnavailable", "maxSurge")):
        yield "spec.strategy.rollingUpdate: maxUnavailable and maxSurge cannot both be 0"


def _stateful_set(spec: Fields) -> Iterator[str]:
    if (fields(spec, "ordinals").get("start") or 0) < 0:
        yield "spec.ordinals.start: must not be negative"
    if spec.get("serviceName"):
        yield from at("spec.serviceName", formats.dns_label(spec["serviceName"]))
    for here, claim in items(spec, "volumeClaimTemplates", "spec"):
        yield from volumes.claim_spec(fields(claim, "spec"), join(here, "spec"))


def _job(kind: str, name: str, spec: Fields, template: Fields, path: str) -> Iterator[str]:
    job, here = spec, "spec"
    if kind == "CronJob":
        job, here = fields(spec, "jobTemplate", "spec"), "spec.jobTemplate.spec"
        yield from _numbers(job, here)
        yield from at("spec.schedule", schedules.fault(spec.get("schedule") or ""))
    if fields(template, "spec").get("restartPolicy") not in ("OnFailure", "Never"):
        yield f"{path}.spec.restartPolicy: expected OnFailure or Never, because a Job ends"
    is_defaulted = kind == "Job" and job.get("parallelism") is None
    if job.get("completionMode") == "Indexed" and job.get("completions") is None and not is_defaulted:
        yield f"{here}.completions: is missing; completionMode Indexed needs it"
    if job.get("backoffLimitPerIndex") is not None and job.get("completionMode") != "Indexed":
        yield f"{here}.backoffLimitPerIndex: needs completionMode Indexed"
    yield from _job_selector(kind, job, here, template, path)
    if kind == "Job" and not job.get("manualSelector"):
        yield from _job_labels(name, fields(template, "metadata", "labels"), path)


def _job_selector(kind: str, job: Fields, here: str, template: Fields, path: str) -> Iterator[str]:
    selector: Any = job.get("selector")
    if kind == "CronJob" and job.get("manualSelector"):
        yield f"{here}.manualSelector: cannot be set; the API server makes the selector of each Job"
    elif job.get("manualSelector"):
        yield from _selector(selector, template, path)
    elif selector is not None and (
        kind == "CronJob" or selector.get("matchLabels") or selector.get("matchExpressions")
    ):
        yield f"{here}.selector: cannot be set; the API server makes one"


def _job_labels(name: str, labels: Fields, path: str) -> Iterator[str]:
    """Yields labels that contradict those which the API server gives to the pods of a Job."""
    for key in _JOB_NAMES:
        if labels.get(key) not in (None, name):
            yield f"{path}.metadata.labels.{key}: expected {name!r}, the name of the Job"
    for key in _JOB_UIDS:
        if key in labels:
            yield f"{path}.metadata.labels.{key}: cannot be set; it will be the UID of the Job"
