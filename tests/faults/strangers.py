"""Strangers on the network, who have no credentials and open connections as fast as they can, beside kubelet's probes.

python -m tests.faults.strangers runs every flood against both ports of a server on a snapshot, at full rate.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.faults.fuzz import write_cluster
from tests.faults.serving import on_snapshot
from tests.stock.process import free_port

FLOODS = {
    "refused": b"BAD\r\n\r\n",
    "half a line": b"BAD",
    "silent": b"",
    "half a body": b"POST /scheduler/filter HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n{",
    "served, then idle": b"GET /livez HTTP/1.1\r\nHost: h\r\n\r\n",
}
STRANGERS = ("127.0.0.2", "127.0.0.3")
_TAKING_SECONDS = 1.5  # until all places are taken
_HELD_SECONDS = 30.0
_DEAF_SECONDS = 2.5  # a stranger does not close when the server has answered and waits for that
_PATIENCE_SECONDS = 30.0
_PROBE = b"GET /livez HTTP/1.1\r\nHost: h\r\n\r\n"


@contextmanager
def flood(port: int, sent: bytes, rate: float, sources: Sequence[str] = STRANGERS) -> Iterator[None]:
    """Opens `rate` connections a second while the block runs, sends the bytes on each, and holds it open."""
    loop = asyncio.new_event_loop()
    attack: list[asyncio.Task[None]] = []

    async def run() -> None:
        attack.append(asyncio.ensure_future(_flood(port, sent, rate, sources)))
        with suppress(asyncio.CancelledError):
            await attack[0]

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        time.sleep(_TAKING_SECONDS)
        yield
    finally:
        loop.call_soon_threadsafe(attack[0].cancel)
        thread.join()


async def _flood(port: int, sent: bytes, rate: float, sources: Sequence[str]) -> None:
    began, strangers = time.monotonic(), set[asyncio.Task[None]]()
    try:
        for number in range(1_000_000):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            stranger = asyncio.ensure_future(_hold(port, sent, sources[number % len(sources)]))
            strangers.add(stranger)
            stranger.add_done_callback(strangers.discard)
    finally:
        for stranger in strangers:
            stranger.cancel()
        await asyncio.gather(*strangers, return_exceptions=True)


async def _hold(port: int, sent: bytes, source: str) -> None:
    with suppress(OSError, TimeoutError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        try:
            writer.write(sent)
            async with asyncio.timeout(_HELD_SECONDS):
                while await reader.read(1 << 16):
                    pass
            await asyncio.sleep(_DEAF_SECONDS)
        finally:
            writer.transport.abort()


def failed_probes(port: int, count: int, every_seconds: float) -> tuple[list[str], list[str]]:
    """Returns what went wrong with `count` probes on new connections, and with as many on one kept connection."""
    new, kept = list[str](), list[str]()
    with _connected(port) as connection:
        for number in range(count):
            _probe(connection, f"kept {number}", kept)
            with _connected(port) as fresh:
                _probe(fresh, f"new {number}", new)
            time.sleep(every_seconds)
    return new, kept


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS)


def _probe(connection: socket.socket, name: str, failed: list[str]) -> None:
    try:
        connection.sendall(_PROBE)
        answer = connection.recv(1 << 16)
    except OSError as error:
        answer = str(error).encode()
    if not answer.startswith(b"HTTP/1.1 200 "):
        failed.append(f"{name}: {answer[:60]!r}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--probes", type=int, default=60)
    parser.add_argument(
        "--rates", type=float, nargs=2, default=(150.0, 500.0), help="on the metrics port, the webhook's"
    )
    given = parser.parse_args()
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    with tempfile.TemporaryDirectory() as folder:
        cluster, metrics_port = Path(folder, "cluster.json"), free_port()
        write_cluster(cluster)
        with on_snapshot(Path(folder), cluster, f"--metrics-bind=127.0.0.1:{metrics_port}") as extender:
            for name, sent in FLOODS.items():
                for port, rate in zip((metrics_port, extender.port), given.rates, strict=True):
                    with flood(port, sent, rate):
                        new, kept = failed_probes(port, given.probes, 0.2)
                    where = "metrics port" if port == metrics_port else "webhook port"
                    print(
                        f"{name}, {rate:g}/s on the {where}: {len(new)} of {given.probes} new probes failed and"
                        f" {len(kept)} of {given.probes} on a kept connection; {extender.resident_bytes() >> 20} MiB"
                    )
                    for line in (*new, *kept):
                        print(f"  {line}")


if __name__ == "__main__":
    main()
