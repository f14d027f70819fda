"""A gunicorn worker with one blocking thread per connection.

A scheduler opens few connections and keeps them. gthread hands every request from a poller to a pool, which costs more
than a decision does; here the connection's thread sleeps in recv and answers by itself. It serves any WSGI application:

    gunicorn --worker-class extender.web.worker.worker.ThreadPerConnection extender.wsgi:app

Of gunicorn's settings it honours bind, certificates, worker_connections, graceful_timeout, the hooks around a worker,
and keepalive where the application's `lifecycle` brings no limits of its own; not the hooks around a request, the
access log, max_requests and the PROXY protocol (`check_config` says so).
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import ssl
import time
from typing import Any

from gunicorn.sock import ssl_context
from gunicorn.workers.base import Worker

from extender.web.worker.connection import Application, Connection
from extender.web.worker.lifecycle import Lifecycle
from extender.web.worker.limits import Budget, Limits
from extender.web.worker.parking import ParkedThreads
from extender.web.worker.tls import ReloadingContext

_TURN_SECONDS = 1.0
_BODIES_AT_ONCE = 4


class ThreadPerConnection(Worker):  # type: ignore[misc]  # gunicorn ships no type information
    """See the module."""

    application: Application

    @classmethod
    def check_config(cls, cfg: Any, log: Any) -> None:
        """Gunicorn calls this before the first fork."""
        if cfg.workers > 1:
            log.warning("%d workers keep a cache each and do not know each other's assumed pods: use 1", cfg.workers)
        for name in ("max_requests", "accesslog", "proxy_protocol"):
            if getattr(cfg, name) not in (0, None, "off", False):
                log.warning("%s has no effect with this worker class", name)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._threads = ParkedThreads(self._run, "connection")
        self._open: set[Connection] = set()  # add, discard and copy of a set are atomic
        self._tls: ReloadingContext | None = None
        self._lifecycle = Lifecycle()
        self._gone_by = 0.0

    def init_signals(self) -> None:
        """Gunicorn calls this after the fork."""
        super().init_signals()
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # Till the application takes it; by default it would kill.

    def run(self) -> None:
        """The main thread's life: accept until told to stop, drain, stop the application."""
        self.application = self.wsgi
        own = Limits(idle_seconds=float(self.cfg.keepalive))
        self._lifecycle = getattr(self.wsgi, "lifecycle", None) or Lifecycle(limits=own)
        self.limits, self.posts = self._lifecycle.limits, self._lifecycle.posts
        self.budget = Budget(_BODIES_AT_ONCE * self.limits.body_bytes)
        if self.cfg.is_ssl:
            files = [file for file in (self.cfg.certfile, self.cfg.keyfile, self.cfg.ca_certs) if file]
            self._tls = ReloadingContext(files, lambda: ssl_context(self.cfg))
        try:
            self._lifecycle.start()
            self._serve()
            self._drain()
        finally:
            self._lifecycle.stop()

    def tls_context(self) -> ssl.SSLContext | None:
        """See connection.Host."""
        return self._tls.current() if self._tls else None

    def rejected(self, status: int) -> None:
        """See connection.Host."""
        self._lifecycle.rejected(status)

    @property
    def draining(self) -> bool:
        """See connection.Host."""
        return self._lifecycle.draining

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            for waited in self.wait_fds:
                selector.register(waited, selectors.EVENT_READ)
            while self.alive and self._parent_lives():
                self._turn(selector, _TURN_SECONDS)
            self._lifecycle.drain()
            self._gone_by = time.monotonic() + self.cfg.graceful_timeout - _TURN_SECONDS
            until = time.monotonic() + min(self._lifecycle.drain_seconds, self.cfg.graceful_timeout / 2)
            while (left := until - time.monotonic()) > 0:
                self._turn(selector, min(left, _TURN_SECONDS))

    def _turn(self, selector: selectors.BaseSelector, seconds: float) -> None:
        self.notify()
        for key, _ in selector.select(seconds):
            if key.fileobj == self.PIPE[0]:
                os.read(self.PIPE[0], 4096)
            else:
                self._accept(key.fileobj)

    def _accept(self, listener: Any) -> None:
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            self.log.error("cannot accept a connection: %s", error)
            time.sleep(0.1)  # Out of file descriptors, say: do not spin until one is free.
            return
        if accepted.family != socket.AF_UNIX:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._room():
            self.rejected(503)
            accepted.close()
            return
        connection = Connection(accepted, self)
        self._open.add(connection)
        self._threads.take(connection)

    def _run(self, connection: Connection) -> None:
        try:
            connection.serve()
        finally:
            self._open.discard(connection)

    def _room(self) -> bool:
        """Whether one more connection may come in; the one that idles longest makes way."""
        open_now = self._open.copy()
        if len(open_now) < self.cfg.worker_connections:
            return True
        idle = [connection for connection in open_now if connection.idle]
        if idle:
            min(idle, key=lambda connection: connection.idle_since).finish()
        return bool(idle)

    def _drain(self) -> None:
        for listener in self.sockets:
            listener.close()
        for connection in self._open.copy():
            connection.finish()
        while self._open and time.monotonic() < self._gone_by:
            self.notify()
            time.sleep(0.02)
        if self._open:
            self.log.warning("%d connections did not end in time", len(self._open))

    def _parent_lives(self) -> bool:
        if self.ppid == os.getppid():
            return True
        self.log.info("the parent is gone: stopping")
        return False
