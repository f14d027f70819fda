"""Describes the JSON documents of the pages (/ui/*.json, /simulate, /debug), which have no apiVersion and kind."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from extender.offline.documents.group_schemas import GroupExplanationPart, PendingGroupPart
from extender.offline.documents.parts import DocumentPart
from extender.offline.documents.schemas import ComparisonPart, ExplanationPart, PendingPodPart, StepPart


class PendingPage(DocumentPart):
    """The pending pods with their causes."""

    pending: list[PendingPodPart]
    groups: list[PendingGroupPart]
    unjudged: int
    """The number of pending pods that were not judged for this page."""
    notes: list[str]


class PodPage(ExplanationPart):
    """The reason why a pod is pending, or its best nodes."""


class GroupPage(GroupExplanationPart):
    """The reason why a pod group is pending, or the nodes of its members."""


class PageNode(DocumentPart):
    """A node, with its amounts in the order of the page's `resources`."""

    name: str
    zone: str
    ready: bool
    allocatable: list[int]
    requested: list[int]


class NodesPage(DocumentPart):
    """All nodes; cpu is in millicores, memory in bytes, everything else in whole units."""

    resources: list[str]
    nodes: list[PageNode]


class ResourceAmounts(DocumentPart):
    """The amount of one resource that a node offers to pods, and the amount that its pods request."""

    allocatable: int
    requested: int


class PageVerdict(DocumentPart):
    """The verdict of a filter on the node; it accepts the node if there are no reasons."""

    plugin: str
    reasons: list[str]
    detail: str
    text: str
    """The verdict in words, which also say if the policy disables the filter."""


class NodePage(DocumentPart):
    """A node with its pods and, if a pod is given, each filter's verdict on it."""

    name: str
    labels: dict[str, str]
    taints: list[str]
    unschedulable: bool
    resources: dict[str, ResourceAmounts]
    pods: list[str]
    pod: str | None
    filters: list[PageVerdict]


class ComparePage(ComparisonPart):
    """The nodes on which two configurations place the pending pods."""

    names: list[str]
    maps: list[Any]
    """Pairs of a title and an object with the keys of NodesPage."""


class StepsPage(DocumentPart):
    """The steps of a recording."""

    steps: list[StepPart]


class HypotheticalPlacement(DocumentPart):
    """A pod, and the node on which it would be placed."""

    pod: str
    node: str
    template: str | None
    """The name of the node's template; null if the node exists."""


class HypotheticalRemaining(DocumentPart):
    """A pod that would stay pending, and the reason."""

    pod: str
    reason: str


class Hypothetical(DocumentPart):
    """The placements of pods that would fit, and the pods that would not."""

    complete: bool
    placements: list[HypotheticalPlacement]
    remaining: list[HypotheticalRemaining]
    lost: list[str]
    notes: list[str]


class PastDecisionPart(DocumentPart):
    """A decision about a pod that the process still remembers."""

    at: float
    """Seconds since the epoch."""
    what: str
    """A verb, "attempt" or "event"."""
    outcome: str
    node: str = ""
    reasons: dict[str, int] | None = None
    victims: list[str] | None = None


class PastDecisionOfPod(PastDecisionPart):
    """The last decision about one pod, with the pod's key (`namespace/name`)."""

    pod: str


class DecisionsPage(DocumentPart):
    """The decisions about `pod`. If the request names no pod, `pods` has the last decision about each pod instead."""

    pod: str | None = None
    decisions: list[PastDecisionPart] | None = None
    pods: list[PastDecisionOfPod] | None = None


class LogLevel(DocumentPart):
    """The log level in force."""

    level: str


MODELS: tuple[type[BaseModel], ...] = (
    PendingPage,
    PodPage,
    GroupPage,
    NodesPage,
    NodePage,
    ComparePage,
    StepsPage,
    Hypothetical,
    DecisionsPage,
    LogLevel,
)
