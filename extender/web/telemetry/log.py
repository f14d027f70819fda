"""Log lines: JSON for machines, text for terminals. What a record carries as `fields` becomes fields of the line.

Whatever users wrote (names, messages) is escaped in both, so that it cannot pose as another line or steer a terminal.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal, TextIO

import msgspec

LogFormat = Literal["json", "text"]
_PATIENCE_SECONDS = 1.0
LONGEST_KEY = 63 + 1 + 253
"""Namespace, slash and name, as long as the API server allows them; a request may hold longer ones."""
LONGEST_TEXT = 1024
_LONGEST_MESSAGE, _LONGEST_TRACEBACK = 4096, 32 * 1024
_log = logging.getLogger(__name__)

FIELDS = {
    "time": "UTC, with milliseconds",
    "level": "debug, info, warning, error or critical",
    "logger": "the module that writes the line; gunicorn.error: the server",
    "msg": "what has happened; start: the process starts; call: kube-scheduler has called; attempt: `schedule` has"
    " tried a pod",
    "exception": "the traceback, where there is one",
    "verb": "of a call: filter, prioritize, preempt or bind",
    "result": "of a call: decided, passed, error, failed, unready or malformed, as in extender_verb_duration_seconds;"
    " of an attempt: scheduled, unschedulable or error",
    "ms": "of a call: milliseconds from its body to its answer; of an attempt: until the pod is bound, or given back",
    "uid": "of a call or an attempt: the pod's UID",
    "pod": "of a call or an attempt: NAMESPACE/NAME",
    "profile": "of an attempt: the pod's schedulerName",
    "attempt": "of an attempt: how many there have been of this pod, with this one",
    "node": "of an attempt: where the pod is bound, or was to be",
    "nodes_in": "of a call: how many nodes were asked about",
    "nodes_out": "of a call: how many of them are left, scored or bound to",
    "error": "of a call: what kube-scheduler is told in Error; of an attempt: the reason why the pod is not bound",
    "trace_id": "of a call or an attempt: the trace, that of the caller's header `traceparent` if there is one",
    "command": "of a start: serve or schedule",
    "cluster": "of a start: the API server's address, or the file",
    "kubernetes": "of a start: the API server's version, or why it is not known",
    "version": "of a start: the extender's version",
    "policy": "of a start: the policy's file or ConfigMap, or the provider",
    "profiles": "of a start: the schedulerNames that there are profiles for",
    "rules": "of a start: users' rules in these profiles",
    "addresses": "of a start: the URLs that are served",
    "off": "of a start: what is not done: settings by key, spans, feature gates, default plugins that a profile lacks",
}
"""What a line may hold, and what that is; `extender reference log` lists it."""

_encode = msgspec.json.Encoder(enc_hook=str).encode
_encode_ascii = json.JSONEncoder(default=str).encode


Event = tuple[float, Mapping[str, object]]
"""The time in seconds since the epoch, and the fields of the line."""


def inform(logger: logging.Logger, message: str, events: Iterable[Event]) -> None:
    """Logs each event as `logger.info` with fields does.

    A third of the work, and one write for all, where nobody but `configure` has set up logging.
    """
    if not logger.isEnabledFor(logging.INFO):
        return
    handlers = logging.root.handlers
    if len(handlers) == 1 and isinstance(handlers[0], _JsonHandler):
        handlers[0].inform(logger.name, message, events)
        return
    for seconds, fields in events:
        record = logger.makeRecord(logger.name, logging.INFO, "", 0, message, (), None, extra={"fields": fields})
        record.created = seconds
        logger.handle(record)


class BoundedStream:
    """Writes lines to a file as long as somebody reads it; else it drops them, and says so when they are read again.

    A pipe that nobody reads holds the first writer up for `_PATIENCE_SECONDS`, and nobody after it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._fd = stream.fileno()
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLOUT)
        self._dropped = 0

    def write(self, text: str) -> None:
        if self._dropped and self._is_read(0):
            dropped, self._dropped = self._dropped, 0
            _log.warning("%d log lines were dropped, for nobody read them", dropped)
        piece = b""
        for line in text.splitlines(keepends=True):
            data = line.encode("utf-8", "backslashreplace")
            if piece and len(piece) + len(data) > select.PIPE_BUF:
                self._put(piece)
                piece = b""
            piece += data
        self._put(piece)

    def _put(self, lines: bytes) -> None:
        for start in range(0, len(lines), select.PIPE_BUF):  # so much does not block where anything can be written
            if not self._is_read(0 if self._dropped else _PATIENCE_SECONDS):
                self._dropped += lines.count(b"\n")
                return
            with suppress(OSError):  # a pipe that is closed has no reader
                os.write(self._fd, lines[start : start + select.PIPE_BUF])

    def flush(self) -> None:
        """Is called by `logging`."""

    def _is_read(self, seconds: float) -> bool:
        return bool(self._poll.poll(seconds * 1000))


