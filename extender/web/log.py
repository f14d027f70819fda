"""Log lines: JSON for machines, text for terminals. What a record carries as `fields` becomes fields of the line.

Whatever users wrote (names, messages) is escaped in both, so that it cannot pose as another line or steer a terminal.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal, TextIO

import msgspec

LogFormat = Literal["json", "text"]

_encode = msgspec.json.Encoder(enc_hook=str).encode
_encode_ascii = json.JSONEncoder(default=str).encode
# What a record has beside its name, message and time, for whatever formatter is asked to print it.
_UNASKED: dict[str, Any] = vars(logging.LogRecord("", logging.INFO, "", 0, "", (), None))


class FieldsRecord(logging.LogRecord):
    """A line with fields at level INFO, made without what costs most of a record: who wrote it, and from where."""

    def __init__(self, name: str, message: str, fields: Mapping[str, object]) -> None:
        created = time.time()
        self.__dict__.update(_UNASKED)
        self.name, self.msg, self.fields = name, message, fields
        self.created, self.msecs = created, created % 1 * 1000


def inform(logger: logging.Logger, message: str, fields: Mapping[str, object]) -> None:
    """`logger.info` with fields."""
    if logger.isEnabledFor(logging.INFO):
        logger.handle(FieldsRecord(logger.name, message, fields))


class JsonFormatter(logging.Formatter):
    """One JSON object a line, ASCII only."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name}
        line |= {"msg": record.getMessage(), **getattr(record, "fields", {})}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _json(line)


class TextFormatter(logging.Formatter):
    """`12:34:56 INFO message key=value`; a traceback keeps its lines."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={_plain(str(value))}" for key, value in getattr(record, "fields", {}).items())
        message = _escaped(record.getMessage())
        line = f"{_time(record)[11:19]} {record.levelname:7} {message}{fields}"
        if record.exc_info:
            trace = self.formatException(record.exc_info).splitlines()
            line += "".join("\n    " + _escaped(part) for part in trace)
        return line


def configure(log_format: LogFormat, level: str, stream: TextIO | None = None) -> None:
    """Sends all logging of the process to `stream` (standard error if not given)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    # Nobody reads these, and finding the caller's line costs more than writing it (the module's own advice).
    logging._srcfile = ""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    logging.getLogger("urllib3").setLevel(logging.WARNING)


def _json(line: Mapping[str, object]) -> str:
    with suppress(UnicodeEncodeError):
        encoded = _encode(line)
        if encoded.isascii():
            return encoded.decode("ascii")
    return _encode_ascii(line)


def _time(record: logging.LogRecord) -> str:
    return f"{_second(int(record.created))}.{int(record.msecs):03d}Z"


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def _escaped(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _plain(text: str) -> str:
    """A bare word, or a JSON string."""
    return text if text and text.isprintable() and not any(mark in text for mark in ' "=') else json.dumps(text)
