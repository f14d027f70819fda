"""Judges a member of a pod group as kube-scheduler does while it plans the whole group.

kube-scheduler plans a group in its own snapshot: some members are already placed there, and pods of lower priority may
have been removed. No request and no API object shows this before the first bind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from extender.framework.profile import Profile
from extender.model.pod import Pod
from extender.plugins.inter_pod_affinity import NAME as INTER_POD_AFFINITY
from extender.plugins.pod_topology_spread import NAME as POD_TOPOLOGY_SPREAD
from extender.plugins.volume_restrictions import NAME as VOLUME_RESTRICTIONS
from extender.preemption import rows_without_lower_priority
from extender.table import PodInfo, Table
from extender.table.labels import Rows

# kube-scheduler has run these rules before the call, on a snapshot that may lack pods of other nodes.
_SEE_OTHER_NODES = frozenset((INTER_POD_AFFINITY, POD_TOPOLOGY_SPREAD, VOLUME_RESTRICTIONS))


def is_member(pod: Pod) -> bool:
    """Returns True if the pod belongs to a pod group."""
    return pod.group_key is not None


def rows_in_dry_run(profile: Profile, info: PodInfo, table: Table, rows: Rows) -> Rows:
    """Returns the rows of nodes that could take the member if all pods of lower priority were removed.

    In the dry run of a group's preemption, kube-scheduler removes these pods from its own snapshot, and then asks about
    the nodes. The request does not show that the pods were removed.
    """
    predicates = [predicate for predicate in profile.predicates if predicate.name not in _SEE_OTHER_NODES]
    return rows_without_lower_priority(replace(profile, predicates=predicates), info, table, rows)


@contextmanager
def without_nominated_siblings(
    info: PodInfo, node: str, table: Table, key_of: Callable[[Pod], str | None]
) -> Iterator[None]:
    """During the `with` block, removes the nominations of other members of the pod's group to the node.

    A member that waits at Permit is nominated to its node. kube-scheduler counted that member when it chose the node.
    `key_of` returns the key of a pod's group; None if the pod has no group.
    """
    nominated = table.nominated.get(node, {}).values()
    key = key_of(info.pod)
    others = [other for other in nominated if other.uid != info.uid]
    siblings = [other for other in others if key is not None and key_of(other.pod) == key]
    for sibling in siblings:
        table.withdraw(sibling.uid)
    try:
        yield
    finally:
        for sibling in siblings:
            table.nominate(sibling, node)
