"""Children of this process: each inherits the libraries that are imported here, and so starts at once."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")

LIBRARIES = [
    "click",
    "coverage",
    "flask",
    "greenlet",
    "gunicorn.app.base",
    "httptools",
    "hypothesis.stateful",
    "jinja2",
    "kubernetes.client",
    "msgspec",
    "numpy",
    "prometheus_client",
    "pydantic",
    "pytest",
    "pytest_timeout",
    "trustme",
    "xdist.plugin",
    "yaml",
]
CRASHED = 99
_MEMORY_BYTES = 4 << 30
"""A mutant that fills the memory ends by a MemoryError, and no other process does."""


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    """What a child does, in a directory of its own."""

    subject: T
    run: Callable[[Path], int]
    limit_seconds: float


@dataclass(frozen=True, slots=True)
class Ended(Generic[T]):
    """How a child ended. `status` is what `run` returned, CRASHED if it raised, None if the child was killed."""

    subject: T
    status: int | None
    directory: Path
    seconds: float


def preload() -> None:
    """Imports what tests and the product need, but neither of them: a child imports those itself."""
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # a process with threads cannot fork safely
    for name in LIBRARIES:
        import_module(name)
    assert not [name for name in sys.modules if name.partition(".")[0] == "extender"]


def run(jobs: Iterable[Job[T]], children: int, scratch: Path) -> Iterator[Ended[T]]:
    """Runs jobs in at most `children` processes at a time, and yields each as it ends."""
    waiting = iter(jobs)
    running: list[_Child[T]] = []
    free = [scratch / str(number) for number in range(children)]
    try:
        while True:
            while free and (job := next(waiting, None)) is not None:
                running.append(_Child(job, free.pop()))
            if not running:
                return
            time.sleep(0.02)
            for child in [child for child in running if child.has_ended()]:
                running.remove(child)
                yield Ended(child.job.subject, child.status, child.directory, child.seconds)
                free.append(child.directory)
    finally:
        for child in running:
            child.stop()


class _Child(Generic[T]):
    """A process that leads a group of its own, so that whatever it started ends with it."""

    def __init__(self, job: Job[T], directory: Path) -> None:
        self.job = job
        self.directory = directory
        self.status: int | None = None
        self.seconds = 0.0
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self._begin = time.monotonic()
        faulthandler.cancel_dump_traceback_later()  # pytest in the child would wait for the thread of the timer
        self._pid = os.fork()
        if self._pid == 0:
            _be_child(job, directory)

    def has_ended(self) -> bool:
        """Returns True once the process is gone; ends it when its time is over."""
        self.seconds = time.monotonic() - self._begin
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if not pid and self.seconds > self.job.limit_seconds:
            self.stop()
            return True
        if pid:
            self.status = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
            self._end_group()
        return bool(pid)

    def stop(self) -> None:
        self._end_group()
        os.waitpid(self._pid, 0)

    def _end_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)


def _be_child(job: Job[T], directory: Path) -> NoReturn:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    output = os.open(directory / "output", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        status = job.run(directory)
    except BaseException:  # a child never runs on in its parent's code
        traceback.print_exc()
        sys.stderr.flush()
        status = CRASHED
    os._exit(status)
