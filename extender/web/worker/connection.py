"""One client's connection in its own thread: read a request, have it answered, send the answer, again."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import time
from contextlib import suppress
from enum import IntEnum
from math import ceil

from extender.web.answers import CLOSE, render
from extender.web.worker.application import Lifecycle
from extender.web.worker.http1 import Budget, Head, RequestReader, RequestRefused

_log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS, _LINGER_SECONDS = 10.0, 2.0


class Phase(IntEnum):
    """The states of a connection, in the order in which connections make way for another."""

    HALF = 0  # the client has sent half a request, or does not take the answer
    NEW = 1  # it has asked nothing yet
    IDLE = 2  # it has got an answer, and may ask again
    BUSY = 3  # a request is worked on; it does not make way


class ClientConnection:
    """Serves one accepted socket until the client leaves, misbehaves or idles, or until `finish` is called.

    Attributes:
        client: the client's address, "" where it has none.
        tls: the context that the connection was made under.
        since: when the client was last waited for, in seconds of the monotonic clock.
    """

    def __init__(
        self, accepted: socket.socket, client: str, application: Lifecycle, budget: Budget, tls: ssl.SSLContext | None
    ) -> None:
        self.client, self.tls = client, tls
        self._socket, self._application, self._budget = accepted, application, budget
        self._finishing, self._timeout_seconds, self._asked = False, 0, ""
        self.phase, self.since = Phase.NEW, time.monotonic()

    @property
    def ending(self) -> bool:
        """Is True if `finish` was called and nothing is worked on."""
        return self._finishing and self.phase is not Phase.BUSY

    def finish(self, *, make_way: bool = False) -> None:
        """Ends the connection after the request in flight; to `make_way`, after none that is not sent in full."""
        self._finishing = True
        # A last request is answered. By the plain socket: SSLSocket.shutdown takes TLS from under the reading thread.
        with suppress(OSError):
            if self.phase in (Phase.NEW, Phase.IDLE):
                socket.socket.shutdown(self._socket, socket.SHUT_RD)
            elif make_way and self.phase is Phase.HALF:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _receive(self, size: int, timeout_seconds: float) -> bytes:
        if self.phase is Phase.BUSY:
            self._enter(Phase.HALF)
        self._limit(timeout_seconds)
        return self._socket.recv(size)

    def _send(self, data: bytes) -> None:
        sent = 0
        if self.tls is None:
            with suppress(BlockingIOError):
                sent = os.write(self._socket.fileno(), data)  # not waiting, as the socket's own method would
        if sent < len(data):
            self._enter(Phase.HALF)
            self._limit(self._application.limits.send_seconds)
            self._socket.sendall(data[sent:])

    def serve(self) -> None:
        """Runs the connection to its end; raises nothing."""
        try:
            self._limit(_HANDSHAKE_SECONDS)
            if self.tls is not None:
                self._socket = secured = self.tls.wrap_socket(self._socket, True, do_handshake_on_connect=False)
                secured.do_handshake()
            self._exchange_all()
        except RequestRefused as refused:
            self._refuse(refused)
        except ssl.SSLCertVerificationError as error:
            _log.warning("a client's certificate was refused: %s", error.verify_message)
        except OSError as error:
            _log.debug("connection ended: %s", error)
        except Exception:
            _log.exception("connection failed")
        finally:
            self._socket.close()

    def _exchange_all(self) -> None:
        reader = RequestReader(
            self._receive, self._send, self._application.limits, self._budget, self.client, time.monotonic
        )
        try:
            while not self._finishing and reader.wait():
                self.phase, self._asked = Phase.BUSY, ""
                head = reader.read_head()
                if head is None or not self._exchange(head, reader):
                    return
                reader.release()
                if self.phase is not Phase.IDLE:
                    self._enter(Phase.IDLE)
        finally:
            reader.release()

    def _exchange(self, head: Head, reader: RequestReader) -> bool:
        """Answers one request. Returns whether another may follow."""
        self._asked = f"{head.method} {head.path}"
        handler = self._application.admit(head, self._socket)
        body = reader.read_body(head)
        self.phase = Phase.BUSY
        answer = handler(body)
        keep = head.keep_alive and not (CLOSE in answer.headers or self._finishing or self._application.draining)
        connection = "close" if not keep else "keep-alive" if head.version == "1.0" else ""
        self._enter(Phase.IDLE)  # already: the client may be quicker than this thread
        self._send(render(answer, connection, head_only=head.method == "HEAD"))
        return keep

    def _refuse(self, refused: RequestRefused) -> None:
        answer = self._application.refuse(refused.status, self.client, self._asked, refused.message)
        with suppress(OSError):
            self._send(render(answer, "close"))
            # Closing with unread bytes resets the connection, and the client would lose the answer.
            socket.socket.shutdown(self._socket, socket.SHUT_WR)
            ends_at = time.monotonic() + _LINGER_SECONDS
            while (left := ends_at - time.monotonic()) > 0:
                self._socket.settimeout(left)
                if not socket.socket.recv(self._socket, 1 << 16):
                    return

    def _limit(self, seconds: float) -> None:
        """Limits the time of the socket's next calls, in whole seconds: only where it changes it is a system call."""
        if ceil(seconds) != self._timeout_seconds:
            self._timeout_seconds = ceil(seconds)
            self._socket.settimeout(self._timeout_seconds)

    def _enter(self, phase: Phase) -> None:
        self.phase, self.since = phase, time.monotonic()
