"""Sockets whose calls end in time."""

from __future__ import annotations

import socket
import ssl
import struct

_WAIT_SECONDS = 5.0


class TimedSocket:
    """A connected socket with as few system calls as can be: Python's time limits cost two more for each."""

    def __init__(self, plain: socket.socket) -> None:
        self._socket = plain
        self._limit_seconds = 0.0
        plain.settimeout(None)

    def receive(self, size: int, timeout_seconds: float) -> bytes:
        """See http1.Source."""
        left = timeout_seconds
        while left > 0:
            # The kernel's limit holds until it is changed. So it is the same for every wait but the last part of one.
            waits = min(left, _WAIT_SECONDS)
            if waits != self._limit_seconds:
                self._limit(waits)
            try:
                return self._socket.recv(size)
            except BlockingIOError:
                left -= waits
        raise TimeoutError(f"nothing came for {timeout_seconds:g} s")

    def send(self, data: bytes, timeout_seconds: float) -> None:
        """Sends all of `data`; raises TimeoutError where the other side does not take it in time."""
        try:
            sent = self._socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._send_slowly(data[sent:], timeout_seconds)

    def _send_slowly(self, data: bytes, timeout_seconds: float) -> None:
        self._socket.settimeout(timeout_seconds)
        try:
            self._socket.sendall(data)
        finally:
            self._socket.settimeout(None)

    def _limit(self, seconds: float) -> None:
        """To the kernel 0 is for ever."""
        whole = int(seconds)
        limit = struct.pack("ll", whole, int((seconds - whole) * 1e6) or int(not whole))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._limit_seconds = seconds


class TimedTlsSocket:
    """The same over TLS, by Python's limits: OpenSSL's reads go on when the kernel says that time is up."""

    def __init__(self, tls: ssl.SSLSocket) -> None:
        self._socket = tls

    def receive(self, size: int, timeout_seconds: float) -> bytes:
        """See http1.Source."""
        self._socket.settimeout(timeout_seconds)
        return self._socket.recv(size)

    def send(self, data: bytes, timeout_seconds: float) -> None:
        """See TimedSocket."""
        self._socket.settimeout(timeout_seconds)
        self._socket.sendall(data)
