"""The application for a gunicorn of one's own; settings from the environment and the file that EXTENDER_CONFIG names.

    gunicorn --worker-class extender.web.worker.ThreadPerConnection extender.wsgi:app
    gunicorn --worker-class gthread --threads 4 --keep-alive 120 extender.wsgi:app

One worker process only: two would be two caches. Importing this starts no thread, so preloading is safe; watches start
in the worker, with gthread and sync at the first request (a readiness probe, as a rule).
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
