"""Names by which waiting pods are found that an event may help (Reads.names): of labels, selectors and claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from extender.framework.events.cluster_events import Change
from extender.framework.events.queueing_hints import ANY, reads_names
from extender.model.selectors import Requirement, Selector
from extender.table import PodInfo

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


def claim_of(change: Change) -> tuple[str, ...]:
    """Returns the key of the claim that the change is about."""
    return (change.new.key,)


def uses_claim(pod: PodInfo, change: Change) -> bool:
    """Returns True if the pod uses the claim, be it that of an ephemeral volume."""
    return change.new.key in used_claims(pod)


def names_claim(pod: PodInfo, change: Change) -> bool:
    """Returns True if the pod's spec names the claim."""
    return change.new.key in named_claims(pod)


def used_claims(pod: PodInfo) -> Iterator[str]:
    """Yields the keys of the claims that the pod uses."""
    return (use.key for use in pod.claims)


def named_claims(pod: PodInfo) -> Iterator[str]:
    """Yields the keys of the claims that the pod's spec names; those of ephemeral volumes are left out."""
    return (use.key for use in pod.claims if use.owner is None)


USED_CLAIMS, NAMED_CLAIMS = reads_names(used_claims), reads_names(named_claims)
