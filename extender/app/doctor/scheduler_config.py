"""Checks kube-scheduler's configuration: its entries for extenders, and settings that do not suit an extender."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from extender.app.doctor.finding import Finding, fail, ok, warn
from extender.errors import ConfigurationError, MalformedInput
from extender.framework.policy_fields import Strict
from extender.framework.profile import Profile
from extender.model.extender_config import ExtenderConfig
from extender.plugins.users.predicate import CustomPredicate
from extender.policy.extenders import ExtenderSpec, read_extenders
from extender.policy.faults import Faults
from extender.policy.policy import Policy
from extender.runtime import strict_yaml

ALL_NODES = 100


def read_scheduler_config(path: Path) -> dict[str, Any]:
    """Reads a KubeSchedulerConfiguration from a file. Raises ConfigurationError if the file is not one."""
    try:
        document = strict_yaml.load(path.read_bytes())
    except OSError as error:
        raise ConfigurationError([f"--scheduler-config {path}: {error.strerror}"]) from None
    except MalformedInput as error:
        raise ConfigurationError([f"--scheduler-config {path}: {error}"]) from None
    if not isinstance(document, dict) or document.get("kind") != "KubeSchedulerConfiguration":
        raise ConfigurationError([f"--scheduler-config {path}: expected a KubeSchedulerConfiguration"])
    return document


class _Extenders(Strict):
    extenders: tuple[ExtenderSpec, ...] = ()


def extenders_in(document: Mapping[str, Any]) -> tuple[list[ExtenderConfig], list[Finding]]:
    """Returns (extenders, findings): the extenders in the configuration, or findings that say what is wrong."""
    faults = Faults()
    entries = faults.read(_Extenders, {"extenders": document.get("extenders")})
    configs = read_extenders(entries.extenders, faults) if entries else ()
    if faults.messages:
        fix = "correct it, because kube-scheduler does not start with it"
        return [], [fail("extenders", "; ".join(faults.messages), fix)]
    if not configs:
        return [], [fail("extenders", "the configuration has no extender", "add one, see docs/install.md")]
    return list(configs), []


def check_entry(config: ExtenderConfig, policy: Policy | None) -> Iterator[Finding]:
    """Checks the settings of one entry of `extenders`; `policy` is the extender's policy, None if unknown."""
    where = config.url_prefix
    if not config.node_cache_capable:
        yield warn(
            "node-cache-capable",
            f"{where}: without nodeCacheCapable kube-scheduler sends whole nodes, and its own scores are wrong"
            " (kubernetes#141781)",
            "set nodeCacheCapable: true",
        )
    asked = (
        f"pods that request {', '.join(sorted(config.managed_resources))}" if config.managed_resources else "all pods"
    )
    if not config.ignorable:
        yield ok("ignorable", f"{where} is not ignorable: while the extender does not answer, {asked} stay pending")
    elif config.filter_verb:
        yield warn(
            "ignorable",
            f"{where} is ignorable: while the extender does not answer, pods are placed without its rules",
            "set ignorable: false, unless its rules are only preferences",
        )
    if not config.bind_verb:
        yield _without_bind(where, policy)
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


def _without_bind(where: str, policy: Policy | None) -> Finding:
    if policy is not None and not any(_needs_bind(profile) for profile in policy.profiles):
        return ok("bind-verb", f"{where} needs no bindVerb, because no filter of the policy depends on placed pods")
    return warn(
        "bind-verb",
        f"{where} has no bindVerb: the extender sees a placed pod only when the watch delivers it, which may be"
        " after the next decision",
        "set bindVerb: bind, which checks the node and assumes the pod in one step; it is not needed if no filter of"
        " the extender's --policy depends on placed pods",
    )


def _needs_bind(profile: Profile) -> bool:
    """Returns True if a filter may depend on placed pods, or if rules run at bind. Then the extender must bind pods."""
    independent = all(isinstance(rule, CustomPredicate) and not rule.sees_pods for rule in profile.predicates)
    return bool(profile.permit) or not independent


def check_sampling(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Checks that kube-scheduler examines all nodes, and names its features that an extender turns off."""
    profiles = document.get("profiles") or [{}]
    general = document.get("percentageOfNodesToScore")
    shares = [profile.get("percentageOfNodesToScore", general) or 0 for profile in profiles]
    if all(share == ALL_NODES for share in shares):
        yield ok("sampling", "kube-scheduler examines every node (percentageOfNodesToScore: 100)")
    else:
        yield warn(
            "sampling",
            "kube-scheduler examines only a share of the nodes; it does not ask the extender about the others, which it"
            " might accept or prefer",
            "set percentageOfNodesToScore: 100, which costs kube-scheduler time on large clusters",
        )
    yield ok(
        "features-off",
        "with an extender, kube-scheduler decides about equal pods one by one, and any event wakes pods that the"
        " extender refused",
    )


def check_names(document: Mapping[str, Any], own: Sequence[str]) -> Iterator[Finding]:
    """Checks that kube-scheduler and `extender schedule` have no schedulerName in common."""
    theirs = {profile.get("schedulerName", "default-scheduler") for profile in document.get("profiles") or [{}]}
    if shared := sorted(theirs & set(own)):
        yield fail(
            "scheduler-names",
            f"kube-scheduler and `extender schedule` both place pods with the schedulerName {', '.join(shared)}",
            "give `extender schedule` another schedulerName (--scheduler-name, or the profiles of its policy)",
        )
    else:
        yield ok("scheduler-names", "each schedulerName has one scheduler")
