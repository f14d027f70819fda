"""Writes the output files of commands. A regular file is written completely or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_BY_UMASK = 0o666


def write_whole(path: Path, data: bytes, mode: int | None = None) -> None:
    """Replaces the file in one step, so that a failure leaves the old file. Raises OSError with `path` in its message.

    A pipe or a device such as /dev/stdout cannot be replaced; the data is written into it.

    Args:
        mode: the permissions of the new file; by default those of the old file.
    """
    target = path.resolve()  # if the path is a symbolic link, its target is replaced
    partial = target.with_name(f".{target.name}.partial")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        if mode is None:
            mode = target.stat().st_mode & 0o777 if target.exists() else _BY_UMASK
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
        partial.replace(target)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None


def os_error_text(error: OSError) -> str:
    """Returns the error in one line of text. If it is about a file, the line names the file."""
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
