"""Defines all settings of `serve` and `schedule`, and their names in the file, the environment and the flags.

A field of `Settings` defines the key in the file (bodyLimit), the environment variable (EXTENDER_BODY_LIMIT), the flag
(--body-limit), the commands that have the setting, and the documentation. `load` reads them: a flag overrides the
environment, and the environment overrides the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from extender.config.cluster_access import ClusterAccess, listed
from extender.errors import ConfigurationError, MalformedInput, MalformedQuantity
from extender.model.quantity import units
from extender.runtime import strict_yaml
from extender.runtime.text import attributes_in, did_you_mean, nearest, plainly, with_suggestion

API_VERSION, KIND = "extender/v1", "ExtenderConfiguration"
PREFIX = "EXTENDER_"
Command = Literal["serve", "schedule"]
COMMANDS: tuple[Command, ...] = get_args(Command)


def _bytes(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return units(value)
    except MalformedQuantity:
        raise ValueError("expected a number of bytes, like 64Mi") from None


def _address(value: str) -> str:
    host, separator, port = value.rpartition(":")
    if not (separator and host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError("expected HOST:PORT, like 127.0.0.1:8888 or [::1]:8888")
    return value


def host_and_port(address: str) -> tuple[str, int]:
    """Returns the host without brackets, and the port, of a validated HOST:PORT address."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _pair(value: str) -> str:
    key, separator, _ = value.partition("=")
    if not (key and separator):
        raise ValueError("expected KEY=VALUE")
    return value


def labels_of(pairs: Iterable[str]) -> dict[str, str]:
    """Returns validated KEY=VALUE pairs as labels."""
    return dict(pair.split("=", 1) for pair in pairs)


def _path(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._~/-]*", value):
        raise ValueError("expected a URL path of letters, digits and . _ ~ - /")
    return value


Bytes = Annotated[int, BeforeValidator(_bytes), Field(gt=0)]
# TIMEOUT_MAX is the longest time that a thread can wait.
Seconds = Annotated[float, Field(ge=0, le=TIMEOUT_MAX, allow_inf_nan=False)]
Address = Annotated[str, AfterValidator(_address)]
OptionalAddress = Annotated[str, AfterValidator(lambda value: value and _address(value))]
UrlPath = Annotated[str, AfterValidator(_path)]
Pair = Annotated[str, AfterValidator(_pair)]


def setting(default: Any, *, only: Command | None = None, in_schedule: Any = None, **limits: Any) -> Any:
    """Returns a field of `Settings` that differs between the commands.

    Args:
        only: the command that has this setting; None means that both have it.
        in_schedule: the default in `schedule`, if it differs from `default`.
    """
    scope = {"commands": (only,) if only else COMMANDS, "in_schedule": default if in_schedule is None else in_schedule}
    return Field(default, json_schema_extra=scope, **limits)


