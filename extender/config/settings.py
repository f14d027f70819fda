"""Every setting in one table, and what each is called in its three sources.

A line in `Settings` makes the key of the file (bodyLimit), the variable (EXTENDER_BODY_LIMIT), the flag (--body-limit)
and their documentation, so that none can lack it. `sources.load` reads them.
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
        raise ValueError("want a number of bytes like 64Mi") from None


def _address(value: str) -> str:
    host, separator, port = value.rpartition(":")
    if not (separator and host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError("want HOST:PORT, like 127.0.0.1:8888 or [::1]:8888")
    return value


def host_and_port(address: str) -> tuple[str, int]:
    """Returns the host, without brackets, and the port of an address that was validated: HOST:PORT."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _pair(value: str) -> str:
    key, separator, _ = value.partition("=")
    if not (key and separator):
        raise ValueError("want KEY=VALUE")
    return value


def labels_of(pairs: Iterable[str]) -> dict[str, str]:
    """Returns the labels of pairs that were validated: KEY=VALUE."""
    return dict(pair.split("=", 1) for pair in pairs)


def _path(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._~/-]*", value):
        raise ValueError("want a URL path of letters, digits and . _ ~ - /")
    return value


Bytes = Annotated[int, BeforeValidator(_bytes), Field(gt=0)]
Seconds = Annotated[float, Field(ge=0, le=TIMEOUT_MAX, allow_inf_nan=False)]  # a thread can wait for no longer
Address = Annotated[str, AfterValidator(_address)]
OptionalAddress = Annotated[str, AfterValidator(lambda value: value and _address(value))]
UrlPath = Annotated[str, AfterValidator(_path)]
Pair = Annotated[str, AfterValidator(_pair)]


def setting(default: Any, description: str, **limits: Any) -> Any:
    """Returns a field of Settings with its default and what it means."""
    return Field(default, description=description, **limits)


