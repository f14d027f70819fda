"""A server in a thread with an event loop of its own; the proxies between programs are such servers."""

from __future__ import annotations

import asyncio
import threading
from typing import Self


class LoopServer:
    """`with` a subclass `as server:` serves on `server.port` of 127.0.0.1 until the block ends."""

    def __init__(self, name: str) -> None:
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(60)
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        """Opens the port."""
        raise NotImplementedError


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
