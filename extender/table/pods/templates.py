"""Pods made from one template share what was computed for the first of them."""

from __future__ import annotations

from extender.model.pod import Pod
from extender.model.requests import is_resize_infeasible
from extender.table.podinfo import Group, PodInfo

_MOST_GROUPS = 4096
_MOST_OF_A_GROUP = 10
# None of these looks at a pod's name or UID, where it has no volumes and claims.
_SHARED = (
    "requests",
    "requests_with_defaults",
    "footprint",
    "host_ports",
    "images",
    "claims",
    "attachables",
    "mounts",
    "required_affinity",
    "required_anti_affinity",
    "preferred_affinity",
    "preferred_anti_affinity",
)


class Templates:
    """The last few pods of each group that were not alike; safe for several threads.

    A group has several: before the kubelet has told of the containers and after, while a template is replaced, and
    where the templates of several owners have the same labels.
    """

    def __init__(self) -> None:
        self._last: dict[Group, list[PodInfo]] = {}

    def info(self, pod: Pod, before: PodInfo | None = None) -> PodInfo:
        """Returns the pod with everything that a table reads of it; `before`: what is known of it so far.

        Raises:
            MalformedQuantity: the pod asks for what is no quantity.
        """
        info = PodInfo(pod)
        if before is not None and _share(before, info):
            return info
        last = self._last.get(info.group, [])
        if any(_share(known, info) for known in last):
            info.group = last[0].group  # an equal one
            return info
        info.precompute()
        if len(self._last) >= _MOST_GROUPS:
            self._last.clear()
        self._last[info.group] = [info, *last[: _MOST_OF_A_GROUP - 1]]
        return info


def twin(info: PodInfo, pod: Pod) -> PodInfo:
    """Returns a pod with what was computed for that of `info`: the two differ in name, UID and node at most."""
    if info.volumes:
        return PodInfo(pod)
    alike = PodInfo.__new__(PodInfo)
    vars(alike).update(vars(info), pod=pod, uid=pod.uid)
    vars(alike).pop("sort_key", None)
    return alike


def _share(one: PodInfo, other: PodInfo) -> bool:
    """Gives the second pod what was computed for the first; returns False where that may not be the same."""
    if one.volumes or other.volumes or not _alike(one.pod, other.pod):
        return False
    for name in _SHARED:  # one by one: so Python keeps the names once for all, not with each
        setattr(other, name, getattr(one, name))
    return True


def _alike(one: Pod, other: Pod) -> bool:
    """Tells if all is equal that the shared parts are computed from, for pods of one namespace without volumes."""
    return (
        one.spec.containers == other.spec.containers
        and one.spec.init_containers == other.spec.init_containers
        and one.spec.overhead == other.spec.overhead
        and one.spec.resources == other.spec.resources
        and one.spec.affinity == other.spec.affinity
        and one.spec.node_selector == other.spec.node_selector
        and one.spec.topology_spread_constraints == other.spec.topology_spread_constraints
        and one.spec.resource_claims == other.spec.resource_claims
        and one.spec.ephemeral_containers == other.spec.ephemeral_containers
        and one.spec.host_network == other.spec.host_network
        and one.spec.host_users == other.spec.host_users
        and one.status.container_statuses == other.status.container_statuses
        and one.status.init_container_statuses == other.status.init_container_statuses
        and one.status.resources == other.status.resources
        and one.status.allocated_resources == other.status.allocated_resources
        and is_resize_infeasible(one) == is_resize_infeasible(other)
    )


def of_one_template(one: Pod, other: Pod) -> bool:
    """Returns True if no rule can tell the pods apart, for pods of one group without volumes."""
    return (
        one.spec.tolerations == other.spec.tolerations
        and one.spec.node_name == other.spec.node_name
        and one.spec.scheduler_name == other.spec.scheduler_name
        and one.metadata.owner_references == other.metadata.owner_references
        and _alike(one, other)
    )
