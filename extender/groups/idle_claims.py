"""Finds the device claims to release for a group that fits nowhere, so that the group may get other devices.

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
from extender.groups.group_tree import Leaf, Tree
from extender.model.devices import ResourceClaim
from extender.table import PodInfo, Table

MEMBERS_DONE = "deallocation and deletion of ResourceClaims completed"
GROUP_DEALLOCATED = "deallocation of PodGroup ResourceClaim completed"
GROUP_UNRESERVED = "ResourceClaim unreserved for PodGroup"


class IdleClaims(NamedTuple):
    """Claims that a refused group should release, because no pod uses them.

    Attributes:
        text: the outcome in kube-scheduler's words; "" if the group keeps its claims.
        deallocate: the claims whose devices are released; claims created for extended resources are deleted.
        unreserve: the claim that keeps its devices but is no longer reserved for the group; None if there is none.
    """

    text: str = ""
    deallocate: Sequence[ResourceClaim] = ()
    unreserve: ResourceClaim | None = None


LEFT_ALONE = IdleClaims()


def idle_claims(decision: GroupDecision, profile: Profile, table: Table) -> IdleClaims:
    """Returns the claims that a refused group should release. `table` shows the cluster before the decision.

    As in upstream, a tree of groups keeps its claims, and so does a group with a topology constraint.
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
    """Returns the nodes on which the member would fit without the rest of its group.

    Returns None if none of the member's claims has devices, because the member can then release nothing.
    """
    claims = pod_device_claims(info, table)
    if not isinstance(claims, PodDeviceClaims) or all(claim.allocation is None for claim in claims.all):
        return None
    return find_fit(profile, info, table, table.nodes.rows)


def _of_group(
    leaf: Leaf, fits: Iterable[tuple[PodInfo, Fit]], own: Sequence[ResourceClaim], table: Table
) -> IdleClaims:
    """Returns which claims of one PodGroup and its members should be released.

    The claims in `own` belong to members and always lose their devices. A claim of the group loses its devices if a
    member cannot use them. If there is no such claim, the first claim that is reserved for the group loses this
    reservation, but keeps its devices.
    """
    uid = leaf.group.uid
    taken = {claim.uid for claim in own}
    for info, fit in fits:
        for claim in unavailable_claims(info, table, fit):
            if claim.is_only_for(uid) and claim.uid not in taken:
                return IdleClaims(GROUP_DEALLOCATED, [*own, claim])
    reserved = next(_reserved(leaf, table), None)
    return IdleClaims(GROUP_UNRESERVED if reserved is not None else MEMBERS_DONE, own, reserved)


def _reserved(leaf: Leaf, table: Table) -> Iterator[ResourceClaim]:
    """Yields the allocated claims of the group that are reserved for the group."""
    for claim in group_claims(leaf.group, table):
        if claim.allocation is not None and claim.is_reserved_for(leaf.group.uid):
            yield claim
