"""The proxy's side towards the API server: one HTTP/1.1 exchange at a time, the answer as it comes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Self

import httptools

_PIECE_BYTES = 256 * 1024


class Upstream:
    """A connection to the API server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def dial(cls, port: int, context: ssl.SSLContext) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="127.0.0.1"))

    async def ask(self, request: bytes) -> UpstreamAnswer:
        """Sends a request as it is; the answer's head has come when this returns."""
        self._writer.write(request)
        await self._writer.drain()
        answer = UpstreamAnswer(self._reader)
        await answer.read_head()
        return answer

    def close(self) -> None:
        self._writer.transport.abort()


class UpstreamAnswer:
    """An answer of the API server."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self._reader = reader
        self._parser = httptools.HttpResponseParser(self)
        self._arrived: list[bytes] = []
        self._head_complete = self._complete = False

    @property
    def status(self) -> int:
        status: int = self._parser.get_status_code()
        return status

    async def read_head(self) -> None:
        while not self._head_complete:
            await self._advance()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        while True:
            arrived, self._arrived = b"".join(self._arrived), []
            if arrived:
                yield arrived
            elif self._complete:
                return
            else:
                await self._advance()

    async def body(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    async def _advance(self) -> None:
        data = await self._reader.read(_PIECE_BYTES)
        if not data:
            raise ConnectionError("the API server ended the connection")
        self._parser.feed_data(data)

    # ---- called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._head_complete = True

    def on_body(self, body: bytes) -> None:
        self._arrived.append(body)

    def on_message_complete(self) -> None:
        self._complete = True
