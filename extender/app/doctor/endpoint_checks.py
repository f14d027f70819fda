"""Checks a running extender by calling it as a scheduler does: certificates, readiness, verbs and latency."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from extender.app.doctor.finding import Finding, fail, ok, warn
from extender.cluster.http.http_extender import endpoint_of
from extender.cluster.http.pool import ConnectionPool, Endpoint, Request
from extender.errors import ClusterError, ConfigurationError, Refused
from extender.extender_v1.client import encode_args, encode_preemption_args
from extender.model.extender_config import ExtenderConfig
from extender.runtime.text import counted

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
        return self.exchange(Request("POST", f"{self._path}/{verb}", _JSON, body))

    def exchange(self, request: Request) -> _Answer:
        """Sends a request. Raises ClusterError if no answer arrives."""
        with self._pool.exchange(self.endpoint, request, self.config.timeout_seconds) as response:
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
    answer = caller.exchange(Request("GET", "/readyz?verbose", []))
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
