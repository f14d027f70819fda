"""Reads settings from a file, the environment (EXTENDER_...) and flags; later sources take precedence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from extender.config.settings import (
    API_VERSION,
    COMMANDS,
    KIND,
    OPTIONS,
    PREFIX,
    REMOVED,
    Command,
    Option,
    Settings,
    options_of,
)
from extender.errors import ConfigurationError, MalformedInput
from extender.runtime import strict_yaml
from extender.runtime.text import did_you_mean, nearest, plainly, with_suggestion

# Variables that Kubernetes sets in every pod for a Service called extender or extender-something.
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_\w+)$")

_ALIKE = 0.75  # texts that are at least this similar count as a typo; all variables share a prefix

_OWN_FOLDERS = ("debug/", "ui/")

_Values = dict[str, tuple[str, object]]  # setting -> (its location in the source, its value)


def load(
    config: Path | None, environment: Mapping[str, str], flags: Mapping[str, object], command: Command = "serve"
) -> Settings:
    """Returns the settings of the command. `flags` maps the name of each setting given by a flag to its value.

    Raises:
        ConfigurationError: lists every fault with its location and, for an unknown name, the most similar known name.
            A setting that only the other command has is a fault, because it would have no effect.
    """
    faults: list[str] = []
    values: _Values = {option.name: (option.key, option.defaults[command]) for option in options_of(command)}
    values |= _from_file(config, faults)
    values |= _from_environment(environment, faults)
    values |= {name: (OPTIONS[name].flag, value) for name, value in flags.items()}
    faults += [
        f"{place}: `extender {command}` does not have this setting, only `extender {_other(command)}` has it"
        for name, (place, _) in values.items()
        if command not in OPTIONS[name].defaults
    ]
    settings = _validated(values, faults)
    if settings is None or faults:
        raise ConfigurationError(faults)
    return settings


def _other(command: Command) -> Command:
    return next(each for each in COMMANDS if each != command)


def _validated(values: _Values, faults: list[str]) -> Settings | None:
    try:
        settings = Settings.model_validate({name: value for name, (_, value) in values.items()})
    except ValidationError as error:
        for fault in error.errors():
            place = values[str(fault["loc"][0])][0] + "".join(f"[{part}]" for part in fault["loc"][1:])
            faults.append(f"{place}: {plainly(fault['msg'])}, got {fault['input']!r}")
        return None
    faults.extend(_contradictions(settings))
    return settings


def _contradictions(settings: Settings) -> Iterator[str]:
    if settings.kubeconfig and settings.cluster:
        yield "kubeconfig, cluster: give only one of them, a live cluster or a file"
    if settings.context and not settings.kubeconfig:
        yield "context: requires kubeconfig, which has the contexts"
    yield from _tls_contradictions(settings)
    if settings.on_rule_failure == "ignore" and not settings.decision_seconds:
        yield "onRuleFailure: ignore requires decisionSeconds, because a rule that hangs has no limit without it"
    if settings.own_labels and not settings.own_namespace:
        yield "ownNamespace: required with ownLabels"
    folder = settings.prefix.strip("/") + "/"
    if folder.startswith(_OWN_FOLDERS):
        yield f"prefix: /{folder} is already used by the extender; choose another path"
    if settings.leader_elect or settings.leader_service or settings.lease_follows_calls:
        yield from _election_contradictions(settings)
    yield from _missing_files(settings)


def _missing_files(settings: Settings) -> Iterator[str]:
    if settings.kubeconfig and not any(path.exists() for path in settings.access.kubeconfigs):
        yield f"kubeconfig: no such file: {str(settings.kubeconfig)!r}"
    for name in ("cluster", "tls_cert", "tls_key", "client_ca", "metrics_client_ca"):
        path = getattr(settings, name)
        if path is not None and not path.exists():
            yield f"{OPTIONS[name].key}: no such file: {str(path)!r}"
    if settings.record is not None and not settings.record.parent.is_dir():
        yield f"record: no such directory: {str(settings.record.parent)!r}"
    elif settings.record is not None and settings.record.exists() and not settings.record.is_file():
        yield f"record: {str(settings.record)!r} is not a regular file"


def _tls_contradictions(settings: Settings) -> Iterator[str]:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        yield "tlsCert, tlsKey: HTTPS requires both"
    if settings.client_ca and not settings.tls_cert:
        yield "clientCa: client certificates require HTTPS; set tlsCert and tlsKey too"
    if settings.metrics_client_ca and not (settings.tls_cert and settings.metrics_bind):
        yield "metricsClientCa: client certificates require HTTPS; set tlsCert, tlsKey and metricsBind too"
    if settings.client_names and not settings.client_ca:
        yield "clientNames: names are checked only if clientCa is set"


def _election_contradictions(settings: Settings) -> Iterator[str]:
    """Yields the faults in the election settings."""
    if settings.cluster:
        yield "leaderElect, cluster: leader election needs a live cluster, because a file has no Lease"
    if not (settings.lease_namespace or settings.own_namespace):
        yield "leaseNamespace: required with leaderElect, unless ownNamespace is set"
    if not settings.leader_elect:
        name = "leaderService" if settings.leader_service else "leaseFollowsCalls"
        yield f"{name}: requires leaderElect, because there is no leader without it"
    if settings.leader_service and not (settings.own_address and settings.own_labels):
        yield "leaderService: requires ownAddress and ownLabels, which identify the replicas"


def _from_environment(environment: Mapping[str, str], faults: list[str]) -> _Values:
    by_variable = {option.variable: option for option in OPTIONS.values()}
    removed = {option.variable: option.description for option in REMOVED}
    values: _Values = {}
    for variable, text in environment.items():
        if option := by_variable.get(variable):
            values[option.name] = (variable, _split(text) if option.many else text)
        elif variable in removed:
            faults.append(f"{variable}: {removed[variable]}")
        elif near := _near_misses(variable, by_variable):
            faults.append(f"{variable}: unknown setting{did_you_mean(near)}")
    return values


def _from_file(config: Path | None, faults: list[str]) -> _Values:
    if config is None:
        return {}
    document = _document(config, faults)
    by_key = {option.key: option for option in OPTIONS.values()}
    removed = {option.key: option.description for option in REMOVED}
    values: _Values = {}
    for key, value in document.items():
        if option := by_key.get(str(key)):
            values[option.name] = (f"{config}: {key}", value)
        elif key in removed:
            faults.append(f"{config}: {key}: {removed[str(key)]}")
        elif key not in ("apiVersion", "kind"):
            faults.append(with_suggestion(f"{config}: {key}: unknown setting", str(key), by_key))
    return values


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
        faults.append(f"{config}: expected a document with apiVersion: {API_VERSION} and kind: {KIND}")
    return document if isinstance(document, dict) else {}


def _near_misses(variable: str, variables: Mapping[str, Option]) -> list[str]:
    # A variable that resembles no setting may belong to another program.
    ours = variable.startswith(PREFIX) and not _SERVICE_LINK.search(variable)
    return nearest(variable, variables, _ALIKE) if ours else []


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
