"""The extender's end of a connection through the proxy."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Self

from tests.faults.injection import Call

_DROPS, _DROP_SECONDS = 10, 0.05
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as it came."""

    data: bytes
    call: Call | None

    @property
    def name(self) -> str:
        """Method and path, without the query."""
        return self.data.partition(b" HTTP/")[0].partition(b"?")[0].decode()

    @classmethod
    def of(cls, head: bytes, body: bytes) -> Self:
        method, target = head.split(b" ", 2)[:2]
        if method == b"POST" and target.partition(b"?")[0].endswith(b"/binding"):
            return cls(head + body, Call.BIND)
        if method == b"GET" and b"watch=" in target:
            return cls(head + body, Call.WATCH)
        listed = method == b"GET" and (b"resourceVersion=" in target or b"limit=" in target)
        return cls(head + body, Call.LIST if listed else None)


class ClientGoneError(Exception):
    """The client has closed its end."""


class Client:
    """The extender's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._next: asyncio.Task[bytes] | None = None

    async def request(self) -> Request:
        """The next request. Raises ClientGoneError."""
        try:
            head = await self._first_byte() + await self._reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
            body = await self._reader.readexactly(int(length[1])) if length else b""
        except asyncio.IncompleteReadError:
            raise ClientGoneError from None
        return Request.of(head, body)

    async def unless_gone(self, work: Awaitable[Any]) -> Any:
        """The work's result; cancels it when the client goes first. Raises ClientGoneError."""
        # The client sends nothing before it has its answer, so the first byte is the end or the next request.
        task, leaving = asyncio.ensure_future(work), self._coming()
        try:
            await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientGoneError
            return task.result()
        finally:
            task.cancel()

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def send_in_drops(self, data: bytes) -> None:
        size = max(1, -(-len(data) // _DROPS))
        for begin in range(0, len(data), size):
            await self.send(data[begin : begin + size])
            await asyncio.sleep(_DROP_SECONDS)

    def reset(self) -> None:
        """RST: whatever is not sent yet is lost."""
        connected = self._writer.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._writer.transport.abort()

    def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
        self._writer.transport.abort()

    def _coming(self) -> asyncio.Task[bytes]:
        if self._next is None:
            self._next = asyncio.ensure_future(self._reader.read(1))
        return self._next

    async def _first_byte(self) -> bytes:
        byte = await self._coming()
        self._next = None
        if not byte:
            raise ClientGoneError
        return byte