class Settings(BaseModel):
    """The values of all settings. `Settings()` has the defaults of `serve`.

    The help and the reference print the texts below. Each ends with the situation in which a user changes the setting.

    Attributes:
        bind: HOST:PORT to listen on; serve answers all paths there, and needs clientCa to listen beyond loopback;
            schedule answers only probes, metrics and debug pages; change it if the port is taken, or if calls come from
            other machines
        insecure_bind: listen beyond loopback without a certificate, and accept any Host on loopback; anyone who can
            connect may then bind pods; set it to try out without certificates, or if a proxy checks the callers
        metrics_bind: HOST:PORT for /livez, /readyz and /metrics without certificates; the verbs are not served there;
            set it if probes and scrapers have no certificate of clientCa
        kubeconfig: kubeconfig of the cluster, or several to merge, separated as in $KUBECONFIG; without it, the service
            account of the pod is used; set it outside the cluster
        context: context of the kubeconfig; default: its current context; set it if the kubeconfig has several clusters
        as_: user to act as in the cluster, like kubectl's --as; the account needs the right to impersonate; set it to
            try an account's rights from your machine
        as_group: groups to act as a member of, like kubectl's --as-group; with --as; set it if the rights of that user
            come from a group
        cluster: file or directory of objects (YAML, JSON) instead of a live cluster; binds stay in memory; set it to
            try without a cluster
        policy: a KubeSchedulerConfiguration or classic Policy: a file, or configmap:NAMESPACE/NAME; set it to decide by
            other rules than kube-scheduler's defaults
        scheduler_name: schedulerName of the pods to place; if the policy has several profiles, only the profile of this
            name is used; default: the names of all profiles; set it if there is no policy, or to leave some of its
            profiles to another process
        feature_gates: feature gates to match those of kube-scheduler, like DRAFractionalCapacityRange=true,A=false; set
            it if your kube-scheduler has other gates than its version's defaults
        kubernetes_version: version of kube-scheduler to decide like; auto: that of the policy, or else that of the API
            server; set it while the API servers of a cluster have two versions
        prefix: path under which the verbs are served; part of the extender's urlPrefix; change it if urlPrefix in
            kube-scheduler's file has another path
        score_scale: prioritize: relative scales the best node to 10 and the worst to 0; absolute keeps the distances;
            set absolute if a small difference must not count as much as a large one
        filter_answer: filter: answer every node that fits, or only one of the best by the policy's priorities;
            kube-scheduler then neither scores nor calls prioritize; set best in a large cluster, where scoring takes
            long
        scheduler_filters: kube-scheduler runs its own filters before it calls filter; if no node has room for a member
            of a pod group, filter then judges it without the pods of lower priority, as the dry run of group preemption
            does; set false if kube-scheduler's profile disables its filters
        coscheduling: for clusters before Kubernetes 1.37: keep pods together by the label scheduling.x-k8s.io/pod-group
            and coscheduling's PodGroups, instead of Kubernetes' own; set it if your pods have that label
        group_bind_seconds: how long the bind of a gang's member waits for the others, until minCount of them can be
            bound; 0: no wait, and a gang may be bound in part; keep it below httpTimeout (5 s)
        exempt_namespaces: namespaces whose pods fit every node without a check; set it for pods that must be placed
            without your rules, as in kube-system
        own_namespace: namespace of the extender's own pods, which fit every node without a check; set it with
            ownLabels, or for the events of a policy that was read again
        own_labels: KEY=VALUE labels that together identify the extender's own pods in its namespace; set it with
            leaderService, or if the extender's own pods need no check
        assumed_ttl_seconds: how long a bound pod keeps its place if no watch event confirms the bind; 0: forever, as in
            kube-scheduler, unless the bind got no answer; raise it if watch events come later
        settle_seconds: how long nothing is written after a start, or after an earlier leader lost its lease, if pods or
            claims are pending; a write without an answer may take effect this late; raise it if a proxy before the API
            server may hold writes for longer
        activate_after_seconds: time after which a pod that fit no node is checked once more, unless kube-scheduler has
            tried it again; if it fits now, kube-scheduler is made to retry it; 0: never; set 0 if the account may not
            change the status of pods
        preempt_for_rules: evict pods of lower priority for pods that only users' rules with sees_pods reject, because
            kube-scheduler does not preempt for them; the account needs the right to delete pods; set it if pods may be
            evicted for your rules
        permit_seconds: how long a bind may wait for a Permit rule before it is refused; 0: no wait; keep it below
            httpTimeout (5 s)
        max_staleness_seconds: /readyz fails if a kind was last known to be up to date longer ago than this; 0: no
            limit; raise it if an old view is better than no decision while the API server is down
        leader_elect: of several replicas, only the one that holds a Lease decides; set it for more than one replica,
            unset it for one
        lease_namespace: namespace of the lease; if empty: ownNamespace; change it to where the account may write Leases
        lease_name: name of the lease; change it if two installations share the namespace
        lease_duration_seconds: how long standbys wait after the last renewal they saw before they take the lease; a
            leader leads for two thirds of it after a renewal; raise it if the API server is often away for longer
        leader_service: Service without selector, in the lease's namespace, to point at the leader; standbys then report
            that they are ready, because no calls reach them; set it if kube-scheduler calls a Service
        lease_follows_calls: a replica that is called asks the leader for the lease; standbys then report that they are
            ready; set it if each replica serves a kube-scheduler of its own
        own_address: IP address at which leaderService reaches this pod: its status.podIP; set it with leaderService
        watch_kinds: kinds to watch; default: all kinds that a rule reads; set it if the account may not list some kinds
        body_limit: largest request body: a number of bytes, or like 64Mi; raise it if kube-scheduler sends the whole
            nodes of a large cluster (nodeCacheCapable: false)
        connections: most open connections; beyond that an idle one of the client with most is closed; raise it for
            gangs of more than 128 members
        decision_seconds: time limit of a decision; 0: none; serve: the call then ends in an error; schedule: the limit
            of each search for a node, and of users' Reserve and Permit rules; in serve, keep it below httpTimeout (5 s)
        on_rule_failure: fail: a rule that raises or does not answer rejects the pod; ignore: pods are placed without
            such a rule, and answers, log and metrics say so; requires decisionSeconds; set ignore if your rules are
            only preferences
        drain_seconds: after SIGTERM: how long the extender still answers while not ready, so that Services notice;
            raise it if a proxy notices later, set 0 without a Service
        tls_cert: certificate chain (PEM); with it the extender speaks HTTPS; set it if calls come from other machines
        tls_key: private key of the certificate (PEM); set it with tlsCert
        client_ca: CA (PEM) of client certificates; with it everything but /livez and /readyz requires one; set it with
            tlsCert, so that not everyone may bind pods
        client_names: common or DNS names of client certificates that may call; default: every certificate of the CA;
            set it if the CA signs certificates for others than kube-scheduler
        simulate: serve POST /simulate, which says whether pods would fit on nodes that do not exist yet; set it if an
            autoscaler asks
        record: file to record watch events, calls and answers to; compressed if its name ends in .gz; set it to replay
            decisions later, or to decide them by another policy
        record_bytes: approximate disk space for the recording and its rotated files; change it to the room on the disk
        metrics_client_ca: CA (PEM) of the metrics scrapers; with it --metrics-bind speaks HTTPS, and /metrics requires
            a certificate; set it if not everyone may read metrics
        log_format: the form of log lines; set text to read it yourself
        log_level: lowest level to log; POST /debug/log-level?level=debug changes it; set debug to follow single pods
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bind: Address = setting("127.0.0.1:8888", in_schedule="127.0.0.1:8889")
    insecure_bind: bool = False
    metrics_bind: OptionalAddress = setting("", only="serve")
    kubeconfig: Path | None = None
    context: str = ""
    as_: str = ""
    as_group: tuple[str, ...] = ()
    cluster: Path | None = setting(None, only="serve")
    policy: Path | None = None
    scheduler_name: str | None = setting(None, only="schedule", min_length=1)
    feature_gates: str = ""
    kubernetes_version: Literal["auto", "1.35", "1.36", "1.37", "1.38"] = "auto"
    prefix: UrlPath = setting("/scheduler", only="serve")
    score_scale: Literal["relative", "absolute"] = setting("relative", only="serve")
    filter_answer: Literal["feasible", "best"] = setting("feasible", only="serve")
    scheduler_filters: bool = setting(True, only="serve")
    coscheduling: bool = setting(False, only="serve")
    group_bind_seconds: Seconds = setting(2.5, only="serve")
    exempt_namespaces: tuple[str, ...] = setting((), only="serve")
    own_namespace: str = ""
    own_labels: tuple[Pair, ...] = setting((), only="serve")
    assumed_ttl_seconds: Seconds = 30.0
    settle_seconds: Seconds = 10.0
    activate_after_seconds: Seconds = setting(15.0, only="serve")
    preempt_for_rules: bool = setting(False, only="serve")
    permit_seconds: Seconds = setting(3.0, only="serve")
    max_staleness_seconds: Seconds = 110.0
    leader_elect: bool = setting(False, in_schedule=True)
    lease_namespace: str = setting("", in_schedule="kube-system")
    lease_name: str = setting("extender", in_schedule="extender-scheduler")
    lease_duration_seconds: int = Field(default=15, gt=0, le=2**31 - 1)
    leader_service: str = setting("", only="serve")
    lease_follows_calls: bool = setting(False, only="serve")
    own_address: str = setting("", only="serve")
    watch_kinds: tuple[str, ...] = ()
    body_limit: Bytes = setting(64 * 1024 * 1024, only="serve")
    connections: int = setting(256, ge=1, only="serve")
    decision_seconds: Seconds = 4.0
    on_rule_failure: Literal["fail", "ignore"] = "fail"
    drain_seconds: Seconds = setting(5.0, only="serve")
    tls_cert: Path | None = setting(None, only="serve")
    tls_key: Path | None = setting(None, only="serve")
    client_ca: Path | None = setting(None, only="serve")
    client_names: tuple[str, ...] = setting((), only="serve")
    simulate: bool = False
    record: Path | None = None
    record_bytes: Bytes = 256 * 1024 * 1024
    metrics_client_ca: Path | None = setting(None, only="serve")
    log_format: Literal["json", "text"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def chosen_version(self) -> str | None:
        """The version of Kubernetes that the settings name; None if they name none."""
        return None if self.kubernetes_version == "auto" else self.kubernetes_version

    @property
    def access(self) -> ClusterAccess:
        kubeconfigs = listed(self.kubeconfig) if self.kubeconfig else ()
        return ClusterAccess(kubeconfigs, self.context or None, self.as_ or None, self.as_group)


@dataclass(frozen=True)
class Option:
    """One setting, with its key in the file, its environment variable and its flag.

    Attributes:
        defaults: the default of each command that has the setting, of the type given by `annotation`.
    """

    name: str  # the field's name in Settings, with a final _ if it would be a Python keyword
    description: str
    defaults: Mapping[Command, Any]
    annotation: Any

    @property
    def key(self) -> str:
        """The key in the file that --config names, like bodyLimit."""
        head, *rest = self.name.rstrip("_").split("_")
        return head + "".join(part.capitalize() for part in rest)

    @property
    def variable(self) -> str:
        """The environment variable, like EXTENDER_BODY_LIMIT."""
        return PREFIX + self.name.rstrip("_").upper()

    @property
    def flag(self) -> str:
        """The flag on the command line, like --body-limit."""
        return "--" + self.name.rstrip("_").replace("_", "-")

    @property
    def negative_flag(self) -> str:
        """The flag that sets a boolean to false, like --no-leader-elect."""
        return "--no-" + self.flag.removeprefix("--")

    @property
    def many(self) -> bool:
        """True for a list: comma-separated in the environment, a repeated flag on the command line."""
        return get_origin(self.annotation) is tuple

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """The allowed values; empty if other values are possible too."""
        return get_args(self.annotation) if get_origin(self.annotation) is Literal else ()


def _option(name: str, field: FieldInfo) -> Option:
    scope: Any = field.json_schema_extra or {"commands": COMMANDS, "in_schedule": field.default}
    defaults = {"serve": field.default, "schedule": scope["in_schedule"]}
    defaults_by_command = {command: defaults[command] for command in scope["commands"]}
    return Option(name, _DESCRIPTIONS.get(name, ""), defaults_by_command, field.annotation)


_DESCRIPTIONS = attributes_in(Settings.__doc__)
OPTIONS: Mapping[str, Option] = {name: _option(name, field) for name, field in Settings.model_fields.items()}

_WENT = {
    "filter_verb": "the path is always filter below prefix",
    "prioritize_verb": "the path is always prioritize below prefix",
    "preempt_verb": "the path is always preempt below prefix",
    "bind_verb": "the path is always bind below prefix",
    "keepalive_seconds": "idle connections are closed after 120 s; kube-scheduler closes its own after 90 s",
    "head_seconds": "a client has 10 s to send the head of a request",
    "body_seconds": "a client has 60 s to send the body of a request",
    "graceful_seconds": "calls in flight have 20 s to end after drainSeconds",
    "bind_rate": "use clientConnection.qps of the policy",
    "bind_burst": "use clientConnection.burst of the policy",
    "status_rate": "at most 100 statuses of pods are written per second",
    "event_rate": "at most 200 events are written per second, and 20 while pods wait in the active queue",
    "sample_every": "the plugins are timed for every hundredth pod",
    "seed": "a node among equals is chosen at random; `extender simulate` has a seed",
    "cpus": "the threads share one CPU; let a rule that needs more start a process and call os.sched_setaffinity there",
    "pod_max_in_unschedulable_pods_seconds": "it is 300, as in kube-scheduler",
    "decisions_bytes": "the last decisions about pods take 16 MiB",
    "before_sync": "set ignorable: true in kube-scheduler's file to place pods while the extender is not ready",
    "group_plan_seconds": "the plan for a pod group is kept for 30 s after the last call about a member",
    "provider": "name the rules in a policy; MostAllocated of NodeResourcesFit prefers full nodes",
    "own_name": "ownLabels name the extender's pods, and the host name is that of this process's pod",
    "renew_deadline_seconds": "a leader leads for two thirds of leaseDurationSeconds after its last renewal",
    "retry_period_seconds": "the lease is checked after two fifteenths of leaseDurationSeconds",
    "identity": "the holder of the lease is HOSTNAME_UUID",
    "decisions_seconds": "the last decisions about pods are kept for an hour",
    "policy_reload_seconds": "a changed policy is read within 10 s, and at once on SIGHUP",
    "compare_seconds": "the cache is compared every 300 s, and on SIGUSR2",
}
"""Each setting that went in 0.2, and why it is not needed, or what to use in its place."""

REMOVED: Sequence[Option] = [Option(name, f"went in 0.2: {reason}", {}, str) for name, reason in _WENT.items()]
"""The settings of _WENT, which are refused with the reason for one release."""


def options_of(command: Command) -> Sequence[Option]:
    """Returns the settings of `serve` or of `schedule`."""
    return [option for option in OPTIONS.values() if command in option.defaults]


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
    other = next(each for each in COMMANDS if each != command)
    faults += [
        f"{place}: `extender {command}` does not have this setting, only `extender {other}` has it"
        for name, (place, _) in values.items()
        if command not in OPTIONS[name].defaults
    ]
    settings = _validated(values, faults)
    if settings is None or faults:
        raise ConfigurationError(faults)
    return settings


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
