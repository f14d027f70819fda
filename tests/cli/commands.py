"""Runs the command `extender` in this process, which saves a second of imports; `test_main` starts processes."""

from __future__ import annotations

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from subprocess import CompletedProcess

import pytest

from extender.cli.main import main


def extender(*arguments: str, given: str | None = None) -> CompletedProcess[str]:
    """Runs the command; `given` on standard input."""
    stdin, stdout, stderr = (
        TextIOWrapper(BytesIO(data), write_through=True) for data in ((given or "").encode(), b"", b"")
    )
    status = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout), redirect_stderr(stderr):
        patch.setattr(sys, "argv", ["extender", *arguments])
        patch.setattr(sys, "stdin", stdin)
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
    printed, errors = (stream.buffer.getvalue().decode() for stream in (stdout, stderr))
    return CompletedProcess(arguments, status, printed, errors)
