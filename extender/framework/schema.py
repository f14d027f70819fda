"""Parts of the models of policy files. Types are strict, names are the API's, unknown names are faults.

Scores by utilization are a broken line through points of the configuration. Source: upstream plugins/helper
BuildBrokenLinearFunction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from extender.framework.rules import MAX_SCORE, Scores

# Points are given on a scale of 0..10 (upstream MaxCustomPriorityScore).
MAX_POINT_SCORE = 10
MAX_UTILIZATION = 100
_QUALIFIED_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DURATION = re.compile(r"\+?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class ShapePoint(NamedTuple):
    """A point of the line: `utilization` 0..100 in percent, `score` 0..10."""

    utilization: int
    score: int


def score_by_utilization(shape: Sequence[ShapePoint]) -> Scores:
    """The score at each whole percent: int64[101], 0..100. Before the first point and after the last it is level."""
    points = [ShapePoint(point.utilization, point.score * MAX_SCORE // MAX_POINT_SCORE) for point in shape]
    table = np.full(MAX_UTILIZATION + 1, points[-1].score, np.int64)
    table[: points[0].utilization + 1] = points[0].score
    for left, right in pairwise(points):
        table[left.utilization + 1 : right.utilization + 1] = list(_between(left, right))
    return table


def _between(left: ShapePoint, right: ShapePoint) -> Iterator[int]:
    width = right.utilization - left.utilization
    for step in range(1, width + 1):
        rise = (right.score - left.score) * step
        # Go rounds a quotient towards zero, on falling lines too.
        yield left.score + (rise // width if rise >= 0 else -(-rise // width))


class Strict(BaseModel):
    """Base of every part of a policy file."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", alias_generator=to_camel, use_attribute_docstrings=True
    )


class Ignored(BaseModel):
    """A part that concerns kube-scheduler alone: not read here, so not checked."""

    model_config = ConfigDict(frozen=True, extra="allow")


def label_key(value: str) -> str:
    """Returns the label key. Raises ValueError if it is none."""
    prefix, separator, name = value.rpartition("/")
    well_formed = _QUALIFIED_NAME.fullmatch(name) and (
        not separator or (len(prefix) <= 253 and _DNS_SUBDOMAIN.fullmatch(prefix))
    )
    if not well_formed:
        raise ValueError("want a label key, like example.com/rack")
    return value


LabelKey = Annotated[str, AfterValidator(label_key)]
Percentage = Annotated[int, Field(ge=0, le=100)]
NonNegative = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0, le=2**31 - 1)]


class UtilizationShapePoint(Strict):
    """A point of a scoring line."""

    utilization: Percentage = 0
    """The share that is taken, in percent."""
    score: Annotated[int, Field(ge=0, le=10)] = 0
    """The score there, of 10."""


def _ascending(shape: tuple[UtilizationShapePoint, ...]) -> tuple[UtilizationShapePoint, ...]:
    utilizations = [point.utilization for point in shape]
    if utilizations != sorted(set(utilizations)):
        raise ValueError("want points in increasing order of utilization")
    return shape


# No points at all: the default shape, where there is one.
OptionalShape = Annotated[tuple[UtilizationShapePoint, ...], AfterValidator(_ascending)]
Shape = Annotated[OptionalShape, Field(min_length=1)]


def points(shape: Sequence[UtilizationShapePoint]) -> tuple[ShapePoint, ...]:
    """Returns a shape as priorities take it."""
    return tuple(ShapePoint(point.utilization, point.score) for point in shape)


class ResourceSpec(Strict):
    """A resource that a priority looks at; a weight of 0 is the default, 1."""

    name: Annotated[str, Field(min_length=1)]
    """The resource."""
    weight: Annotated[int, Field(ge=0, le=100)] = 0
    """Its weight; 0: 1."""


def duration(least_seconds: float) -> Callable[[str], str]:
    """Returns a validator of durations as Go writes them."""

    def check(value: str) -> str:
        if not re.fullmatch(rf"({_DURATION.pattern})+|0", value) or duration_seconds(value) < least_seconds:
            raise ValueError(f"want a duration of at least {least_seconds:g}s, like 10s or 5m")
        return value

    return check


def duration_seconds(text: str) -> float:
    """Returns a duration as Go writes it ("1m30s") in seconds."""
    return sum(float(amount) * _UNIT_SECONDS[unit] for amount, _, unit in _DURATION.findall(text))
