"""Checks answers against their requests, and encodes them.

A wrong answer causes errors in kube-scheduler:
- If the answer names a node that is not in the request, the whole call fails.
- If a node is missing without a reason, preemption ignores it, and `kubectl describe` shows no reason for it.
- A score out of range is used as it is.
- Null or empty victims make preemption fail, or crash the scheduler.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from extender.errors import InvalidAnswer
from extender.extender_v1.messages import (
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    HostPriority,
    HostPriorityList,
    NodeList,
    NodeVictims,
)

_ENCODER = msgspec.json.Encoder()


class _FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    nodes: NodeList | None
    node_names: list[str] | None
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str


def encode(result: ExtenderPreemptionResult | ExtenderBindingResult) -> bytes:
    """Returns the answer to preempt or bind as JSON."""
    return _ENCODER.encode(result)


def encode_priorities(result: HostPriorityList) -> bytes:
    return _ENCODER.encode(list(map(HostPriority, result.hosts, result.scores.tolist())))


def encode_filter(result: ExtenderFilterResult) -> bytes:
    """Returns the answer to filter as JSON."""
    names, nodes = result.node_names, result.nodes
    if result.best:
        names = None if names is None else [result.best]
        nodes = None if nodes is None else [node for node in nodes if node.name == result.best]
    items = None if nodes is None else NodeList({}, [node.raw for node in nodes])
    refused = result.failed_nodes, result.failed_and_unresolvable_nodes
    return _ENCODER.encode(_FilterResult(items, names, *refused, result.error))


MAX_EXTENDER_PRIORITY = 10


def validate_filter(asked: Sequence[str], result: ExtenderFilterResult) -> None:
    """Raises InvalidAnswer unless every requested node passes or has a reason, and no other node is named."""
    refused = [*result.failed_nodes, *result.failed_and_unresolvable_nodes]
    passed = result.passed
    if result.best and result.best not in passed:
        raise InvalidAnswer(f"filter: the best node {result.best} is not among the nodes that passed")
    if result.error or (passed == asked and not refused):
        return
    requested = set(asked)
    answered = {*passed, *refused}
    if unknown := answered - requested:
        raise InvalidAnswer(f"filter: the request does not name the nodes {_some(unknown)}")
    if dropped := requested - answered:
        raise InvalidAnswer(f"filter: nodes dropped without a reason: {_some(dropped)}")
    if len(set(passed)) + len(refused) != len(answered):
        raise InvalidAnswer("filter: the answer names a node twice")


def validate_prioritize(asked: Sequence[str], result: HostPriorityList) -> None:
    """Raises InvalidAnswer unless there is one integer of 0..10 for each requested node."""
    hosts, scores = result.hosts, result.scores
    if len(scores) != len(hosts) or (hosts != asked and sorted(hosts) != sorted(set(asked))):
        raise InvalidAnswer("prioritize: the answer does not name each requested node exactly once")
    if scores.dtype != np.int64 or scores.min(initial=0) < 0 or scores.max(initial=0) > MAX_EXTENDER_PRIORITY:
        raise InvalidAnswer(f"prioritize: a score is not an integer from 0 to {MAX_EXTENDER_PRIORITY}")


def validate_preempt(asked: Mapping[str, NodeVictims], result: ExtenderPreemptionResult) -> None:
    """Raises InvalidAnswer if a node is not in the request, or its victims lack distinct, non-empty UIDs.

    A node may be without victims only if the request has none for it, as requests may since Kubernetes 1.38.
    """
    victims = result.node_name_to_meta_victims
    if unknown := victims.keys() - asked.keys():
        raise InvalidAnswer(f"preempt: the request does not name the nodes {_some(unknown)}")
    for node, node_victims in victims.items():
        uids = [pod.uid for pod in node_victims.pods]
        is_missing = not uids and bool(asked[node].uids)
        if is_missing or not all(uids) or len(set(uids)) != len(uids) or node_victims.num_pdb_violations < 0:
            raise InvalidAnswer(f"preempt: {node} has no victims, or a victim without a UID or named twice")


def _some(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
