"""Settings from a file (`--config`), the environment (EXTENDER_...) and flags, the later winning."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from extender.config.settings import API_VERSION, KIND, OPTIONS, PREFIX, Option, Settings
from extender.errors import ConfigurationError, MalformedInput
from extender.runtime import strict_yaml
from extender.runtime.near_names import did_you_mean, nearest

# What Kubernetes sets in every pod for a Service called extender, or extender-something.
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_\w+)$")

_ALIKE = 0.75  # all variables begin alike

_OWN_PATHS = {"livez", "healthz", "readyz", "metrics", "configz", "simulate", "ui"}
_OWN_FOLDERS = ("debug/", "ui/")

_Given = dict[str, tuple[str, object]]  # setting -> (where it was said, its value)


def load(config: Path | None, environment: Mapping[str, str], flags: Mapping[str, object]) -> Settings:
    """The settings in force; `flags` by setting, only those given.

    Raises:
        ConfigurationError: with every fault found, each with its place and, for an unknown name, the nearest right one.
    """
    faults: list[str] = []
    given: _Given = {}
    for source in (_from_file(config, faults), _from_environment(environment, faults)):
        given |= source
    given |= {name: (OPTIONS[name].flag, value) for name, value in flags.items()}
    settings = _validated(given, faults)
    if settings is None or faults:
        raise ConfigurationError(faults)
    return settings


def _validated(given: _Given, faults: list[str]) -> Settings | None:
    try:
        settings = Settings.model_validate({name: value for name, (_, value) in given.items()})
    except ValidationError as error:
        for fault in error.errors():
            place = given[str(fault["loc"][0])][0] + "".join(f"[{part}]" for part in fault["loc"][1:])
            faults.append(f"{place}: {plainly(fault['msg'])}, not {fault['input']!r}")
        return None
    faults.extend(_contradictions(settings))
    return settings


def plainly(text: str) -> str:
    """Returns a fault that pydantic has found in the words of the others."""
    return text.removeprefix("Value error, ").replace("Input should be", "want")


def _contradictions(settings: Settings) -> Iterator[str]:
    if settings.kubeconfig and settings.cluster:
        yield "kubeconfig, cluster: give one, a live cluster or a file"
    yield from _tls_contradictions(settings)
    if (settings.own_name or settings.own_labels) and not settings.own_namespace:
        yield "ownNamespace: needed with ownName and ownLabels"
    verbs = ("filter", "prioritize", "preempt", "bind")
    if len({settings.verb_path(verb).strip("/") for verb in verbs}) < len(verbs):
        yield ", ".join(f"{verb}Verb" for verb in verbs) + ": every verb needs a path of its own"
    for verb in verbs:
        path = "/".join(part for given in (settings.prefix, settings.verb_path(verb)) if (part := given.strip("/")))
        if path in _OWN_PATHS or path.startswith(_OWN_FOLDERS):
            yield f"prefix, {verb}Verb: /{path} is a path of the extender's own, choose another"
    if settings.leader_elect or settings.leader_service:
        yield from _election_contradictions(settings)
    yield from _missing_files(settings)


def _missing_files(settings: Settings) -> Iterator[str]:
    for name in ("kubeconfig", "cluster", "tls_cert", "tls_key", "client_ca", "metrics_client_ca"):
        path = getattr(settings, name)
        if path is not None and not path.exists():
            yield f"{OPTIONS[name].key}: there is no file {str(path)!r}"
    if settings.record is not None and not settings.record.parent.is_dir():
        yield f"record: there is no folder {str(settings.record.parent)!r}"
    elif settings.record is not None and settings.record.exists() and not settings.record.is_file():
        yield f"record: {str(settings.record)!r} is no file, name one to write"


def _tls_contradictions(settings: Settings) -> Iterator[str]:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        yield "tlsCert, tlsKey: HTTPS needs both"
    if settings.client_ca and not settings.tls_cert:
        yield "clientCa: client certificates need HTTPS, give tlsCert and tlsKey too"
    if settings.metrics_client_ca and not (settings.tls_cert and settings.metrics_bind):
        yield "metricsClientCa: client certificates need HTTPS, give tlsCert, tlsKey and metricsBind too"
    if settings.client_names and not settings.client_ca:
        yield "clientNames: names are checked only with a clientCa"


def _election_contradictions(settings: Settings) -> Iterator[str]:
    """The bounds are client-go's (NewLeaderElector); its jitter factor is 1.2."""
    if settings.cluster:
        yield "leaderElect, cluster: a file has no lease, leader election needs a live cluster"
    if not (settings.lease_namespace or settings.own_namespace):
        yield "leaseNamespace: needed with leaderElect, unless ownNamespace is given"
    if not settings.leader_elect:
        yield "leaderService: needs leaderElect, for nobody leads without"
    if settings.leader_service and not (settings.own_address and settings.own_labels):
        yield "leaderService: ownAddress and ownLabels are needed with it, to tell the replicas from each other"
    if settings.before_sync == "pass":
        yield "beforeSync, leaderElect: a standby must not let pods pass, want fail"
    if settings.lease_duration_seconds <= settings.renew_deadline_seconds:
        yield "leaseDurationSeconds: want more than renewDeadlineSeconds"
    if settings.renew_deadline_seconds <= 1.2 * settings.retry_period_seconds:
        yield "renewDeadlineSeconds: want more than 1.2 times retryPeriodSeconds"


def _from_environment(environment: Mapping[str, str], faults: list[str]) -> _Given:
    by_variable = {option.variable: option for option in OPTIONS.values()}
    given: _Given = {}
    for variable, text in environment.items():
        if option := by_variable.get(variable):
            given[option.name] = (variable, _split(text) if option.many else text)
        elif near := _near_miss(variable, by_variable):
            faults.append(f"{variable}: no such setting (did you mean {near}?)")
    return given


def _from_file(config: Path | None, faults: list[str]) -> _Given:
    if config is None:
        return {}
    document = _document(config, faults)
    by_key = {option.key: option for option in OPTIONS.values()}
    given: _Given = {}
    for key, value in document.items():
        if option := by_key.get(str(key)):
            given[option.name] = (f"{config}: {key}", value)
        elif key not in ("apiVersion", "kind"):
            faults.append(f"{config}: {key}: no such setting{did_you_mean(str(key), by_key)}")
    return given


def _document(config: Path, faults: list[str]) -> dict[object, object]:
    try:
        document = strict_yaml.load(config.read_bytes())
    except OSError as error:
        faults.append(f"{config}: {error.strerror}")
        return {}
    except MalformedInput as error:
        faults.append(f"{config}: {error}")
        return {}
    if not isinstance(document, dict) or document.get("kind") != KIND or document.get("apiVersion") != API_VERSION:
        faults.append(f"{config}: want a document with apiVersion: {API_VERSION} and kind: {KIND}")
    return document if isinstance(document, dict) else {}


def _near_miss(variable: str, variables: Mapping[str, Option]) -> str:
    # What resembles no setting may be another program's.
    ours = variable.startswith(PREFIX) and not _SERVICE_LINK.search(variable)
    return nearest(variable, variables, _ALIKE) if ours else ""


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
