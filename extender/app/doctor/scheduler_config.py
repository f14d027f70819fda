"""Checks kube-scheduler's configuration: if it starts with it, its entries for extenders, and settings beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from extender.app.doctor.finding import Finding, fail, ok, warn
from extender.cluster.http.pool import client_context, content
from extender.errors import ConfigurationError
from extender.framework.profile import Profile
from extender.model.extender_config import ExtenderConfig
from extender.plugins.users.predicate import CustomPredicate
from extender.policy.loading import load_scheduler_configuration
from extender.policy.policy import Policy
from extender.table.features import FeatureGates

ALL_NODES = 100
_DOES_NOT_START = "correct it, because kube-scheduler does not start with it"


def read_scheduler_config(path: Path, features: FeatureGates) -> tuple[Policy | None, list[Finding]]:
    """Returns (configuration, findings) of the file that kube-scheduler gets as --config.

    The configuration is None if kube-scheduler would not start with it; the findings then say why. TLS files are read
    too, because kube-scheduler reads them when it starts. `features` are the version and the gates of kube-scheduler.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigurationError([f"--scheduler-config {path}: {error.strerror}"]) from None
    try:
        configuration = load_scheduler_configuration(text, features)
    except ConfigurationError as error:
        return None, [fail("scheduler-config", f"{path}: {fault}", _DOES_NOT_START) for fault in error.faults]
    unusable = [fault for extender in configuration.extenders for fault in _unusable_files(extender)]
    if unusable:
        return None, [fail("tls-files", fault, f"{_DOES_NOT_START}; or run doctor where it runs") for fault in unusable]
    return configuration, [
        *(
            warn("scheduler-config", f"{path}: {note}", "remove it, or correct the name")
            for note in configuration.notes
        ),
        ok("scheduler-config", f"kube-scheduler starts with {path}"),
    ]


def _unusable_files(extender: ExtenderConfig) -> Iterator[str]:
    """Yields the TLS files and PEM data that keep kube-scheduler from starting (client-go's TLSConfigFor)."""
    tls = extender.tls
    contents: dict[str, bytes] = {}
    has_certificate = (tls.cert_data or tls.cert_file) and (tls.key_data or tls.key_file)
    if tls.verified and not (tls.ca_data or tls.ca_file or has_certificate or tls.server_name):
        return
    parts = (
        ("ca", tls.ca_data, tls.ca_file),
        ("cert", tls.cert_data, tls.cert_file),
        ("key", tls.key_data, tls.key_file),
    )
    for part, data, file in parts:
        try:
            contents[part] = data or content(file)
        except OSError as error:
            yield f"{extender.url_prefix}: tlsConfig.{part}File: {file}: {error.strerror}"
            return
    try:
        client_context(contents["ca"].decode("ascii") or None, b"", verified=tls.verified)
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        place = "caData" if tls.ca_data else f"caFile: {tls.ca_file}"
        yield f"{extender.url_prefix}: tlsConfig.{place}: not a certificate in PEM"
    if has_certificate and (tls.cert_data or tls.key_data):
        try:
            client_context(None, contents["cert"] + b"\n" + contents["key"], verified=False)
        except (OSError, ValueError):
            yield f"{extender.url_prefix}: tlsConfig: the client certificate and its key are no pair in PEM"


def check_entry(config: ExtenderConfig, policy: Policy | None) -> Iterator[Finding]:
    """Checks the settings of one entry of `extenders`; `policy` is the extender's policy, None if unknown."""
    where = config.url_prefix
    try:
        config.url  # noqa: B018  raises an error if it is no URL
    except ConfigurationError as error:
        yield fail("extenders", error.faults[0], "correct it: kube-scheduler starts with it, but every call fails")
        return
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


def check_sampling(configuration: Policy) -> Iterator[Finding]:
    """Checks that kube-scheduler examines all nodes, and names its features that an extender turns off."""
    if all(profile.percentage_of_nodes_to_score == ALL_NODES for profile in configuration.profiles):
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


def check_names(configuration: Policy, own: Sequence[str]) -> Iterator[Finding]:
    """Checks that kube-scheduler and `extender schedule` have no schedulerName in common."""
    theirs = {profile.name for profile in configuration.profiles}
    if shared := sorted(theirs & set(own)):
        yield fail(
            "scheduler-names",
            f"kube-scheduler and `extender schedule` both place pods with the schedulerName {', '.join(shared)}",
            "give `extender schedule` another schedulerName (--scheduler-name, or the profiles of its policy)",
        )
    else:
        yield ok("scheduler-names", "each schedulerName has one scheduler")
