"""Defines the parts of the commands' JSON documents that describe pod groups."""

from __future__ import annotations

from typing import Any, Literal

from extender.offline.documents.parts import ChangePart, Code, Document, DocumentPart


class _DomainOffer(DocumentPart):
    domain: str
    nodes: int
    placed: int
    """The number of waiting members that fit into the domain together."""
    message: str
    """The reason why the next member does not fit into the domain; empty if all fit."""


class GangCapacityPart(DocumentPart):
    size: int
    """The number of pods of each gang."""
    count: int
    """The number of whole gangs that fit."""
    topology_key: str | None
    by_domain: dict[str, int]


class GroupCountPart(DocumentPart):
    group: str
    placed: int
    waiting: int
    lost: int
    place: Literal["whole", "part", "none"]
    """Says if all members of the group have a node, some of them, or none."""


class MovedGroupPart(DocumentPart):
    group: str
    first: GroupCountPart
    second: GroupCountPart


class _ChildGroup(DocumentPart):
    kind: Literal["PodGroup", "CompositePodGroup"]
    key: str
    fits: bool
    scheduled: int
    waiting: int
    message: str
    """The reason why the child group does not fit; empty if it does."""


class _EvictedUnit(DocumentPart):
    pods: dict[str, str]
    """The node from which each pod is evicted."""
    group: str | None
    """The PodGroup that is evicted as a whole."""


class _GroupEvictions(DocumentPart):
    units: list[_EvictedUnit]
    violated_budgets: list[str]
    nominated: dict[str, str]
    """The node where each member fits once the evicted pods have left."""
    message: str


class GroupExplanationPart(DocumentPart):
    """The reason why a pod group is pending, or the nodes of its members."""

    group: str
    group_kind: Literal["PodGroup", "CompositePodGroup"]
    policy: str
    fits: bool
    message: str
    causes: list[Code]
    """The causes, the most important first."""
    verdict: str
    """The decision in the words of kube-scheduler, without preemption."""
    scheduler_message: str
    """The message that kube-scheduler writes into the group's condition; empty if it writes none."""
    scheduled: int
    waiting: int
    placed: dict[str, str]
    """The node of each pod in the placement that fits as many members as possible."""
    pending: dict[str, str]
    """The reason why each pod is not placed."""
    refused: dict[str, Any] | None
    """The first member without a node, as an Explanation."""
    domain: str
    """KEY=VALUE of the topology domain that `placed` and `refused` are about; empty without a topology constraint."""
    domains: list[_DomainOffer]
    child_groups: list[_ChildGroup]
    evictions: _GroupEvictions | None
    """The pods that preemption would evict for the group."""
    changes: list[ChangePart]
    notes: list[str]


class GroupExplanationDocument(Document, GroupExplanationPart):
    """`extender explain podgroup/NAME`: why a pod group is pending, or where it would be placed."""

    kind: Literal["GroupExplanation"]


class PendingGroupPart(DocumentPart):
    kind: Literal["PodGroup", "CompositePodGroup"]
    namespace: str
    name: str
    policy: str
    scheduled: int
    waiting: int
    placed: int
    """The number of waiting members that fit on the nodes together."""
    code: Code
    blocker: str
