"""Lets pods of one template share the values that were computed for the first of them."""

from __future__ import annotations

from weakref import ref

from extender.model.pod import Pod
from extender.model.requests import is_resize_infeasible
from extender.table.podinfo import Group, PodInfo

_MAX_GROUPS, _MIN_GROUPS = 4096, 256
_MAX_OF_A_GROUP = 10
# If a pod has neither volumes nor claims, these attributes of its PodInfo do not depend on its name or UID.
_SHARED = (
    "requests",
    "requests_with_defaults",
    "container_requests_with_defaults",
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
    """Remembers the last few different pods of each group, so that similar pods can share computed values.

    A group is a namespace and labels. The pods of a group may differ: the kubelet has reported the containers of some,
    a rollout replaces their template, or several owners use the same labels. References are weak: a pod is forgotten
    when nothing else refers to it. Several threads may use one instance.
    """

    def __init__(self) -> None:
        # The key is a hash, because a group, which may have 100,000 labels, would stay in memory after its pods.
        self._last: dict[int, list[ref[PodInfo]]] = {}
        self._max_groups = _MIN_GROUPS

    def info(self, pod: Pod, before: PodInfo | None = None) -> PodInfo:
        """Returns a PodInfo of the pod. The values that tables read are taken from a similar pod if there is one.

        `before`: the previous version of the pod, if it is known.

        Raises:
            MalformedQuantity: a request is not a quantity.
        """
        info = PodInfo(pod)
        if before is not None and before.pod.namespace == pod.namespace and before.pod.labels == pod.labels:
            info.group = before.group
        last = self._living(info.group)
        alike = before if before is not None and _share(before, info) else _first_alike(last, info)
        if alike is None:
            info.precompute()
        if last:
            info.group = last[0].group  # shares one object among equal groups, to save memory
        others = [other for other in last if other is not alike]
        self._keep(hash(info.group), [info, *others[: _MAX_OF_A_GROUP - 1]])
        return info

    def _living(self, group: Group) -> list[PodInfo]:
        infos = [info for reference in self._last.get(hash(group), ()) if (info := reference()) is not None]
        return [info for info in infos if info.group == group]

    def _keep(self, group: int, infos: list[PodInfo]) -> None:
        if len(self._last) >= self._max_groups and group not in self._last:
            living = {group: last for group, last in list(self._last.items()) if any(info() for info in last)}
            self._last = living if len(living) <= _MAX_GROUPS // 2 else {}
            self._max_groups = max(2 * len(self._last), _MIN_GROUPS)
        self._last[group] = [ref(info) for info in infos]


def twin(info: PodInfo, pod: Pod) -> PodInfo:
    """Returns a PodInfo for `pod` with the values that were computed for `info`.

    The two pods may differ only in name, UID and node.
    """
    if info.volumes:
        return PodInfo(pod)
    alike = PodInfo.__new__(PodInfo)
    vars(alike).update(vars(info), pod=pod, uid=pod.uid)
    vars(alike).pop("sort_key", None)
    return alike


def _share(one: PodInfo, other: PodInfo) -> bool:
    """Copies the computed values of `one` to `other`. Returns False, and copies nothing, if the values may differ."""
    if one.volumes or other.volumes or not _alike(one.pod, other.pod):
        return False
    for name in _SHARED:  # set one by one, so that Python shares the attribute names between instances
        setattr(other, name, getattr(one, name))
    return True


def _first_alike(infos: list[PodInfo], info: PodInfo) -> PodInfo | None:
    """Copies the computed values of the first similar pod in `infos` to `info`. Returns that pod, or None."""
    return next((other for other in infos if _share(other, info)), None)


def _alike(one: Pod, other: Pod) -> bool:
    """Returns True if all values in `_SHARED` are equal for these two pods, which must have no volumes."""
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
    """Returns True if every rule treats the two pods alike. Call it only for pods with equal labels and no volumes."""
    return (
        one.spec.tolerations == other.spec.tolerations
        and one.spec.node_name == other.spec.node_name
        and one.spec.scheduler_name == other.spec.scheduler_name
        and one.metadata.owner_references == other.metadata.owner_references
        and _alike(one, other)
    )
