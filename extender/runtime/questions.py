"""Limits the time and the memory of questions, because an object in the cluster may make an answer very expensive.

A timer limits a command (`time_limit`). A server answers each question in a child process (`in_child`), because only a
process can be limited from outside, and because the server's own threads then lose no time and no memory to it.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import pickle
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import NoReturn, TypeVar

from extender.errors import TooExpensive

_log = logging.getLogger(__name__)

SECONDS = 60.0
"""The longest time that a question may take, unless its command has another `--timeout`."""
MEMORY_BYTES = 512 * 1024 * 1024
"""The most memory that a question may take in a child process, if the container has twice as much left."""
_AGAIN_SECONDS, _GRACE_SECONDS, _SOON_SECONDS = 5.0, 2.0, 0.001
_NICENESS = 10
# The CPUs of this process at its start; later it may keep its threads to one of them.
_CPUS = os.sched_getaffinity(0) if sys.platform == "linux" else frozenset[int]()
_KILLED_FIRST = "1000"  # oom_score_adj; without it the kernel may end the server, which is larger
_CGROUP = Path("/sys/fs/cgroup")
_STANDARD_FILES = 3
_PIECE_BYTES = 1 << 20
T = TypeVar("T")


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limits the time of the `with` block, which must run in the main thread; 0 seconds means that there is no limit.

    Raises TooExpensive in the block after `seconds`, and again every few seconds if code in the block suppresses that.
    A timer that the caller has set goes on after the block.
    """
    if not seconds:
        yield
        return

    def expire(*_: object) -> NoReturn:
        raise TooExpensive(f"no answer within {seconds:g} s")

    began = time.monotonic()
    previous = signal.signal(signal.SIGALRM, expire)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), _SOON_SECONDS), interval)


def seconds_left() -> float:
    """Returns how much time `time_limit` leaves for the question; 0 if there is no limit."""
    return signal.getitimer(signal.ITIMER_REAL)[0] if hasattr(signal, "getitimer") else 0.0


def in_child(work: Callable[[], T], seconds: float = SECONDS, memory_bytes: int = MEMORY_BYTES) -> T:
    """Runs `work` in a child process with a copy of this process's memory; returns its result, which is pickled.

    The child has no other thread, a lower priority, and none of the open files and connections, which its writes could
    damage. Only Linux has all of this; on other systems, `work` is simply called.

    Args:
        seconds: how long the child may run; 0 means that there is no limit.

    Raises:
        TooExpensive: the result took more time or memory than it may, or no process could be started.
    """
    if sys.platform != "linux":
        return work()
    try:
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks beside threads
            # A child that sets its own timer waits for the thread of an inherited one, which a fork does not copy.
            faulthandler.cancel_dump_traceback_later()
            pid = os.fork()
    except OSError as error:
        raise TooExpensive(f"no process could be started for this answer: {error.strerror}") from None
    if not pid:
        _be_child(work, writing, seconds, memory_bytes)
    os.close(writing)
    try:
        data = _received(reading, time.monotonic() + seconds + _GRACE_SECONDS if seconds else inf)
    finally:
        os.close(reading)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if not data:
        raise TooExpensive(f"no answer: the process that computed it ended, or took more than {seconds:g} s")
    result, failure = pickle.loads(data)  # noqa: S301  the child is this program
    if failure:
        raise TooExpensive(failure)
    return result  # type: ignore[no-any-return]  # what `work` has returned


def _be_child(work: Callable[[], object], writing: int, seconds: float, memory_bytes: int) -> NoReturn:
    """Sends the pickled pair of a result and the reason why there is none; then ends the process."""
    result, failure = None, ""
    try:
        _separate(writing)
        _limit_memory(memory_bytes)
        with time_limit(seconds):
            result = work()
        data = pickle.dumps((result, ""))
    except TooExpensive as error:
        failure = str(error)
    except MemoryError:
        failure = f"no answer: it needs more than {memory_bytes >> 20} MiB of memory"
    except BaseException:
        _log.exception("answer failed")
        failure = "internal error: the log has the cause"
    finally:
        result = None  # frees memory, which the next lines need
        if failure:
            data = pickle.dumps((None, failure))
        _send(writing, data)
        os._exit(0)


def _separate(writing: int) -> None:
    """Makes the child independent of its parent's signals, files, priority and CPU."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    os.closerange(_STANDARD_FILES, writing)
    os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
    os.nice(_NICENESS)
    os.sched_setaffinity(0, _CPUS)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_KILLED_FIRST)
    gc.disable()  # a collection would write to, and so copy, most pages of memory that the two processes share


def _limit_memory(memory_bytes: int) -> None:
    import resource  # only Unix has this module

    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    most = used + min(memory_bytes, _left_in_container() // 2)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _left_in_container() -> int:
    """Returns the bytes of memory that this container may still use; sys.maxsize if that is unknown or unlimited."""
    try:
        limit, current = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return sys.maxsize
    return max(int(limit) - int(current), 0) if limit.isdecimal() else sys.maxsize


def _send(writing: int, data: bytes) -> None:
    with suppress(OSError):  # the parent no longer reads
        while data:
            data = data[os.write(writing, data[:_PIECE_BYTES]) :]


def _received(reading: int, ends_at: float) -> bytes:
    """Returns everything that the child sends; b"" if it has not sent all before `ends_at`, in monotonic seconds."""
    pieces: list[bytes] = []
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    while (left := ends_at - time.monotonic()) > 0:
        if poll.poll(min(left, SECONDS) * 1000):
            piece = os.read(reading, _PIECE_BYTES)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
    return b""
