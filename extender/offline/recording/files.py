"""The files of a recording: lines go to FILE; full, it becomes FILE.1, that FILE.2, and the oldest goes."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable
from io import BufferedWriter
from pathlib import Path
from typing import BinaryIO

FILES = 4
_COMPRESSION = 1
_PRIVATE = 0o600  # a recording tells what runs in a cluster


class RotatingFiles:
    """Writes lines; all files together take about `limit_bytes`.

    Args:
        path: with gzip where it ends in .gz.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path, self._limit_bytes = path, max(limit_bytes // FILES, 1)
        self._file: BinaryIO | None = None
        self._lines: BinaryIO | gzip.GzipFile | None = None

    @property
    def is_open(self) -> bool:
        return self._lines is not None

    @property
    def is_full(self) -> bool:
        """Returns whether it is time for `begin`; as of the last flush."""
        return self._file is not None and self._file.tell() >= self._limit_bytes

    def begin(self, *, keep: bool = True) -> None:
        """Moves the files that there are on, and begins another, or the last anew (not `keep`). Raises OSError."""
        self.close()
        for number in range(FILES - 1, 0, -1) if keep else ():
            older, newer = self._numbered(number), self._numbered(number - 1)
            if newer.exists():
                newer.replace(older)
        file = BufferedWriter(os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE), "wb", 0))
        self._file = self._lines = file
        if self.path.suffix == ".gz":
            self._lines = gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_COMPRESSION)

    def write(self, lines: Iterable[bytes]) -> None:
        """Appends the lines. Raises OSError."""
        assert self._lines is not None
        for line in lines:
            self._lines.write(line + b"\n")

    def flush(self) -> None:
        """Has all that was written be there whatever becomes of the process. Raises OSError."""
        if self._lines is not None and self._file is not None:
            self._lines.flush()
            self._file.flush()

    def close(self) -> None:
        """Ends the file. Raises OSError."""
        lines, file, self._lines, self._file = self._lines, self._file, None, None
        if lines is not None and file is not None:
            try:
                lines.close()
            finally:
                file.close()

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path
