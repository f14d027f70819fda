"""The kube-scheduler's configuration: its entries for extenders, and what in it works against them."""

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
    """Returns the document. Raises ConfigurationError where the file is no KubeSchedulerConfiguration."""
    try:
        document = strict_yaml.load(path.read_bytes())
    except OSError as error:
        raise ConfigurationError([f"--scheduler-config {path}: {error.strerror}"]) from None
    except MalformedInput as error:
        raise ConfigurationError([f"--scheduler-config {path}: {error}"]) from None
    if not isinstance(document, dict) or document.get("kind") != "KubeSchedulerConfiguration":
        raise ConfigurationError([f"--scheduler-config {path}: want a KubeSchedulerConfiguration"])
    return document


def extenders_in(document: Mapping[str, Any]) -> tuple[list[ExtenderConfig], list[Finding]]:
    """Returns the extenders that the configuration names, or why kube-scheduler would not start with them."""
    faults = Faults()
    try:
        configs = read_extenders(_SPECS.validate_python(document.get("extenders") or []), faults)
        faults.raise_if_any()
    except ValidationError as error:
        return [], [_malformed([f"extenders{_path(each['loc'])}: {each['msg']}" for each in error.errors()])]
    except ConfigurationError as error:
        return [], [_malformed(error.faults)]
    if not configs:
        return [], [fail("extenders", "the configuration names no extender", "add one, as in docs/install.md")]
    return list(configs), []


def _path(location: Sequence[int | str]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


def _malformed(faults: Sequence[str]) -> Finding:
    return fail("extenders", "; ".join(faults), "mend it: kube-scheduler does not start with it")


def check_entry(config: ExtenderConfig) -> Iterator[Finding]:
    """Yields what is found of one entry of `extenders`."""
    where = config.url_prefix
    if not config.node_cache_capable:
        yield warn(
            "node-cache-capable",
            f"{where}: without nodeCacheCapable whole nodes are sent, and in-tree scores are wrong (kubernetes#141781)",
            "nodeCacheCapable: true",
        )
    if config.ignorable:
        yield warn(
            "ignorable",
            f"{where}: ignorable: while the extender does not answer, pods are placed without its rules",
            "ignorable: false, unless its rules are no more than preferences",
        )
    if not config.bind_verb:
        yield warn(
            "bind-verb",
            f"{where}: no bindVerb: a pod counts on its node once the watch shows it, later than the next decision",
            "bindVerb: bind, which books the place in the same step as it checks it",
        )
    if config.filter_verb and not config.preempt_verb:
        yield warn(
            "preempt-verb",
            f"{where}: filterVerb without preemptVerb: preemption evicts pods on nodes that the extender then refuses",
            "preemptVerb: preempt",
        )
    if urlsplit(where).scheme == "https" and not config.tls.verified:
        yield warn(
            "tls-verified",
            f"{where}: its certificate is not verified: anybody on the way can answer",
            "tlsConfig.caFile, and no tlsConfig.insecure",
        )


def check_sampling(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Yields what the configuration does to an extender's rules by looking at some nodes only."""
    profiles = document.get("profiles") or [{}]
    general = document.get("percentageOfNodesToScore")
    shares = [profile.get("percentageOfNodesToScore", general) or 0 for profile in profiles]
    if all(share == ALL_NODES for share in shares):
        yield ok("sampling", "every node is looked at (percentageOfNodesToScore: 100)")
    else:
        yield warn(
            "sampling",
            "kube-scheduler ends its search at a share of the nodes: the extender's best node may not be among them",
            "percentageOfNodesToScore: 100, which costs in-tree plugins time on large clusters",
        )
    yield ok(
        "features-off",
        "with an extender kube-scheduler batches no equal pods, and any event wakes the pods that the extender refused",
    )


def check_names(document: Mapping[str, Any], own: Sequence[str]) -> Iterator[Finding]:
    """Yields the schedulerNames that both kube-scheduler and `extender schedule` would take pods of."""
    theirs = {profile.get("schedulerName", "default-scheduler") for profile in document.get("profiles") or [{}]}
    if both := sorted(theirs & set(own)):
        yield fail(
            "scheduler-names",
            f"kube-scheduler and `extender schedule` both place the pods of {', '.join(both)}",
            "give `extender schedule` a schedulerName of its own (--scheduler-name, or the profiles of its policy)",
        )
    else:
        yield ok("scheduler-names", "no schedulerName has two schedulers")
