"""A process of `extender serve` or `extender schedule` that is ended in every way, and started again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.running import EXTENDER, SCHEDULER_NAME, Running
from tests.stock.process import Process, free_port
from tests.stock.waiting import wait_until

OWN_FLAGS = {"serve": ("--drain-seconds=0",), "schedule": ("--scheduler-name", SCHEDULER_NAME)}


class Lives:
    """`with Lives("serve", ...) as process:` runs it on one port, through any number of deaths."""

    def __init__(self, verb: str, directory: Path, *flags: str, settings: Mapping[str, str]) -> None:
        """`settings` by their environment variables."""
        self.verb = verb
        self._environment = {**os.environ, **settings}
        self.port = 0  # is chosen at the first start, because it is free only for a while
        self._directory = directory
        self._flags = (*OWN_FLAGS[verb], *flags)
        self._lives = 0
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self._lives += 1
        self.port = self.port or free_port()
        command: list[str | Path] = [EXTENDER, self.verb, "--bind", f"127.0.0.1:{self.port}", *self._flags]
        log = self._directory / f"{self.verb}-{self.port}-{self._lives}.log"
        self._process = Process(self.verb, command, log, self._environment)

    @property
    def running(self) -> Running:
        assert self._process is not None
        return Running(self._process, self.port)

    @property
    def ended(self) -> bool:
        """True before the first life, too."""
        return self._process is None or not self._process.running

    def said(self) -> str:
        """Returns the text of its readiness probe; "" while there is no answer."""
        return self.running.readiness("?verbose")[1]

    def ready(self) -> bool:
        return self.running.ready()

    def log(self) -> str:
        """Returns what all its lives have logged."""
        return "".join(path.read_text() for path in sorted(self._directory.glob(f"{self.verb}-{self.port}-*.log")))

    def terminate(self) -> None:
        """SIGTERM; does not wait for the end."""
        os.kill(self.running.process.pid, signal.SIGTERM)

    def stop_for(self, block: Callable[[], object]) -> None:
        """SIGSTOP to all of it, until the block has ended."""
        pids = [pid for pid in (self.running.process.pid, self._worker()) if pid]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            block()
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to all of it, if it lives."""
        if self._process is not None:
            worker = self._worker()
            self._process.kill()
            _kill(worker)

    def kill_worker(self) -> None:
        """SIGKILL to the worker of `serve`; returns once the next one answers."""
        worker = self._worker()
        _kill(worker)
        assert wait_until(lambda: self._worker() not in (0, worker))
        assert wait_until(self.said)

    def _worker(self) -> int:
        pid = self.running.process.pid
        try:
            return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        except (OSError, IndexError):
            return 0


def _kill(pid: int) -> None:
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
