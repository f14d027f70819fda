"""Names by which the pods are found whose selectors may match some labels: `key` and `key=value` (Reads.names)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from extender.framework.events.queueing_hints import ANY
from extender.model.selectors import Requirement, Selector

_ON_MANY_NODES = ("os", "arch", "region", "zone")


def names_of_labels(labels: Mapping[str, str]) -> Iterator[str]:
    """Yields the names of the requirements that the labels may satisfy."""
    for key, value in labels.items():
        yield key
        yield f"{key}={value}"


def names_of_requirement(requirement: Requirement) -> list[str]:
    """Returns names one of which labels have that come to satisfy the requirement, or a changed key of theirs."""
    if requirement.operator == "In":
        return [f"{requirement.key}={value}" for value in sorted(requirement.values)]
    return [requirement.key]


def names_of_requirements(requirements: Iterable[Requirement]) -> list[str]:
    """Returns names one of which all labels have that satisfy all requirements; ANY where there is no such name.

    Those of one requirement do, so the one is taken that fewest labels may satisfy.
    """
    positive = [each for each in requirements if each.operator in ("In", "Exists", "Gt", "Lt")]
    return names_of_requirement(min(positive, key=_commonness)) if positive else [ANY]


def names_of_selector(selector: Selector) -> list[str]:
    """Returns the names of the selector's requirements; none if it matches nothing."""
    return [] if selector.nothing else names_of_requirements(selector.requirements)


def _commonness(requirement: Requirement) -> tuple[bool, bool, int]:
    on_many_nodes = requirement.key.rpartition("/")[2] in _ON_MANY_NODES
    return requirement.operator != "In", on_many_nodes, len(requirement.values)
