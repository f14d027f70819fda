"""Provides base classes and types for the models of policy files. The models reject unknown fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from extender.framework.rules import MAX_SCORE, Scores
from extender.model.formats import qualified_name

# The configuration gives scores on a scale of 0..10 (upstream MaxCustomPriorityScore).
MAX_POINT_SCORE = 10
MAX_UTILIZATION = 100
_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_DURATIONS = re.compile(rf"[-+]?(({_DURATION.pattern})+|0)", re.ASCII)
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_SECONDS = 2**63 / 1e9  # Go counts nanoseconds in 64 bits


class ShapePoint(NamedTuple):
    """A point of the line that maps the utilization of a resource, 0..100 percent, to a score, 0..10."""

    utilization: int
    score: int


def score_by_utilization(shape: Sequence[ShapePoint]) -> Scores:
    """Returns the score for each whole percent, int64[101] of 0..100 (upstream BuildBrokenLinearFunction).

    Scores between two points are interpolated. Before the first and after the last point, the score is constant.
    """
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
        # Rounds towards zero, like Go's division, also if the score falls while the utilization rises.
        yield left.score + (rise // width if rise >= 0 else -(-rise // width))


class Strict(BaseModel):
    """The base class of the parts of a policy file. An unknown field, or a value of the wrong type, is an error.

    Attributes:
        never_null: the fields that must not be null. For all others null means absent, as in Go.
    """

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", alias_generator=to_camel, use_attribute_docstrings=True
    )
    never_null: ClassVar[frozenset[str]] = frozenset()


def label_key(value: str) -> str:
    """Returns the value if it is a label key. Raises ValueError otherwise."""
    if qualified_name(value) is not None:
        raise ValueError("expected a label key, like example.com/rack")
    return value


LabelKey = Annotated[str, AfterValidator(label_key)]
Percentage = Annotated[int, Field(ge=0, le=100)]
NonNegative = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[int, Field(gt=0, lt=2**31)]


class UtilizationShapePoint(Strict):
    """A point of the line that maps the utilization of a resource to a score, as a policy file gives it."""

    utilization: Percentage = 0
    """The share of the resource in use, in percent."""
    score: Annotated[int, Field(ge=0, le=10)] = 0
    """The score at this utilization, out of 10."""


def _ascending(shape: tuple[UtilizationShapePoint, ...]) -> tuple[UtilizationShapePoint, ...]:
    utilizations = [point.utilization for point in shape]
    if utilizations != sorted(set(utilizations)):
        raise ValueError("expected points in increasing order of utilization")
    return shape


# A shape without points means the plugin's default shape.
OptionalShape = Annotated[tuple[UtilizationShapePoint, ...], AfterValidator(_ascending)]
Shape = Annotated[OptionalShape, Field(min_length=1)]


def points(shape: Sequence[UtilizationShapePoint]) -> tuple[ShapePoint, ...]:
    """Converts the points of a policy file to ShapePoints, for `score_by_utilization`."""
    return tuple(ShapePoint(point.utilization, point.score) for point in shape)


class ResourceSpec(Strict):
    """A resource that a priority considers."""

    name: str = ""
    """The name of the resource."""
    weight: Annotated[int, Field(ge=0, le=100)] = 0
    """Its weight; 0 means the default, 1."""


def duration(least_seconds: float = -_LONGEST_SECONDS) -> Callable[[str], str]:
    """Returns a validator for durations in Go's format that last at least `least_seconds`."""

    def check(value: str) -> str:
        if not _DURATIONS.fullmatch(value) or not least_seconds <= duration_seconds(value) < _LONGEST_SECONDS:
            least = f" of at least {least_seconds:g}s" if least_seconds >= 0 else ""
            raise ValueError(f"expected a duration{least}, like 10s or 5m")
        return value

    return check


def duration_seconds(text: str) -> float:
    """Converts a duration in Go's format, like "1m30s", to seconds."""
    seconds = sum(float(amount) * _UNIT_SECONDS[unit] for amount, unit in _DURATION.findall(text))
    return -seconds if text.startswith("-") else seconds
