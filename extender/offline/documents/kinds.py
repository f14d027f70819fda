"""Marks the documents that commands print with `-o json` or `-o yaml` with an apiVersion and a kind.

`extender.offline.documents.schemas` describes each kind, and `extender reference schema KIND` prints the description.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

API_VERSION = "podseat/v1alpha1"
"""The version of all kinds. Keys may be added to a version, but none is removed or changes its meaning."""

Document = dict[str, Any]


class DocumentKind(StrEnum):
    """The kinds of documents."""

    EXPLANATION = "Explanation"
    GROUP_EXPLANATION = "GroupExplanation"
    EXPLANATION_LIST = "ExplanationList"
    PENDING_PODS = "PendingPods"
    DECISIONS = "Decisions"
    SIMULATION = "Simulation"
    CAPACITY = "Capacity"
    COMPARISON = "Comparison"
    REPLAY = "Replay"
    REPLAY_LIST = "ReplayList"
    RULE_TRIALS = "RuleTrials"
    DIAGNOSIS = "Diagnosis"
    QUEUE = "Queue"


_LISTS = {DocumentKind.EXPLANATION: DocumentKind.EXPLANATION_LIST, DocumentKind.REPLAY: DocumentKind.REPLAY_LIST}


def headed(kind: DocumentKind, document: Mapping[str, Any]) -> Document:
    """Returns the document with its apiVersion and kind."""
    return {"apiVersion": API_VERSION, "kind": str(kind), **document}


def one_or_list(kind: DocumentKind, documents: Sequence[Mapping[str, Any]]) -> Document:
    """Returns the only document, or if there are several, a list of them as one document."""
    items = [headed(kind, document) for document in documents]
    return items[0] if len(items) == 1 else headed(_LISTS[kind], {"items": items})
