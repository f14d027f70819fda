"""Reads a trace of a cluster: its nodes with devices, and the pods that came.

Format openb: the two CSV files of Alibaba's cluster-trace-gpu-v2023, plain or compressed by gzip.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn, TextIO

import numpy as np

from extender.devices.policies.device_nodes import WHOLE, DeviceAsk, DeviceNodes, Ints
from extender.errors import MalformedInput

_NODE = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_MOST_DEVICES = 64
_MOST = 2**40


class TracePod(NamedTuple):
    """A pod of a trace; its times are seconds, and None where the trace does not say. `qos` may be empty."""

    name: str
    ask: DeviceAsk
    created: float | None
    deleted: float | None
    qos: str = ""


@dataclass(frozen=True)
class Trace:
    """Nodes and pods, both sorted by name."""

    nodes: DeviceNodes
    pods: tuple[TracePod, ...]

    @property
    def capacity(self) -> int:
        """The thousandths of all devices."""
        return int(self.nodes.devices.sum()) * WHOLE


class _Row:
    """A line of a CSV file, whose fields raise MalformedInput with their place."""

    def __init__(self, place: str, fields: Mapping[str, str | None]) -> None:
        self.place = place
        self._fields = fields

    def text(self, column: str) -> str:
        return (self._fields.get(column) or "").strip()

    def name(self, column: str) -> str:
        return self.text(column) or self._fail(column, "required")

    def number(self, column: str, most: int = _MOST) -> int:
        text = self.text(column)
        if not text.isdecimal() or int(text) > most:
            self._fail(column, f"expected a whole number from 0 to {most}, got {text!r}")
        return int(text)

    def seconds(self, column: str) -> float | None:
        text = self.text(column)
        if not text:
            return None
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < _MOST:
            self._fail(column, f"expected seconds, got {text!r}")
        return seconds

    def _fail(self, column: str, what: str) -> NoReturn:
        raise MalformedInput(f"{self.place}: {column}: {what}")


def read_openb(nodes: Path, pods: Path) -> Trace:
    """Returns the trace in two files. Raises MalformedInput with file, line and column, and OSError."""
    rows = sorted(_rows(nodes, _NODE), key=lambda row: row.name("sn"))
    made = DeviceNodes.empty(
        np.array([row.text("model") for row in rows]),
        _column(rows, "cpu_milli"),
        _column(rows, "memory_mib"),
        _column(rows, "gpu", _MOST_DEVICES),
    )
    if not made.devices.sum():
        raise MalformedInput(f"{nodes}: expected nodes with devices, got none")
    found = sorted((_pod(row) for row in _rows(pods, _POD)), key=lambda pod: pod.name)
    if not any(pod.ask.count for pod in found):
        raise MalformedInput(f"{pods}: expected pods that ask for devices, got none")
    return Trace(made, tuple(found))


def _column(rows: list[_Row], column: str, most: int = _MOST) -> Ints:
    return np.array([row.number(column, most) for row in rows], np.int64)


def _pod(row: _Row) -> TracePod:
    count, milli = row.number("num_gpu", _MOST_DEVICES), row.number("gpu_milli", WHOLE)
    if count and not milli:
        raise MalformedInput(f"{row.place}: gpu_milli: expected 1 to {WHOLE}, because num_gpu is {count}")
    if count > 1 and milli < WHOLE:
        raise MalformedInput(f"{row.place}: gpu_milli: expected {WHOLE}, because several devices are never shared")
    models = frozenset(filter(None, row.text("gpu_spec").split("|")))
    ask = DeviceAsk(row.number("cpu_milli"), row.number("memory_mib"), milli if count else 0, count, models)
    return TracePod(row.name("name"), ask, row.seconds("creation_time"), row.seconds("deletion_time"), row.text("qos"))


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    try:
        with _opened(path) as file:
            reader = csv.DictReader(file)
            if lacking := [column for column in columns if column not in (reader.fieldnames or ())]:
                raise MalformedInput(f"{path}:1: expected the columns {', '.join(columns)}; {lacking[0]} is missing")
            for fields in reader:
                yield _Row(f"{path}:{reader.line_num}", fields)
    except (UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile) as error:
        raise MalformedInput(f"{path}: expected a CSV file, plain or gzipped: {error}") from None


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")
