"""Runs gunicorn from within: one worker process of ours, configured by `Settings` alone."""

from __future__ import annotations

import logging
import os
import signal
import ssl
from collections.abc import Callable
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger

from extender.config.settings import Settings
from extender.web.app import ExtenderApp
from extender.web.tls import server_context

_HEARTBEAT_SECONDS = 60
_MEMORY_DIRECTORY = "/dev/shm"  # noqa: S108 - for the heartbeat's unlinked file: a disk's stall must not look like a hang


class GunicornLog(Logger):  # type: ignore[misc]  # gunicorn ships no type information
    """Gunicorn's own lines go where all others go."""

    def setup(self, cfg: Any) -> None:
        """Takes the level from the settings; gunicorn calls this at start and at reload."""
        self.cfg = cfg
        self.loglevel = self.LOG_LEVELS.get(cfg.loglevel, logging.INFO)
        self.error_log.setLevel(self.loglevel)
        self.error_log.propagate = True
        self._access_log_enabled = False


class _Arbiter(Arbiter):  # type: ignore[misc]  # gunicorn ships no type information
    def handle_usr2(self) -> None:
        """Compares the cache, as SIGUSR2 does in kube-scheduler; gunicorn would start a second server."""
        self.kill_workers(signal.SIGUSR2)

    def handle_hup(self) -> None:
        """Reads the policy again; gunicorn would start another worker, with an empty cache."""
        self.kill_workers(signal.SIGHUP)

    def handle_ttin(self) -> None:
        """Refuses SIGTTIN, with which gunicorn would start a second worker."""
        self.log.warning("SIGTTIN is refused: a second worker would be a second cache")


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn ships no type information
    """The gunicorn application; `build` runs in the worker, after the fork."""

    def __init__(self, settings: Settings, build: Callable[[], ExtenderApp]) -> None:
        self._settings = settings
        self._build = build
        super().__init__(prog="extender")

    def load_config(self) -> None:
        """Gives gunicorn its settings; neither its files nor its environment variables are read."""
        for name, value in {**_gunicorn(self._settings), **_tls(self._settings)}.items():
            self.cfg.set(name, value)

    def run(self) -> None:
        """Runs until a signal ends it."""
        try:
            _Arbiter(self).run()
        except RuntimeError as error:
            raise SystemExit(f"Error: {error}") from None

    def load(self) -> ExtenderApp:
        """Returns the WSGI callable."""
        return self._build()


def serve(settings: Settings, build: Callable[[], ExtenderApp]) -> None:
    """Serves until SIGTERM or SIGINT, then exits the process (SystemExit): 0 after an orderly stop.

    On SIGTERM readiness goes down at once; `settings.drain_seconds` later no connection is accepted; calls in flight
    have `settings.graceful_seconds` more to end.
    """
    Server(settings, build).run()


def _gunicorn(settings: Settings) -> dict[str, Any]:
    return {
        "bind": settings.bind,
        "workers": 1,
        "worker_class": "extender.web.worker.ThreadPerConnection",
        "worker_connections": settings.connections,
        "keepalive": int(settings.keepalive_seconds),
        "graceful_timeout": int(settings.drain_seconds + settings.graceful_seconds),
        "timeout": _HEARTBEAT_SECONDS,
        "control_socket_disable": True,
        "logger_class": GunicornLog,
        "loglevel": settings.log_level,
        "proc_name": "extender",
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
