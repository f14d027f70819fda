"""Finds the claims to give back for a group that fits nowhere, so that it may get other devices.

Source: upstream DynamicResources.PodGroupPostFilter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from extender.devices.plan import idle_claim, unavailable_claims
from extender.devices.pod_claims import NAME, PodDeviceClaims, group_claims, pod_device_claims
from extender.framework.find_fit import Fit, find_fit
from extender.framework.profile import Profile
from extender.groups.decision import GroupDecision
from extender.groups.tree import Leaf, Tree
from extender.model.devices.claims import ResourceClaim
from extender.table import PodInfo, Table

MEMBERS_DONE = "deallocation and deletion of ResourceClaims completed"
GROUP_DEALLOCATED = "deallocation of PodGroup ResourceClaim completed"
GROUP_UNRESERVED = "ResourceClaim unreserved for PodGroup"


class IdleClaims(NamedTuple):
    """Claims of a refused group that no pod uses.

    Attributes:
        text: the outcome in kube-scheduler's words; "" if claims of such a group are left alone.
        deallocate: these lose their devices; claims that were created for extended resources are deleted.
        unreserve: the claim that keeps its devices and loses the reservation for the group; None if there is none.
    """

    text: str = ""
    deallocate: Sequence[ResourceClaim] = ()
    unreserve: ResourceClaim | None = None


LEFT_ALONE = IdleClaims()


def idle_claims(decision: GroupDecision, profile: Profile, table: Table) -> IdleClaims:
    """Returns what to give back for a group that was just refused; the table is the one before the decision.

    As upstream does, trees and groups with a topology constraint are left alone.
    """
    tree = decision.tree
    if NAME not in profile.reserving or not isinstance(tree, Leaf) or _is_constrained(tree, table):
        return LEFT_ALONE
    tried = [info for info in tree.waiting if info.uid in decision.members]
    fits = [(info, fit) for info in tried if (fit := _fit(info, profile, table)) is not None]
    idle = [claim for info, fit in fits if (claim := idle_claim(info, table, fit)) is not None]
    own = {claim.uid: claim for claim in idle}
    if len(idle) == len(tried) or tree.scheduled or not table.features.group_claims:
        return IdleClaims(MEMBERS_DONE, list(own.values()))
    return _of_group(tree, fits, list(own.values()), table)


def _is_constrained(tree: Tree, table: Table) -> bool:
    return table.features.topology_aware_workload_scheduling and tree.group.topology_key is not None


def _fit(info: PodInfo, profile: Profile, table: Table) -> Fit | None:
    """Returns which nodes can take the member alone, and why not; None if none of its claims is allocated."""
    claims = pod_device_claims(info, table)
    if not isinstance(claims, PodDeviceClaims) or all(claim.allocation is None for claim in claims.all):
        return None
    return find_fit(profile, info, table, table.nodes.rows)


def _of_group(
    leaf: Leaf, fits: Iterable[tuple[PodInfo, Fit]], own: Sequence[ResourceClaim], table: Table
) -> IdleClaims:
    """Returns one claim of the group in addition to the members' own: its devices go, or else its reservation."""
    uid = leaf.group.uid
    taken = {claim.uid for claim in own}
    for info, fit in fits:
        for claim in unavailable_claims(info, table, fit):
            if claim.is_only_for(uid) and claim.uid not in taken:
                return IdleClaims(GROUP_DEALLOCATED, [*own, claim])
    reserved = next(_reserved(leaf, table), None)
    return IdleClaims(GROUP_UNRESERVED if reserved is not None else MEMBERS_DONE, own, reserved)


def _reserved(leaf: Leaf, table: Table) -> Iterator[ResourceClaim]:
    """Yields the allocated claims of the group that are reserved for it."""
    for claim in group_claims(leaf.group, table):
        if claim.allocation is not None and claim.is_reserved_for(leaf.group.uid):
            yield claim
