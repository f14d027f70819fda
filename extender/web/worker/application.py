"""Defines the interface between a server and the application that it runs."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, Thread

from extender.web.answers import Answer
from extender.web.worker.request_parser import Head, Limits

Handler = Callable[[bytes], Answer]
"""A function that answers a request's body. It raises nothing."""


@dataclass
class Lifecycle:
    """The functions that a server calls to run our application. The WSGI application has them as `lifecycle`.

    Attributes:
        admit: called with the head of a request; returns the handler of its body, or raises RequestRefused.
        refuse: called with status, client, request and reason; returns the answer to a refused request.
        on_start: starts the threads of the application (watches, timers), which would not survive the fork.
        on_stop: stops these threads.
        compare: compares the cache with the API server soon. Called on SIGUSR2; must be safe in a signal handler.
        hand_over: hands over the lease. Runs in a separate thread when draining begins.
        reload: reads the policy again soon. Called on SIGHUP; must be safe in a signal handler.
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
