"""Runs all checks of `extender doctor`. Checks on which other checks depend run first."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from extender.app.doctor.cluster_checks import (
    SCHEDULE,
    SERVE_PREEMPTING,
    check_cluster,
    check_own_pods,
    check_rights,
    own_pods,
)
from extender.app.doctor.endpoint_checks import check_endpoint
from extender.app.doctor.finding import Finding, fail, ok, warn
from extender.app.doctor.scheduler_config import check_entry, check_names, check_sampling, read_scheduler_config
from extender.app.policies import policy_of
from extender.cluster.first_call import reported_version
from extender.cluster.http.credentials import credentials_of
from extender.cluster.http.kube_client import KubeClient
from extender.cluster.watch.api_objects import decoders, list_all
from extender.config.cluster_access import IN_CLUSTER, ClusterAccess
from extender.errors import ClusterError, ConfigurationError
from extender.framework.profile import Profile
from extender.model.extender_config import ExtenderConfig
from extender.model.kinds import KINDS
from extender.model.node import Node
from extender.model.pod import Pod
from extender.plugins.registry import users_rules
from extender.plugins.users import custom_rules
from extender.plugins.users.post_filter import CustomPostFilter
from extender.plugins.users.predicate import CustomPredicate
from extender.plugins.users.priority import CustomPriority
from extender.plugins.users.queueing import CustomPreEnqueue, CustomQueueSort
from extender.plugins.users.rule_calls import described
from extender.policy.kubernetes_versions import followed
from extender.policy.policy import Policy
from extender.runtime.text import counted
from extender.scheduler.preemption import check_preemption
from extender.table import PodInfo, Table
from extender.table.features import VersionChoices, features_of

_OF_THE_LOOP = (CustomPreEnqueue, CustomQueueSort, CustomPostFilter)
_MOST_SECONDS = 0.1  # a slower rule delays kube-scheduler too much, because it runs for every pod


def check_rule_costs(profiles: Sequence[Profile], nodes: Sequence[Node]) -> Iterator[Finding]:
    """Measures how long each user's rule takes to judge an empty pod on all of these nodes."""
    table, pod = Table(), PodInfo(Pod())
    for node in nodes:
        table.set_node(node)
    rules = {rule.name: rule for profile in profiles for rule in users_rules(profile)}
    for name, rule in rules.items():
        began = time.perf_counter()
        try:
            if isinstance(rule, CustomPredicate):
                rule.prepare(pod, table).refuse(table.nodes.rows)
            else:
                rule.prepare(pod, table, table.nodes.rows)
        except Exception as error:  # a user's rule may raise any exception
            yield warn(
                "rule-cost",
                f"{name} fails for an empty pod: {described(error)}",
                "try it with `extender rule test`",
            )
            continue
        seconds = time.perf_counter() - began
        micros, millis = seconds * 1e6 / len(nodes), seconds * 1e3
        message = f"{name} takes {micros:.1f} us per node, {millis:.1f} ms for {counted(len(nodes), 'node')}"
        if seconds > _MOST_SECONDS:
            yield warn("rule-cost", message, "let the rule check all nodes at once, with columns (docs/rules.md)")
        else:
            yield ok("rule-cost", message)


def check_scores(policy: Policy, path: Path) -> Iterator[Finding]:
    """Warns of profiles with users' rules that keep in-tree priorities, because kube-scheduler has these itself."""
    for number, profile in enumerate(policy.profiles):
        in_tree = [each.priority.name for each in profile.priorities if not isinstance(each.priority, CustomPriority)]
        if in_tree and any(True for _ in custom_rules([profile])):
            twice = f"the scores of {', '.join(in_tree)} count twice, in kube-scheduler and in the extender"
            line = _line_of_plugins(path, number)
            if line is None:
                message, fix = f"{path}: {twice}", "write `priorities` with only your rules"
            else:
                message = f"{path}{line}: profiles[{number}].plugins keeps the in-tree plugins, so {twice}"
                fix = (
                    f'add the line `multiPoint: {{disabled: [{{name: "*"}}]}}` to the plugins of {path}{line},'
                    " and enable no in-tree plugin under `score`"
                )
            yield warn("scores-twice", message, fix)


def _line_of_plugins(path: Path, profile: int) -> str | None:
    """Returns `:LINE` of the profile's plugins, "" if they are not found in a file; None for a classic Policy."""
    try:
        document: Any = yaml.compose(path.read_text(), yaml.SafeLoader)
        if any((key.value, value.value) == ("kind", "Policy") for key, value in document.value):
            return None
        profiles = next(value for key, value in document.value if key.value == "profiles")
        plugins = next(key for key, _ in profiles.value[profile].value if key.value == "plugins")
    except (OSError, UnicodeDecodeError, yaml.YAMLError, LookupError, AttributeError, StopIteration):
        return ""
    return f":{plugins.start_mark.line + 1}"


