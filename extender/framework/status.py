"""Defines refusals: the plugin that refuses a node, the reasons, and whether evictions may help.

Source: upstream framework.Code, framework.Status and framework.Diagnosis.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

_NO_RULES: frozenset[str] = frozenset()


class Code(IntEnum):
    """The outcome for one node. When outcomes are merged, the highest value counts."""

    SUCCESS = 0
    UNSCHEDULABLE = 1
    UNSCHEDULABLE_AND_UNRESOLVABLE = 2
    ERROR = 3

    @property
    def title(self) -> str:
        """The name of the code as kube-scheduler prints it."""
        return self.name.title().replace("_", "")


class Refusal(NamedTuple):
    """A refusal of a node: the plugin, the code, and the reasons in kube-scheduler's words."""

    plugin: str
    code: Code
    reasons: tuple[str, ...]

    @property
    def may_be_preempted(self) -> bool:
        """True if evicting pods from the node may help."""
        return self.code is Code.UNSCHEDULABLE


def unschedulable(plugin: str, *reasons: str) -> Refusal:
    """Returns a refusal of a node that may fit after pods have left it."""
    return Refusal(plugin, Code.UNSCHEDULABLE, reasons)


def unresolvable(plugin: str, *reasons: str) -> Refusal:
    """Returns a refusal that no eviction can change."""
    return Refusal(plugin, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


def failed(plugin: str, *reasons: str) -> Refusal:
    return Refusal(plugin, Code.ERROR, reasons)


def merged(first: Refusal, second: Refusal) -> Refusal:
    """Merges two refusals into one with both reasons, the first plugin and the higher code."""
    return Refusal(first.plugin, max(first.code, second.code), first.reasons + second.reasons)


@dataclass(frozen=True, slots=True)
class Rejection:
    """The rules that rejected a pod in its last attempt; there are none if the attempt ended in an error.

    Attributes:
        unschedulable: the rules that refused nodes or the pod itself (upstream UnschedulablePlugins).
        pending: the rules that make the pod wait for an event. After that event, the pod is tried without a backoff
            (PendingPlugins).
        unresolvable: the rules in `unschedulable` that gave only the status UnschedulableAndUnresolvable. Removing pods
            from nodes cannot make these rules accept the pod.
    """

    unschedulable: frozenset[str] = _NO_RULES
    pending: frozenset[str] = _NO_RULES
    unresolvable: frozenset[str] = _NO_RULES

    @property
    def rules(self) -> frozenset[str]:
        return self.unschedulable | self.pending


NO_REJECTION = Rejection()
