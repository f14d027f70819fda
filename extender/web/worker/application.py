"""The interface between a server and the application behind it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, Thread

from extender.web.answers import Answer
from extender.web.worker.request_parser import Head, Limits

Handler = Callable[[bytes], Answer]
"""Answers a request's body. Raises nothing."""


@dataclass
class Lifecycle:
    """One application's life in one process; what gunicorn loads offers it as its attribute `lifecycle`.

    Attributes:
        admit: returns the handler of a request, of which nothing but its head has been read; raises RequestRefused.
        refuse: returns the answer to a request that the server refuses: by status, client, request and reason.
        on_start: runs what must not run before the fork (threads die in it): watches, timers.
        on_stop: undoes it.
        compare: called at SIGUSR2; must be safe in a signal handler.
        reload: called at SIGHUP; must be safe in a signal handler.
        hand_over: runs in a thread of its own as the draining begins.
    """

    admit: Callable[[Head, socket.socket], Handler]
    refuse: Callable[[int, str, str, str], Answer]
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
        """Starts the application, once, whoever asks and however often."""
        with self._lock:
            if not self.started:
                self.on_start()
                self.started = True

    def drain(self) -> None:
        """Lowers readiness, and hands over what only one replica may have; calls are still answered."""
        if not self.draining:
            self.draining = True
            Thread(target=self.hand_over, name="hand-over", daemon=True).start()

    def stop(self) -> None:
        """Stops what was started, once."""
        with self._lock:
            if self.started and not self._stopped:
                self._stopped = True
                self.on_stop()
