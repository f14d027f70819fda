"""Draws the pods of one run from a trace: as recorded, inflated and shuffled, or as a Poisson process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from extender.devices.policies.device_nodes import DeviceAsk
from extender.offline.experiment.specification import ArrivalsSpec
from extender.offline.experiment.trace import Trace

_HOUR = 3600.0


class Arrival(NamedTuple):
    """A pod that arrives.

    `hours` and `leaves` are the hours at which it arrives and leaves; both are None if pods arrive in order only.
    """

    ask: DeviceAsk
    hours: float | None = None
    leaves: float | None = None
    priority: int = 0


def arrivals(spec: ArrivalsSpec, trace: Trace, random: np.random.Generator) -> list[Arrival]:
    """Returns the pods of one run in the order in which they arrive."""
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
    timed = [pod for pod in trace.pods if pod.created is not None]
    first = min((pod.created for pod in timed if pod.created is not None), default=0.0)
    made = [
        Arrival(
            pod.ask,
            (pod.created - first) / _HOUR,
            None if pod.deleted is None else (pod.deleted - first) / _HOUR,
            spec.priority(pod),
        )
        for pod in timed
        if pod.created is not None
    ]
    return sorted(made, key=lambda arrival: arrival.hours or 0.0)


def _poisson(spec: ArrivalsSpec, trace: Trace, random: np.random.Generator) -> Iterator[Arrival]:
    hours = 0.0
    while (hours := hours + random.exponential(1 / spec.pods_per_hour)) < spec.hours:
        pod = trace.pods[int(random.integers(len(trace.pods)))]
        yield Arrival(pod.ask, hours, hours + random.exponential(spec.lifetime_hours), spec.priority(pod))
