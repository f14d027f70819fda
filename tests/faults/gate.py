"""A relay of bytes before a port, on which new connections can take long."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.faults.loop_server import LoopServer

_PIECE_BYTES = 64 * 1024


class Gate(LoopServer):
    """`with Gate(port) as gate:` relays `gate.port` of 127.0.0.1 to `port`, in a thread of its own.

    Attributes:
        dial_seconds: how long the bytes of a new connection wait, so that its TLS handshake takes so long.
    """

    def __init__(self, port: int) -> None:
        super().__init__("gate")
        self.dial_seconds = 0.0
        self._target = port

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

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
