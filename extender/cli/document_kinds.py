"""Adds an apiVersion and a kind to the documents that commands print for `-o json` and `-o yaml`.

`extender.cli.schemas` has the shape of each kind, and `extender reference schema KIND` prints the description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

API_VERSION = "podseat/v1alpha1"
"""The version of all kinds. Keys may be added to a version, but none is removed or changes its meaning."""

Document = dict[str, Any]


class DocumentKind(StrEnum):
    """The `kind` of each document that a command prints as JSON or YAML."""

    EXPLANATION = "Explanation"
    GROUP_EXPLANATION = "GroupExplanation"
    EXPLANATION_LIST = "ExplanationList"
    PENDING_PODS = "PendingPods"
    DECISIONS = "Decisions"
    SIMULATION = "Simulation"
    CAPACITY = "Capacity"
    PLAN = "Plan"
    COMPARISON = "Comparison"
    REPLAY = "Replay"
    REPLAY_LIST = "ReplayList"
    RULE_TRIALS = "RuleTrials"
    DIAGNOSIS = "Diagnosis"
    QUEUE = "Queue"
    CASE_ERROR = "CaseError"
    CERTIFICATES = "Certificates"
    REFERENCE = "Reference"
    NODE_USAGE = "NodeUsage"
    EXPERIMENT = "Experiment"


_LISTS = {DocumentKind.EXPLANATION: DocumentKind.EXPLANATION_LIST, DocumentKind.REPLAY: DocumentKind.REPLAY_LIST}


def headed(kind: DocumentKind, document: Mapping[str, Any]) -> Document:
    """Returns the document with its apiVersion and kind."""
    return {"apiVersion": API_VERSION, "kind": str(kind), **document}


def with_notes(document: Document, notes: Iterable[str]) -> Document:
    """Returns the document with these notes before its own."""
    return {**document, "notes": [*notes, *document.get("notes", ())]}


def one_or_list(kind: DocumentKind, documents: Sequence[Mapping[str, Any]]) -> Document:
    """Returns the document itself if there is only one, else a list document that holds all documents."""
    items = [headed(kind, document) for document in documents]
    return items[0] if len(items) == 1 else headed(_LISTS[kind], {"items": items})


def names_in(document: Mapping[str, Any]) -> list[str]:
    """Returns the names of the objects in the document, in the form that `-o name` prints and other commands accept."""
    return list(dict.fromkeys(_NAMES[DocumentKind(document["kind"])](document)))


def _of_each_item(document: Mapping[str, Any]) -> Iterable[str]:
    return (name for item in document["items"] for name in names_in(item))


def _group(document: Mapping[str, Any]) -> Iterable[str]:
    namespace, _, name = document["group"].partition("/")
    yield f"{namespace}/{document['groupKind'].lower()}/{name}"


def _template(name: str) -> str:
    """Converts the name of a template, such as `Deployment shop/web`, to the form `shop/deployment/web`."""
    kind, is_of_file, key = name.partition(" ")
    if not is_of_file:
        return name
    namespace, _, workload = key.partition("/")
    return key if kind == "Pod" else f"{namespace}/{kind.lower()}/{workload}"


def _pods(key: str) -> Callable[[Mapping[str, Any]], Iterable[str]]:
    return lambda document: (f"{pod['namespace']}/{pod['name']}" for pod in document[key])


def _each(key: str, name: str) -> Callable[[Mapping[str, Any]], Iterable[str]]:
    return lambda document: (item[name] for item in document.get(key) or ())


_NAMES: Mapping[DocumentKind, Callable[[Mapping[str, Any]], Iterable[str]]] = {
    DocumentKind.EXPLANATION: lambda document: [document["pod"]],
    DocumentKind.GROUP_EXPLANATION: _group,
    DocumentKind.EXPLANATION_LIST: _of_each_item,
    DocumentKind.PENDING_PODS: _pods("pending"),
    DocumentKind.DECISIONS: lambda document: [document["pod"]] if "pod" in document else _each("pods", "pod")(document),
    DocumentKind.SIMULATION: lambda document: [*document["remaining"], *document["lost"]],
    DocumentKind.CAPACITY: lambda document: map(_template, document["pods"]),
    DocumentKind.PLAN: _each("moves", "pod"),
    DocumentKind.COMPARISON: _each("moved", "pod"),
    DocumentKind.REPLAY: lambda document: [
        *_each("changed", "pod")(document),
        *_each("steps", "subject")(document),
    ],
    DocumentKind.REPLAY_LIST: _of_each_item,
    DocumentKind.RULE_TRIALS: _each("rules", "name"),
    DocumentKind.DIAGNOSIS: _each("findings", "check"),
    DocumentKind.QUEUE: _pods("pods"),
    DocumentKind.CASE_ERROR: lambda document: [str(document["name"])],
    DocumentKind.CERTIFICATES: _each("certificates", "file"),
    DocumentKind.NODE_USAGE: _each("nodes", "name"),
    DocumentKind.EXPERIMENT: _each("policies", "policy"),
    DocumentKind.REFERENCE: lambda document: (next(iter(row.values())) for row in document["rows"]),
}
