"""Answers to bytes, after they were held against their requests.

Harmful are a node that was not asked about (the whole call fails), a dropped node without a reason (no preemption there
and nothing to read in `kubectl describe`), a score out of range (nobody clamps it), victims that are null or empty
(preemption fails, or the scheduler crashes).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from extender.errors import InvalidAnswer
from extender.extender_v1.types import (
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    HostPriority,
    HostPriorityList,
    NodeList,
)

_ENCODER = msgspec.json.Encoder()


class _FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    nodes: NodeList | None
    node_names: list[str] | None
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str


def encode(result: ExtenderPreemptionResult | ExtenderBindingResult) -> bytes:
    """Returns the answer to preempt or bind."""
    return _ENCODER.encode(result)


def encode_priorities(result: HostPriorityList) -> bytes:
    return _ENCODER.encode(list(map(HostPriority, result.hosts, result.scores.tolist())))


def encode_filter(result: ExtenderFilterResult) -> bytes:
    """Returns the answer to filter."""
    names, nodes = result.node_names, result.nodes
    if result.best:
        names = None if names is None else [result.best]
        nodes = None if nodes is None else [node for node in nodes if node.name == result.best]
    items = None if nodes is None else NodeList({}, [node.raw for node in nodes])
    refused = result.failed_nodes, result.failed_and_unresolvable_nodes
    return _ENCODER.encode(_FilterResult(items, names, *refused, result.error))


MAX_EXTENDER_PRIORITY = 10


def validate_filter(asked: Sequence[str], result: ExtenderFilterResult) -> None:
    """Raises InvalidAnswer unless every node asked about passes or has a reason, and no other is named."""
    refused = [*result.failed_nodes, *result.failed_and_unresolvable_nodes]
    passed = result.passed
    if result.best and result.best not in passed:
        raise InvalidAnswer(f"filter: {result.best} is the best of nodes that it is not among")
    if result.error or (passed == asked and not refused):
        return
    wanted, named = set(asked), {*passed, *refused}
    if nodes_outside_cache := named - wanted:
        raise InvalidAnswer(f"filter: nodes that were not asked about: {_some(nodes_outside_cache)}")
    if silent := wanted - named:
        raise InvalidAnswer(f"filter: nodes dropped without a reason: {_some(silent)}")
    if len(set(passed)) + len(refused) != len(named):
        raise InvalidAnswer("filter: a node is answered twice")


def validate_prioritize(asked: Sequence[str], result: HostPriorityList) -> None:
    """Raises InvalidAnswer unless there is one integer of 0..10 for each node asked about."""
    hosts, scores = result.hosts, result.scores
    if len(scores) != len(hosts) or (hosts != asked and sorted(hosts) != sorted(set(asked))):
        raise InvalidAnswer("prioritize: not the nodes that were asked about, each once")
    if scores.dtype != np.int64 or scores.min(initial=0) < 0 or scores.max(initial=0) > MAX_EXTENDER_PRIORITY:
        raise InvalidAnswer(f"prioritize: a score that is no integer of 0..{MAX_EXTENDER_PRIORITY}")


def validate_preempt(asked: Collection[str], result: ExtenderPreemptionResult) -> None:
    """Raises InvalidAnswer unless only candidates are named, each with victims, each of these with a UID and once."""
    victims = result.node_name_to_meta_victims
    if nodes_outside_cache := victims.keys() - set(asked):
        raise InvalidAnswer(f"preempt: nodes that were not asked about: {_some(nodes_outside_cache)}")
    for node, chosen in victims.items():
        uids = [pod.uid for pod in chosen.pods]
        if not uids or not all(uids) or len(set(uids)) != len(uids) or chosen.num_pdb_violations < 0:
            raise InvalidAnswer(f"preempt: the victims on {node} are none, nameless or named twice")


def _some(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
