"""The application for your own gunicorn. Settings come from the environment and the file in EXTENDER_CONFIG.

    gunicorn --worker-class extender.web.worker.ThreadPerConnection extender.wsgi:app
    gunicorn --worker-class gthread --threads 4 --keep-alive 120 extender.wsgi:app

Use one worker process: each has its own cache. Importing this module starts no thread, so preloading is safe. Watches
start in the worker; with gthread and sync they start at the first request, which is usually a readiness probe.
"""

from __future__ import annotations

import os
from pathlib import Path

from extender.app.serve import build
from extender.config.sources import load
from extender.web.environ import take_signals

_config = os.environ.get("EXTENDER_CONFIG")
app = build(load(Path(_config) if _config else None, os.environ, {}))
take_signals(app.lifecycle)
