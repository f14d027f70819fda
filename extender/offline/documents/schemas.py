"""Describes every kind of document that commands print, as models; each gives a JSON Schema.

A key of a model is always there, unless its type says `None` and it has a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from extender.offline.documents.kinds import API_VERSION
from extender.offline.explain.codes import CauseCode

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
    "rule-cost",
    "extenders",
    "node-cache-capable",
    "ignorable",
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

_POD_CHANGES = "requests|tolerations|node-selection|spread|pod-affinity|host-ports|node-name|volume-claim|device-claim"
_OTHER_CHANGES = "uncordon|label-node|remove-pods|free-devices|add-node|min-count"
ChangeKind = Annotated[str, Field(pattern=rf"^(({_POD_CHANGES})(\+({_POD_CHANGES}))*|{_OTHER_CHANGES})$")]
Shares = dict[str, float]


class _Part(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="allow", alias_generator=to_camel, use_attribute_docstrings=True, use_enum_values=True
    )


class _Document(_Part):
    api_version: Literal["podseat/v1alpha1"]


class _Refused(_Part):
    plugin: str
    code: str
    """Unschedulable if evicting pods may help, else UnschedulableAndUnresolvable or Error."""
    reasons: list[str]


class _Reason(_Part):
    code: Annotated[CauseCode, Field(strict=False)]
    plugin: str
    reason: str
    """The reason in the scheduler's words."""
    nodes: int
    detail: str
    """The numbers behind the reason; may be empty."""
    final: bool
    """True if evicting pods from these nodes would not help."""
    examples: list[str]


class _WaterfallLine(_Part):
    weight: int
    winner: int
    runner_up: int
    difference: int


class _Waterfall(_Part):
    winner: str
    total: int
    ties: int
    runner_up: str | None
    runner_up_total: int | None
    plugins: dict[str, _WaterfallLine]


class _Candidate(_Part):
    victims: list[str]
    num_pdb_violations: int = Field(alias="numPDBViolations")


class _Preemption(_Part):
    candidates: dict[str, _Candidate]
    nominated_node: str | None
    decided_by: str
    reason: str | None


class _Change(_Part):
    kind: ChangeKind
    text: str
    size: float
    nodes: list[str]
    spec: dict[str, Any] | None = None
    removed: list[str] | None = None
    objects: list[dict[str, Any]] | None = None


class ExplanationDocument(_Document):
    """`extender explain POD`: why a pod is pending, or where it would be placed."""

    kind: Literal["Explanation"]
    pod: str
    fits: bool
    message: str
    """The verdict in the words of kube-scheduler."""
    notes: list[str]
    feasible: list[str]
    best: list[str]
    nodes: dict[str, _Refused]
    reasons: list[_Reason]
    scores: dict[str, dict[str, int]]
    total: dict[str, int]
    waterfall: _Waterfall | None
    preemption: _Preemption
    changes: list[_Change]
    filters: dict[str, list[str]] | None = None
    """With --node: the reasons of each filter on this node; none if it accepts the node."""
    name: Any = None
    """With --batch: the name of the case."""


class ExplanationListDocument(_Document):
    """`extender explain -f FILE`: several pods."""

    kind: Literal["ExplanationList"]
    items: list[ExplanationDocument]


class _DomainOffer(_Part):
    domain: str
    nodes: int
    placed: int
    """The number of waiting members that find a node in the domain together."""
    message: str
    """The reason why the next member finds none."""


class GroupExplanationDocument(_Document):
    """`extender explain podgroup/NAME`: why a pod group is pending, or where it would be placed."""

    kind: Literal["GroupExplanation"]
    group: str
    group_kind: Literal["PodGroup", "CompositePodGroup"]
    policy: str
    fits: bool
    message: str
    verdict: str
    """The verdict in the words of kube-scheduler."""
    scheduled: int
    waiting: int
    placed: dict[str, str]
    """Pod -> node, if as many members are placed as fit."""
    pending: dict[str, str]
    """Pod -> the reason why it is not placed."""
    refused: dict[str, Any] | None
    """The first member without a node, as an Explanation."""
    domains: list[_DomainOffer]
    changes: list[_Change]
    notes: list[str]


class _PendingPod(_Part):
    namespace: str
    name: str
    since: str | None
    code: Annotated[CauseCode, Field(strict=False)]
    cause: str
    blocker: str
    """The cause with its numbers."""
    available: int
    nodes: int
    preempts: str | None


class PendingPodsDocument(_Document):
    """`extender explain`: the pending pods with their causes."""

    kind: Literal["PendingPods"]
    pending: list[_PendingPod]
    notes: list[str]


class DecisionsDocument(_Document):
    """`extender explain --from URL`: the decisions of a running process; `decisions` about one pod, else `pods`."""

    kind: Literal["Decisions"]
    decisions: list[dict[str, Any]] | None = None
    pods: list[dict[str, Any]] | None = None


class _Placement(_Part):
    pod: str
    node: str
    previous: str | None


class _Eviction(_Part):
    pod: str
    node: str
    cause: str
    """"drain", "node NAME removed" or "preemption by NAMESPACE/NAME"."""
    comes_back: bool


