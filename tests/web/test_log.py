"""Log lines: one line whatever users wrote, and one for each attempt of the loop."""

from __future__ import annotations

import io
import json
import logging
import os
import sys

import pytest

from extender.runtime.clock import ManualClock
from extender.web import log
from extender.web.log import LogFormat, configure, inform
from extender.web.metrics import SchedulerMetrics
from tests.builders import make_node, make_pod
from tests.scheduler.world import NAME, World


def written(log_format: LogFormat, message: str, *args: object, fields: dict[str, object] | None = None) -> str:
    stream = io.StringIO()
    configure(log_format, "info", stream)
    try:
        raise ValueError("broken\nin two")
    except ValueError:
        error = sys.exc_info() if message == "failed" else None
    logging.getLogger("extender.test").info(message, *args, extra={"fields": fields or {}}, exc_info=error)
    return stream.getvalue()


def test_json_has_the_fields() -> None:
    line = json.loads(written("json", "call", fields={"verb": "filter", "nodes_in": 3, "ms": 0.5}))
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "extender.test",
        "msg": "call",
        "verb": "filter",
        "nodes_in": 3,
        "ms": 0.5,
    }


def set_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Sets the clock of the logging module, which reads `time_ns` from Python 3.13 on."""
    monkeypatch.setattr("time.time", lambda: seconds)
    monkeypatch.setattr("time.time_ns", lambda: int(seconds * 1000) * 1_000_000)


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_inform_writes_the_same_line_as_the_logger(log_format: LogFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    set_time(monkeypatch, 1767225600.5)
    fields: dict[str, object] = {"verb": "filter", "nodes_in": 3, "ms": 0.5, "pod": "default/p\u00e9"}
    stream, logger = io.StringIO(), logging.getLogger("extender.test")
    configure(log_format, "info", stream)
    logger.info("call", extra={"fields": fields})
    set_time(monkeypatch, 1767225603.0)
    inform(logger, "call", [(1767225600.5, fields)] * 2)
    slow, *cheap = stream.getvalue().splitlines()
    assert cheap == [slow, slow]


def test_inform_obeys_the_level_and_another_formatter() -> None:
    stream, logger = io.StringIO(), logging.getLogger("extender.test")
    configure("text", "warning", stream)
    inform(logger, "call", [(0.0, {})])
    assert not stream.getvalue()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s %(fields)s"))
    logging.basicConfig(handlers=[handler], level="INFO", force=True)
    inform(logger, "call", [(0.0, {"n": 1})])
    assert stream.getvalue() == "extender.test INFO call {'n': 1}\n"


def test_logging_to_a_closed_stream_raises_nothing() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    stream.close()
    inform(logging.getLogger("extender.test"), "call", [(0.0, {})])


EVIL = 'a\n{"level": "error"}\r\x1b[31m\u2028\ud800'


def test_json_stays_one_ascii_line() -> None:
    text = written("json", "pod %s", EVIL, fields={"pod": EVIL})
    assert text.isascii()
    assert text.count("\n") == 1
    assert json.loads(text)["pod"] == EVIL


def test_text_is_one_line_without_control_characters() -> None:
    text = written("text", "pod %s", EVIL, fields={"pod": EVIL, "n": 3, "empty": "", "said": "a b"})
    assert text.splitlines() == [text.rstrip("\n")]
    assert text.rstrip("\n").isprintable()
    assert 'n=3 empty="" said="a b"' in text


def test_a_traceback_is_kept() -> None:
    assert "ValueError: broken\nin two" in json.loads(written("json", "failed"))["exception"]
    lines = written("text", "failed").splitlines()
    assert all(line.startswith("    ") for line in lines[1:])
    assert lines[-2:] == ["    ValueError: broken", "    in two"]


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_an_unread_pipe_delays_no_writer_for_long_and_lost_lines_are_counted(log_format: LogFormat) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w") as stream:
        configure(log_format, "info", stream)
        logger = logging.getLogger("extender.test")
        for number in range(2000):
            logger.info("%d %s", number, "x" * 100)
        written = reader.read1(1 << 20).splitlines()
        logger.info("again")
        dropped, again = reader.read1(1 << 20).splitlines()
    assert b"lines=%d" % (2000 - len(written)) in dropped
    assert b"again" in again


def test_long_lines_and_many_are_written_whole() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w") as stream:
        configure("json", "info", stream)
        events = [(1767225600.5, {"n": number, "pad": "x" * 300}) for number in range(50)]
        inform(logging.getLogger("extender.test"), "call", events)
        inform(logging.getLogger("extender.test"), "call", [(1767225600.5, {"pad": "y" * 20_000})])
        lines = [json.loads(line) for line in reader.read1(1 << 20).splitlines()]
    assert [line.get("n") for line in lines[:-1]] == list(range(50))
    assert lines[-1]["pad"] == "y" * 20_000


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_message_has_a_limit(log_format: LogFormat) -> None:
    assert len(written(log_format, "%s is unreadable", "n" * 1_000_000)) < 5000


def attempts(level: str = "info") -> list[dict[str, object]]:
    """The lines of a loop that binds a pod and refuses another."""
    stream = io.StringIO()
    log.configure("json", level, stream)
    node = make_node("n1").capacity(cpu="4", pods="9").allocatable(cpu="4", pods="9")
    pods = [make_pod(name).uid(name).scheduler(NAME).req(cpu=cpu) for name, cpu in (("fits", "1"), ("large", "9"))]
    World(node, *pods, telemetry=SchedulerMetrics(ManualClock(), "1")).settle()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in lines if line["msg"] == "attempt"]


def test_a_line_names_the_pods_node_or_the_reason_why_it_has_none() -> None:
    reported = {str(line["pod"]): line for line in attempts()}
    bound, refused = reported["default/fits"], reported["default/large"]
    assert bound.items() >= {"result": "scheduled", "node": "n1", "attempt": 1, "uid": "fits", "profile": NAME}.items()
    assert bound["ms"] == 0
    assert "error" not in bound
    assert (refused["result"], refused.get("node")) == ("unschedulable", None)
    assert "1 Insufficient cpu" in str(refused["error"])


def test_attempts_are_not_logged_at_level_warning() -> None:
    assert attempts("warning") == []
