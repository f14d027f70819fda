"""Calls the API server. Every call has a time limit, and the credentials may change at any time.

Commands make their first call with a short limit, advice on a failure, and the version. They read a replica through a
forwarded port of its pod, as `kubectl port-forward` does.
"""

from __future__ import annotations

import http.client
import logging
import re
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from extender.cluster.credentials import ClientConfig, Credentials
from extender.cluster.pool import ConnectionPool, Headers, ObserveRequest, Request, Response
from extender.errors import ClusterError, ConfigurationError, Conflict, NotFound, OutcomeUnknown, Refused
from extender.model.kinds import Kind
from extender.runtime.fibers import in_thread
from extender.runtime.ports import Check, always
from extender.runtime.process import product_version

CONNECT_SECONDS = 5.0
CALL_SECONDS = 10.0
_RENEWAL_SECONDS = 1.0  # how long a call waits for new credentials, because a plugin may be slow or hang
_RETRY_SECONDS = 10.0
JSON = "application/json"
_OK, _UNAUTHORIZED, _NOT_FOUND, _CONFLICT = 200, 401, 404, 409
# A gateway that stops waiting sends 408 or 499, although the API server may still carry out the request.
_INCONCLUSIVE = (408, 499)

logger = logging.getLogger(__name__)
T = TypeVar("T")
_FORWARDED_SECONDS = 10.0


