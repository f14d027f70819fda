"""SIGTERM over real processes: readiness first, then the door, then the calls in flight, then the application."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.stock.process import free_port
from tests.web.servers import OURS, PATIENCE_SECONDS, ROOT, Server, Wire, extender, get, gunicorn, held, post

pytestmark = pytest.mark.slow


def test_readiness_goes_down_while_calls_are_still_answered() -> None:
    with extender("--drain-seconds", "8") as server:
        assert server.ask(get("/readyz")).status == 200
        kept = server.connect()
        kept.send(post()).reply()
        server.terminate()
        reply = _until_unready(server)
        assert b"[-]shutdown failed: shutting down\n" in reply
        assert server.ask(get("/livez")).status == 200
        # The client has to open a new connection, which leads elsewhere.
        answer = kept.send(post()).reply()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert server.exit_code() == 0


def test_calls_in_flight_end_and_new_connections_are_refused(tmp_path: Path) -> None:
    with extender() as server:
        idle, busy = server.connect(), server.connect()
        assert idle.send(get("/livez")).reply().status == 200
        busy.send(held(tmp_path / "end"))
        server.until_logged("held")
        server.terminate()
        assert idle.ended()
        _until_refused(server)
        (tmp_path / "end").touch()
        answer = busy.reply()
        assert (answer.json["NodeNames"], answer.headers["connection"]) == (["a"], "close")
        assert server.exit_code() == 0
    assert server.log.index("result=decided") < server.log.index("application stopped")


def test_a_request_that_is_half_sent_at_the_end_is_answered() -> None:
    body = b'{"nodes": ["a"]}'
    with extender() as server:
        half = server.connect().send(post(body)[:-5])
        _until_answered(server)
        server.terminate()
        _until_refused(server)
        assert half.send(body[-5:]).reply().json["NodeNames"] == ["a"]
        assert server.exit_code() == 0


def test_a_call_that_does_not_end_is_not_waited_for_forever(tmp_path: Path) -> None:
    with extender(GRACEFUL_SECONDS="2") as server:
        server.connect().send(held(tmp_path / "never"))
        server.until_logged("held")
        server.terminate()
        assert server.exit_code() == 0
    assert "did not end in time" in server.log
    assert "application stopped" in server.log


@pytest.mark.parametrize("flags", [(), ("--preload",)], ids=["not preloaded", "preloaded"])
@pytest.mark.parametrize("worker", [pytest.param(OURS, id="ours"), pytest.param("gthread", id="gthread")])
def test_the_application_starts_once_in_the_worker(worker: str, flags: tuple[str, ...]) -> None:
    with gunicorn(worker, *flags) as server:
        for _ in range(3):
            assert server.ask(get("/readyz")).status == 200
        server.terminate()
        assert server.exit_code() == 0
    assert server.log.count("application started") == 1


def test_our_worker_starts_the_application_before_the_first_request() -> None:
    with gunicorn(OURS) as server:
        server.until_logged("application started")


def test_plain_gunicorn_with_our_worker_drains_too(tmp_path: Path) -> None:
    with gunicorn(OURS, EXTENDER_DRAIN_SECONDS="5") as server:
        busy = server.connect().send(held(tmp_path / "end"))
        server.until_logged("held")
        server.terminate()
        _until_unready(server)
        (tmp_path / "end").touch()
        assert busy.reply().status == 200
        assert server.exit_code() == 0
    assert "application stopped" in server.log


def _until_unready(server: Server) -> bytes:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (reply := server.ask(get("/readyz"))).status == 200:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert reply.status == 503
    return reply.body


def _until_refused(server: Server) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            server.connect().socket.close()
        except ConnectionRefusedError:
            return
        time.sleep(0.02)
    pytest.fail("the door stayed open")


def test_sigttin_starts_no_second_worker() -> None:
    with extender() as server:
        server.process.send_signal(signal.SIGTTIN)
        server.until_logged("SIGTTIN ignored")
        assert server.ask(get("/readyz")).status == 200
    assert server.log.count("Booting worker") == 1


def test_a_second_worker_is_refused() -> None:
    command = [sys.executable, "-m", "gunicorn", "--workers", "2", "--worker-class", OURS, "tests.web.served:app"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode != 0
    assert "error: use --workers 1, because each worker would have a separate cache" in ended.stderr


def test_an_unread_log_delays_neither_metrics_nor_the_end() -> None:
    port = free_port()
    command = [sys.executable, "-m", "tests.web.served", "--bind", f"127.0.0.1:{port}", "--drain-seconds", "0"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        server = Server(process, port)
        try:
            _until_answered(server)
            with (wire := server.connect()).socket:
                for _ in range(1500):  # a line each, more than a pipe holds
                    assert wire.send(post()).reply().status == 200
                assert b"extender_verb_duration_seconds_count" in wire.send(get("/metrics")).reply().body
            server.terminate()
            assert server.exit_code() == 0
        finally:
            process.kill()


def test_without_file_descriptors_an_idle_connection_is_closed() -> None:
    with extender() as server:
        idle: list[Wire] = []
        opened: set[int] = set()
        while len(idle) < 5 or opened != set(range(len(opened))):  # until no number below the limit is free
            idle.append(server.connect())
            assert idle[-1].send(get("/livez")).reply().status == 200
            opened = {int(each.name) for each in Path(f"/proc/{server.worker_pid}/fd").iterdir()}
        limit = len(opened) - 1  # one fewer, for one may be open for a moment only
        resource.prlimit(server.worker_pid, resource.RLIMIT_NOFILE, (limit, limit))
        assert server.ask(get("/livez")).status == 200
        assert server.ask(post()).status == 200
    assert "connection not accepted" in server.log


def test_a_thread_that_cannot_start_ends_one_connection_only() -> None:
    with extender() as server:
        first = server.connect()  # everything has started once it is answered, and its thread stays with it
        assert first.send(get("/livez")).reply().status == 200
        limit = resource.prlimit(server.worker_pid, resource.RLIMIT_AS)
        used = int(Path(f"/proc/{server.worker_pid}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(server.worker_pid, resource.RLIMIT_AS, (used, limit[1]))
        refused = [server.connect() for _ in range(4)]
        assert all(wire.ended() for wire in refused)
        resource.prlimit(server.worker_pid, resource.RLIMIT_AS, limit)
        assert server.ask(get("/livez")).status == 200
    assert "connection closed, no thread can serve it" in server.log
    assert server.log.count("Booting worker") == 1


def _until_answered(server: Server) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with suppress(ConnectionError):
            server.ask(get("/livez"))
            return
        time.sleep(0.05)
    pytest.fail("no answer")
