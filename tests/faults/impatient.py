"""`extender` that gives a client one second for a request: `python -m tests.faults.impatient serve ...`."""

from __future__ import annotations

from functools import partial

from extender.cli.main import main
from extender.web import app
from extender.web.request_parser import Limits

if __name__ == "__main__":
    vars(app)["Limits"] = partial(Limits, head_seconds=1.0, body_seconds=1.0)
    main()
