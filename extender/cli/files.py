"""Files of commands: written whole or not at all, and named where something is wrong with them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_BY_UMASK = 0o666


def write_whole(path: Path, data: bytes, mode: int | None = None) -> None:
    """Writes the file in one step, so that a fault leaves the old one. Raises OSError, which names `path`.

    Args:
        mode: by default that of the old file.
    """
    target = path.resolve()  # of a link, what it leads to
    partial = target.with_name(f".{target.name}.partial")
    try:
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


def told(error: OSError) -> str:
    """Returns what is wrong, with the file if it is about one."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)
