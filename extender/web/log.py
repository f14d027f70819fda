"""Formats and writes log lines: JSON for machines, text for terminals.

A record's `fields` become fields of the line; `Traces` gives each call and attempt the trace id of its lines. Text from
users (names, messages) is escaped in both forms, so that it cannot imitate another line or control a terminal.
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import count
from typing import Any, Literal, TextIO

import msgspec

LogFormat = Literal["json", "text"]
_PATIENCE_SECONDS = 1.0
LONGEST_KEY = 63 + 1 + 253
"""The longest NAMESPACE/NAME that the API server allows; a request may contain longer ones."""
LONGEST_TEXT = 1024
_LONGEST_MESSAGE, _LONGEST_TRACEBACK = 4096, 32 * 1024
_log = logging.getLogger(__name__)

FIELDS = {
    "time": "the time in UTC, with milliseconds",
    "level": "debug, info, warning, error or critical",
    "logger": "the module that writes the line, whose name may change with a version (filter by msg); the server writes"
    " as gunicorn.error",
    "msg": "the event: start (of the process), call (by kube-scheduler), attempt (of `schedule` to place a pod), or a"
    " sentence with key=value pairs",
    "exception": "the traceback, if there is one",
    "verb": "the verb of a call: filter, prioritize, preempt or bind",
    "result": "the result of a call (decided, passed, error, failed, unready or malformed, as in"
    " extender_verb_duration_seconds) or of an attempt (scheduled, unschedulable or error)",
    "ms": "the milliseconds of a call from the complete request to the answer, or of an attempt until the pod is bound"
    " or back in the queue",
    "uid": "the UID of the pod of a call or an attempt",
    "pod": "the NAMESPACE/NAME of this pod",
    "profile": "the schedulerName of an attempt's pod",
    "attempt": "the number of attempts to place this pod, including this one",
    "node": "the node on which an attempt has bound the pod, or failed to bind it",
    "nodes_in": "the number of nodes in a call's request",
    "nodes_out": "the number of nodes that passed filter or were scored; 1 for a bind",
    "left_out": "the users' rules that failed in a call and were ignored (onRuleFailure: ignore), separated by commas",
    "error": "the error that a call returned to kube-scheduler, or the reason why an attempt has not bound the pod",
    "trace_id": "the trace of a call or an attempt, taken from the caller's header `traceparent` if there is one",
    "command": "the command that has started: serve or schedule",
    "cluster": "the API server's address, or the file with the cluster, when the process started",
    "kubernetes": "the API server's version when the process started, or the reason why it is unknown",
    "follows": "the version of kube-scheduler that decisions follow",
    "version": "the extender's version",
    "commit": "the commit that the extender was built from, or `unknown`",
    "policy": "the policy's file or ConfigMap, or default, when the process started",
    "profiles": "the schedulerNames of the profiles when the process started",
    "rules": "the users' rules in these profiles",
    "addresses": "the URLs of the servers of this process",
    "off": "everything that was switched off when the process started: settings by key, feature gates, default plugins",
}
"""The fields that a line may have, and their meaning; `extender reference log` lists them."""

_encode = msgspec.json.Encoder(enc_hook=str).encode
_encode_ascii = json.JSONEncoder(default=str).encode


Event = tuple[float, Mapping[str, object]]
"""The time of an event in seconds since the epoch, and the fields of its log line."""


def inform(logger: logging.Logger, message: str, events: Iterable[Event]) -> None:
    """Logs each event as a line with this message and the event's fields, at level info.

    If the process logs only JSON, all lines are written in one call, without creating records. This takes a third of
    the time of `logger.info`.
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
    """Writes lines to a pipe or file, and drops lines while a pipe is full, so that a stuck reader blocks no thread.

    The next line that is written says how many were dropped. A full pipe delays the first writer by
    `_PATIENCE_SECONDS`, and later writers not at all.
    """

    def __init__(self, stream: TextIO) -> None:
        self._fd = stream.fileno()
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLOUT)
        self._dropped = 0

    def write(self, text: str) -> None:
        if self._dropped and self._is_read(0):
            dropped = self._dropped
            self._dropped = 0  # reset before the warning is logged, because logging calls this method again
            _log.warning("log lines dropped, because standard error was not read in time lines=%d", dropped)
        piece = b""
        for line in text.splitlines(keepends=True):
            data = line.encode("utf-8", "backslashreplace")
            if piece and len(piece) + len(data) > select.PIPE_BUF:
                self._put(piece)
                piece = b""
            piece += data
        self._put(piece)

    def _put(self, lines: bytes) -> None:
        # a write of PIPE_BUF bytes to a pipe that is ready does not block
        for start in range(0, len(lines), select.PIPE_BUF):
            if not self._is_read(0 if self._dropped else _PATIENCE_SECONDS):
                self._dropped += lines.count(b"\n")
                return
            with suppress(OSError):  # the reader may have closed the pipe
                os.write(self._fd, lines[start : start + select.PIPE_BUF])

    def flush(self) -> None:
        """Does nothing; `logging` calls it."""

    def _is_read(self, seconds: float) -> bool:
        return bool(self._poll.poll(seconds * 1000))


