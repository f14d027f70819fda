"""The events that may help pods that DynamicResources refused (upstream EventsToRegister, preQueueingHint)."""

from __future__ import annotations

from collections.abc import Iterator

from extender.framework.events.cluster_events import Action, Change, Resource
from extender.framework.events.queueing_hints import Interest, Interests, reads_names
from extender.model.devices.claims import ResourceClaim
from extender.table import PodInfo


def claim_of(change: Change) -> tuple[str, ...] | None:
    """Returns the claim that the change is about, or the pod that it was made for; None where devices came free."""
    if _devices_come_free(change):
        return None
    if _is_made_anew(change):
        return (change.old.controller.uid,) if change.old.controller else ()
    return ((change.new or change.old).key,)


def claim_helps(pod: PodInfo, change: Change) -> bool:
    """Returns True if devices came free, or a claim of the pod came or has another status than before.

    Upstream leaves out that a claim made for the pod's extended resources went: the next attempt can make its own.
    """
    if _devices_come_free(change):
        return True
    if _is_made_anew(change):
        return bool(change.old.controller and change.old.controller.uid == pod.uid)
    if change.new is None or change.new.key not in claims_of(pod):
        return False
    return change.old is None or change.old.status != change.new.status


def claims_of(pod: PodInfo) -> Iterator[str]:
    """Yields the keys of the claims that the pod uses, as far as they have been made."""
    generated = {each.name: each.resource_claim_name for each in pod.pod.status.resource_claim_statuses or ()}
    for claim in pod.pod.spec.resource_claims or ():
        name = claim.resource_claim_name or generated.get(claim.name)
        if name:
            yield f"{pod.pod.namespace}/{name}"


def _claims_and_uid(pod: PodInfo) -> Iterator[str]:
    yield from claims_of(pod)
    yield pod.uid


def _is_made_anew(change: Change) -> bool:
    return change.new is None and bool(change.old.is_for_extended_resources)


def _devices_come_free(change: Change) -> bool:
    old: ResourceClaim | None = change.old
    new: ResourceClaim | None = change.new
    return old is not None and old.allocation is not None and (new is None or new.allocation is None)


INTERESTS = Interests(
    (
        Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE),
        Interest(
            Resource.RESOURCE_CLAIM,
            Action.ADD | Action.UPDATE | Action.DELETE,
            claim_helps,
            reads_names(_claims_and_uid),
            claim_of,
        ),
        Interest(Resource.TARGET_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM),
        Interest(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE),
        Interest(Resource.RESOURCE_SLICE, Action.ADD | Action.UPDATE),
        Interest(Resource.DEVICE_TAINT_RULE, Action.ALL),
    )
)
