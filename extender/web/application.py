"""Defines the interface between a server and the application that it runs."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock, Thread
from types import FrameType
from typing import Any, Protocol

from extender.web.answers import Answer
from extender.web.request_parser import Limits

Environ = dict[str, Any]
"""The environment of a request, as WSGI (PEP 3333) defines it."""


@dataclass
class Lifecycle:
    """The functions that a server calls to start, drain and stop our application, and the limits for its clients.

    Attributes:
        on_start: starts the threads of the application (watches, timers), which would not survive the fork.
        on_stop: stops these threads.
        compare: compares the cache with the API server soon. Called on SIGUSR2; must be safe in a signal handler.
        hand_over: hands over the lease. Runs in a separate thread when draining begins.
        reload: reads the policy again soon. Called on SIGHUP; must be safe in a signal handler.
    """

    limits: Limits
    drain_seconds: float = 0.0
    on_start: Callable[[], None] = lambda: None
    on_stop: Callable[[], None] = lambda: None
    compare: Callable[[], None] = lambda: None
    hand_over: Callable[[], None] = lambda: None
    reload: Callable[[], None] = lambda: None
    started: bool = field(default=False, init=False)
    draining: bool = field(default=False, init=False)
    _stopped: bool = field(default=False, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def start(self) -> None:
        """Starts the application; further calls do nothing."""
        with self._lock:
            if not self.started:
                self.on_start()
                self.started = True

    def drain(self) -> None:
        """Makes the process unready, and starts to hand over the lease; calls are still answered."""
        if not self.draining:
            self.draining = True
            Thread(target=self.hand_over, name="hand-over", daemon=True).start()

    def stop(self) -> None:
        """Stops a started application; further calls do nothing."""
        with self._lock:
            if self.started and not self._stopped:
                self._stopped = True
                self.on_stop()


class Application(Protocol):
    """A WSGI application that our worker can serve."""

    lifecycle: Lifecycle

    def __call__(self, environ: Environ, _start_response: Any, /) -> Iterable[bytes]: ...

    def refuse(self, status: int, client: str, request: str, reason: str) -> Answer:
        """Counts and logs a request that was refused before it could be passed on. Returns the answer to it."""


def take_signals(lifecycle: Lifecycle) -> None:
    """Sets signal handlers for gunicorn's own workers, which do not call `lifecycle` themselves.

    SIGTERM makes the process unready before the worker stops. SIGUSR2 compares the cache with the API server. At exit
    the application is stopped.

    This works because such a worker sets its own handlers before it loads the application. With --preload the
    application is loaded first, so the handlers set here are lost. `worker.ThreadPerConnection` replaces them too, but
    it calls `lifecycle` itself.
    """
    stop_worker = signal.getsignal(signal.SIGTERM)
    if not callable(stop_worker) or threading.current_thread() is not threading.main_thread():
        return

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        if lifecycle.draining:
            stop_worker(number, frame)
            return
        lifecycle.drain()
        # The first signal only starts the drain. A second one ends the worker after the drain.
        again = threading.Timer(lifecycle.drain_seconds, os.kill, (os.getpid(), signal.SIGTERM))
        again.daemon = True
        again.start()

    signal.signal(signal.SIGTERM, on_sigterm)
    signal.siginterrupt(signal.SIGTERM, False)
    signal.signal(signal.SIGUSR2, lambda *_: lifecycle.compare())
    atexit.register(lifecycle.stop)