def diagnose(
    mode: str,
    access: ClusterAccess | None,
    *,
    account: str,
    leases: Sequence[str],
    leader_service: str,
    scheduler_config: Path | None,
    extender: ExtenderConfig | None,
    policy_path: Path | None,
) -> Iterator[Finding]:
    """Checks an installation, and yields findings one by one. A check whose argument is None is skipped.

    Args:
        mode: SERVE, SERVE_PREEMPTING or SCHEDULE, which need different permissions.
        account: NAMESPACE/NAME of the extender's service account; empty for the kubeconfig's user.
        leases: NAMESPACE/NAME of each Lease that a replica should hold; empty without leader election.
        leader_service: the Service that the leader points at itself, in the first Lease's namespace; empty without one.
        extender: how to reach the extender, used if `scheduler_config` has no entry for an extender.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    nodes: Sequence[Node] = ()
    own: Sequence[Pod] = ()
    version = ""
    policy, finding = (None, None) if policy_path is None else _policy(policy_path, access or IN_CLUSTER, mode)
    if access is not None:
        client = KubeClient(credentials_of(access))
        try:
            yield from check_cluster(client, leases)
            version = reported_version(client)
            yield from check_rights(
                client, mode, account, leases, leader_service, () if policy is None else policy.watch
            )
            listed = list_all(client, KINDS["Node"], decoders(KINDS["Node"])[0])[1]
            nodes = [node for node in listed if isinstance(node, Node)]
            if account and scheduler_config is not None:
                own = own_pods(client, account)
        except ClusterError as error:
            yield fail("api-server", str(error), "check the server and the user of the kubeconfig's context")
        finally:
            client.close()
    if finding is not None:
        yield finding
    if policy is not None:
        yield from _check_policy(policy, nodes)
    configuration = None
    if scheduler_config is not None:
        choices = VersionChoices() if policy is None else policy.features.choices
        features = features_of(choices, followed(version)[0])
        configuration, findings = read_scheduler_config(scheduler_config, features)
        yield from findings
    if configuration is not None:
        yield from _check_configuration(configuration, policy, mode)
        yield from check_own_pods(configuration, own)
    extenders = configuration.extenders if configuration else ()
    if policy is not None and policy_path is not None and mode != SCHEDULE and _may_score(extenders):
        yield from check_scores(policy, policy_path)
    for config in extenders or ([extender] if extender else []):
        yield from check_endpoint(config, [node.name for node in nodes])


def _may_score(extenders: Sequence[ExtenderConfig]) -> bool:
    """Returns False if kube-scheduler's configuration is known and never calls prioritize."""
    return not extenders or any(config.prioritize_verb for config in extenders)


def _check_policy(policy: Policy, nodes: Sequence[Node]) -> Iterator[Finding]:
    yield from (warn("policy", note, "remove it, or correct the name") for note in policy.notes)
    if nodes:
        yield from check_rule_costs(policy.profiles, nodes)


def _check_configuration(configuration: Policy, policy: Policy | None, mode: str) -> Iterator[Finding]:
    """Checks a configuration with which kube-scheduler starts; `policy` is the extender's."""
    if not configuration.extenders:
        yield fail("extenders", "the configuration has no extender", "add one, see docs/install.md")
    for config in configuration.extenders:
        yield from check_entry(config, policy)
    yield from check_sampling(configuration)
    if mode == SCHEDULE and policy is not None:
        yield from check_names(configuration, [profile.name for profile in policy.profiles])


def _policy(path: Path, access: ClusterAccess, mode: str) -> tuple[Policy | None, Finding]:
    try:
        policy = policy_of(path, access=access)
    except ConfigurationError as error:
        return None, fail(
            "policy", "; ".join(error.faults), "correct it; `extender reference policy` lists every field"
        )
    if mode == SCHEDULE and (unsupported := [text for profile in policy.profiles for text in profile.unsupported]):
        return policy, fail("policy", "; ".join(unsupported), "correct it; `extender schedule` does not start with it")
    if mode == SERVE_PREEMPTING:
        try:
            idle_preemption = check_preemption(policy.profiles)
        except ConfigurationError as error:
            return policy, fail(
                "policy", "; ".join(error.faults), "correct it; `extender serve` does not start with it"
            )
        if idle_preemption:
            return policy, warn(
                "policy", idle_preemption, "write @predicate(sees_pods=True) at a rule, or leave out the flag"
            )
    rules = [rule for profile in policy.profiles for rule in profile.rules]
    message = f"loaded {counted(len(policy.profiles), 'profile')} with {counted(len(rules), 'rule')}"
    idle = {rule.name for rule in rules if isinstance(rule, _OF_THE_LOOP)} if mode != SCHEDULE else ()
    if not idle:
        return policy, ok("policy", message)
    return policy, warn(
        "policy",
        f"{message}; these never run in `extender serve`: {', '.join(sorted(idle))}",
        "use `extender schedule`, or remove them: kube-scheduler has its own queue and preemption",
    )
