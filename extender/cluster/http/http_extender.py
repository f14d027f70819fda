"""Calls to another extender, as the stock scheduler makes them: one POST, one answer of status 200, one time limit.

Source: upstream HTTPExtender.send and makeTransport. A call is never repeated: what it asked may have been done.
"""

from __future__ import annotations

import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from extender.cluster.http.http1 import Answer, BrokenExchange, Channel, Hung
from extender.errors import ConfigurationError, OutcomeUnknown, Refused
from extender.model.extenders import ExtenderConfig, TLSConfig

LARGEST_ANSWER_BYTES = 256 * 1024 * 1024
_IDLE_KEPT = 16
_HEADERS = {"User-Agent": "extender", "Content-Type": "application/json", "Accept": "application/json"}
_OK = 200
_LEAST_SECONDS = 0.001  # 0 would mean not to wait at all


class HttpExtender:
    """One extender; a scheduler.extenders.Transport. Any number of calls at once, over connections that are kept."""

    def __init__(self, config: ExtenderConfig) -> None:
        """Raises ConfigurationError where the certificates cannot be read."""
        url = urlsplit(config.url_prefix)
        self._prefix, self._path, self._host = config.url_prefix.rstrip("/"), url.path.rstrip("/"), url.netloc
        self._address = (url.hostname or "", url.port or (443 if url.scheme == "https" else 80))
        self._server_name = config.tls.server_name or self._address[0]
        self._timeout_seconds = config.timeout_seconds
        try:
            self._tls = _context(config.tls) if url.scheme == "https" else None
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfigurationError([f"extender {config.url_prefix}: its certificates: {error}"]) from None
        self._lock = threading.Lock()
        self._idle: list[_TimedChannel] = []

    def post(self, verb: str, body: bytes) -> bytes:
        """The body of the answer to a call.

        Raises:
            Refused: the extender cannot be reached, or said no with a status of 4xx.
            OutcomeUnknown: no answer came in time, or one of another status: what was asked may have been done.
        """
        url = f"{self._prefix}/{verb}"
        deadline = time.monotonic() + self._timeout_seconds
        channel = self._take(url, deadline)
        reusable = False
        try:
            channel.send("POST", f"{self._path}/{verb}", _HEADERS, body)
            answer = Answer(channel, self._timeout_seconds)
            data = _read(answer)
            reusable = answer.keep_alive
        except BrokenExchange as error:
            raise OutcomeUnknown(f"{url}: {error}") from None
        finally:
            self._put_back(channel, reusable=reusable)
        if answer.status != _OK:
            message = f"{url} answers {answer.status}"
            raise Refused(message, answer.status) if 400 <= answer.status < 500 else OutcomeUnknown(message)
        return data

    def close(self) -> None:
        """Ends the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for channel in idle:
            channel.close()

    def _take(self, url: str, deadline: float) -> _TimedChannel:
        while (channel := self._take_idle()) is not None:
            if not channel.stale():
                channel.deadline = deadline
                return channel
            channel.close()
        try:
            return _TimedChannel(self._dial(), self._host, deadline)
        except (OSError, ValueError) as error:
            raise Refused(f"{url} cannot be reached: {error}", 503) from None

    def _dial(self) -> socket.socket:
        sock = socket.create_connection(self._address, self._timeout_seconds)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._tls.wrap_socket(sock, server_hostname=self._server_name) if self._tls else sock
        except BaseException:
            sock.close()
            raise

    def _take_idle(self) -> _TimedChannel | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _put_back(self, channel: _TimedChannel, *, reusable: bool) -> None:
        with self._lock:
            if reusable and len(self._idle) < _IDLE_KEPT:
                self._idle.append(channel)
                return
        channel.close()


class _TimedChannel(Channel):
    """A channel whose exchange must be over by `deadline`, however it is cut into pieces."""

    def __init__(self, sock: socket.socket, host: str, deadline: float) -> None:
        super().__init__(sock, host)
        self.deadline = deadline

    def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        """See Channel."""
        self.limit(max(self.deadline - time.monotonic(), _LEAST_SECONDS))
        super().send(method, target, headers, body)

    def receive(self, timeout_seconds: float) -> bytes:
        """See Channel; `timeout_seconds` is told, the deadline is kept."""
        left_seconds = self.deadline - time.monotonic()
        if left_seconds <= 0:
            raise Hung(f"no whole answer came in {timeout_seconds:g} s")
        try:
            return super().receive(left_seconds)
        except Hung:
            raise Hung(f"no whole answer came in {timeout_seconds:g} s") from None


def _read(answer: Answer) -> bytes:
    data = bytearray()
    for piece in answer.pieces():
        data += piece
        if len(data) > LARGEST_ANSWER_BYTES:
            raise BrokenExchange(f"the answer is larger than {LARGEST_ANSWER_BYTES} bytes")
    return bytes(data)


def _context(tls: TLSConfig) -> ssl.SSLContext:
    authorities = tls.ca_data.decode("ascii") or None
    context = ssl.create_default_context(cafile=None if authorities else tls.ca_file, cadata=authorities)
    if not tls.verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = tls.cert_data or _content(tls.cert_file)
    if certificate:
        _load(context, certificate + b"\n" + (tls.key_data or _content(tls.key_file)))
    return context


def _content(path: Path | None) -> bytes:
    return path.read_bytes() if path else b""


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """The ssl module takes a certificate and its key from a file only."""
    with tempfile.NamedTemporaryFile() as file:  # for its owner's eyes only
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