class _JsonHandler(logging.StreamHandler[TextIO]):
    """Writes JSON lines, those of `inform` without making a record first."""

    def inform(self, logger: str, message: str, events: Iterable[Event]) -> None:
        head = {"level": "info", "logger": logger, "msg": message}
        lines = [_json({"time": _utc(seconds), **head, **fields}) for seconds, fields in events]
        self.acquire()
        try:
            self.stream.write("\n".join([*lines, ""]))
            self.stream.flush()
        except (OSError, ValueError):
            pass  # a stream that is closed has no reader
        finally:
            self.release()


class JsonFormatter(logging.Formatter):
    """One JSON object a line, ASCII only."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _utc(record.created), "level": record.levelname.lower(), "logger": record.name}
        line |= {"msg": cut(record.getMessage(), _LONGEST_MESSAGE), **getattr(record, "fields", {})}
        if record.exc_info:
            line["exception"] = cut(self.formatException(record.exc_info), _LONGEST_TRACEBACK)
        return _json(line)


class TextFormatter(logging.Formatter):
    """`12:34:56 INFO message key=value`; a traceback keeps its lines."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={_plain(_shown(value))}" for key, value in getattr(record, "fields", {}).items())
        message = _escaped(cut(record.getMessage(), _LONGEST_MESSAGE))
        line = f"{_utc(record.created)[11:19]} {record.levelname:7} {message}{fields}"
        if record.exc_info:
            trace = cut(self.formatException(record.exc_info), _LONGEST_TRACEBACK).splitlines()
            line += "".join("\n    " + _escaped(part) for part in trace)
        return line


def configure(log_format: LogFormat, level: str, stream: TextIO | None = None) -> None:
    """Sends all logging of the process to `stream` (standard error if not given)."""
    try:
        bounded: Any = BoundedStream(stream or sys.stderr)
    except (OSError, ValueError):  # no file, but a stream in memory
        bounded = stream or sys.stderr
    handler = (_JsonHandler if log_format == "json" else logging.StreamHandler)(bounded)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    # Nobody reads these, and finding the caller's line costs more than writing it (the module's own advice).
    logging._srcfile = ""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    logging.getLogger("urllib3").setLevel(logging.WARNING)


def set_level(level: str) -> None:
    """Logs from now on what is at least as severe: debug, info, warning or error."""
    logging.getLogger().setLevel(level.upper())


def cut(text: str, longest: int) -> str:
    """Returns the text, or its beginning and an ellipsis if it is too long."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _json(line: Mapping[str, object]) -> str:
    try:
        encoded = _encode(line)
    except UnicodeEncodeError:
        return _encode_ascii(line)
    return encoded.decode("ascii") if encoded.isascii() else _encode_ascii(line)


def _utc(seconds: float) -> str:
    whole = int(seconds)
    return f"{_second(whole)}.{int((seconds - whole) * 1000):03d}Z"


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def _escaped(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _plain(text: str) -> str:
    """Returns a bare word, or a JSON string."""
    return text if text and text.isprintable() and not any(mark in text for mark in ' "=') else json.dumps(text)
