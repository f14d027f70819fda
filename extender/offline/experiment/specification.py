"""Reads an experiment's file and the trace that it names, and draws the pods of each run."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, NoReturn, Self, TextIO

import numpy as np
import yaml
from pydantic import Field, model_validator

from extender.devices.device_nodes import WHOLE, DeviceAsk, DeviceNodes, Ints
from extender.devices.policies import POLICIES, DeviceChooser, Weighted
from extender.devices.typical_pods import TypicalPods
from extender.errors import ConfigurationError, MalformedInput
from extender.framework.policy_fields import Strict
from extender.offline.experiment.claims import KUBE_SCHEDULER, ClaimChooser
from extender.plugins.device_scoring import POLICY_NAMES
from extender.plugins.users.function import file_of
from extender.plugins.users.priority import DEVICE_POLICY, CustomDevicePriority
from extender.policy.faults import Faults
from extender.policy.library import Library, search_last

_NODE = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_MOST_DEVICES = 64
_MOST = 2**40
_MOST_SEEDS = 10_000
_MOST_MOVES = 100_000
_FORMAT = 3
"""Changed when runs that were kept by an earlier version must be made again."""
Metric = Literal["allocated", "fragmentation", "pending", "evictions", "energy"]
Above0 = Annotated[float, Field(gt=0, le=1e6)]
_HOUR = 3600.0


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
    """Returns the trace in the two CSV files of Alibaba's cluster-trace-gpu-v2023, plain or compressed by gzip.

    Raises MalformedInput with file, line and column, and OSError.
    """
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


class TraceSpec(Strict):
    """The files of the trace; paths are relative to the experiment's file."""

    format: Literal["openb"] = "openb"
    nodes: str
    pods: str


class ArrivalsSpec(Strict):
    """The pods that arrive, and their times.

    inflated: the pods are shuffled, and drawn again until the devices asked for exceed `percent` of all devices. None
    leaves. recorded: the pods come and go at the trace's own times. poisson: pods drawn from the trace.

    `priorities` gives priorities to the trace's values of `qos`; all other pods have priority 0.
    """

    type: Literal["inflated", "recorded", "poisson"] = "inflated"
    percent: Annotated[int, Field(gt=0, le=1000)] = 130
    pods_per_hour: Above0 = 100.0
    hours: Above0 = 24.0
    lifetime_hours: Above0 = 6.0
    priorities: Mapping[str, int] = {}

    def priority(self, pod: TracePod) -> int:
        return self.priorities.get(pod.qos, 0)

    @model_validator(mode="after")
    def _fields_of_its_type_only(self) -> Self:
        own = {"inflated": {"percent"}, "poisson": {"pods_per_hour", "hours", "lifetime_hours"}}.get(self.type, set())
        if others := self.model_fields_set - own - {"type", "priorities"}:
            names = ", ".join(sorted(str(type(self).model_fields[name].alias) for name in others))
            raise ValueError(f"type {self.type} takes no {names}")
        return self


class SeedRange(Strict):
    """All seeds from `first` to `last`."""

    first: int
    last: int

    @model_validator(mode="after")
    def _ascends(self) -> Self:
        if not 0 <= self.first <= self.last < self.first + _MOST_SEEDS:
            raise ValueError(f"expected at most {_MOST_SEEDS} seeds, 0 or above, with first <= last")
        return self


class ExperimentSpec(Strict):
    """The fields of the file."""

    trace: TraceSpec
    arrivals: ArrivalsSpec = ArrivalsSpec()
    policies: Annotated[tuple[str, ...], Field(min_length=1)]
    seeds: SeedRange
    devices: Literal["columns", "claims"] = "columns"
    """columns: the policies alone decide. claims: the engine decides about ResourceClaims, with DeviceScoring."""
    metrics: Annotated[tuple[Metric, ...], Field(min_length=1)] = ("allocated", "fragmentation", "pending", "energy")
    moves: tuple[Annotated[int, Field(gt=0, le=_MOST_MOVES)], ...] = ()

    def parts(self, text: str, path: str, faults: Faults) -> Sequence[_Part]:
        """Returns the parts of an entry of `policies`; adds a fault for each that is wrong."""
        if self.devices == "columns":
            return _parts(text, path, faults, tuple(POLICIES))
        return [_Part(1, text)] if text == KUBE_SCHEDULER else _parts(text, path, faults, POLICY_NAMES)


