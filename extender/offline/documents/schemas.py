"""Describes each kind of document that commands print by a model, which gives its JSON Schema.

A document has every key of its model, except that a key may be absent if its type allows `None` and it has a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from extender.offline.documents.document_kinds import API_VERSION
from extender.offline.documents.group_schemas import (
    GangCapacityPart,
    GroupCountPart,
    GroupExplanationDocument,
    MovedGroupPart,
    PendingGroupPart,
)
from extender.offline.documents.parts import ChangePart, Code, Document, DocumentPart

CHECKS = (
    "api-server",
    "version",
    "clock",
    "served-apis",
    "pod-groups",
    "lease",
    "rights",
    "too-many-rights",
    "policy",
    "scores-twice",
    "rule-cost",
    "left-out",
    "scheduler-config",
    "extenders",
    "node-cache-capable",
    "ignorable",
    "own-pods",
    "bind-verb",
    "preempt-verb",
    "tls-verified",
    "sampling",
    "features-off",
    "scheduler-names",
    "tls-files",
    "reachable",
    "certificate",
    "ready",
    "verbs",
    "latency",
)
"""The checks of `extender doctor`."""

Shares = dict[str, float]


class _Refused(DocumentPart):
    plugin: str
    code: str
    """Unschedulable if evicting pods may help, else UnschedulableAndUnresolvable or Error."""
    reasons: list[str]


class _Reason(DocumentPart):
    code: Code
    plugin: str
    reason: str
    """The reason in the scheduler's words."""
    nodes: int
    detail: str
    """The numbers behind the reason; may be empty."""
    final: bool
    """True if evicting pods from these nodes would not help."""
    examples: list[str]


class _WaterfallLine(DocumentPart):
    weight: int
    winner: int
    runner_up: int
    difference: int


class _Waterfall(DocumentPart):
    winner: str
    total: int
    ties: int
    runner_up: str | None
    runner_up_total: int | None
    plugins: dict[str, _WaterfallLine]


class _Candidate(DocumentPart):
    victims: list[str]
    num_pdb_violations: int = Field(alias="numPDBViolations")


class _Preemption(DocumentPart):
    candidates: dict[str, _Candidate]
    nominated_node: str | None
    decided_by: str
    reason: str | None


class ConditionPart(DocumentPart):
    """The condition PodScheduled of a pod, if it contradicts the verdict."""

    author: str
    """The pod's schedulerName."""
    since: str | None
    reason: str
    message: str


class ExplanationPart(DocumentPart):
    """The reason why a pod is pending, or its best nodes."""

    pod: str
    fits: bool
    message: str
    """The verdict in the words of kube-scheduler."""
    condition: ConditionPart | None
    """What the pod's scheduler wrote, if it contradicts the verdict."""
    notes: list[str]
    feasible: list[str]
    best: list[str]
    nodes: dict[str, _Refused]
    reasons: list[_Reason]
    scores: dict[str, dict[str, int]]
    total: dict[str, int]
    waterfall: _Waterfall | None
    preemption: _Preemption
    changes: list[ChangePart]


class ExplanationDocument(Document, ExplanationPart):
    """`extender explain POD`: why a pod is pending, or where it would be placed."""

    kind: Literal["Explanation"]
    filters: dict[str, list[str] | None] | None = None
    """With --node: why each filter refuses this node; empty if it accepts the node, null if the policy disables it.

    If the policy disables only a filter's `filter` point, its preFilter still runs; its reason is given here.
    """
    name: Any = None
    """With --batch: the name of the case."""
    error: str | None = None
    """With --batch: the error that ends the attempt to place the pod, if there is one."""


class ExplanationListDocument(Document):
    """`extender explain -f FILE`: the explanation of each pod, if the file has several."""

    kind: Literal["ExplanationList"]
    items: list[ExplanationDocument]


class PendingPodPart(DocumentPart):
    namespace: str
    name: str
    since: str | None
    code: Code
    cause: str
    blocker: str
    """The cause and, if known, the numbers behind it."""
    available: int
    nodes: int
    preempts: str | None
    condition: ConditionPart | None
    """What the pod's scheduler wrote, if it contradicts the cause."""
    workload: str
    """What made the pod, such as `Deployment web`; empty if no controller did."""


class PendingPodsDocument(Document):
    """`extender explain`: the pending pods and pod groups with their causes."""

    kind: Literal["PendingPods"]
    pending: list[PendingPodPart]
    groups: list[PendingGroupPart]
    notes: list[str]


class DecisionsDocument(Document):
    """`extender explain --from URL`: a running process's decisions about a pod (`decisions`) or all pods (`pods`)."""

    kind: Literal["Decisions"]
    decisions: list[dict[str, Any]] | None = None
    pods: list[dict[str, Any]] | None = None


class _Placement(DocumentPart):
    pod: str
    node: str
    previous: str | None


class _Eviction(DocumentPart):
    pod: str
    node: str
    cause: str
    """"drain", "node NAME removed" or "preemption by NAMESPACE/NAME"."""
    comes_back: bool


class _Balance(DocumentPart):
    utilisation: Shares
    imbalance: Shares
    zone_imbalance: Shares
    fragmentation: Shares
    nodes: dict[str, Shares]
    """The utilisation of each node."""


class _Drain(DocumentPart):
    evicted: list[str]
    remaining: list[str]
    lost: list[str]
    remaining_without: list[str]
    summary: str


