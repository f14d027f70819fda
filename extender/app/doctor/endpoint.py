"""The extender as its scheduler reaches it: certificates, readiness, each verb, and how long it takes."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from extender.app.doctor.finding import Finding, fail, ok, warn
from extender.cluster.http.endpoint import Endpoint
from extender.cluster.http.http_extender import endpoint_of
from extender.cluster.http.pool import ConnectionPool, Request
from extender.errors import ClusterError, ConfigurationError, Refused
from extender.extender_v1.client import encode_args, encode_preemption_args
from extender.model.extender_config import ExtenderConfig

_POD = b'{"metadata":{"name":"extender-doctor","namespace":"default","uid":"extender-doctor"},"spec":{"containers":[]}}'
_JSON = {"Content-Type": "application/json"}
_NOT_A_REQUEST = b"[]"  # what bind answers with 400, and does nothing about
_CALLS = 20
_EXPIRY_WARN_DAYS, _DAY_SECONDS = 30, 86400
_CLUSTER_SUFFIXES = (".svc", ".cluster.local")
_BAD_REQUEST, _DENIED = 400, (401, 403)


class ExtenderCaller:
    """Calls one extender as kube-scheduler would."""

    def __init__(self, config: ExtenderConfig) -> None:
        """Raises ConfigurationError where the certificates cannot be read."""
        self.config, self.endpoint = config, endpoint_of(config)
        self._path = urlsplit(config.url_prefix).path.rstrip("/")
        self._pool = ConnectionPool(config.timeout_seconds)
        self.close = self._pool.close

    def post(self, verb: str, body: bytes) -> tuple[int, bytes]:
        """Returns status and body. Raises ClusterError where there is no answer."""
        return self.exchange(Request("POST", f"{self._path}/{verb}", _JSON, body))

    def exchange(self, request: Request) -> tuple[int, bytes]:
        """Returns status and body. Raises ClusterError where there is no answer."""
        with self._pool.exchange(self.endpoint, request, self.config.timeout_seconds) as response:
            body = response.read()
        return response.status, body


def check_endpoint(config: ExtenderConfig, names: Sequence[str] = ()) -> Iterator[Finding]:
    """Yields what a caller finds at the URL. Nothing is bound. `names`: nodes to ask about."""
    where = config.url_prefix
    try:
        caller = ExtenderCaller(config)
        yield from _certificate(caller.endpoint, config.timeout_seconds)
    except ConfigurationError as error:
        yield fail("tls-files", error.faults[0], "see certFile, keyFile and caFile of tlsConfig")
        return
    except Refused as error:
        yield fail("reachable", f"{where}: {error}", _advice(urlsplit(where).hostname or ""))
        return
    try:
        yield from _readiness(caller)
        verbs = list(_verbs(caller, names))
        yield from verbs
        if config.filter_verb and all(finding.level == "ok" for finding in verbs):
            yield _latency(caller, names)
    except ClusterError as error:
        yield fail("reachable", f"{where}: {error}", "see its log, and whether httpTimeout is long enough")
    finally:
        caller.close()


def _advice(host: str) -> str:
    if host.endswith(_CLUSTER_SUFFIXES):
        return "a kube-scheduler on hostNetwork resolves no names of Services (kubernetes#68890): give the ClusterIP"
    return "start `extender serve` with that --bind, and a certificate for that name by the CA of tlsConfig"


def _certificate(endpoint: Endpoint, timeout_seconds: float) -> Iterator[Finding]:
    with endpoint.dial(timeout_seconds) as connection:
        certificate = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    if not certificate:
        return
    days = (ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time()) / _DAY_SECONDS
    names = ", ".join(str(name[-1]) for name in certificate.get("subjectAltName", ()))
    if days < _EXPIRY_WARN_DAYS:
        yield warn("certificate", f"the one for {names} ends in {days:.0f} days", "renew it: docs/certificates.md")
    else:
        yield ok("certificate", f"for {names}, valid for another {days:.0f} days")


def _readiness(caller: ExtenderCaller) -> Iterator[Finding]:
    status, body = caller.exchange(Request("GET", "/readyz?verbose", {}))
    if status == 200:
        yield ok("ready", f"{caller.endpoint.host} is ready")
    else:
        said = " ".join(body.decode("utf-8", "replace").split())[:300]
        yield fail("ready", f"/readyz of {caller.endpoint.host} answers {status}: {said}", "wait, or see to that")


def _verbs(caller: ExtenderCaller, names: Sequence[str]) -> Iterator[Finding]:
    config = caller.config
    nodes = list(names[:1])
    ask = encode_args(_POD, nodes) if config.node_cache_capable else encode_args(_POD, None)
    for field, verb, body, right in (
        ("filterVerb", config.filter_verb, ask, 200),
        ("prioritizeVerb", config.prioritize_verb, ask, 200),
        ("preemptVerb", config.preempt_verb, encode_preemption_args(_POD, {}, names=config.node_cache_capable), 200),
        ("bindVerb", config.bind_verb, _NOT_A_REQUEST, _BAD_REQUEST),
    ):
        if verb:
            yield _verb(caller, field, verb, body, right)


def _verb(caller: ExtenderCaller, field: str, verb: str, body: bytes, right: int) -> Finding:
    status, answer = caller.post(verb, body)
    shown = f"{field} {caller.config.url_prefix.rstrip('/')}/{verb}"
    if status == right:
        return ok("verbs", f"{shown} answers")
    said = " ".join(answer.decode("utf-8", "replace").split())[:200]
    if status in _DENIED:
        fix = "give certFile and keyFile of a certificate that --client-ca signed, with a name of --client-names"
        return fail("verbs", f"{shown} answers {status}: {said}", fix)
    fix = "urlPrefix must end in --prefix of `extender serve` (/scheduler), the verb in the name that it has there"
    return fail("verbs", f"{shown} answers {status}: {said}", fix)


def _latency(caller: ExtenderCaller, names: Sequence[str]) -> Finding:
    config, taken = caller.config, []
    body = encode_args(_POD, list(names)) if config.node_cache_capable else encode_args(_POD, None)
    for _ in range(_CALLS):
        began = time.perf_counter()
        caller.post(config.filter_verb, body)
        taken.append(time.perf_counter() - began)
    slowest = max(taken)
    told = f"filter of {len(names)} nodes takes {slowest * 1000:.1f} ms at most of {_CALLS} calls"
    if slowest * 2 > config.timeout_seconds:
        return warn("latency", f"{told}; httpTimeout is {config.timeout_seconds:g} s", "a longer httpTimeout")
    return ok("latency", f"{told}; httpTimeout is {config.timeout_seconds:g} s")