@dataclass(frozen=True)
class Experiment:
    """An experiment as its file describes it."""

    path: Path
    spec: ExperimentSpec

    @classmethod
    def load(cls, path: Path) -> Experiment:
        """Reads the file. Raises ConfigurationError with every fault, and OSError."""
        try:
            document = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigurationError([f"{path}: expected YAML: {' '.join(str(error).split())}"]) from None
        faults = Faults()
        spec = faults.read(ExperimentSpec, document)
        if spec is not None:
            search_last(str(path.resolve().parent))
            for index, text in enumerate(spec.policies):
                spec.parts(text, f"policies[{index}]", faults)
            if spec.moves and (spec.arrivals.type, spec.devices) != ("inflated", "columns"):
                faults.add("moves", "expected arrivals of type inflated, and devices by columns")
            if spec.arrivals.priorities and spec.devices == "claims":
                faults.add("arrivals.priorities", "expected devices by columns")
            if len(set(spec.policies)) < len(spec.policies):
                faults.add("policies", "expected every policy once")
        if faults.messages or spec is None:
            raise ConfigurationError([f"{path}: {message}" for message in faults.messages])
        return cls(path, spec)

    @cached_property
    def trace(self) -> Trace:
        trace = read_openb(*self._files)
        known = {pod.qos for pod in trace.pods}
        if unknown := [name for name in self.spec.arrivals.priorities if name not in known]:
            named = f"no pod of the trace has the qos {unknown[0]!r}"
            raise ConfigurationError([f"{self.path}: arrivals.priorities: {named}"])
        return trace

    @cached_property
    def typical_pods(self) -> TypicalPods:
        return TypicalPods.of(pod.ask for pod in self.trace.pods)

    @property
    def seeds(self) -> range:
        return range(self.spec.seeds.first, self.spec.seeds.last + 1)

    @property
    def _files(self) -> tuple[Path, Path]:
        folder = self.path.parent
        return folder / self.spec.trace.nodes, folder / self.spec.trace.pods

    def chooser(self, nodes: DeviceNodes, text: str, seed: int) -> DeviceChooser | ClaimChooser:
        """Returns what places pods on these nodes under an entry of `policies`."""
        parts = self.spec.parts(text, text, Faults())
        if self.spec.devices == "columns":
            policies = [
                Weighted(part.users.policy if part.users else POLICIES[part.name](self.typical_pods, seed), part.weight)
                for part in parts
            ]
            return DeviceChooser(nodes, policies)
        users_rules = tuple(part.users for part in parts if part.users)
        return ClaimChooser(nodes, [(part.name, part.weight) for part in parts], self.typical_pods, users_rules)

    @cached_property
    def _digest_of_files(self) -> str:
        return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in self._files)).hexdigest()

    def key(self, policy: str, seed: int) -> str:
        """Returns a name for all that a run depends on: equal names, equal results."""
        own = [_source_digest(part.users) for part in self.spec.parts(policy, policy, Faults()) if part.users]
        if self.spec.devices == "claims":
            policy = f"claims: {policy}"
        arrivals = self.spec.arrivals.model_dump()
        content = [_FORMAT, self._digest_of_files, arrivals, policy, own, seed, max(self.spec.moves, default=0)]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


class _Part(NamedTuple):
    """One part of a sum of policies; `users` is None for our own policies."""

    weight: int
    name: str
    users: CustomDevicePriority | None = None


def _parts(text: str, path: str, faults: Faults, ours: Sequence[str]) -> Sequence[_Part]:
    """Returns the parts of a sum such as `FGD+2*PWR`; adds a fault for each that is wrong."""
    parts = []
    for part in text.split("+"):
        digits, star, name = part.strip().rpartition("*")
        weight = int(digits) if digits.strip().isdecimal() else 0 if star else 1
        if not 1 <= weight <= 100:
            faults.add(path, f"expected a weight from 1 to 100 before *, got {digits.strip()!r}")
        name = name.strip()
        users = None
        if name not in POLICIES:
            users = _users_policy(name, path, faults, ours)
        elif name not in ours:
            faults.add(path, f"devices: claims has no policy {name}")
        parts.append(_Part(weight, name, users))
    return parts


def _users_policy(name: str, path: str, faults: Faults, ours: Sequence[str]) -> CustomDevicePriority | None:
    """Returns the user's policy of this name; None, with a fault, if there is none."""
    plugin = Library().find_device_policy(name, path, faults, ours)
    arguments = plugin and faults.read(plugin.arguments, {}, f"{path}: {name}")
    return plugin.others[DEVICE_POLICY](arguments) if plugin and arguments else None


def _source_digest(users: CustomDevicePriority) -> str:
    source = file_of(users.decorated.function)
    return hashlib.sha256(source.read_bytes()).hexdigest() if source else ""


class Arrival(NamedTuple):
    """A pod that arrives.

    `hours` and `leaves` are the hours at which it arrives and leaves; both are None if pods arrive in order only.
    """

    ask: DeviceAsk
    hours: float | None = None
    leaves: float | None = None
    priority: int = 0


def arrivals(spec: ArrivalsSpec, trace: Trace, random: np.random.Generator) -> list[Arrival]:
    """Returns the pods of one run as they arrive: as recorded, inflated and shuffled, or as a Poisson process."""
    match spec.type:
        case "recorded":
            return _recorded(spec, trace)
        case "poisson":
            return list(_poisson(spec, trace, random))
        case _:
            return _inflated(spec, trace, random)


def _inflated(spec: ArrivalsSpec, trace: Trace, random: np.random.Generator) -> list[Arrival]:
    """Shuffles the trace's pods, then draws more of them until the devices asked for exceed the given percentage."""
    pods = [trace.pods[index] for index in random.permutation(len(trace.pods))]
    asked = sum(pod.ask.total for pod in pods)
    while asked * 100 <= spec.percent * trace.capacity:
        pods.append(trace.pods[int(random.integers(len(trace.pods)))])
        asked += pods[-1].ask.total
    return [Arrival(pod.ask, priority=spec.priority(pod)) for pod in pods]


def _recorded(spec: ArrivalsSpec, trace: Trace) -> list[Arrival]:
    timed = [(pod.created, pod) for pod in trace.pods if pod.created is not None]
    first = min((created for created, _ in timed), default=0.0)
    made = [
        Arrival(
            pod.ask,
            (created - first) / _HOUR,
            None if pod.deleted is None else (pod.deleted - first) / _HOUR,
            spec.priority(pod),
        )
        for created, pod in timed
    ]
    return sorted(made, key=lambda arrival: arrival.hours or 0.0)


def _poisson(spec: ArrivalsSpec, trace: Trace, random: np.random.Generator) -> Iterator[Arrival]:
    hours = 0.0
    while (hours := hours + random.exponential(1 / spec.pods_per_hour)) < spec.hours:
        pod = trace.pods[int(random.integers(len(trace.pods)))]
        yield Arrival(pod.ask, hours, hours + random.exponential(spec.lifetime_hours), spec.priority(pod))
