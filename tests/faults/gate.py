"""A relay of bytes before a port, on which new connections can take long."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Self

from tests.faults.proxy import cancel_all

_PIECE_BYTES = 64 * 1024


class Gate:
    """`with Gate(port) as gate:` relays `gate.port` of 127.0.0.1 to `port`, in a thread of its own.

    Attributes:
        dial_seconds: how long the bytes of a new connection wait, so that its TLS handshake takes so long.
    """

    def __init__(self, port: int) -> None:
        self.port = 0
        self.dial_seconds = 0.0
        self._target = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gate", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(cancel_all(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.sleep(self.dial_seconds)
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self._target)
            await asyncio.gather(_relay(reader, target_writer), _relay(target_reader, writer))


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()
