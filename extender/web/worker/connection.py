"""One client's connection in its own thread: read a request, ask the WSGI application, send the answer, again."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Protocol

from extender.web.answers import error_answer, render, render_answer, status_line, wsgi_headers
from extender.web.worker.environ import Environ, peer_environ, request_environ
from extender.web.worker.http1 import Request, RequestReader
from extender.web.worker.lifecycle import Post
from extender.web.worker.limits import Budget, Limits, Refusal
from extender.web.worker.timed_socket import TimedSocket, TimedTlsSocket

_log = logging.getLogger(__name__)

Application = Callable[[Environ, Any], Iterable[bytes]]

_LAST = ("Connection", "close")  # the application wants the connection to end after this answer
_HANDSHAKE_SECONDS = 10.0
_LINGER_SECONDS = 2.0
_GONE = (ConnectionError, ssl.SSLError, TimeoutError, OSError)


class Host(Protocol):
    """What a connection needs from its worker."""

    application: Application
    limits: Limits
    budget: Budget
    posts: Mapping[str, Post]

    @property
    def draining(self) -> bool:
        """Connections end after the request in flight."""

    def tls_context(self) -> ssl.SSLContext | None:
        """The context for a new connection, None for plain HTTP."""

    def rejected(self, status: int) -> None:
        """A request was refused before the application saw it."""


class Connection:
    """Serves one accepted socket until the client leaves, misbehaves or idles, or `finish` is called."""

    def __init__(self, accepted: socket.socket, host: Host) -> None:
        self._socket = accepted
        self._timed: TimedSocket | TimedTlsSocket = TimedSocket(accepted)
        self._host = host
        self._finishing = False
        self._idle = True
        self.idle_since = time.monotonic()  # the last answer, for choosing who makes way

    @property
    def idle(self) -> bool:
        """No request is being read or worked on."""
        return self._idle and not self._finishing

    def receive(self, size: int, timeout_seconds: float) -> bytes:
        """See http1.Source."""
        return self._timed.receive(size, timeout_seconds)

    def send(self, data: bytes) -> None:
        """See http1.Source."""
        self._timed.send(data, self._host.limits.send_seconds)

    def finish(self) -> None:
        """No request after the one in flight; an idle connection ends now."""
        self._finishing = True
        if self._idle:
            # By the plain socket: SSLSocket.shutdown takes the TLS state from under the reading thread.
            _quietly(lambda: socket.socket.shutdown(self._socket, socket.SHUT_RD))

    def serve(self) -> None:
        """Runs the connection to its end; raises nothing."""
        try:
            self._secure()
            self._exchange_all()
        except Refusal as refusal:
            self._refuse(refusal)
        except _GONE as error:
            _log.debug("connection ended: %s", error)
        except Exception:
            _log.exception("connection failed")
        finally:
            self._socket.close()

    def _secure(self) -> None:
        context = self._host.tls_context()
        if context is not None:
            self._socket.settimeout(_HANDSHAKE_SECONDS)
            try:
                self._socket = secured = context.wrap_socket(self._socket, server_side=True)
                self._timed = TimedTlsSocket(secured)
            except ssl.SSLCertVerificationError as error:
                _log.warning("a client's certificate was refused: %s", error.verify_message)
                raise

    def _exchange_all(self) -> None:
        reader = RequestReader(self, self._host.limits, self._host.budget, time.monotonic)
        peer = peer_environ(self._socket)
        try:
            while self._wait(reader):
                request = reader.read()
                if request is None or not self._exchange(request, peer):
                    return
                reader.release()
        finally:
            reader.release()

    def _wait(self, reader: RequestReader) -> bool:
        self._idle = True  # first of all: so either this thread sees that it is to finish, or `finish` that it is idle
        try:
            return not self._finishing and reader.wait()
        finally:
            self._idle = False

    def _exchange(self, request: Request, peer: Environ) -> bool:
        post = self._host.posts.get(request.head.json_post)
        if post is not None:
            return self._exchange_post(request, post)
        exchange = _Exchange(self._host.application, request_environ(request, peer))
        try:
            exchange.run()
            return self._send_answer(request, exchange.status, exchange.headers, exchange.body)
        finally:
            exchange.close()

    def _exchange_post(self, request: Request, post: Post) -> bool:
        answer = post(request.body)
        keep, connection = self._keep(request, last=_LAST in answer.headers)
        self._send_last(render_answer(answer, _date(int(time.time())), connection))
        return keep

    def _send_answer(self, request: Request, status: str, headers: list[tuple[str, str]], body: bytes) -> bool:
        """Whether another request may follow."""
        keep, connection = self._keep(request, last=_LAST in headers)
        dated = [*headers, ("Date", _date(int(time.time())))]
        self._send_last(render(status, dated, body, connection, request.head.method == "HEAD"))
        return keep

    def _keep(self, request: Request, *, last: bool) -> tuple[bool, str]:
        """Whether another request may follow, and what the answer's Connection header says of it."""
        keep = request.keep_alive and not (last or self._finishing or self._host.draining)
        return keep, "close" if not keep else "keep-alive" if request.head.version == "1.0" else ""

    def _send_last(self, data: bytes) -> None:
        # From here on there is nothing to lose: an end of reading does not keep the answer from leaving.
        self.idle_since, self._idle = time.monotonic(), True
        self.send(data)

    def _refuse(self, refusal: Refusal) -> None:
        self._host.rejected(refusal.status)
        answer = error_answer(refusal.status, refusal.message)
        _quietly(lambda: self.send(render_answer(answer, _date(int(time.time())), "close")))
        self._linger()

    def _linger(self) -> None:
        # Closing with unread bytes resets the connection, and the client would lose the answer.
        raw, deadline = self._socket, time.monotonic() + _LINGER_SECONDS

        def discard() -> None:
            socket.socket.shutdown(raw, socket.SHUT_WR)
            while (left := deadline - time.monotonic()) > 0:
                raw.settimeout(left)
                if not socket.socket.recv(raw, 1 << 16):
                    return

        _quietly(discard)


class _Exchange:
    """One call of a WSGI application, its answer gathered whole."""

    def __init__(self, application: Application, environ: Environ) -> None:
        self._application = application
        self._environ = environ
        self._written: list[bytes] = []
        self._answer: Iterable[bytes] = ()
        self.status = ""
        self.headers: list[tuple[str, str]] = []
        self.body = b""

    def run(self) -> None:
        try:
            self._answer = self._application(self._environ, self._start_response)
            # First the answer: a generator calls start_response, or write, when it is asked for its first piece.
            body = b"".join(self._answer)
            self.body = b"".join([*self._written, body]) if self._written else body
            if not self.status:
                raise RuntimeError("the application did not call start_response")
        except Exception:
            _log.exception("the application failed")
            answer = error_answer(500, "internal error: the server's log has the cause")
            self.status, self.headers, self.body = status_line(500), wsgi_headers(answer), answer.body

    def close(self) -> None:
        """WSGI's close: after the answer has left."""
        close = getattr(self._answer, "close", None)
        if close is not None:
            close()

    def _start_response(
        self, status: str, headers: list[tuple[str, str]], _exc_info: object = None
    ) -> Callable[[bytes], None]:
        self.status, self.headers = status, headers
        return self._written.append


@lru_cache(maxsize=2)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


def _quietly(action: Callable[[], object]) -> None:
    try:
        action()
    except OSError:
        _log.debug("the client is gone already")