class _Simulated(DocumentPart):
    placements: list[_Placement]
    remaining: dict[str, str]
    """The pods that got no node, and why."""
    evictions: list[_Eviction]
    lost: list[str]
    kept: dict[str, str]
    groups: list[GroupCountPart]
    """The members of each pod group that have a node, wait or are lost."""
    drain: _Drain | None
    notes: list[str]
    before: _Balance
    after: _Balance


class SimulationDocument(Document, _Simulated):
    """`extender simulate`: where pods would be placed."""

    kind: Literal["Simulation"]


class CapacityDocument(Document):
    """`extender capacity`: how many more pods fit."""

    kind: Literal["Capacity"]
    pods: dict[str, int]
    by_node: dict[str, dict[str, int]]
    by_zone: dict[str, int]
    exhausted: dict[str, list[_Reason]]
    limited: bool
    notes: list[str]
    gangs: dict[str, GangCapacityPart]


class _Moved(DocumentPart):
    pod: str
    first: str | None
    first_outcome: Literal["placed", "pending", "lost"]
    second: str | None
    second_outcome: Literal["placed", "pending", "lost"]


class ComparisonPart(DocumentPart):
    """The same pods under two configurations."""

    moved: list[_Moved]
    moved_groups: list[MovedGroupPart]
    plugins: dict[str, float]
    first: _Simulated
    second: _Simulated


class ComparisonDocument(Document, ComparisonPart):
    """`extender compare`: the same pods under two configurations."""

    kind: Literal["Comparison"]
    notes: list[str]


class _Difference(DocumentPart):
    recorded: Any
    replayed: Any
    cause: str | None
    nodes: list[str]


class _ChangedDecision(DocumentPart):
    step: int
    at: float
    what: str
    pod: str
    differences: list[_Difference]


class StepPart(DocumentPart):
    step: int
    at: float
    kind: str
    subject: str
    text: str


class ReplayDocument(Document):
    """`extender replay`: the decisions that differ. With --steps, the document has only `file` and `steps`."""

    kind: Literal["Replay"]
    file: str
    decided: dict[str, int] | None = None
    left_out: dict[str, int] | None = None
    changed: list[_ChangedDecision] | None = None
    notes: list[str] | None = None
    steps: list[StepPart] | None = None


class ReplayListDocument(Document):
    """`extender replay FILE FILE`: several recordings."""

    kind: Literal["ReplayList"]
    items: list[ReplayDocument]


class _RuleTrial(DocumentPart):
    name: str
    kind: Literal["predicate", "priority"]
    pods: int
    nodes: int
    differs: int
    failure: str
    micros_per_node: float
    refused: dict[str, int]
    scores: list[float] | None


class RuleTrialsDocument(Document):
    """`extender rule test`: what each rule answers about the pods and nodes of a cluster."""

    kind: Literal["RuleTrials"]
    rules: list[_RuleTrial]


class _Finding(DocumentPart):
    level: Literal["ok", "warn", "fail"]
    check: Literal[CHECKS]  # type: ignore[valid-type]  # mypy does not accept a tuple in a Literal
    message: str
    fix: str
    docs: str


class DiagnosisDocument(Document):
    """`extender doctor`: the findings about an installation."""

    kind: Literal["Diagnosis"]
    findings: list[_Finding]


class _QueuedPod(DocumentPart):
    namespace: str
    name: str
    tier: str
    priority: int
    labels: dict[str, str]


class QueueDocument(Document):
    """`extender status`: the pods that a scheduler has not placed yet."""

    kind: Literal["Queue"]
    pods: list[_QueuedPod]
    scheduled: int


class CaseErrorDocument(Document):
    """`extender explain --batch`: a line that is not a valid case."""

    kind: Literal["CaseError"]
    name: Any
    error: str


class _Certificate(DocumentPart):
    file: str
    name: str
    signed_by: str
    until: str
    done: Literal["made", "renewed", "kept", "trusted"]


class CertificatesDocument(Document):
    """`extender certs`: the certificates in the directory, and what was done with each."""

    kind: Literal["Certificates"]
    certificates: list[_Certificate]


class ReferenceDocument(Document):
    """`extender reference TOPIC`: the rows of the topic's table, keyed by the titles of its columns."""

    kind: Literal["Reference"]
    topic: str
    rows: list[dict[str, str]]


class _NodeUsage(DocumentPart):
    name: str
    zone: str
    ready: bool
    """True if the node takes new pods."""
    allocatable: dict[str, int]
    requested: dict[str, int]


class NodeUsageDocument(Document):
    """`extender mcp`: the resources of the nodes; cpu in millicores, memory in bytes, others in units."""

    kind: Literal["NodeUsage"]
    nodes: list[_NodeUsage]
    notes: list[str]


_MODELS: tuple[type[Document], ...] = (
    ExplanationDocument,
    GroupExplanationDocument,
    ExplanationListDocument,
    PendingPodsDocument,
    DecisionsDocument,
    SimulationDocument,
    CapacityDocument,
    ComparisonDocument,
    ReplayDocument,
    ReplayListDocument,
    RuleTrialsDocument,
    DiagnosisDocument,
    QueueDocument,
    CaseErrorDocument,
    CertificatesDocument,
    ReferenceDocument,
    NodeUsageDocument,
)
SCHEMAS: Mapping[str, type[Document]] = {model.__name__.removesuffix("Document"): model for model in _MODELS}
"""The model of each kind."""


def schema(kind: str) -> dict[str, Any]:
    """Returns the JSON Schema of a kind. A document may also have keys that the schema does not list."""
    model = SCHEMAS[kind]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{API_VERSION}/{kind}",
        **model.model_json_schema(),
        "title": kind,
    }
