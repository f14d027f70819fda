"""Shared by the tests of the queue: pods as the queue takes them, and telemetry as lists."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

import msgspec

from extender.framework.status import Rejection
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.pod_groups import GroupName, PodGroup
from extender.runtime.ports import Telemetry
from extender.table import PodInfo
from tests.builders import Builder, NodeBuilder, PodBuilder, make_node, make_pod

T = TypeVar("T", bound=Object)


def decoded(builder: Builder, kind: type[T]) -> T:
    return msgspec.convert(builder.obj(), kind)


def function_calls(work: Callable[[], object]) -> int:
    """Does the work, and returns how many calls of functions it took, of Python's and of C's."""
    calls = 0

    def count(_frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def without_trees(key: str) -> GroupName:
    """Returns the PodGroup with this key as the root: it belongs to no other group."""
    return GroupName(PodGroup.__name__, key)


def info(pod: PodBuilder | str) -> PodInfo:
    return PodInfo(decoded(make_pod(pod) if isinstance(pod, str) else pod, Pod))


def node(built: NodeBuilder | str) -> Node:
    return decoded(make_node(built) if isinstance(built, str) else built, Node)


def refused(*rules: str, pending: str = "", unresolvable: str = "") -> Rejection:
    return Rejection(frozenset(rules), frozenset(pending.split()), frozenset(unresolvable.split()))


class QueueRecorder(Telemetry):
    """Telemetry that keeps lists of what the queue reports."""

    def __init__(self) -> None:
        self.arrivals: list[tuple[str, str]] = []
        self.entities: list[tuple[str, str, str]] = []
        self.failed: list[str] = []
        self.moves: list[tuple[str, str, str, str]] = []

    def incoming(self, queue: str, event: str) -> None:
        self.arrivals.append((queue, event))

    def entity_incoming(self, queue: str, event: str, entity: str) -> None:
        self.entities.append((queue, event, entity))

    def moved(self, pod_key: str, origin: str, tier: str, event: str) -> None:
        self.moves.append((pod_key, origin, tier, event))

    def rule_failed(self, rule: str) -> None:
        self.failed.append(rule)

    def set_aside(self, task: str, item: str, error: Exception) -> None:
        raise error
