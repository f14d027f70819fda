"""Counts, for each pod group, the members that have a node, wait or are lost at the end of a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from extender.model.pod import Pod
from extender.runtime.text import Cells


class GroupPlace(StrEnum):
    """Says whether all, some or none of a group's members have a node."""

    WHOLE = "whole"
    PART = "part"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class GroupCount:
    """The members of one PodGroup at the end of a simulation.

    Attributes:
        group: the PodGroup, as `namespace/name`.
        placed: the number of members on a node.
        waiting: the number of members without a node.
        lost: the number of members that were evicted and that no controller recreates.
    """

    group: str
    placed: int = 0
    waiting: int = 0
    lost: int = 0

    def __str__(self) -> str:
        return f"{self.placed} of {self.placed + self.waiting + self.lost}"

    @property
    def place(self) -> GroupPlace:
        if not self.placed:
            return GroupPlace.NONE
        return GroupPlace.PART if self.waiting or self.lost else GroupPlace.WHOLE

    def to_dict(self) -> dict[str, Any]:
        """Returns {"group", "placed", "waiting", "lost", "place"}."""
        return {**asdict(self), "place": str(self.place)}


def group_counts(pods: Mapping[str, Pod], lost: Mapping[str, int]) -> list[GroupCount]:
    """Returns the counts of each group. `lost` maps the keys of groups to their numbers of lost members."""
    placed = Counter(pod.group_key for pod in pods.values() if pod.node_name)
    waiting = Counter(pod.group_key for pod in pods.values() if not pod.node_name)
    keys = {key for key in (*placed, *waiting, *lost) if key is not None}
    return [GroupCount(key, placed[key], waiting[key], lost.get(key, 0)) for key in sorted(keys)]


def by_place(groups: Sequence[GroupCount]) -> dict[GroupPlace, int]:
    """Returns the number of groups with all, with some and with no members on a node."""
    places = Counter(group.place for group in groups)
    return {place: places[place] for place in GroupPlace}


def as_sentence(groups: Sequence[GroupCount]) -> str:
    places = by_place(groups)
    return (
        f"pod groups: {places[GroupPlace.WHOLE]} with all members on a node, {places[GroupPlace.PART]} with some, "
        f"{places[GroupPlace.NONE]} with none"
    )


def incomplete(groups: Sequence[GroupCount]) -> Iterator[Cells]:
    """Yields a table of the groups with members that have no node; yields nothing if there are no such groups."""
    rows = [each for each in groups if each.place is not GroupPlace.WHOLE]
    if rows:
        yield "POD GROUP", "ON A NODE", "WAITING", "LOST"
        yield from ((each.group, str(each.placed), str(each.waiting), str(each.lost)) for each in rows)
