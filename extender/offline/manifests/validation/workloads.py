"""Checks objects with a pod template: their names, selectors, numbers and strategies, and the template."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from extender.model.meta import LabelSelector
from extender.model.selectors import compile_selector
from extender.offline.manifests.validation import formats, pods, volumes
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
_COUNTS = ("replicas", "minReadySeconds", "parallelism", "completions", "backoffLimit", "activeDeadlineSeconds")
_INT32_MAX = 2**31 - 1
_CRON_NUMBER = r"(?:\d+|[a-z]{3})"
_CRON_PART = rf"(?:[*?]|{_CRON_NUMBER}(?:-{_CRON_NUMBER})?)(?:/\d+)?"
_CRON = re.compile(rf"{_CRON_PART}(?:,{_CRON_PART})*", re.IGNORECASE)
_CRON_NAMES = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")


def faults(kind: str, item: Fields, template: Fields, path: str) -> Iterator[str]:
    """Yields what the API server would refuse in an object of this kind, whose pod template is at `path`.

    For a kind that is not known here, only the template is checked.
    """
    if kind == "Pod":
        yield from pods.of_pod(item)
        return
    if kind in _KNOWN:
        yield from _metadata(kind, fields(item, "metadata"))
        yield from _of_kind(kind, fields(item, "spec"), template, path)
    claims = [fields(claim, "metadata").get("name") or "" for _, claim in _claim_templates(item)]
    yield from pods.of_template(template, path, claims if kind == "StatefulSet" else ())


def _claim_templates(item: Fields) -> Iterator[tuple[str, Fields]]:
    return items(fields(item, "spec"), "volumeClaimTemplates", "spec")


def _metadata(kind: str, metadata: Fields) -> Iterator[str]:
    yield from pods.metadata_faults(metadata, formats.dns_label if kind == "StatefulSet" else formats.dns_subdomain)
    if kind == "CronJob" and len(metadata.get("name") or "") > _LONGEST_CRON_JOB_NAME:
        yield f"metadata.name: is longer than {_LONGEST_CRON_JOB_NAME} characters"


def _of_kind(kind: str, spec: Fields, template: Fields, path: str) -> Iterator[str]:
    yield from _choices(kind, spec)
    yield from _numbers(spec, "spec")
    pod_spec = fields(template, "spec")
    if kind in _JOBS:
        yield from _job(kind, spec, template, path)
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


def _stateful_set(spec: Fields) -> Iterator[str]:
    if (fields(spec, "ordinals").get("start") or 0) < 0:
        yield "spec.ordinals.start: must not be negative"
    if spec.get("serviceName"):
        yield from at("spec.serviceName", formats.dns_label(spec["serviceName"]))
    for here, claim in items(spec, "volumeClaimTemplates", "spec"):
        yield from volumes.claim_spec(fields(claim, "spec"), join(here, "spec"))


def _job(kind: str, spec: Fields, template: Fields, path: str) -> Iterator[str]:
    job, here = spec, "spec"
    if kind == "CronJob":
        job, here = fields(spec, "jobTemplate", "spec"), "spec.jobTemplate.spec"
        yield from _numbers(job, here)
        yield from _schedule(spec)
    if fields(template, "spec").get("restartPolicy") not in ("OnFailure", "Never"):
        yield f"{path}.spec.restartPolicy: expected OnFailure or Never, because a Job ends"
    is_defaulted = kind == "Job" and job.get("parallelism") is None
    if job.get("completionMode") == "Indexed" and job.get("completions") is None and not is_defaulted:
        yield f"{here}.completions: is missing; completionMode Indexed needs it"
    selector = job.get("selector")
    if job.get("manualSelector") and kind == "Job":
        yield from _selector(selector, template, path)
    elif selector and (kind == "CronJob" or selector.get("matchLabels") or selector.get("matchExpressions")):
        yield f"{here}.selector: cannot be set; the API server makes one"


def _schedule(spec: Fields) -> Iterator[str]:
    schedule = spec.get("schedule") or ""
    is_valid = schedule in _CRON_NAMES or schedule.startswith("@every ")
    parts = schedule.split()
    if not is_valid and not (len(parts) == 5 and all(map(_CRON.fullmatch, parts))):
        yield f"spec.schedule: {schedule!r} is not a schedule: expected five fields, like '*/5 * * * *'"
