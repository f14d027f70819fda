"""Refusals as values. Source: upstream framework Code and Status."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Code(IntEnum):
    """What became of a node. The values order how strong a refusal is."""

    SUCCESS = 0
    UNSCHEDULABLE = 1
    UNSCHEDULABLE_AND_UNRESOLVABLE = 2
    ERROR = 3

    @property
    def title(self) -> str:
        """The name as the scheduler writes it."""
        return _TITLES[self]


_TITLES = {
    Code.SUCCESS: "Success",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.ERROR: "Error",
}


class Refusal(NamedTuple):
    """Why a node cannot take the pod: which plugin says so, how final it is, the reasons in the scheduler's words."""

    plugin: str
    code: Code
    reasons: tuple[str, ...]

    @property
    def may_be_preempted(self) -> bool:
        """Whether evicting pods from the node may help."""
        return self.code is Code.UNSCHEDULABLE


def unschedulable(plugin: str, *reasons: str) -> Refusal:
    """The node is full or taken: it may do once pods have left it."""
    return Refusal(plugin, Code.UNSCHEDULABLE, reasons)


def unresolvable(plugin: str, *reasons: str) -> Refusal:
    """The node will not do, whoever leaves it."""
    return Refusal(plugin, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


def failed(plugin: str, *reasons: str) -> Refusal:
    """The plugin could not tell."""
    return Refusal(plugin, Code.ERROR, reasons)


def merged(first: Refusal, second: Refusal) -> Refusal:
    """Both at once: every reason, as final as the more final of the two, in the name of the first."""
    return Refusal(first.plugin, max(first.code, second.code), first.reasons + second.reasons)
