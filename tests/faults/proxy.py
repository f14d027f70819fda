"""A TLS proxy before the API server that injects faults.

Answers are framed again, a watch as chunks and anything else by Content-Length, so that a fault can strike at any byte.
A client that is gone takes its request with it: what the API server has not seen by then, it will not see, unless the
request was delayed.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

from tests.faults.client import Client, ClientGoneError, Request
from tests.faults.injection import Call, Fault, Injection, Injector
from tests.faults.loop_server import LoopServer
from tests.faults.upstream import Upstream, UpstreamAnswer
from tests.stock.control_plane import ControlPlane

_HEAD_BYTES = 64 * 1024
_KEPT_HEADERS = (b"content-type", b"content-encoding", b"retry-after", b"audit-id")
_LAST_CHUNK = b"0\r\n\r\n"
_INTERIM_SECONDS = 0.05
_LONG_SECONDS = 600.0

_REASONS = {Fault.GONE: (410, "Expired"), Fault.THROTTLED: (429, "TooManyRequests")}


class FaultyProxy(LoopServer):
    """`with FaultyProxy(...) as proxy:` serves on `proxy.port` of 127.0.0.1, in a thread of its own.

    Args:
        directory: where the control plane keeps `server.pem`, `server.key` and `ca.pem`.
        upstream_port: of the API server.

    Attributes:
        answered: (method and path, status) of what the API server has answered.
        swallowed: the number of requests that were swallowed.
    """

    def __init__(self, directory: Path, upstream_port: int, injector: Injector) -> None:
        super().__init__("faulty-proxy")
        self.injector = injector
        self.answered: Counter[tuple[str, int]] = Counter()
        self._upstream_port = upstream_port
        self._server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._server_context.load_cert_chain(directory / "server.pem", directory / "server.key")
        self._client_context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.lag_seconds = 0.0  # every watch event is delivered so much later
        self._to_lose: list[tuple[bytes, ...]] = []
        self._late: set[asyncio.Future[bytes]] = set()
        self._is_held: Callable[[Request], bool] = lambda _: False
        self._resets_held = False
        self._held: list[Request] = []
        self._is_lost: Callable[[Request], bool] = lambda _: False
        self._is_swallowed: Callable[[Request], bool] = lambda _: False
        self._swallow_seconds = 0.0
        self.swallowed = 0
        self._idle: set[Client] = set()
        self._blind = asyncio.Event()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=self._server_context, limit=_HEAD_BYTES, backlog=512
        )

    @property
    def late(self) -> int:
        """The number of delayed requests that the API server has not answered yet."""
        return len(self._late)

    def hold_watches(self) -> None:
        """From now on no watch delivers anything; connections stay as they are."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def release_watches(self) -> None:
        """Lets through what was held back, in order."""
        self._loop.call_soon_threadsafe(self._flowing.set)

    def lose_event(self, *parts: bytes) -> None:
        """The next watch event that contains all these parts is not delivered; later ones are."""
        self._to_lose.append(parts)

    @property
    def events_to_lose(self) -> int:
        """The number of events that are still to be lost."""
        return len(self._to_lose)

    def hold(self, is_held: Callable[[Request], bool], *, resets: bool) -> None:
        """Holds such requests back from now on; their clients get a reset, or silence."""
        self._is_held, self._resets_held = is_held, resets

    @property
    def held(self) -> int:
        """The number of requests that are held back."""
        return len(self._held)

    def let_pass(self) -> None:
        """Holds nothing more back; what is held stays held."""
        self._is_held = lambda _: False

    def release(self) -> None:
        """Delivers what is held back to the API server, in order, whatever has become of the clients."""
        held, self._held = self._held, []
        for request in held:
            asyncio.run_coroutine_threadsafe(self._deliver_late(request, 0.0), self._loop).result(60)

    def lose(self, is_lost: Callable[[Request], bool]) -> None:
        """Such requests do not reach the API server from now on, and get a reset."""
        self._is_lost = is_lost

    def swallow(self, is_swallowed: Callable[[Request], bool], seconds: float) -> None:
        """The next such request does not reach the API server, and its connection ends so much later without a byte."""
        self._is_swallowed, self._swallow_seconds = is_swallowed, seconds

    def end_idle(self) -> None:
        """Ends the connections that wait for a request."""
        asyncio.run_coroutine_threadsafe(self._end_idle(), self._loop).result(60)

    def blind(self) -> None:
        """From now on watches end with 410 and lists fail."""
        self._loop.call_soon_threadsafe(self._blind.set)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client, upstream = Client(reader, writer), None
        try:
            while True:
                self._idle.add(client)
                request = await client.request()
                self._idle.discard(client)
                if self._is_lost(request):
                    client.reset()
                    raise _Ended
                if self._is_swallowed(request):
                    await self._swallow(client)
                if self._is_held(request):
                    await self._hold_back(client, request)
                if self._blind.is_set() and request.call is Call.LIST:
                    await client.send(_refusal(Fault.FAILED))
                    continue
                injection = self.injector.draw(request.call) if request.call else None
                if injection is None or not await self._instead(client, request, injection):
                    upstream = upstream or await Upstream.dial(self._upstream_port, self._client_context)
                    answer = await client.unless_gone(upstream.ask(request.data))
                    self.answered[request.name, answer.status] += 1
                    await self._deliver(client, request, answer, injection)
        except (ClientGoneError, OSError, _Ended):
            pass  # the end of this connection, as it happens or as it was meant
        finally:
            self._idle.discard(client)
            client.close()
            if upstream is not None:
                upstream.close()

    def _count(self, request: Request, injection: Injection) -> None:
        assert request.call is not None
        self.injector.injected[request.call, injection.fault] += 1

    async def _instead(self, client: Client, request: Request, injection: Injection) -> bool:
        """Whether the fault strikes before the API server sees the request."""
        if injection.after_seconds:
            return False
        match injection.fault:
            case Fault.RESET:
                self._count(request, injection)
                client.reset()
                raise _Ended
            case Fault.HUNG:
                self._count(request, injection)
                await self._hang(client, injection)
            case Fault.DELAYED:
                self._count(request, injection)
                late = asyncio.ensure_future(self._deliver_late(request, injection.hang_seconds))
                self._late.add(late)
                late.add_done_callback(self._late.discard)
                await client.send(await client.unless_gone(asyncio.shield(late)))
                return True
            case Fault.GONE | Fault.THROTTLED | Fault.FAILED:
                self._count(request, injection)
                await client.send(_refusal(injection.fault))
                return True
        return False

    async def _hold_back(self, client: Client, request: Request) -> None:
        self._held.append(request)
        if not self._resets_held:
            await client.unless_gone(asyncio.sleep(_LONG_SECONDS))
        client.reset()
        raise _Ended

    async def _swallow(self, client: Client) -> None:
        self._is_swallowed = lambda _: False
        self.swallowed += 1
        await client.unless_gone(asyncio.sleep(self._swallow_seconds))
        raise _Ended

    async def _end_idle(self) -> None:
        for client in self._idle:
            client.close()

    async def _hang(self, client: Client, injection: Injection) -> None:
        await client.unless_gone(asyncio.sleep(injection.hang_seconds))
        client.reset()
        raise _Ended

    async def _deliver_late(self, request: Request, seconds: float) -> bytes:
        await asyncio.sleep(seconds)
        upstream = await Upstream.dial(self._upstream_port, self._client_context)
        try:
            answer = await upstream.ask(request.data)
            self.answered[request.name, answer.status] += 1
            return _framed(answer.status, answer.headers, await answer.body())
        finally:
            upstream.close()

    async def _deliver(
        self, client: Client, request: Request, answer: UpstreamAnswer, injection: Injection | None
    ) -> None:
        if request.call is Call.WATCH and answer.status == 200:
            await self._stream(client, request, answer, injection)
            raise _Ended
        whole = _framed(answer.status, answer.headers, await client.unless_gone(answer.body()))
        if injection is None:
            await client.send(whole)
            return
        self._count(request, injection)
        match injection.fault:
            case Fault.SLOW:
                await client.send_in_drops(whole)
            case Fault.TRUNCATED:
                await client.send(whole[: int(len(whole) * injection.share)])
                raise _Ended
            case Fault.LEFT_HANGING:
                await self._hang(client, injection)
            case Fault.DONE_YET_FAILED | Fault.UNREADABLE | Fault.SURPLUS:
                await client.send(_instead_of(whole, injection.fault))
            case Fault.ENDLESS:
                await client.unless_gone(_send_interim(client, injection.hang_seconds))
                client.reset()
                raise _Ended
            case Fault.UNMEASURED:
                await client.send(re.sub(rb"Content-Length: \d+\r\n", b"", whole))
                raise _Ended
            case _:
                client.reset()
                raise _Ended

    async def _stream(
        self, client: Client, request: Request, answer: UpstreamAnswer, injection: Injection | None
    ) -> None:
        await client.send(_head(200, answer.headers) + b"Transfer-Encoding: chunked\r\n\r\n")
        relaying = self._relay(client, answer, slow=injection is not None and injection.fault is Fault.SLOW)
        if injection is None:
            await client.unless_gone(self._until_blind(client, relaying))
            return
        try:
            await client.unless_gone(asyncio.wait_for(relaying, injection.after_seconds or injection.hang_seconds))
        except TimeoutError:
            self._count(request, injection)
            await self._strike(client, injection)

    async def _until_blind(self, client: Client, relaying: Coroutine[Any, Any, None]) -> None:
        blind, relay = asyncio.ensure_future(self._blind.wait()), asyncio.ensure_future(relaying)
        try:
            await asyncio.wait({blind, relay}, return_when=asyncio.FIRST_COMPLETED)
            if not relay.done():
                relay.cancel()
                await client.send(_EXPIRED)
        finally:
            blind.cancel()
            relay.cancel()

    async def _relay(self, client: Client, answer: UpstreamAnswer, *, slow: bool) -> None:
        send = client.send_in_drops if slow else client.send
        async for piece in self._delayed(answer):
            await self._flowing.wait()
            if kept := b"".join(line for line in piece.splitlines(keepends=True) if not self._loses(line)):
                await send(b"%x\r\n%b\r\n" % (len(kept), kept))
        await client.send(_LAST_CHUNK)

    async def _delayed(self, answer: UpstreamAnswer) -> AsyncIterator[bytes]:
        """Yields each piece `lag_seconds` after it came."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            try:
                async for piece in answer.pieces():
                    pieces.put_nowait((self._loop.time() + self.lag_seconds, piece))
            finally:
                pieces.put_nowait((0.0, b""))

        reading = asyncio.create_task(read())
        try:
            while True:
                due_at, piece = await pieces.get()
                await asyncio.sleep(max(0.0, due_at - self._loop.time()))
                if not piece:
                    break
                yield piece
            await reading  # raises what has ended the answer
        finally:
            reading.cancel()

    def _loses(self, line: bytes) -> bool:
        for parts in self._to_lose:
            if all(part in line for part in parts):
                self._to_lose.remove(parts)
                return True
        return False

    async def _strike(self, client: Client, injection: Injection) -> None:
        """Ends a watch that has streamed for a while."""
        match injection.fault:
            case Fault.GONE:
                await client.send(_EXPIRED)
            case Fault.GARBLED:
                await client.send(b"10\r\n" + b'{"type":"ADDED"\n' + b"\r\n")
            case Fault.TRUNCATED:
                await client.send(b'40\r\n{"type":"MODIFIED","obj')
            case Fault.HUNG:
                await self._hang(client, injection)
            case _:
                client.reset()


def proxy_before(control_plane: ControlPlane, injector: Injector) -> FaultyProxy:
    """A proxy that passes as the API server of a control plane."""
    return FaultyProxy(control_plane.directory, int(control_plane.server.rpartition(":")[2]), injector)


class Way(Protocol):
    """Something on a port of 127.0.0.1 that leads to an API server."""

    port: int


def kubeconfig_through(proxy: Way, control_plane: ControlPlane, directory: Path) -> Path:
    """The administrator's kubeconfig, by way of the proxy."""
    document = json.loads(control_plane.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
    path = directory / "proxy.kubeconfig"
    path.write_text(json.dumps(document))
    return path


class _Ended(Exception):
    """Nothing more on this connection."""


def _status(code: int, reason: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "injected by the tests",
        "reason": reason,
        "code": code,
    }


def _expired() -> bytes:
    event = json.dumps({"type": "ERROR", "object": _status(410, "Expired")}).encode() + b"\n"
    return b"%x\r\n%b\r\n" % (len(event), event) + _LAST_CHUNK


_EXPIRED = _expired()


def _refusal(fault: Fault) -> bytes:
    code, reason = _REASONS.get(fault, (500, "InternalError"))
    headers = [(b"content-type", b"application/json")]
    if fault is Fault.THROTTLED:
        headers.append((b"retry-after", b"1"))
    return _framed(code, headers, json.dumps(_status(code, reason)).encode())


def _instead_of(answer: bytes, fault: Fault) -> bytes:
    if fault is Fault.UNREADABLE:
        return _framed(400, [], b"\xff")
    failed = _refusal(Fault.FAILED)
    return answer + failed if fault is Fault.SURPLUS else failed


def _framed(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    return _head(status, headers) + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def _head(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    lines = [b"HTTP/1.1 %d Injected" % status]
    lines += [name + b": " + value for name, value in headers if name.lower() in _KEPT_HEADERS]
    return b"\r\n".join(lines) + b"\r\n"


async def _send_interim(client: Client, seconds: float) -> None:
    for _ in range(int(seconds / _INTERIM_SECONDS)):
        await client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await asyncio.sleep(_INTERIM_SECONDS)
