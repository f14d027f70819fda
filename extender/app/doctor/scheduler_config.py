"""Checks kube-scheduler's configuration: its entries for extenders, and settings that work against them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from extender.app.doctor.finding import Finding, fail, ok, warn
from extender.errors import ConfigurationError, MalformedInput
from extender.model.extender_config import ExtenderConfig
from extender.policy.extenders import ExtenderSpec, read_extenders
from extender.policy.faults import Faults
from extender.runtime import strict_yaml

ALL_NODES = 100
_SPECS: TypeAdapter[list[ExtenderSpec]] = TypeAdapter(list[ExtenderSpec])


def read_scheduler_config(path: Path) -> dict[str, Any]:
    """Reads a KubeSchedulerConfiguration from a file. Raises ConfigurationError if it is something else."""
    try:
        document = strict_yaml.load(path.read_bytes())
    except OSError as error:
        raise ConfigurationError([f"--scheduler-config {path}: {error.strerror}"]) from None
    except MalformedInput as error:
        raise ConfigurationError([f"--scheduler-config {path}: {error}"]) from None
    if not isinstance(document, dict) or document.get("kind") != "KubeSchedulerConfiguration":
        raise ConfigurationError([f"--scheduler-config {path}: expected a KubeSchedulerConfiguration"])
    return document


def extenders_in(document: Mapping[str, Any]) -> tuple[list[ExtenderConfig], list[Finding]]:
    """Returns (extenders, findings): the extenders in the configuration, or findings on why it is wrong."""
    faults = Faults()
    try:
        configs = read_extenders(_SPECS.validate_python(document.get("extenders") or []), faults)
        faults.raise_if_any()
    except ValidationError as error:
        return [], [_malformed([f"extenders{_path(fault['loc'])}: {fault['msg']}" for fault in error.errors()])]
    except ConfigurationError as error:
        return [], [_malformed(error.faults)]
    if not configs:
        return [], [fail("extenders", "the configuration has no extender", "add one, see docs/install.md")]
    return list(configs), []


def _path(location: Sequence[int | str]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


def _malformed(faults: Sequence[str]) -> Finding:
    return fail("extenders", "; ".join(faults), "correct it, because kube-scheduler does not start with it")


def check_entry(config: ExtenderConfig) -> Iterator[Finding]:
    """Yields a warning for each setting of this entry of `extenders` that is likely to be a mistake."""
    where = config.url_prefix
    if not config.node_cache_capable:
        yield warn(
            "node-cache-capable",
            f"{where}: without nodeCacheCapable kube-scheduler sends whole nodes, and its own scores are wrong"
            " (kubernetes#141781)",
            "set nodeCacheCapable: true",
        )
    if config.ignorable:
        yield warn(
            "ignorable",
            f"{where} is ignorable: while the extender does not answer, pods are placed without its rules",
            "set ignorable: false, unless its rules are only preferences",
        )
    if not config.bind_verb:
        yield warn(
            "bind-verb",
            f"{where} has no bindVerb: the extender sees a placed pod only when the watch delivers it, which may be"
            " after the next decision",
            "set bindVerb: bind, which checks the node and assumes the pod in one step",
        )
    if config.filter_verb and not config.preempt_verb:
        yield warn(
            "preempt-verb",
            f"{where} has filterVerb but no preemptVerb: preemption evicts pods on nodes that the extender refuses",
            "set preemptVerb: preempt",
        )
    if urlsplit(where).scheme == "https" and not config.tls.verified:
        yield warn(
            "tls-verified",
            f"{where}: its certificate is not verified, so an attacker on the network could answer",
            "set tlsConfig.caFile, and remove tlsConfig.insecure",
        )


def check_sampling(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Checks that kube-scheduler examines all nodes, and mentions features that it switches off for an extender."""
    profiles = document.get("profiles") or [{}]
    general = document.get("percentageOfNodesToScore")
    shares = [profile.get("percentageOfNodesToScore", general) or 0 for profile in profiles]
    if all(share == ALL_NODES for share in shares):
        yield ok("sampling", "kube-scheduler examines every node (percentageOfNodesToScore: 100)")
    else:
        yield warn(
            "sampling",
            "kube-scheduler examines only a share of the nodes, which may not include the extender's best node",
            "set percentageOfNodesToScore: 100, which costs kube-scheduler time on large clusters",
        )
    yield ok(
        "features-off",
        "with an extender, kube-scheduler decides about equal pods one by one, and any event wakes pods that the"
        " extender refused",
    )


def check_names(document: Mapping[str, Any], own: Sequence[str]) -> Iterator[Finding]:
    """Checks that kube-scheduler and `extender schedule` share no schedulerName."""
    theirs = {profile.get("schedulerName", "default-scheduler") for profile in document.get("profiles") or [{}]}
    if shared := sorted(theirs & set(own)):
        yield fail(
            "scheduler-names",
            f"kube-scheduler and `extender schedule` both place pods with the schedulerName {', '.join(shared)}",
            "give `extender schedule` another schedulerName (--scheduler-name, or the profiles of its policy)",
        )
    else:
        yield ok("scheduler-names", "each schedulerName has one scheduler")
