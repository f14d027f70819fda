"""Server processes of the tests: their output in a log, and never one left behind."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.stock.waiting import pause

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
_WORKERS = 16
_given = set[int]()


class StartError(Exception):
    """A server ended or did not become ready; the message holds the end of its log."""


class Process:
    """A server that logs to a file. It also ends when the thread that started it does: a killed pytest leaves none."""

    def __init__(
        self, name: str, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        self.command = [str(argument) for argument in command]
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                preexec_fn=_die_with_parent,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def cpu_seconds(self) -> float:
        """Returns the CPU time so far, its children's too; 0 where it has ended."""
        return sum(map(_cpu_seconds, _family(self.pid)))

    def wait_until(self, ready: Callable[[], bool], timeout_seconds: float = 90) -> None:
        """Raises StartError when the process ends first, or the time does."""
        began_at = time.monotonic()
        while not ready():
            if not self.running:
                raise StartError(f"{self.name} ended with {self._popen.returncode}:\n{self.log_tail()}")
            if time.monotonic() > began_at + timeout_seconds:
                raise StartError(f"{self.name} is not ready after {timeout_seconds:.0f} s:\n{self.log_tail()}")
            pause(began_at)

    def stop(self, grace_seconds: float = 10) -> int:
        """SIGTERM, after the grace SIGKILL; the exit status. Safe to call again."""
        self.terminate()
        try:
            return self._popen.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._popen.wait()

    def terminate(self) -> None:
        """SIGTERM, if it runs."""
        if self.running:
            self._popen.terminate()

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self._popen.kill()
        self._popen.wait()

    def suspend(self) -> None:
        """SIGSTOP. On a busy machine the other threads run on until the kernel has found time for one of them."""
        self._popen.send_signal(signal.SIGSTOP)
        while any(_thread_state(task) not in "TtZX" for task in Path(f"/proc/{self.pid}/task").glob("*/stat")):
            time.sleep(0.002)

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def _family(pid: int) -> Iterator[int]:
    """Yields a process and all that descend from it, as far as they live."""
    yield pid
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in path.read_text().split():
                yield from _family(int(child))


def _thread_state(stat: Path) -> str:
    """Returns the state of a thread as Linux names it, such as "S"; "X" if it has ended."""
    try:
        return stat.read_text().rpartition(") ")[2][0]
    except OSError:
        return "X"


def _cpu_seconds(pid: int) -> float:
    try:
        user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:13]
    except OSError:
        return 0.0
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    """Returns a port on 127.0.0.1 that is free now, and that no other call in this run of the tests returns.

    Linux gives odd ports to servers and even ones to clients. Each worker of the tests has a share of the odd ones.
    """
    share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    for _ in range(10_000):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port: int = listener.getsockname()[1]
        if port not in _given and port // 2 % _WORKERS == share:
            _given.add(port)
            return port
    raise StartError("no port is free")
