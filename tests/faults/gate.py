"""A relay of bytes before a port: new connections can take long, and ends can get lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.faults.loop_server import LoopServer

_PIECE_BYTES = 64 * 1024


class Gate(LoopServer):
    """`with Gate(port) as gate:` relays `gate.port` of 127.0.0.1 to `port`, in a thread of its own.

    Attributes:
        dial_seconds: how long the bytes of a new connection wait, so that its TLS handshake takes so long.
        loses_ends: True if the port does not learn that a client has closed its connection.
    """

    def __init__(self, port: int) -> None:
        super().__init__("gate")
        self.dial_seconds = 0.0
        self.loses_ends = False
        self._target = port

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.sleep(self.dial_seconds)
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self._target)
            await asyncio.gather(self._relay(reader, target_writer), self._relay(target_reader, writer))

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(_PIECE_BYTES):
                writer.write(piece)
                await writer.drain()
        finally:
            if not self.loses_ends:
                writer.close()
