"""The servers that tests run in subprocesses: `extender serve` with scripted verbs, or `app` under a plain gunicorn.

python -m tests.web.served --bind 127.0.0.1:0 --drain-seconds 1
gunicorn tests.web.served:app

IMPATIENT in the environment shortens what a client may take, and GRACEFUL_SECONDS what a call may take at the end.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

from extender.cli.main import cli
from extender.config.settings import Settings, load
from extender.web import log, worker
from extender.web.app import ExtenderApp
from extender.web.connection import take_signals
from tests.web.fakes import Running, make_app


class Announcing(Running):
    """Says on standard error when the application is started and stopped, and in which process."""

    def start(self) -> None:
        print("application started", flush=True, file=sys.stderr)

    def stop(self) -> None:
        print("application stopped", flush=True, file=sys.stderr)

    def compare(self) -> None:
        print("application compared", flush=True, file=sys.stderr)


def build(settings: Settings) -> ExtenderApp:
    app = make_app(Announcing(), **settings.model_dump()).app
    if "IMPATIENT" in os.environ:
        limits = replace(app.lifecycle.limits, idle_seconds=3.0, head_seconds=1.0, body_seconds=1.0)
        app.lifecycle.limits = limits
    return app


def serve(settings: Settings) -> None:
    """In the place of extender.app.serve.serve."""
    log.configure(settings.log_format, settings.log_level)
    worker.GRACEFUL_SECONDS = int(os.environ.get("GRACEFUL_SECONDS", worker.GRACEFUL_SECONDS))
    worker.serve(settings, lambda: build(settings))


def main() -> None:
    """`extender serve`'s own flags, with the scripted verbs behind them."""
    context: Any = cli.commands["serve"].make_context("serve", sys.argv[1:])
    flags = {name: value for name, value in context.params.items() if name != "config" and value not in (None, ())}
    serve(load(context.params["config"], os.environ, flags))


if __name__ == "__main__":
    main()
else:
    app = build(load(None, os.environ, {}))
    take_signals(app.lifecycle)
