"""Creates the WSGI application for your own gunicorn, with settings from the environment and a file.

The environment variable EXTENDER_CONFIG names the file.

    gunicorn --worker-class extender.web.worker.ThreadPerConnection extender.wsgi:app
    gunicorn --worker-class gthread --threads 4 --keep-alive 120 extender.wsgi:app

Use one worker process, because each has its own cache. Importing this module starts no thread, so preloading is safe.
The watches start in the worker; with gthread and sync they start at the first request, usually a readiness probe.
"""

from __future__ import annotations

import os
from pathlib import Path

from extender.app.serve import build
from extender.config.settings import load
from extender.web.connection import take_signals

_config = os.environ.get("EXTENDER_CONFIG")
app = build(load(Path(_config) if _config else None, os.environ, {}))
take_signals(app.lifecycle)
