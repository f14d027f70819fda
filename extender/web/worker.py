"""Defines a gunicorn worker with one blocking thread for each connection, which reads requests and answers them.

It heeds these settings of gunicorn: bind, the certificates, worker_connections, graceful_timeout, and the hooks of a
worker's start and end. It ignores the others, among them keepalive (the application sets its own time limits), the
hooks before and after a request, the access log, max_requests and the PROXY protocol. `check_config` warns about the
last three.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from gunicorn.sock import ssl_context
from gunicorn.workers.base import Worker

from extender.web.access import ReloadingContext
from extender.web.connection import Acceptor

_TURN_SECONDS, _MARGIN_SECONDS = 0.25, 1.0
_QUIET_SECONDS = 1.0
"""While draining, a connection ends after its next answer, or after this long without a request."""


class ThreadPerConnection(Worker):  # type: ignore[misc]  # gunicorn ships no type information
    """A gunicorn worker that serves our application on gunicorn's listening sockets."""

    @classmethod
    def check_config(cls, cfg: Any, log: Any) -> None:
        """Refuses a second worker; gunicorn calls this before the first fork."""
        if cfg.workers > 1:
            raise SystemExit("error: use --workers 1, because each worker would have a separate cache")
        for name in ("max_requests", "accesslog", "proxy_protocol"):
            if getattr(cfg, name) not in (0, None, "off", False):
                log.warning("gunicorn setting ignored, this worker class does not support it setting=%s", name)

    def init_signals(self) -> None:
        """Sets gunicorn's own handlers, after the fork."""
        super().init_signals()
        for number in (signal.SIGUSR2, signal.SIGHUP):
            # By default, these signals end the process, so they are ignored until `run` handles them.
            signal.signal(number, signal.SIG_IGN)

    def run(self) -> None:
        """Accepts connections until a signal arrives, then drains and stops the application, in the main thread."""
        application = self.wsgi.lifecycle
        super().init_signals()  # replaces handlers that `take_signals` may have set
        signal.signal(signal.SIGUSR2, lambda *_: application.compare())
        signal.signal(signal.SIGHUP, lambda *_: application.reload())
        files = [file for file in (self.cfg.certfile, self.cfg.keyfile, self.cfg.ca_certs) if file]
        tls = ReloadingContext(files, lambda: ssl_context(self.cfg)).current if self.cfg.is_ssl else None
        acceptor = Acceptor(self.wsgi, self.sockets, self.cfg.worker_connections, tls)
        try:
            application.start()
            while self.alive and self.ppid == os.getppid():
                self.notify()
                acceptor.turn(_TURN_SECONDS)
            application.drain()
            ends_at = time.monotonic() + self.cfg.graceful_timeout - _MARGIN_SECONDS
            self._drain(acceptor, min(application.drain_seconds, self.cfg.graceful_timeout / 2), ends_at)
        finally:
            application.stop()

    def _drain(self, acceptor: Acceptor, seconds: float, ends_at: float) -> None:
        """Accepts connections for `seconds` more, then waits for the calls in flight until `ends_at` (monotonic)."""
        began = time.monotonic()
        until, quiet_at = began + seconds, began + _QUIET_SECONDS
        while (remaining := until - time.monotonic()) > 0:
            self.notify()
            acceptor.turn(min(remaining, _TURN_SECONDS))
            # newer connections stay open, because their first request may be on its way
            if time.monotonic() > quiet_at:
                acceptor.finish(idle_since=began)
        acceptor.close()
        while acceptor.open and time.monotonic() < ends_at:
            self.notify()
            time.sleep(0.02)
        if acceptor.open:
            self.log.warning("connections cut off, they did not end in time connections=%d", len(acceptor.open))
