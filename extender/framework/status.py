"""Refusals as values. Source: upstream framework Code and Status."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Code(IntEnum):
    """The outcome for a node. The values order how final a refusal is."""

    SUCCESS = 0
    UNSCHEDULABLE = 1
    UNSCHEDULABLE_AND_UNRESOLVABLE = 2
    ERROR = 3

    @property
    def title(self) -> str:
        """Returns the name as the scheduler writes it."""
        return _TITLES[self]


_TITLES = {
    Code.SUCCESS: "Success",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.ERROR: "Error",
}


class Refusal(NamedTuple):
    """The reasons why a node cannot take the pod, in the scheduler's words, with the plugin and how final it is."""

    plugin: str
    code: Code
    reasons: tuple[str, ...]

    @property
    def may_be_preempted(self) -> bool:
        """Is True if evicting pods from the node may help."""
        return self.code is Code.UNSCHEDULABLE


def unschedulable(plugin: str, *reasons: str) -> Refusal:
    """Returns a refusal of a node that is full or taken: it may do once pods have left it."""
    return Refusal(plugin, Code.UNSCHEDULABLE, reasons)


def unresolvable(plugin: str, *reasons: str) -> Refusal:
    """Returns a refusal that no eviction changes."""
    return Refusal(plugin, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


def failed(plugin: str, *reasons: str) -> Refusal:
    return Refusal(plugin, Code.ERROR, reasons)


def merged(first: Refusal, second: Refusal) -> Refusal:
    """Returns both as one: every reason, as final as the more final of the two, in the name of the first."""
    return Refusal(first.plugin, max(first.code, second.code), first.reasons + second.reasons)
