"""Checks objects with a pod template: metadata, selectors, counts, update strategy, and the template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from extender.model.meta import LabelSelector
from extender.model.selectors import compile_selector
from extender.offline.manifests.validation import formats, pods, types, volumes
from extender.offline.manifests.validation.controllers import rollouts, schedules
from extender.offline.manifests.validation.placement import label_selector
from extender.offline.manifests.validation.tree import Fields, fields, items, join, with_path

_JOBS = ("Job", "CronJob")
_SELECTING = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
_KNOWN = ("Pod", "ReplicationController", *_SELECTING, *_JOBS)
_ALWAYS = "Always"
_LONGEST_CRON_JOB_NAME = 52
_API_VERSIONS = {"Pod": "v1", "ReplicationController": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}
_MOST_INDEXED = 100_000
_JOB_NAMES = ("job-name", "batch.kubernetes.io/job-name")
_JOB_UIDS = ("controller-uid", "batch.kubernetes.io/controller-uid")


def faults(kind: str, item: Fields, template: Fields, path: str) -> Iterator[str]:
    """Yields the faults of an object of this kind; its pod template is at `path`.

    For a kind that is not known here, only the template is checked.
    """
    if kind in _KNOWN:
        yield from with_path("apiVersion", _version_fault(kind, item.get("apiVersion")))
    if kind == "Pod":
        yield from pods.of_pod(item)
        return
    if kind in _KNOWN:
        yield from _metadata(kind, fields(item, "metadata"))
        yield from _of_kind(kind, fields(item, "metadata").get("name") or "", fields(item, "spec"), template, path)
    yield from pods.of_template(template, path, _claim_names(item) if kind == "StatefulSet" else ())


def _version_fault(kind: str, version: str | None) -> str | None:
    expected = _API_VERSIONS.get(kind, "apps/v1")
    return f"expected {expected} for a {kind}, got {version!r}" if version not in (None, "", expected) else None


def _claim_names(item: Fields) -> list[str]:
    templates = items(fields(item, "spec"), "volumeClaimTemplates", "spec")
    return [fields(claim, "metadata").get("name") or "" for _, claim in templates]


def _metadata(kind: str, metadata: Fields) -> Iterator[str]:
    yield from pods.metadata_faults(metadata, formats.dns_label if kind == "StatefulSet" else formats.dns_subdomain)
    if kind == "CronJob" and len(metadata.get("name") or "") > _LONGEST_CRON_JOB_NAME:
        yield f"metadata.name: is longer than {_LONGEST_CRON_JOB_NAME} characters"


def _of_kind(kind: str, name: str, spec: Fields, template: Fields, path: str) -> Iterator[str]:
    own = {key: value for key, value in spec.items() if key != "template"}  # `pods.of_template` checks it
    yield from types.faults(f"V1{kind}Spec", own, "spec")
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
        yield from rollouts.of_stateful_set(spec)
        yield from _stateful_set(spec)
    if kind == "Deployment":
        yield from rollouts.of_deployment(spec)
    if kind == "DaemonSet":
        yield from rollouts.of_daemon_set(spec)


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


def _stateful_set(spec: Fields) -> Iterator[str]:
    if spec.get("serviceName"):
        yield from with_path("spec.serviceName", formats.dns_label(spec["serviceName"]))
    for here, claim in items(spec, "volumeClaimTemplates", "spec"):
        yield from volumes.claim_spec(fields(claim, "spec"), join(here, "spec"))


def _job(kind: str, name: str, spec: Fields, template: Fields, path: str) -> Iterator[str]:
    job, here = spec, "spec"
    if kind == "CronJob":
        job, here = fields(spec, "jobTemplate", "spec"), "spec.jobTemplate.spec"
        yield from with_path("spec.schedule", schedules.fault(spec.get("schedule") or ""))
        if spec.get("timeZone") is not None:
            yield from with_path("spec.timeZone", schedules.zone_fault(spec["timeZone"]))
    if fields(template, "spec").get("restartPolicy") not in ("OnFailure", "Never"):
        yield f"{path}.spec.restartPolicy: expected OnFailure or Never, because a Job ends"
    is_defaulted = kind == "Job" and job.get("parallelism") is None
    if job.get("completionMode") == "Indexed" and job.get("completions") is None and not is_defaulted:
        yield f"{here}.completions: is missing; completionMode Indexed needs it"
    yield from _indexes(job, name, here)
    yield from _failures(job, fields(template, "spec"), here)
    yield from _job_selector(kind, job, here, template, path)
    if kind == "Job" and not job.get("manualSelector"):
        yield from _job_labels(name, fields(template, "metadata", "labels"), path)


def _indexes(job: Fields, name: str, here: str) -> Iterator[str]:
    """Yields fields that only an Indexed Job may have, and counts of an Indexed Job that are too high."""
    if job.get("completionMode") != "Indexed":
        for field in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if job.get(field) is not None:
                yield f"{here}.{field}: needs completionMode Indexed"
        return
    if (job.get("parallelism") or 0) > _MOST_INDEXED:
        yield f"{here}.parallelism: expected at most {_MOST_INDEXED} with completionMode Indexed"
    if job.get("completions"):
        last = formats.dns_label(f"{name}-{job['completions'] - 1}")
        yield from with_path("metadata.name", last and f"its last pod would have no valid name: {last}")


def _failures(job: Fields, pod_spec: Fields, here: str) -> Iterator[str]:
    """Yields the faults of fields that say how a Job reacts to failed pods."""
    if job.get("maxFailedIndexes") is not None and job.get("backoffLimitPerIndex") is None:
        yield f"{here}.backoffLimitPerIndex: is missing; maxFailedIndexes needs it"
    if job.get("podFailurePolicy") is not None and pod_spec.get("restartPolicy") != "Never":
        yield f"{here}.template.spec.restartPolicy: expected Never, because there is a podFailurePolicy"
    for rule, each in items(fields(job, "podFailurePolicy"), "rules", f"{here}.podFailurePolicy"):
        codes = fields(each, "onExitCodes")
        if codes.get("operator") == "In" and 0 in codes.get("values", ()):
            yield f"{rule}.onExitCodes.values: must not contain 0, because exit code 0 means success"
    if job.get("managedBy") is not None and "/" not in job["managedBy"]:
        yield f"{here}.managedBy: expected a name with a domain, like example.com/controller"


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
    """Yields the faults of labels that contradict the labels which the API server sets on a Job's pods."""
    for key in _JOB_NAMES:
        if labels.get(key) not in (None, name):
            yield f"{path}.metadata.labels.{key}: expected {name!r}, the name of the Job"
    for key in _JOB_UIDS:
        if key in labels:
            yield f"{path}.metadata.labels.{key}: cannot be set; it will be the UID of the Job"
