"""Defines a gunicorn worker with one blocking thread for each connection, which reads requests and answers them.

It heeds these settings of gunicorn: bind, the certificates, worker_connections, graceful_timeout, and the hooks of a
worker's start and end. It ignores the others, among them keepalive (the application sets its own time limits), the
hooks before and after a request, the access log, max_requests and the PROXY protocol. `check_config` warns about the
last three.

`serve` runs gunicorn with one process of this worker, configured only by `Settings`.
"""

from __future__ import annotations

import logging
import os
import signal
import ssl
import time
from collections.abc import Callable
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger
from gunicorn.sock import ssl_context
from gunicorn.workers.base import Worker

from extender.config.settings import Settings, host_and_port
from extender.errors import ConfigurationError
from extender.web.access import ReloadingContext, server_context
from extender.web.app import ExtenderApp, listener_at
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


GRACEFUL_SECONDS = 20  # how long calls in flight may take after `drainSeconds`
_HEARTBEAT_SECONDS = 60
_GAVE_UP = 1  # the exit status of gunicorn if it cannot listen
# gunicorn's heartbeat file is in memory, because a worker would seem to hang while a disk stalls.
_MEMORY_DIRECTORY = "/dev/shm"  # noqa: S108 - the file is unlinked at once


_log = logging.getLogger(__name__)


class GunicornLog(Logger):  # type: ignore[misc]  # gunicorn ships no type information
    """Sends gunicorn's own log lines to the log of this process."""

    def setup(self, cfg: Any) -> None:
        """Sets the log level; gunicorn calls this at its start and after a reload."""
        self.cfg = cfg
        self.loglevel = self.LOG_LEVELS.get(cfg.loglevel, logging.INFO)
        self.error_log.setLevel(self.loglevel)
        self.error_log.propagate = True
        self._access_log_enabled = False


class _Arbiter(Arbiter):  # type: ignore[misc]  # gunicorn ships no type information
    def handle_usr2(self) -> None:
        """Makes the worker compare its cache with the API server. By default, gunicorn would start a new server."""
        self.kill_workers(signal.SIGUSR2)

    def handle_hup(self) -> None:
        """Makes the worker read the policy again. By default, gunicorn would start a worker with an empty cache."""
        self.kill_workers(signal.SIGHUP)

    def handle_ttin(self) -> None:
        """Refuses SIGTTIN, on which gunicorn would start a second worker."""
        self.log.warning("SIGTTIN ignored, because a second worker would have a second cache")


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn ships no type information
    """Runs the application in gunicorn. `build`, which creates the application, runs in the worker, after the fork."""

    def __init__(self, settings: Settings, build: Callable[[], ExtenderApp]) -> None:
        self._settings = settings
        self._build = build
        super().__init__(prog="extender")

    def load_config(self) -> None:
        """Configures gunicorn. Its configuration files and environment variables are not read."""
        for name, value in {**_gunicorn(self._settings), **_tls(self._settings)}.items():
            self.cfg.set(name, value)

    def run(self) -> None:
        """Serves until a signal ends the process."""
        try:
            _Arbiter(self).run()
        except RuntimeError as error:
            raise SystemExit(f"error: {error}") from None

    def load(self) -> ExtenderApp:
        """Creates the WSGI application; gunicorn calls this in the worker."""
        return self._build()


def serve(settings: Settings, build: Callable[[], ExtenderApp]) -> None:
    """Serves until SIGTERM or SIGINT, then exits the process (SystemExit): 0 after an orderly stop.

    SIGTERM makes the process unready at once. After `settings.drain_seconds` it stops accepting connections, and calls
    in flight have another GRACEFUL_SECONDS to end.

    Raises:
        ConfigurationError: the certificates cannot be used.
        OSError: the server cannot listen on one of its addresses.
    """
    _check_certificates(settings)
    try:
        Server(settings, build).run()
    except SystemExit as ended:
        if ended.code == _GAVE_UP:
            listener_at(*host_and_port(settings.bind)).close()
        raise


def _check_certificates(settings: Settings) -> None:
    """Checks the certificates before the fork: with a bad one gunicorn would restart the worker again and again.

    Raises:
        ConfigurationError: a certificate or key cannot be used.
    """
    if settings.tls_cert is None or settings.tls_key is None:
        return
    pair = str(settings.tls_cert), str(settings.tls_key)
    authorities = {"clientCa": settings.client_ca, "metricsClientCa": settings.metrics_client_ca}
    fault = f"tlsCert, tlsKey: {pair[0]} and {pair[1]} are not a PEM certificate and its private key"
    try:
        server_context(*pair, None)
        for name, authority in authorities.items():
            if authority is not None:
                fault = f"{name}: {authority} contains no PEM certificate"
                server_context(*pair, str(authority))
    except (OSError, ValueError) as error:
        raise ConfigurationError([f"{fault}: {getattr(error, 'strerror', None) or error}"]) from None


def _try_metrics_bind(settings: Settings) -> None:
    """Checks that the worker can listen on the address for metrics, if the settings have one.

    Raises:
        OSError: the worker cannot listen on the address.
    """
    if settings.metrics_bind:
        listener_at(*host_and_port(settings.metrics_bind)).close()


def _explain_timeout(_arbiter: Arbiter, worker: Worker) -> None:
    """Says why a worker without a heartbeat was ended, because gunicorn itself guesses that memory ran out."""
    if worker.aborted:
        _log.error(
            "process frozen and started again, the stack above names the line seconds=%d reason=%r",
            _HEARTBEAT_SECONDS,
            "some code kept Python's interpreter to itself, such as a regular expression of a rule",
        )


def _gunicorn(settings: Settings) -> dict[str, Any]:
    return {
        "bind": settings.bind,
        "workers": 1,
        "worker_class": "extender.web.worker.ThreadPerConnection",
        "worker_connections": settings.connections,
        "graceful_timeout": int(settings.drain_seconds + GRACEFUL_SECONDS),
        "timeout": _HEARTBEAT_SECONDS,
        "control_socket_disable": True,
        "logger_class": GunicornLog,
        "loglevel": settings.log_level,
        "proc_name": "extender",
        "child_exit": _explain_timeout,
        "when_ready": lambda _arbiter: _try_metrics_bind(settings),
        "worker_tmp_dir": _MEMORY_DIRECTORY if os.access(_MEMORY_DIRECTORY, os.W_OK) else None,
    }


def _tls(settings: Settings) -> dict[str, Any]:
    if settings.tls_cert is None or settings.tls_key is None:
        return {}
    certificate, key = str(settings.tls_cert), str(settings.tls_key)
    client_ca = str(settings.client_ca) if settings.client_ca else None
    return {
        "certfile": certificate,
        "keyfile": key,
        "ca_certs": client_ca,
        "cert_reqs": ssl.CERT_OPTIONAL if client_ca else ssl.CERT_NONE,
        "ssl_context": lambda _config, _default: server_context(certificate, key, client_ca),
    }
