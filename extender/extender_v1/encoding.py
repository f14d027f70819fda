"""Answers to bytes, with Go's names; whole nodes as they came."""

from __future__ import annotations

import msgspec

from extender.extender_v1.types import (
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    HostPriority,
    HostPriorityList,
)

_ENCODER = msgspec.json.Encoder()


class _NodeList(msgspec.Struct, frozen=True):
    metadata: dict[str, str]
    items: list[msgspec.Raw]


class _FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    nodes: _NodeList | None
    node_names: list[str] | None
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str


def encode(result: ExtenderPreemptionResult | ExtenderBindingResult) -> bytes:
    """Returns the answer to preempt or bind."""
    return _ENCODER.encode(result)


def encode_priorities(result: HostPriorityList) -> bytes:
    """Returns the answer to prioritize."""
    return _ENCODER.encode(list(map(HostPriority, result.hosts, result.scores.tolist())))


def encode_filter(result: ExtenderFilterResult) -> bytes:
    """Returns the answer to filter."""
    nodes = None if result.nodes is None else _NodeList({}, [node.raw for node in result.nodes])
    refused = result.failed_nodes, result.failed_and_unresolvable_nodes
    return _ENCODER.encode(_FilterResult(nodes, result.node_names, *refused, result.error))
