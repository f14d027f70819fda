"""Real servers in subprocesses, and a client that speaks bytes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.stock.waiting import wait_until

ROOT = Path(__file__).parents[2]
OURS = "extender.web.worker.ThreadPerConnection"
PATIENCE_SECONDS = 60.0


@dataclass
class Reply:
    """One HTTP answer; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """A connection on which a test writes the very bytes."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._buffer = b""

    def send(self, data: bytes) -> Wire:
        self.socket.sendall(data)
        return self

    def reply(self, head_only: bool = False) -> Reply:
        """The next answer (100 Continue too); fails when the connection ends first."""
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = 0 if head_only else int(headers.get("content-length", "0"))
        while len(self._buffer) < length:
            self._more()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return Reply(int(first.split()[1]), headers, body)

    def ended(self) -> bool:
        """The server closed; nothing but the end comes."""
        try:
            return not self._buffer and self.socket.recv(1) == b""
        except (ConnectionError, ssl.SSLError):  # an alert may come before the end
            return True

    def _more(self) -> None:
        piece = self.socket.recv(65536)
        assert piece, f"the connection ended after {self._buffer!r}"
        self._buffer += piece


def post(body: bytes = b"{}", path: str = "/scheduler/filter", **headers: str) -> bytes:
    """The bytes of a POST; headers with _ for -, which win over the usual ones."""
    usual = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(body))}
    usual |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in usual.items() if value)
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def held(until: Path) -> bytes:
    """The bytes of a POST that the scripted verb answers once the file exists."""
    return post(json.dumps({"do": f"until:{until}", "nodes": ["a"]}).encode())


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


@dataclass
class Server:
    """A server process."""

    process: subprocess.Popen[str]
    port: int
    lines: list[str] = field(default_factory=list)

    def connect(self, tls: ssl.SSLContext | None = None) -> Wire:
        connected = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)
        return Wire(tls.wrap_socket(connected, server_hostname="localhost") if tls else connected)

    def ask(self, request: bytes, tls: ssl.SSLContext | None = None) -> Reply:
        wire = self.connect(tls)
        with wire.socket:
            return wire.send(request).reply()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    def until_logged(self, text: str, times: int = 1) -> None:
        """Waits for `text` to come up in the log, so many times."""
        assert wait_until(lambda: self.log.count(text) >= times), self.log

    @property
    def worker_pid(self) -> int:
        """The process that answers."""
        self.until_logged("Booting worker with pid: ")
        found = re.search(r"Booting worker with pid: (\d+)", self.log)
        assert found
        return int(found[1])

    @property
    def log(self) -> str:
        return "".join(self.lines)


@contextmanager
def running(
    command: list[str], environment: Mapping[str, str] | None = None, program: Sequence[str] = (sys.executable, "-m")
) -> Iterator[Server]:
    """Runs a server that says `Listening at: http://...:PORT` on standard error."""
    env = {"PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": "1", **(environment or {})}
    with subprocess.Popen(
        [*program, *command], cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True, process_group=0
    ) as process:
        try:
            server, reader = _started(process)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # otherwise Popen would wait for a server that does not start
            raise
        try:
            yield server
        finally:
            process.kill() if process.poll() is None and not _stopped(process) else None
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a worker that hangs would hold the log open
            reader.join(PATIENCE_SECONDS)
    print(server.log)


def extender(*flags: str, **environment: str) -> Any:
    """`extender serve` with scripted verbs, on a free port; `environment` as `tests.web.served` reads it."""
    defaults = {"--bind": "127.0.0.1:0", "--drain-seconds": "0", "--log-format": "text"}
    given = [part for flag, value in defaults.items() if flag not in flags for part in (flag, value)]
    return running(["tests.web.served", *given, *flags], environment)


def gunicorn(worker: str, *flags: str, app: str = "tests.web.served:app", **environment: str) -> Any:
    """A plain gunicorn, on a free port."""
    command = ["gunicorn", "--bind", "127.0.0.1:0", "--no-control-socket", "--worker-class", worker]
    return running([*command, *flags, app], {"EXTENDER_DRAIN_SECONDS": "0", **environment})


def _started(process: subprocess.Popen[str]) -> tuple[Server, threading.Thread]:
    server, listening = Server(process, 0), threading.Event()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            server.lines.append(line)
            if found := re.search(r"Listening at: https?://[^ ]*:(\d+)", line):
                server.port = int(found[1])
                listening.set()
        listening.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert listening.wait(PATIENCE_SECONDS), server.log
    assert server.port, f"the server did not start:\n{server.log}"
    return server, reader


def _stopped(process: subprocess.Popen[str]) -> bool:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True