class Status(msgspec.Struct, gc=False):
    """A metav1.Status: the response's body if the API server refuses a call."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0


class ApiCall(NamedTuple):
    """One call of the API server.

    Attributes:
        timeout_seconds: nothing is sent after this time. The API server gives up a write that it has had for so long.
            It does not notice if its client has given up, when the network between the two is interrupted.
        check: called just before anything is sent, also if the call has to be repeated.
    """

    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON
    timeout_seconds: float = CALL_SECONDS
    check: Check = always


class Caller(ABC):
    """The interface of everything that calls the API server."""

    @abstractmethod
    def call(self, call: ApiCall) -> bytes:
        """Sends the body of the call, and returns the response's body.

        Raises:
            Refused: the API server answered 4xx except 408 and 499, has certainly not begun to write (see `error_of`),
                or is unreachable (503), or `check` raised it. 409 raises the subclass Conflict, and 404 the subclass
                NotFound if the API server itself says it, not a gateway.
            OutcomeUnknown: no readable response arrived, or its status is any other. Also raised if the first
                attempt got no response and the second attempt was refused, because the first may have succeeded.
        """

    def call_for(self, decode: Callable[[bytes], T], call: ApiCall) -> T:
        """Does the same as `call`, and decodes the response. If decoding fails, raises OutcomeUnknown."""
        data = self.call(call)
        try:
            return decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise OutcomeUnknown(f"the response to {call.method} {call.path} cannot be read: {error}") from None


class KubeClient(Caller):
    """A client of one API server, which always uses the current credentials. Many calls may run at once."""

    def __init__(self, credentials: Credentials, observe: ObserveRequest = lambda *_: None) -> None:
        """Reads the credentials. Raises ConfigurationError if they cannot be read.

        Args:
            observe: called after every request, for metrics.
        """
        self._credentials = credentials
        self._config = credentials.load()
        self._headers = {"User-Agent": f"extender/{product_version()}"}
        self._pool = ConnectionPool(CONNECT_SECONDS, observe=observe)
        self._served: dict[str, Kind] = {}  # by the path of the newest version
        self._lock = threading.Lock()
        self._renewed: threading.Event | None = None  # the event is set when the renewal in progress ends
        self._renewal_began_at = 0.0
        self._renew_again_at = 0.0

    @property
    def address(self) -> str:
        """The URL of the API server."""
        endpoint = self._config.endpoint
        return f"{'https' if endpoint.tls else 'http'}://{endpoint.host}{self._config.base}"

    @contextmanager
    def get(
        self, path: str, query: Mapping[str, str], silence_seconds: float, accept: str = JSON
    ) -> Iterator[Response]:
        """Sends a GET. The caller reads the response, whatever its status is, in the `with` block.

        Raises:
            Refused: the API server cannot be reached.
            OutcomeUnknown: no response arrived in `silence_seconds`, or it ended too early.
        """
        config = self._current()
        target = config.base + (f"{path}?{urlencode(query)}" if query else path)
        request = Request("GET", target, self._headers_of(config, {"Accept": accept}), silence_seconds)
        try:
            with self._pool.exchange(config.endpoint, request) as response:
                yield response
        except Refused:
            self._begin_renewal(config, rejected=False)
            raise
        if response.status == _UNAUTHORIZED:
            self._renew(config)

    @contextmanager
    def get_all(
        self,
        kind: Kind,
        query: Mapping[str, str],
        silence_seconds: float,
        accept: str = JSON,
        namespace: str = "",
    ) -> Iterator[Response]:
        """Sends a GET for a list or a watch of the kind, of one namespace or of all; see `get`.

        An API server may not serve the newest version of the kind. The version that answers first is remembered, and
        the others are asked only if it is no longer served.
        """
        served = self.served(kind)
        versions = sorted(kind.versions, key=lambda version: version.api_version != served.api_version)
        for version in versions:
            path = version.path_in(namespace) if namespace else version.path
            with self.get(path, query, silence_seconds, accept) as response:
                if response.status != _NOT_FOUND or version is versions[-1]:
                    if response.status == _OK:
                        self._served[kind.path] = version
                    yield response
                    return
                response.read()

    def served(self, kind: Kind) -> Kind:
        """Returns the kind in the version that `get_all` found served; in the newest one if it was not asked yet."""
        return self._served.get(kind.path, kind)

    def call(self, call: ApiCall) -> bytes:
        """See Caller. If the server had closed the idle connection, sends the request again over a new connection."""
        config = self._current()
        deadline = time.monotonic() + call.timeout_seconds
        status, data = self._send(config, call, deadline)
        if status == _UNAUTHORIZED and (renewed := self._renew(config)) is not config:
            status, data = self._send(renewed, call, deadline)
        if not 200 <= status < 300:
            raise error_of(status, data)
        return data

    def close(self) -> None:
        """Ends every connection. Threads that wait on one get an OutcomeUnknown."""
        self._pool.close()

    def _send(self, config: ClientConfig, call: ApiCall, deadline: float) -> tuple[int, bytes]:
        method, target = call.method, config.base + call.path
        if method != "GET":
            target += f"{'&' if '?' in target else '?'}timeout={call.timeout_seconds:g}s"
        own = {"Accept": JSON, "Content-Type": call.content_type} if call.body else {"Accept": JSON}
        headers = self._headers_of(config, own)
        silence_seconds = deadline - time.monotonic()
        request = Request(method, target, headers, silence_seconds, call.body, deadline, check=call.check)
        try:
            with self._pool.exchange(config.endpoint, request) as response:
                data = response.read()
        except Refused:
            self._begin_renewal(config, rejected=False)
            raise
        status = response.status
        # A repetition that finds no object, or a conflict, also shows what became of the first attempt.
        is_conclusive = 200 <= status < 300 or isinstance(error_of(status, data), NotFound | Conflict)
        if response.repeated and not is_conclusive:
            raise OutcomeUnknown(f"no response to the first attempt, and then {status}: {message_of(data)}")
        return status, data

    def _headers_of(self, config: ClientConfig, own: Mapping[str, str]) -> Headers:
        authorization = [("Authorization", config.authorization)] if config.authorization else []
        return [*self._headers.items(), *own.items(), *authorization, *config.impersonation]

    # ---- credentials

    def _current(self) -> ClientConfig:
        config = self._config
        if time.monotonic() >= config.valid_until:
            self._begin_renewal(config, rejected=False)
        return config

    def _renew(self, rejected: ClientConfig) -> ClientConfig:
        """Returns newer credentials than `rejected`; `rejected` itself if new credentials cannot be read in time."""
        renewed = self._begin_renewal(rejected, rejected=True)
        if renewed is not None:
            in_thread(lambda: renewed.wait(self._renewal_began_at + _RENEWAL_SECONDS - time.monotonic()))
        return self._config

    def _begin_renewal(self, config: ClientConfig, *, rejected: bool) -> threading.Event | None:
        """Starts a thread that reads the credentials; returns an event that is set when the thread ends.

        If such a thread is running already, returns its event. Returns None if newer credentials than `config` have
        been read, or if the last thread started less than `_RETRY_SECONDS` ago. Callers need newer credentials
        after a 401, and if the server cannot be reached, because its CA may have changed.
        """
        with self._lock:
            now = time.monotonic()
            if self._config is not config or self._renewed is not None or now < self._renew_again_at:
                return self._renewed
            self._renewal_began_at = now
            self._renew_again_at = now + _RETRY_SECONDS
            renewed = threading.Event()
            arguments = (config, rejected, renewed)
            try:
                threading.Thread(target=self._load, args=arguments, name="credentials", daemon=True).start()
            except RuntimeError as error:  # the system cannot start another thread
                logger.warning("credentials not read, retrying reason=%r", str(error))
                return None
            self._renewed = renewed
            return renewed

    def _load(self, before: ClientConfig, rejected: bool, renewed: threading.Event) -> None:
        try:
            config = self._credentials.load(before, rejected=rejected)
            if config.endpoint is not before.endpoint:
                self._pool.retire(before.endpoint)
            self._config = config
        except ConfigurationError as error:
            logger.warning("credentials not read, retrying reason=%r", str(error))
        finally:
            with self._lock:
                self._renewed = None
            renewed.set()


def error_of(status: int, body: bytes) -> ClusterError:
    """Returns the error for a response whose status is not 2xx.

    The call counts as refused if the body is readable, and the status is 4xx or the answer is one of kube-apiserver's
    that it gives only before it writes. Any other response may come from a gateway, or from etcd.
    """
    message = message_of(body)
    described = f"{status}: {message}"
    if not _is_text(body):
        return OutcomeUnknown(described)
    if _BEFORE_THE_WRITE.match(message):
        return Refused(described, status)  # an admission webhook may choose 404 or 409, which then say nothing
    if not 400 <= status < 500 or status in _INCONCLUSIVE:
        return OutcomeUnknown(described)
    if status == _CONFLICT:
        return Conflict(described, status)
    # A gateway has a 404 of its own, which says nothing about the object.
    is_about_object = status == _NOT_FOUND and (answer := _status_of(body)) is not None and answer.kind == "Status"
    return (NotFound if is_about_object else Refused)(described, status)


# In this order: an admission webhook cannot be called; it denies the request, with a status of its choice; a filter
# fails before the request is handled, for example the call of an authorization webhook; the server shuts down.
_BEFORE_THE_WRITE = re.compile(
    'Internal error occurred: failed calling webhook "'
    '|admission webhook ".*" denied the request'
    '|Internal Server Error: "/'
    "|apiserver is shutting down$"
)


_STATUS = msgspec.json.Decoder(Status)


def message_of(body: bytes) -> str:
    """Returns the message if the body is a Status, else the first 200 bytes of the body as one line."""
    status = _status_of(body)
    return " ".join(body[:200].decode("utf-8", "replace").split()) if status is None else status.message


def _status_of(body: bytes) -> Status | None:
    try:
        return _STATUS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


# No command can do without these kinds. If another kind cannot be read, a note says what is left out.
NEEDED = ("Node", "Pod")
FIRST_CALL_SECONDS = 4.0
FORBIDDEN = 403


@contextmanager
def connection_advice() -> Iterator[None]:
    """Adds advice to the error if the `with` block cannot connect to the API server."""
    try:
        yield
    except Refused as error:
        raise ClusterError(
            f"{error}; check that the API server is up, and the server address in the kubeconfig's context"
        ) from None


class _VersionInfo(msgspec.Struct, rename="camel"):
    """The part of apimachinery's version.Info that matters here."""

    git_version: str = ""


