"""Hints about PersistentVolumeClaims, shared by the volume plugins."""

from __future__ import annotations

from collections.abc import Iterator

from extender.framework.events.cluster_events import Change
from extender.framework.events.queueing_hints import reads_names
from extender.table import PodInfo


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