class Settings(BaseModel):
    """Every setting, its default and what it means."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bind: Address = setting("127.0.0.1:8888", "HOST:PORT to listen on; beyond loopback use a client CA")
    insecure_bind: bool = setting(
        False,
        "listen beyond loopback without a certificate, and allow any Host on loopback: every caller may bind pods",
    )
    metrics_bind: OptionalAddress = setting(
        "", "HOST:PORT for /livez, /readyz and /metrics, without certificates: who gets there cannot bind"
    )
    kubeconfig: Path | None = setting(
        None, "kubeconfig of the cluster; without it and --cluster the in-cluster service account is used"
    )
    cluster: Path | None = setting(
        None, "file or directory of objects (YAML, JSON) instead of a live cluster; binds stay in memory"
    )
    policy: Path | None = setting(
        None, "the rules, a KubeSchedulerConfiguration or classic Policy: a file, or configmap:NAMESPACE/NAME"
    )
    policy_reload_seconds: Seconds = setting(
        5.0,
        "between two looks at the policy and the Python files beside it, which are read again if they have"
        " changed; where the new rules do not load the old ones stay; 0: only on SIGHUP",
    )
    provider: Literal["DefaultProvider", "ClusterAutoscalerProvider"] = setting(
        "DefaultProvider", "the rules where there is no policy: kube-scheduler's, or full nodes preferred"
    )
    feature_gates: str = setting(
        "", "feature gates of the kube-scheduler to match, like DRAFractionalCapacityRange=true,A=false"
    )
    prefix: UrlPath = setting("/scheduler", "path under which the verbs are served: the extender's urlPrefix")
    filter_verb: UrlPath = setting("filter", "path of filter under the prefix; may hold slashes")
    prioritize_verb: UrlPath = setting("prioritize", "path of prioritize under the prefix")
    preempt_verb: UrlPath = setting("preempt", "path of preempt under the prefix")
    bind_verb: UrlPath = setting("bind", "path of bind under the prefix")
    score_scale: Literal["relative", "absolute"] = setting(
        "relative", "prioritize: relative gives the best node asked about 10 and the worst 0; absolute keeps distances"
    )
    filter_answer: Literal["feasible", "best"] = setting(
        "feasible",
        "filter: every node that can take the pod, or one of the best of them by the policy's priorities:"
        " kube-scheduler then neither scores nor calls prioritize",
    )
    before_sync: Literal["fail", "pass"] = setting(
        "fail", "what verbs answer while not ready: an error, or every node unjudged"
    )
    exempt_namespaces: tuple[str, ...] = setting((), "namespaces whose pods pass unjudged")
    own_namespace: str = setting("", "namespace of the extender's own pods, which pass unjudged")
    own_name: str = setting("", "pod name of the extender itself")
    own_labels: tuple[Pair, ...] = setting(
        (), "KEY=VALUE labels that, all together, tell the extender's own pods in its namespace"
    )
    assumed_ttl_seconds: Seconds = setting(
        30.0, "until a bound pod that no watch confirms loses its place; 0: never, as in kube-scheduler"
    )
    settle_seconds: Seconds = setting(
        10.0,
        "how long a binding of a process before may be in flight: where pods wait nothing is bound so long"
        " after a start, or after the leader before has lost its lease",
    )
    activate_after_seconds: Seconds = setting(
        15.0,
        "serve: after a pod was refused everywhere and nobody asked again, it is judged once more, and"
        " brought to kube-scheduler's notice if it fits; 0: never",
    )
    preempt_for_rules: bool = setting(
        False,
        "serve: evict lesser pods for pods that rules with sees_pods alone refuse, for which kube-scheduler"
        " evicts nobody; the account needs to delete pods",
    )
    permit_seconds: Seconds = setting(
        3.0, "serve: how long a bind may wait for a rule of Permit before it is refused; 0: not at all; httpTimeout: 5"
    )
    compare_seconds: Seconds = setting(
        300.0, "between two comparisons of the cache with the API server; 0: only when asked or on SIGUSR2"
    )
    max_staleness_seconds: Seconds = setting(
        180.0, "not ready while the watch of some kind shows no sign of life for so long; 0: no limit"
    )
    leader_elect: bool = setting(
        False, "several replicas, of which the holder of a lease answers; not for one beside its scheduler"
    )
    lease_namespace: str = setting("", "namespace of the lease; none given: ownNamespace")
    lease_name: str = setting("extender", "name of the lease")
    lease_duration_seconds: int = setting(
        15, "how long standbys wait, after they last saw the lease renewed, before they take it", gt=0, le=2**31 - 1
    )
    renew_deadline_seconds: Seconds = setting(
        10.0, "how long a leader leads on after it last renewed the lease; less than its duration", gt=0
    )
    retry_period_seconds: Seconds = setting(
        2.0, "between two looks at the lease; less than the renew deadline, by a sixth at least", gt=0
    )
    leader_service: str = setting(
        "", "Service without selector in the lease's namespace, to lead to the leader; standbys are then ready"
    )
    own_address: str = setting("", "IP address at which that Service reaches this pod: its status.podIP")
    identity: str = setting("", "holder in the lease, another for every process; none given: HOSTNAME_UUID")
    watch_kinds: tuple[str, ...] = setting((), "kinds to watch; none given: all that a rule reads")
    body_limit: Bytes = setting(64 * 1024 * 1024, "largest request body in bytes, or like 64Mi")
    connections: int = setting(256, "most connections at once; the one idle for longest makes way", ge=1)
    keepalive_seconds: Seconds = setting(120.0, "how long an idle connection is kept; the scheduler's side: 90")
    head_seconds: Seconds = setting(10.0, "how long a client may take to send a request's head")
    body_seconds: Seconds = setting(60.0, "how long a client may take to send a request's body")
    decision_seconds: Seconds = setting(
        4.0,
        "how long a decision may take before its call ends in an error; 0: any; httpTimeout: 5; "
        "schedule: how long an attempt to find a node may take, and rules of Reserve and Permit",
    )
    drain_seconds: Seconds = setting(
        5.0, "after SIGTERM: how long the extender answers on with readiness down, for Services to notice"
    )
    graceful_seconds: Seconds = setting(20.0, "after that: how long calls in flight may take to end")
    tls_cert: Path | None = setting(None, "certificate chain (PEM); with it the extender speaks HTTPS")
    tls_key: Path | None = setting(None, "private key of the certificate (PEM)")
    client_ca: Path | None = setting(
        None, "CA (PEM) of client certificates; with it all but /livez and /readyz needs one"
    )
    client_names: tuple[str, ...] = setting(
        (), "common or DNS names in client certificates that may call; none given: all that the CA signed"
    )
    simulate: bool = setting(
        False, "answer POST /simulate: would pods fit on nodes that do not exist yet, as an autoscaler asks"
    )
    decisions_seconds: Seconds = setting(
        3600.0, "how long the last decisions about a pod are kept, for explain --from; 0: none are"
    )
    decisions_bytes: Bytes = setting(16 * 1024 * 1024, "about what they may take in memory")
    record: Path | None = setting(
        None, "file to record watch events, calls and answers to, with gzip where it ends in .gz"
    )
    record_bytes: Bytes = setting(
        256 * 1024 * 1024, "about what the recording may take on disk, with the files that it was before"
    )
    metrics_client_ca: Path | None = setting(
        None, "CA (PEM) of those who scrape: --metrics-bind speaks HTTPS, and /metrics needs its certificate"
    )
    log_format: Literal["json", "text"] = setting("json", "json, or text for terminals")
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "least severe level to log; POST /debug/log-level?level=debug changes it"
    )

    def verb_path(self, verb: str) -> str:
        """The path under the prefix of "filter", "prioritize", "preempt" or "bind"."""
        return str(getattr(self, f"{verb}_verb"))


@dataclass(frozen=True)
class Option:
    """One setting as its three sources know it."""

    name: str
    description: str
    default: Any  # of the type that `annotation` says
    annotation: Any

    @property
    def key(self) -> str:
        """In the file: bodyLimit."""
        head, *rest = self.name.split("_")
        return head + "".join(part.capitalize() for part in rest)

    @property
    def variable(self) -> str:
        """In the environment: EXTENDER_BODY_LIMIT."""
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """On the command line: --body-limit."""
        return "--" + self.name.replace("_", "-")

    @property
    def many(self) -> bool:
        """A list: commas separate in the environment, the flag is repeated."""
        return get_origin(self.annotation) is tuple

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """The values allowed, if they are a closed set."""
        return get_args(self.annotation) if get_origin(self.annotation) is Literal else ()


OPTIONS: Mapping[str, Option] = {
    name: Option(name, field.description or "", field.default, field.annotation)
    for name, field in Settings.model_fields.items()
}
