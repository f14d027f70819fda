"""An extender that is killed and comes back."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.running import EXTENDER, RunningExtender
from tests.stock.process import Process, free_port


class MortalExtender:
    """`with MortalExtender(...) as extender:` serves on one port, through any number of deaths."""

    def __init__(self, directory: Path, *flags: str, program: Sequence[str | Path] = (EXTENDER,)) -> None:
        self.port = free_port()
        self.deaths = 0
        self._directory, self._flags, self._program = directory, flags, program
        self._running: RunningExtender

    def __enter__(self) -> Self:
        self._start()
        try:
            self._running.wait_until_ready()
        except BaseException:
            self._running.process.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        worker = self.worker
        self._running.process.stop()
        _kill(worker)

    @property
    def running(self) -> RunningExtender:
        """The present incarnation."""
        return self._running

    @property
    def worker(self) -> int:
        """The process that answers; 0 where there is none at the moment."""
        pid = self._running.process.pid
        try:
            return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        except (OSError, IndexError):
            return 0

    def resident_bytes(self) -> int:
        """Of the process that answers."""
        for line in Path(f"/proc/{self.worker}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise ProcessLookupError(self.worker)

    def kill(self, *, worker_only: bool) -> None:
        """SIGKILL, and at once a new one: by gunicorn itself where only its worker falls."""
        self.deaths += 1
        worker = self.worker
        if worker_only and worker:
            _kill(worker)
            return
        self._running.process.kill()
        _kill(worker)
        self._start()

    def _start(self) -> None:
        command: list[str | Path] = [
            *self._program,
            "serve",
            "--bind",
            f"127.0.0.1:{self.port}",
            "--drain-seconds=0",
            *self._flags,
        ]
        log = self._directory / f"extender-{self.port}-{self.deaths}.log"
        self._running = RunningExtender(Process("extender", command, log), self.port)


def _kill(pid: int) -> None:
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