_VERSION = msgspec.json.Decoder(_VersionInfo)


def reported_version(client: KubeClient) -> str:
    """Returns the version of the API server, as v1.37.1. Raises ClusterError if it is not served in time."""
    return client.call_for(_VERSION.decode, ApiCall("GET", "/version", timeout_seconds=FIRST_CALL_SECONDS)).git_version


@dataclass(frozen=True, slots=True)
class ForwardedReplica:
    """A pod of a Deployment, called through a forwarded port. Each request forwards the port again.

    The `kubernetes` client implements the protocol, but the pool's endpoint opens the connection. A connection of the
    client would ignore --as, and would wait forever for a credential plugin that hangs.
    """

    credentials: Credentials
    namespace: str
    pod: str
    port: int

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.pod}:{self.port}"

    def get(self, path: str) -> tuple[int, bytes]:
        """Requests the path; returns the status and the body. Raises ClusterError if no answer arrives."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_FORWARDED_SECONDS)
        connection.sock = forwarded_port(self.credentials, self.namespace, self.pod, self.port)
        connection.sock.settimeout(_FORWARDED_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ClusterError(f"no answer from {self}: {error}; check that it serves plain HTTP there") from None
        finally:
            connection.close()


def forwarded_port(credentials: Credentials, namespace: str, pod: str, port: int) -> socket.socket:
    """Returns a socket that is connected to the port of the pod.

    Raises:
        ConfigurationError: the credentials cannot be read.
        ClusterError: the API server cannot be reached, or refuses to forward the port.
    """
    from kubernetes.stream.ws_client import PortForward
    from websocket import WebSocket, WebSocketException

    config = credentials.load()
    connection = config.endpoint.dial(_FORWARDED_SECONDS)
    scheme = "wss" if config.endpoint.tls else "ws"
    path = f"{config.base}/api/v1/namespaces/{namespace}/pods/{pod}/portforward?ports={port}"
    headers = [f"{name}: {value}" for name, value in config.impersonation]
    if config.authorization:
        headers.append(f"Authorization: {config.authorization}")
    channels = WebSocket(skip_utf8_validation=False)
    try:
        channels.connect(  # type: ignore[no-untyped-call]  # neither package has type information
            f"{scheme}://{config.endpoint.host}{path}",
            socket=connection,
            header=headers,
            subprotocols=["v4.channel.k8s.io"],
        )
        connection.settimeout(None)
        forwarded: socket.socket = PortForward(channels, [port]).socket(port)  # type: ignore[no-untyped-call]
    except (WebSocketException, OSError, ValueError) as error:
        connection.close()
        raise ClusterError(f"port {port} of pod {namespace}/{pod} cannot be forwarded: {error}") from None
    return forwarded
