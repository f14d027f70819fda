"""Runs all checks of `extender doctor`. Checks on which other checks depend run first; none changes anything.

`cluster_checks` checks the cluster. This module checks kube-scheduler's configuration (if it starts with it, its
entries for extenders, and settings beside them), and calls a running extender as a scheduler does: certificates,
readiness, verbs and latency. Start with `diagnose`.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from extender.app.cluster_checks import (
    SCHEDULE,
    SERVE_PREEMPTING,
    Finding,
    Installation,
    check_cluster,
    check_own_pods,
    check_rights,
    fail,
    ok,
    own_pods,
    warn,
)
from extender.app.policies import policy_of
from extender.cluster.credentials import credentials_of
from extender.cluster.http_extender import endpoint_of
from extender.cluster.kube_client import KubeClient, reported_version
from extender.cluster.pool import ConnectionPool, Endpoint, Request, client_context, content
from extender.cluster.watch.api_objects import decoders, list_all
from extender.config.cluster_access import IN_CLUSTER, ClusterAccess
from extender.errors import ClusterError, ConfigurationError, Refused
from extender.extender_v1.client import encode_args, encode_preemption_args
from extender.framework.profile import Profile
from extender.model.extender_config import ExtenderConfig
from extender.model.kinds import KINDS
from extender.model.node import Node
from extender.model.pod import Pod
from extender.plugins.registry import users_rules
from extender.plugins.users.function import custom_rules
from extender.plugins.users.predicate import CustomPostFilter, CustomPredicate
from extender.plugins.users.priority import CustomPriority
from extender.plugins.users.queueing import CustomPreEnqueue, CustomQueueSort
from extender.plugins.users.rule_calls import described
from extender.policy.loading import load_scheduler_configuration
from extender.policy.policy import Policy, followed
from extender.runtime.text import counted
from extender.scheduler.preemption import check_preemption
from extender.table import PodInfo, Table
from extender.table.features import FeatureGates, VersionChoices, features_of

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


def diagnose(installation: Installation) -> Iterator[Finding]:
    """Checks an installation, and yields findings one by one. Raises ConfigurationError if a file cannot be read."""
    mode, access, policy_path = installation.mode, installation.access, installation.policy
    nodes: Sequence[Node] = ()
    own: Sequence[Pod] = ()
    version = ""
    policy, finding = (None, None) if policy_path is None else _policy(policy_path, access or IN_CLUSTER, mode)
    if access is not None:
        client = KubeClient(credentials_of(access))
        try:
            yield from check_cluster(client, installation.leases)
            version = reported_version(client)
            yield from check_rights(client, installation, () if policy is None else policy.watch)
            listed = list_all(client, KINDS["Node"], decoders(KINDS["Node"])[0])[1]
            nodes = [node for node in listed if isinstance(node, Node)]
            if installation.account and installation.scheduler_config is not None:
                own = own_pods(client, installation.account)
        except ClusterError as error:
            yield fail("api-server", str(error), "check the server and the user of the kubeconfig's context")
        finally:
            client.close()
    if finding is not None:
        yield finding
    if policy is not None:
        yield from _check_policy(policy, nodes)
    configuration = None
    if installation.scheduler_config is not None:
        choices = VersionChoices() if policy is None else policy.features.choices
        features = features_of(choices, followed(version)[0])
        configuration, findings = read_scheduler_config(installation.scheduler_config, features)
        yield from findings
    if configuration is not None:
        yield from _check_configuration(configuration, policy, mode)
        yield from check_own_pods(configuration, own)
    extenders = configuration.extenders if configuration else ()
    if policy is not None and policy_path is not None and mode != SCHEDULE and _may_score(extenders):
        yield from check_scores(policy, policy_path)
    for config in extenders or ([installation.extender] if installation.extender else []):
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


_POD = b'{"metadata":{"name":"extender-doctor","namespace":"default","uid":"extender-doctor"},"spec":{"containers":[]}}'
_JSON = [("Content-Type", "application/json")]
_NOT_A_REQUEST = b"[]"  # bind refuses this body with 400, so nothing is bound
_CALLS = 20
_EXPIRY_WARN_DAYS = 30
_DAY_SECONDS = 86400
_CLUSTER_SUFFIXES = (".svc", ".cluster.local")
_BAD_REQUEST = 400
_DENIED = (401, 403)
_LEFT_OUT = "correct the rule; it is left out because of onRuleFailure: ignore"
_HTML = "text/html"  # an answer in HTML does not come from an extender
_LONGEST_TEXT = 300


class _Answer(NamedTuple):
    status: int
    media_type: str
    body: bytes
    warning: str = ""

    @property
    def is_page(self) -> bool:
        return self.media_type == _HTML

    def is_of_extender(self, status: int) -> bool:
        """Returns True if the answer has the expected status and is not HTML, so that an extender may have sent it."""
        return self.status == status and not self.is_page

    def text(self, expected: int) -> str:
        """Returns the answer in one line, without the text of an HTML page, which another server may have sent."""
        if self.is_page:
            return f"{self.status} with {_HTML}; an extender answers {expected}, so this may be another server"
        return f"{self.status}: {' '.join(self.body.decode('utf-8', 'replace').split())[:_LONGEST_TEXT]}"


class ExtenderCaller:
    """Calls one extender as kube-scheduler does."""

    def __init__(self, config: ExtenderConfig) -> None:
        """Raises ConfigurationError if the certificates cannot be read."""
        self.config = config
        self.endpoint = endpoint_of(config)
        self._path = urlsplit(config.url_prefix).path.rstrip("/")
        self._pool = ConnectionPool(config.timeout_seconds)
        self.close = self._pool.close

    def post(self, verb: str, body: bytes) -> _Answer:
        """Calls a verb. Raises ClusterError if no answer arrives."""
        return self.exchange("POST", f"{self._path}/{verb}", body)

    def exchange(self, method: str, path: str, body: bytes = b"") -> _Answer:
        """Sends a request. Raises ClusterError if no answer arrives."""
        request = Request(method, path, _JSON if body else (), self.config.timeout_seconds, body)
        with self._pool.exchange(self.endpoint, request) as response:
            body = response.read()
        media_type = response.header(b"content-type").partition(";")[0].strip().lower()
        return _Answer(response.status, media_type, body, response.header(b"warning"))


def check_endpoint(config: ExtenderConfig, names: Sequence[str] = ()) -> Iterator[Finding]:
    """Yields findings from test calls of the extender. The calls bind no pod.

    `names` are the names of the nodes to send in these calls.
    """
    where = config.url_prefix
    try:
        caller = ExtenderCaller(config)
        yield from _certificate(caller.endpoint, config.timeout_seconds)
    except ConfigurationError as error:
        yield fail("tls-files", error.faults[0], "check certFile, keyFile and caFile in tlsConfig")
        return
    except Refused as error:
        yield fail(
            "reachable", f"{where}: {error}", tls_advice(where, str(error)) or _advice(urlsplit(where).hostname or "")
        )
        return
    try:
        yield from _readiness(caller)
        verbs = list(_verbs(caller, names))
        yield from verbs
        if config.filter_verb and all(finding.level != "fail" for finding in verbs):
            yield _latency(caller, names)
    except ClusterError as error:
        advice = "check its log, and that httpTimeout is long enough"
        yield fail("reachable", f"{where}: {error}", tls_advice(where, str(error), connected=True) or advice)
    finally:
        caller.close()


def tls_advice(url: str, error: str, *, connected: bool = False) -> str:
    """Returns what to do about an error that is due to TLS; "" for any other error.

    Args:
        connected: True if a connection was open, and ended before an answer.
    """
    if "handshake operation timed out" in error:
        return "TLS: the server does not take part in the handshake: it hangs, or use http in urlPrefix"
    if "timed out" in error:
        return ""
    if urlsplit(url).scheme != "https":
        return "TLS: the server may expect https: use https in urlPrefix, with tlsConfig" if connected else ""
    if "certificate has expired" in error or "certificate is not yet valid" in error:
        return "TLS: renew the server's certificate, for example with `extender certs`, and check the clocks"
    if "CERTIFICATE_VERIFY_FAILED" in error:
        return "TLS: take tlsConfig.caFile from the CA of the server's certificate, and a name that the certificate has"
    if any(words in error for words in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")):
        return "TLS: the server speaks http: use http in urlPrefix, or start it with --tls-cert and --tls-key"
    if connected or "SSL" in error:
        return (
            "TLS: the server ended the handshake: set certFile and keyFile to a certificate that its --client-ca signed"
        )
    return ""


def _advice(host: str) -> str:
    if host.endswith(_CLUSTER_SUFFIXES):
        return "a kube-scheduler on hostNetwork cannot resolve names of Services (kubernetes#68890): use the ClusterIP"
    return "start `extender serve` with this --bind, and with a certificate for this name from the CA of tlsConfig"


def _certificate(endpoint: Endpoint, timeout_seconds: float) -> Iterator[Finding]:
    with endpoint.dial(timeout_seconds) as connection:
        certificate = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    if not certificate:
        return
    days = (ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time()) / _DAY_SECONDS
    names = ", ".join(str(name[-1]) for name in certificate.get("subjectAltName", ()))
    if days < _EXPIRY_WARN_DAYS:
        yield warn(
            "certificate",
            f"the certificate for {names} expires in {days:.0f} days",
            "renew it, see docs/certificates.md",
        )
    else:
        yield ok("certificate", f"the certificate for {names} is valid for another {days:.0f} days")


def _readiness(caller: ExtenderCaller) -> Iterator[Finding]:
    answer = caller.exchange("GET", "/readyz?verbose")
    if answer.is_of_extender(200):
        yield ok("ready", f"{caller.endpoint.host} is ready")
    else:
        text = f"/readyz of {caller.endpoint.host} answers {answer.text(200)}"
        fix = "check host and port of urlPrefix" if answer.is_page else "wait, or fix the failing check"
        yield fail("ready", text, fix)


def _verbs(caller: ExtenderCaller, names: Sequence[str]) -> Iterator[Finding]:
    config = caller.config
    ask = encode_args(_POD, names[:1] if config.node_cache_capable else None)
    for field, verb, body, expected_status in (
        ("filterVerb", config.filter_verb, ask, 200),
        ("prioritizeVerb", config.prioritize_verb, ask, 200),
        ("preemptVerb", config.preempt_verb, encode_preemption_args(_POD, {}, names=config.node_cache_capable), 200),
        ("bindVerb", config.bind_verb, _NOT_A_REQUEST, _BAD_REQUEST),
    ):
        if verb:
            yield from _verb(caller, field, verb, body, expected_status)


def _verb(caller: ExtenderCaller, field: str, verb: str, body: bytes, expected_status: int) -> Iterator[Finding]:
    answer = caller.post(verb, body)
    name = f"{field} {caller.config.url_prefix.rstrip('/')}/{verb}"
    if answer.is_of_extender(expected_status):
        yield ok("verbs", f"{name} answers")
        if answer.warning:
            yield warn("left-out", f"{name} answers with the warning {answer.warning}", _LEFT_OUT)
        return
    fix = (
        "urlPrefix must end with the --prefix of `extender serve` (/scheduler), and the verb must have the same name as"
        " in its settings"
    )
    if answer.status in _DENIED:
        fix = "set certFile and keyFile to a certificate that --client-ca signed for a name in --client-names"
    yield fail("verbs", f"{name} answers {answer.text(expected_status)}", fix)


def _latency(caller: ExtenderCaller, names: Sequence[str]) -> Finding:
    config = caller.config
    seconds = []
    body = encode_args(_POD, names if config.node_cache_capable else None)
    for _ in range(_CALLS):
        began = time.perf_counter()
        caller.post(config.filter_verb, body)
        seconds.append(time.perf_counter() - began)
    slowest = max(seconds)
    message = (
        f"the slowest of {_CALLS} filter calls with {counted(len(names), 'node')} took {slowest * 1000:.1f} ms; "
        f"httpTimeout is {config.timeout_seconds:g} s"
    )
    if slowest * 2 > config.timeout_seconds:
        return warn("latency", message, "set a longer httpTimeout")
    return ok("latency", message)