class _JsonHandler(logging.StreamHandler[TextIO]):
    """Writes log records as JSON lines; `inform` writes many lines at once without creating records."""

    def inform(self, logger: str, message: str, events: Iterable[Event]) -> None:
        head = {"level": "info", "logger": logger, "msg": message}
        lines = [_json({"time": _utc(seconds), **head, **fields}) for seconds, fields in events]
        self.acquire()
        try:
            self.stream.write("\n".join([*lines, ""]))
            self.stream.flush()
        except (OSError, ValueError):
            pass  # the log's stream is closed, so the line is lost
        finally:
            self.release()


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _utc(record.created), "level": record.levelname.lower(), "logger": record.name}
        line |= {"msg": cut(record.getMessage(), _LONGEST_MESSAGE), **getattr(record, "fields", {})}
        if record.exc_info:
            line["exception"] = cut(self.formatException(record.exc_info), _LONGEST_TRACEBACK)
        return _json(line)


class TextFormatter(logging.Formatter):
    """Formats a record as `12:34:56 INFO message key=value`; a traceback keeps its lines."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={_plain(_shown(value))}" for key, value in getattr(record, "fields", {}).items())
        message = _escaped(cut(record.getMessage(), _LONGEST_MESSAGE))
        line = f"{_utc(record.created)[11:19]} {record.levelname:7} {message}{fields}"
        if record.exc_info:
            trace = cut(self.formatException(record.exc_info), _LONGEST_TRACEBACK).splitlines()
            line += "".join("\n    " + _escaped(part) for part in trace)
        return line


def configure(log_format: LogFormat, level: str, stream: TextIO | None = None) -> None:
    """Sends all logging of the process to `stream`, by default to standard error."""
    try:
        bounded: Any = BoundedStream(stream or sys.stderr)
    except (OSError, ValueError):  # a stream in a test may have no file descriptor
        bounded = stream or sys.stderr
    handler = (_JsonHandler if log_format == "json" else logging.StreamHandler)(bounded)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    # These look-ups cost more than writing the log line, which does not show their results.
    logging._srcfile = ""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    logging.getLogger("urllib3").setLevel(logging.WARNING)


def set_level(level: str) -> None:
    """Sets the least severe level that is logged: debug, info, warning or error."""
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
    """Returns the text as a bare word if it is one, else as a JSON string."""
    return text if text and text.isprintable() and not any(mark in text for mark in ' "=') else json.dumps(text)


_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class Traces:
    """Gives each call and attempt a trace id: the caller's, or a new one."""

    def __init__(self) -> None:
        self._process = os.urandom(8).hex()
        self._count = count(1)

    def trace(self, fields: Mapping[str, object], ended_at: float, traceparent: str = "") -> Event:
        """Returns the event of a finished call or attempt: these fields with a trace id.

        Args:
            ended_at: when the call or attempt ended, in seconds since the epoch.
            traceparent: the caller's `traceparent` header (W3C Trace Context); ignored if malformed.
        """
        caller = _TRACEPARENT.match(traceparent)
        trace_id = caller[1] if caller else f"{self._process}{next(self._count):016x}"
        return ended_at, {**fields, "trace_id": trace_id}
