"""Defines all settings, and the name of each setting in its three sources.

A field of `Settings` defines the key in the file (bodyLimit), the environment variable (EXTENDER_BODY_LIMIT), the flag
(--body-limit) and the documentation of all three. `sources.load` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from extender.errors import MalformedQuantity
from extender.model.quantity import units

API_VERSION, KIND = "extender/v1", "ExtenderConfiguration"
PREFIX = "EXTENDER_"


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
Seconds = Annotated[float, Field(ge=0, le=TIMEOUT_MAX, allow_inf_nan=False)]  # the longest time that a thread can wait
Address = Annotated[str, AfterValidator(_address)]
OptionalAddress = Annotated[str, AfterValidator(lambda value: value and _address(value))]
UrlPath = Annotated[str, AfterValidator(_path)]
Pair = Annotated[str, AfterValidator(_pair)]


def setting(default: Any, description: str, **limits: Any) -> Any:
    """Returns a field of `Settings` with its default and its description."""
    return Field(default, description=description, **limits)


class Settings(BaseModel):
    """The values of all settings; each field defines a default and a description."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bind: Address = setting("127.0.0.1:8888", "HOST:PORT to listen on; beyond loopback, set a client CA")
    insecure_bind: bool = setting(
        False,
        "listen beyond loopback without a certificate, and accept any Host on loopback; anyone who can connect may"
        " then bind pods",
    )
    metrics_bind: OptionalAddress = setting(
        "", "HOST:PORT for /livez, /readyz and /metrics without certificates; the verbs are not served there"
    )
    kubeconfig: Path | None = setting(
        None, "kubeconfig of the cluster; default without --cluster: the in-cluster service account"
    )
    cluster: Path | None = setting(
        None, "file or directory of objects (YAML, JSON) instead of a live cluster; binds stay in memory"
    )
    policy: Path | None = setting(
        None, "a KubeSchedulerConfiguration or classic Policy: a file, or configmap:NAMESPACE/NAME"
    )
    policy_reload_seconds: Seconds = setting(
        5.0,
        "time between two checks of the policy and the Python files beside it; changed files are loaded again,"
        " and if that fails the old rules stay in force; 0: only on SIGHUP",
    )
    provider: Literal["DefaultProvider", "ClusterAutoscalerProvider"] = setting(
        "DefaultProvider",
        "the rules without a policy: kube-scheduler's defaults, or the same with full nodes preferred",
    )
    feature_gates: str = setting(
        "", "feature gates to match those of kube-scheduler, like DRAFractionalCapacityRange=true,A=false"
    )
    prefix: UrlPath = setting("/scheduler", "path under which the verbs are served; part of the extender's urlPrefix")
    filter_verb: UrlPath = setting("filter", "path of filter under the prefix; may contain slashes")
    prioritize_verb: UrlPath = setting("prioritize", "path of prioritize under the prefix")
    preempt_verb: UrlPath = setting("preempt", "path of preempt under the prefix")
    bind_verb: UrlPath = setting("bind", "path of bind under the prefix")
    score_scale: Literal["relative", "absolute"] = setting(
        "relative", "prioritize: relative scales the best node to 10 and the worst to 0; absolute keeps the distances"
    )
    filter_answer: Literal["feasible", "best"] = setting(
        "feasible",
        "filter: answer every node that fits, or only one of the best by the policy's priorities;"
        " kube-scheduler then neither scores nor calls prioritize",
    )
    scheduler_filters: bool = setting(
        True,
        "kube-scheduler runs its own filters before it calls filter; if no node has room for a member of a pod group,"
        " filter then judges it without the pods of lower priority, as the dry run of group preemption does",
    )
    before_sync: Literal["fail", "pass"] = setting(
        "fail", "the verbs' answer while the extender is not ready: an error, or every node without a check"
    )
    exempt_namespaces: tuple[str, ...] = setting((), "namespaces whose pods fit every node without a check")
    own_namespace: str = setting("", "namespace of the extender's own pods, which fit every node without a check")
    own_name: str = setting("", "pod name of the extender itself")
    own_labels: tuple[Pair, ...] = setting(
        (), "KEY=VALUE labels that together identify the extender's own pods in its namespace"
    )
    assumed_ttl_seconds: Seconds = setting(
        30.0,
        "time until a bound pod loses its place if no watch event confirms the bind; 0: never, as in kube-scheduler",
    )
    settle_seconds: Seconds = setting(
        10.0,
        "how long a write may still be in flight after its sender was killed or got no answer; if pods or claims are"
        " pending, nothing is written for this long after a start, or after an earlier leader lost its lease",
    )
    activate_after_seconds: Seconds = setting(
        15.0,
        "serve: time after which a pod that fit no node is checked once more, unless kube-scheduler has tried it"
        " again; if it fits now, kube-scheduler is made to retry it; 0: never",
    )
    preempt_for_rules: bool = setting(
        False,
        "serve: evict pods of lower priority for pods that only users' rules with sees_pods reject, because"
        " kube-scheduler does not preempt for them; the account needs the right to delete pods",
    )
    permit_seconds: Seconds = setting(
        3.0,
        "serve: how long a bind may wait for a Permit rule before it is refused; 0: no wait; keep it below"
        " httpTimeout (5 s)",
    )
    compare_seconds: Seconds = setting(
        300.0, "time between two comparisons of the cache with the API server; 0: only on request or on SIGUSR2"
    )
    max_staleness_seconds: Seconds = setting(
        110.0, "not ready if some kind has not been known to be up to date for this long; 0: no limit"
    )
    leader_elect: bool = setting(
        False, "run several replicas of which the holder of a Lease answers; not needed for a sidecar of kube-scheduler"
    )
    lease_namespace: str = setting("", "namespace of the lease; default: ownNamespace")
    lease_name: str = setting("extender", "name of the lease")
    lease_duration_seconds: int = setting(
        15, "how long standbys wait after the last renewal they saw before they take the lease", gt=0, le=2**31 - 1
    )
    renew_deadline_seconds: Seconds = setting(
        10.0, "how long a leader keeps leading after its last renewal; less than leaseDurationSeconds", gt=0
    )
    retry_period_seconds: Seconds = setting(
        2.0, "time between two checks of the lease; less than renewDeadlineSeconds by at least a sixth", gt=0
    )
    leader_service: str = setting(
        "", "Service without selector, in the lease's namespace, that is pointed at the leader; standbys are then ready"
    )
    own_address: str = setting("", "IP address at which leaderService reaches this pod: its status.podIP")
    identity: str = setting("", "holder in the lease, different for every process; default: HOSTNAME_UUID")
    watch_kinds: tuple[str, ...] = setting((), "kinds to watch; default: all kinds that a rule reads")
    body_limit: Bytes = setting(64 * 1024 * 1024, "largest request body in bytes, or like 64Mi")
    connections: int = setting(256, "most open connections; beyond that the one idle for longest is closed", ge=1)
    keepalive_seconds: Seconds = setting(
        120.0, "how long an idle connection stays open; kube-scheduler closes its side after 90 s"
    )
    head_seconds: Seconds = setting(10.0, "how long a client may take to send a request's head")
    body_seconds: Seconds = setting(60.0, "how long a client may take to send a request's body")
    decision_seconds: Seconds = setting(
        4.0,
        "time limit of a decision, after which its call ends in an error; 0: none; keep it below httpTimeout (5 s); "
        "schedule: time limit of an attempt to find a node, and of users' Reserve and Permit rules",
    )
    drain_seconds: Seconds = setting(
        5.0, "after SIGTERM: how long the extender still answers while not ready, so that Services notice"
    )
    graceful_seconds: Seconds = setting(20.0, "after drainSeconds: how long calls in flight may take to end")
    tls_cert: Path | None = setting(None, "certificate chain (PEM); with it the extender speaks HTTPS")
    tls_key: Path | None = setting(None, "private key of the certificate (PEM)")
    client_ca: Path | None = setting(
        None, "CA (PEM) of client certificates; with it everything but /livez and /readyz requires one"
    )
    client_names: tuple[str, ...] = setting(
        (), "common or DNS names of client certificates that may call; default: every certificate of the CA"
    )
    simulate: bool = setting(
        False,
        "serve POST /simulate, which says whether pods would fit on nodes that do not exist yet (for autoscalers)",
    )
    decisions_seconds: Seconds = setting(
        3600.0, "how long the last decisions about a pod are kept for explain --from; 0: not at all"
    )
    decisions_bytes: Bytes = setting(16 * 1024 * 1024, "approximate memory for the decisions that are kept")
    record: Path | None = setting(
        None, "file to record watch events, calls and answers to; compressed if its name ends in .gz"
    )
    record_bytes: Bytes = setting(256 * 1024 * 1024, "approximate disk space for the recording and its rotated files")
    metrics_client_ca: Path | None = setting(
        None,
        "CA (PEM) of the metrics scrapers; with it --metrics-bind speaks HTTPS, and /metrics requires a certificate",
    )
    log_format: Literal["json", "text"] = setting("json", "json, or text for a terminal")
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "lowest level to log; POST /debug/log-level?level=debug changes it"
    )

    def verb_path(self, verb: str) -> str:
        """Returns the URL path, below the prefix, of the verb "filter", "prioritize", "preempt" or "bind"."""
        return str(getattr(self, f"{verb}_verb"))


@dataclass(frozen=True)
class Option:
    """One setting, with its names in the three sources."""

    name: str
    description: str
    default: Any  # of the type given by `annotation`
    annotation: Any

    @property
    def key(self) -> str:
        """The key in the file, like bodyLimit."""
        head, *rest = self.name.split("_")
        return head + "".join(part.capitalize() for part in rest)

    @property
    def variable(self) -> str:
        """The environment variable, like EXTENDER_BODY_LIMIT."""
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """The flag on the command line, like --body-limit."""
        return "--" + self.name.replace("_", "-")

    @property
    def many(self) -> bool:
        """True for a list: comma-separated in the environment, a repeated flag on the command line."""
        return get_origin(self.annotation) is tuple

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """The allowed values; empty if other values are possible too."""
        return get_args(self.annotation) if get_origin(self.annotation) is Literal else ()


OPTIONS: Mapping[str, Option] = {
    name: Option(name, field.description or "", field.default, field.annotation)
    for name, field in Settings.model_fields.items()
}
