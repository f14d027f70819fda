"""The shape of each kind of document that commands print, from which its JSON Schema is made.

Most shapes are answers of `extender.offline`; a class here adds what its command prints besides.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from extender.cli.document_kinds import API_VERSION, DocumentKind
from extender.offline.answers import Documented
from extender.offline.experiment.sweep import ExperimentResult
from extender.offline.explain.explanation import Explained
from extender.offline.explain.group import GroupExplained
from extender.offline.explain.overview import Pending
from extender.offline.nodes import NodeUsage
from extender.offline.plan.plan import Planned
from extender.offline.recording.reading import RecordedStep
from extender.offline.recording.replay import ChangedDecision
from extender.offline.rule_trial import RuleTrial
from extender.offline.what_if.capacity import Capacity
from extender.offline.what_if.comparison import Compared
from extender.offline.what_if.result import Simulated
from extender.runtime.text import attributes_in

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


class ExplanationDocument(Explained, frozen=True, omit_defaults=True):
    """`extender explain POD`: why a pod is pending, or where it would be placed.

    Attributes:
        filters: with --node: why each filter refuses this node; empty if it accepts the node, null if the policy
            disables it. If the policy disables only a filter's `filter` point, its preFilter still runs; its reason is
            given here.
        name: with --batch: the name of the case.
        error: with --batch: the error that ends the attempt to place the pod, if there is one.
    """

    filters: Mapping[str, list[str] | None] | None = None
    name: Any = None
    error: str | None = None


class GroupExplanationDocument(GroupExplained, frozen=True):
    """`extender explain podgroup/NAME`: why a pod group is pending, or where it would be placed."""


class ExplanationListDocument(Documented, frozen=True):
    """`extender explain -f FILE`: the explanation of each pod, if the file has several."""

    items: list[ExplanationDocument]


class PendingPodsDocument(Pending, frozen=True):
    """`extender explain`: the pending pods and pod groups with their causes."""

    notes: list[str]


class DecisionsDocument(Documented, frozen=True, omit_defaults=True):
    """`extender explain --from URL`: a running process's decisions about a pod (`decisions`) or all pods (`pods`)."""

    decisions: list[dict[str, Any]] | None = None
    pods: list[dict[str, Any]] | None = None


class SimulationDocument(Simulated, frozen=True):
    """`extender simulate`: where pods would be placed."""


class CapacityDocument(Capacity, frozen=True):
    """`extender capacity`: how many more pods fit."""


class PlanDocument(Planned, frozen=True):
    """`extender plan`: the fewest moves after which pods are placed, or why there are none."""


class ComparisonDocument(Compared, frozen=True):
    """`extender compare`: the same pods under two configurations."""

    notes: list[str]


class ReplayDocument(Documented, frozen=True, omit_defaults=True):
    """`extender replay`: the decisions that differ. With --steps, the document has only `file` and `steps`."""

    file: str
    decided: dict[str, int] | None = None
    left_out: dict[str, int] | None = None
    changed: list[ChangedDecision] | None = None
    notes: list[str] | None = None
    steps: list[RecordedStep] | None = None


class ReplayListDocument(Documented, frozen=True):
    """`extender replay FILE FILE`: several recordings."""

    items: list[ReplayDocument]


class RuleTrialsDocument(Documented, frozen=True):
    """`extender rule test`: what each rule answers about the pods and nodes of a cluster."""

    rules: list[RuleTrial]


class Diagnosed(Documented, frozen=True):
    level: Literal["ok", "warn", "fail"]
    check: Literal[CHECKS]  # type: ignore[valid-type]  # mypy does not accept a tuple in a Literal
    message: str
    fix: str
    docs: str


class DiagnosisDocument(Documented, frozen=True):
    """`extender doctor`: the findings about an installation."""

    findings: list[Diagnosed]


class UnplacedPod(Documented, frozen=True):
    namespace: str
    name: str
    tier: str
    priority: int
    labels: dict[str, str]


class QueueDocument(Documented, frozen=True):
    """`extender status`: the pods that a scheduler has not placed yet."""

    pods: list[UnplacedPod]
    scheduled: int


class CaseErrorDocument(Documented, frozen=True):
    """`extender explain --batch`: a line that is not a valid case."""

    name: Any
    error: str


class Certificate(Documented, frozen=True):
    file: str
    name: str
    signed_by: str
    until: str
    done: Literal["made", "renewed", "kept", "trusted"]


class CertificatesDocument(Documented, frozen=True):
    """`extender certs`: the certificates in the directory, and what was done with each."""

    certificates: list[Certificate]


class ReferenceDocument(Documented, frozen=True):
    """`extender reference TOPIC`: the rows of the topic's table, keyed by the titles of its columns."""

    topic: str
    rows: list[dict[str, str]]


class NodeUsageDocument(Documented, frozen=True):
    """`extender mcp`: the resources of the nodes; cpu in millicores, memory in bytes, others in units."""

    nodes: list[NodeUsage]
    notes: list[str]


class ExperimentDocument(ExperimentResult, frozen=True):
    """`extender experiment`: policies that choose devices, compared on a trace."""


SHAPES: Mapping[str, type[Documented]] = {str(kind): globals()[f"{kind}Document"] for kind in DocumentKind}
"""The shape of each kind, without apiVersion and kind: the class KINDDocument above."""


def schema(kind: str) -> dict[str, Any]:
    """Returns the JSON Schema of a kind. A document may also have keys that the schema does not list."""
    _, definitions = msgspec.json.schema_components([SHAPES[kind]], ref_template="#/$defs/{name}")
    for answer in _below(Documented):
        if answer.__name__ in definitions:
            definitions[answer.__name__] = _completed(definitions[answer.__name__], answer)
    own = definitions.pop(SHAPES[kind].__name__)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{API_VERSION}/{kind}",
        **own,
        "title": kind,
        "$defs": definitions,
    }


def _below(answer: type[Documented]) -> Iterator[type[Documented]]:
    for each in answer.__subclasses__():
        yield each
        yield from _below(each)


def _completed(definition: Mapping[str, Any], answer: type[Documented]) -> dict[str, Any]:
    """Adds what msgspec does not know: what each key means, and that an answer has its keys even with their defaults.

    Only an answer with `omit_defaults` may lack keys.
    """
    meanings = {
        name: re.sub(r"\bNone\b", "null", text[0].upper() + text[1:])
        for each in reversed(answer.__mro__)
        for name, text in attributes_in(each.__doc__).items()
    }
    properties = {key: dict(of_key) for key, of_key in definition["properties"].items()}
    for name, key in zip(answer.__struct_fields__, answer.__struct_encode_fields__, strict=True):
        properties[key].pop("default", None)
        if name in meanings:
            properties[key]["description"] = meanings[name]
    required = definition["required"] if answer.__struct_config__.omit_defaults else list(properties)
    if answer in SHAPES.values():
        head = {"apiVersion": API_VERSION, "kind": answer.__name__.removesuffix("Document")}
        properties = {**{key: {"const": value} for key, value in head.items()}, **properties}
        required = [*head, *required]
    completed = {**definition, "properties": properties, "required": required}
    if answer.__doc__:
        completed["description"] = inspect.cleandoc(answer.__doc__).partition("\n\nAttributes:")[0]
    return completed
