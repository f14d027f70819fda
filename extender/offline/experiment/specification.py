"""Reads the file of an experiment, and reports every fault with its path."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import Field, model_validator

from extender.devices.policies.catalog import POLICIES
from extender.devices.policies.device_nodes import DeviceNodes
from extender.devices.policies.policy import DeviceChooser, Weighted
from extender.devices.policies.typical_pods import TypicalPods
from extender.errors import ConfigurationError
from extender.framework.policy_fields import Strict
from extender.offline.experiment.claims import KUBE_SCHEDULER, ClaimChooser
from extender.offline.experiment.trace import Trace, TracePod, read_openb
from extender.plugins.device_scoring import POLICY_NAMES
from extender.plugins.users.device_priority import DEVICE_POLICY, CustomDevicePriority
from extender.plugins.users.function import file_of
from extender.policy.faults import Faults
from extender.policy.library import Library, search_last

_MOST_SEEDS = 10_000
_MOST_MOVES = 100_000
_FORMAT = 3
"""Changed when runs that were kept by an earlier version must be made again."""
Metric = Literal["allocated", "fragmentation", "pending", "evictions", "energy"]
Above0 = Annotated[float, Field(gt=0, le=1e6)]


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
                if spec.devices == "claims":
                    _claim_parts(text, f"policies[{index}]", faults)
                else:
                    _parts(text, f"policies[{index}]", faults)
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

    def policy(self, text: str, seed: int) -> list[Weighted]:
        """Returns the weighted policies of an entry of `policies`."""
        made = []
        for weight, name in _parts(text, text, Faults()):
            users = _users_policy(name, text, Faults())
            made.append(Weighted(users.policy if users else POLICIES[name](self.typical_pods, seed), weight))
        return made

    def chooser(self, nodes: DeviceNodes, text: str, seed: int) -> DeviceChooser | ClaimChooser:
        """Returns what places pods on these nodes under an entry of `policies`."""
        if self.spec.devices == "columns":
            return DeviceChooser(nodes, self.policy(text, seed))
        parts = _claim_parts(text, text, Faults())
        return ClaimChooser(
            nodes, [(name, weight) for weight, name in parts], self.typical_pods, _users_policies(parts)
        )

    @cached_property
    def _digest_of_files(self) -> str:
        return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in self._files)).hexdigest()

    def key(self, policy: str, seed: int) -> str:
        """Returns a name for all that a run depends on: equal names, equal results."""
        own = [_source_digest(users) for users in _users_policies(_parts(policy, policy, Faults()))]
        if self.spec.devices == "claims":
            policy = f"claims: {policy}"
        arrivals = self.spec.arrivals.model_dump()
        content = [_FORMAT, self._digest_of_files, arrivals, policy, own, seed, max(self.spec.moves, default=0)]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _parts(text: str, path: str, faults: Faults, ours: Sequence[str] = tuple(POLICIES)) -> Sequence[tuple[int, str]]:
    """Returns (weight, name) for each part of a sum such as `FGD+2*PWR`; adds a fault for each that is wrong."""
    parts = []
    for part in text.split("+"):
        digits, star, name = part.strip().rpartition("*")
        weight = int(digits) if digits.strip().isdecimal() else 0 if star else 1
        if not 1 <= weight <= 100:
            faults.add(path, f"expected a weight from 1 to 100 before *, got {digits.strip()!r}")
        name = name.strip()
        if name not in POLICIES:
            _users_policy(name, path, faults, ours)
        elif name not in ours:
            faults.add(path, f"devices: claims has no policy {name}")
        parts.append((weight, name))
    return parts


def _claim_parts(text: str, path: str, faults: Faults) -> Sequence[tuple[int, str]]:
    """Does the same as `_parts` for policies of DeviceScoring; `kube-scheduler` stands alone."""
    return [(1, text)] if text == KUBE_SCHEDULER else _parts(text, path, faults, POLICY_NAMES)


def _users_policy(
    name: str, path: str, faults: Faults, ours: Sequence[str] = POLICY_NAMES
) -> CustomDevicePriority | None:
    """Returns the user's policy of this name; None for our own names, and with a fault for unknown ones."""
    if name in POLICIES:
        return None
    plugin = Library().find_device_policy(name, path, faults, ours)
    arguments = plugin and faults.read(plugin.arguments, {}, f"{path}: {name}")
    return plugin.others[DEVICE_POLICY](arguments) if plugin and arguments else None


def _users_policies(parts: Sequence[tuple[int, str]]) -> tuple[CustomDevicePriority, ...]:
    return tuple(filter(None, (_users_policy(name, name, Faults()) for _, name in parts)))


def _source_digest(users: CustomDevicePriority) -> str:
    source = file_of(users.decorated.function)
    return hashlib.sha256(source.read_bytes()).hexdigest() if source else ""