class _Balance(_Part):
    utilisation: Shares
    imbalance: Shares
    zone_imbalance: Shares
    fragmentation: Shares
    nodes: dict[str, Shares]
    """The utilisation of each node."""


class _Drain(_Part):
    evicted: list[str]
    remaining: list[str]
    lost: list[str]
    remaining_without: list[str]
    summary: str


class _Simulated(_Part):
    placements: list[_Placement]
    remaining: dict[str, str]
    """The pods that got no node, and why."""
    evictions: list[_Eviction]
    lost: list[str]
    kept: dict[str, str]
    drain: _Drain | None
    notes: list[str]
    before: _Balance
    after: _Balance


class SimulationDocument(_Document, _Simulated):
    """`extender simulate`: where pods would be placed."""

    kind: Literal["Simulation"]


class CapacityDocument(_Document):
    """`extender capacity`: how many more pods fit."""

    kind: Literal["Capacity"]
    pods: dict[str, int]
    by_node: dict[str, dict[str, int]]
    by_zone: dict[str, int]
    exhausted: dict[str, list[_Reason]]
    limited: bool
    notes: list[str]


class _Moved(_Part):
    pod: str
    first: str | None
    first_outcome: Literal["placed", "pending", "lost"]
    second: str | None
    second_outcome: Literal["placed", "pending", "lost"]


class ComparisonDocument(_Document):
    """`extender compare`: the same pods under two configurations."""

    kind: Literal["Comparison"]
    moved: list[_Moved]
    plugins: dict[str, float]
    first: _Simulated
    second: _Simulated
    notes: list[str]


class _Difference(_Part):
    recorded: Any
    replayed: Any
    cause: str | None
    nodes: list[str]


class _ChangedDecision(_Part):
    step: int
    at: float
    what: str
    pod: str
    differences: list[_Difference]


class _Step(_Part):
    step: int
    at: float
    kind: str
    subject: str
    text: str


class ReplayDocument(_Document):
    """`extender replay`: the decisions that differ; with --steps only `file` and `steps`."""

    kind: Literal["Replay"]
    file: str
    decided: dict[str, int] | None = None
    left_out: dict[str, int] | None = None
    changed: list[_ChangedDecision] | None = None
    notes: list[str] | None = None
    steps: list[_Step] | None = None


class ReplayListDocument(_Document):
    """`extender replay FILE FILE`: several recordings."""

    kind: Literal["ReplayList"]
    items: list[ReplayDocument]


class _RuleTrial(_Part):
    name: str
    kind: Literal["predicate", "priority"]
    pods: int
    nodes: int
    differs: int
    failure: str
    micros_per_node: float
    refused: dict[str, int]
    scores: list[float] | None


class RuleTrialsDocument(_Document):
    """`extender rule test`: each rule on a cluster."""

    kind: Literal["RuleTrials"]
    rules: list[_RuleTrial]


class _Finding(_Part):
    level: Literal["ok", "warn", "fail"]
    check: Literal[CHECKS]  # type: ignore[valid-type]  # mypy reads no tuple in a Literal
    message: str
    fix: str
    docs: str


class DiagnosisDocument(_Document):
    """`extender doctor`: the findings about an installation."""

    kind: Literal["Diagnosis"]
    findings: list[_Finding]


class _QueuedPod(_Part):
    namespace: str
    name: str
    tier: str
    priority: int
    labels: dict[str, str]


class QueueDocument(_Document):
    """`extender status`: the pods that a scheduler has not placed yet."""

    kind: Literal["Queue"]
    pods: list[_QueuedPod]
    scheduled: int


class CaseErrorDocument(_Document):
    """`extender explain --batch`: a line that is not a valid case."""

    kind: Literal["CaseError"]
    name: Any
    error: str


class _Certificate(_Part):
    file: str
    name: str
    signed_by: str
    until: str
    done: Literal["made", "renewed", "kept", "trusted"]


class CertificatesDocument(_Document):
    """`extender certs`: the certificates in the directory, and what was done with each."""

    kind: Literal["Certificates"]
    certificates: list[_Certificate]


class ReferenceDocument(_Document):
    """`extender reference TOPIC`: the rows about a topic, whose keys are the columns of the table."""

    kind: Literal["Reference"]
    topic: str
    rows: list[dict[str, str]]


class _NodeUsage(_Part):
    name: str
    zone: str
    ready: bool
    """True if the node takes new pods."""
    allocatable: dict[str, int]
    requested: dict[str, int]


class NodeUsageDocument(_Document):
    """`extender mcp`: the resources of the nodes; cpu in milli, the others in units."""

    kind: Literal["NodeUsage"]
    nodes: list[_NodeUsage]
    notes: list[str]


_MODELS: tuple[type[_Document], ...] = (
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
SCHEMAS: Mapping[str, type[_Document]] = {model.__name__.removesuffix("Document"): model for model in _MODELS}
"""The model of each kind."""


def schema(kind: str) -> dict[str, Any]:
    """Returns the JSON Schema of a kind. Keys that it does not list may be there too."""
    model = SCHEMAS[kind]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{API_VERSION}/{kind}",
        **model.model_json_schema(),
        "title": kind,
    }
