"""Holds a pod with everything that rules derive from it (upstream framework.PodInfo).

It is computed once: pods of one template share the values that were computed for the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import ref

from extender.model.meta import LabelSelector
from extender.model.pod import Pod, PodAffinityTerm, Volume
from extender.model.pod_volumes import attachables_of, claims_of, mounts_of
from extender.model.requests import (
    NONZERO_DEFAULTS,
    is_resize_infeasible,
    lacks_cpu_or_memory,
    nonzero_requests,
    pod_requests,
    was_resized,
)
from extender.model.selectors import NOTHING, Selector, compile_selector

T = TypeVar("T")
_MAX_GROUPS, _MIN_GROUPS = 4096, 256
_MAX_OF_A_GROUP = 10
_LARGEST_ORDINARY = 2**44
"""No sum over half a million pods that request less than this exceeds 2^63 - 1: 16 TiB, or 17 billion cores."""
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


class HostPort(NamedTuple):
    """A port that a pod takes on its node; the IP 0.0.0.0 means all addresses of the node."""

    protocol: str
    port: int
    ip: str


class AffinityTerm(NamedTuple):
    """An inter-pod affinity or anti-affinity term of a pod.

    If the spec has neither namespaces nor a namespace selector, `namespaces` is the pod's own namespace. A
    `namespace_selector` that is NOTHING adds no namespaces. `weight` is 0 in a required term.
    """

    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector
    topology_key: str
    weight: int


class LabelSet(frozenset[tuple[str, str]]):
    """The labels of a pod as a set of (key, value) pairs; `mapping` is the same labels as a dict."""

    __slots__ = ("mapping",)
    mapping: Mapping[str, str]


class Group(NamedTuple):
    """The namespace and labels of a pod. Every selector treats pods of one group alike."""

    namespace: str
    labels: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, namespace: str, labels: Mapping[str, str]) -> Group:
        label_set = LabelSet(labels.items())
        label_set.mapping = labels
        return cls(namespace, label_set)

    @property
    def mapping(self) -> Mapping[str, str]:
        """The labels as a dict, usually not copied, because a pod may have 100,000 labels."""
        return self.labels.mapping if isinstance(self.labels, LabelSet) else dict(self.labels)


class lazy_attribute(Generic[T]):  # noqa: N801  it is used like a function
    """Like functools.cached_property, but without its lock in Python 3.11, which is slow.

    Two threads may both compute the value; the results are equal.
    """

    def __init__(self, work: Callable[[Any], T]) -> None:
        self._work = work
        self.__doc__ = work.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        value = self._work(instance)
        # setattr is used, because __dict__ would create a dict for each instance.
        setattr(instance, self._name, value)
        return value


class PodInfo:
    """A pod and the values derived from it; each value is computed on first use and then stored."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.uid = pod.uid
        self.priority = pod.priority

    def __repr__(self) -> str:
        return f"PodInfo({self.pod.key})"

    @property
    def started_seconds(self) -> float:
        """The pod's start in seconds since the epoch; infinity if it has not started.

        Upstream GetPodStartTime uses the present time instead of infinity.
        """
        start_time = self.pod.status.start_time
        return start_time.timestamp() if start_time else inf

    @lazy_attribute
    def sort_key(self) -> str:
        """A key that sorts pods by namespace and name; comparing it is faster than comparing tuples."""
        return f"{self.pod.namespace}\0{self.pod.name}"

    def annotated(self, annotations: Collection[tuple[str, str]]) -> PodInfo:
        """Returns the pod with these annotations in addition to its own."""
        return PodInfo(self.pod.annotated(annotations)) if annotations else self

    def precompute(self) -> None:
        """Computes every value that a table reads from a placed pod, so that a malformed pod fails here.

        Raises:
            MalformedQuantity: a request is not a quantity.
        """
        _ = self.footprint, self.group, self.host_ports, self.volumes, self.mounts, self.claims
        _ = self.required_affinity, self.required_anti_affinity, self.preferred_affinity, self.preferred_anti_affinity

    def counts_the_same_as(self, other: PodInfo) -> bool:
        """Returns True if no count of a node changes when one of the two pods replaces the other.

        Counts by label are not compared.
        """
        one = self.pod
        two = other.pod
        return (
            self.footprint == other.footprint
            and self.host_ports == other.host_ports
            and self.volumes == other.volumes
            and one.spec.affinity == two.spec.affinity
            and one.terminating == two.terminating
        )

    @lazy_attribute
    def volumes(self) -> tuple[Volume, ...]:
        """The volumes of the types that rules read; a pod's projected token, for example, is left out."""
        volumes = self.pod.spec.volumes or ()
        return tuple(each for each in volumes if each != Volume(name=each.name, projected=each.projected))

    @lazy_attribute
    def group(self) -> Group:
        return Group.of(self.pod.namespace, self.pod.labels)

    @lazy_attribute
    def requests(self) -> dict[str, int]:
        """The requests of the pod while it waits for a node, in the units of `NodeInfo.requested`."""
        return pod_requests(self.pod)

    @lazy_attribute
    def requests_with_defaults(self) -> dict[str, int]:
        """The requests with which NodeResourcesFit scores nodes; containers without a request get a default amount."""
        return pod_requests(self.pod, NONZERO_DEFAULTS) if lacks_cpu_or_memory(self.pod) else self.requests

    @lazy_attribute
    def container_requests_with_defaults(self) -> dict[str, int]:
        """The same without the pod-level resources, which NodeResourcesFit did not score before Kubernetes 1.38."""
        if self.pod.spec.resources is None:
            return self.requests_with_defaults
        return pod_requests(self.pod, NONZERO_DEFAULTS, pod_level=False)

    @lazy_attribute
    def footprint(self) -> Footprint:
        """The resources that the pod takes on its node."""
        requests = pod_requests(self.pod, placed=True) if was_resized(self.pod) else self.requests
        nonzero = nonzero_requests(self.pod, requests)
        return Footprint(
            tuple(sorted((name, amount) for name, amount in requests.items() if amount)),
            *nonzero,
            is_huge=max(*requests.values(), *nonzero) > _LARGEST_ORDINARY,
        )

    @lazy_attribute
    def host_ports(self) -> tuple[HostPort, ...]:
        """The host ports that the containers and sidecars take (upstream util.GetHostPorts)."""
        sidecars = (c for c in self.pod.init_containers if c.restart_policy == "Always")
        return tuple(
            HostPort(port.protocol or "TCP", port.host_port, port.host_ip or "0.0.0.0")  # noqa: S104  the API's own default
            for container in (*sidecars, *self.pod.containers)
            for port in container.ports or ()
            if port.host_port > 0
        )

    @lazy_attribute
    def images(self) -> tuple[str, ...]:
        """The images of containers, init containers and image volumes; `:latest` is added if a tag is missing."""
        containers = (container.image for container in (*self.pod.init_containers, *self.pod.containers))
        volumes = (volume.image.reference for volume in self.pod.spec.volumes or () if volume.image)
        return tuple(map(_tagged, (*containers, *volumes)))

    claims = lazy_attribute(lambda info: claims_of(info.pod))
    attachables = lazy_attribute(lambda info: attachables_of(info.pod))
    mounts = lazy_attribute(lambda info: mounts_of(info.pod))
    required_affinity = lazy_attribute(lambda info: _terms(info.pod, anti=False, required=True))
    required_anti_affinity = lazy_attribute(lambda info: _terms(info.pod, anti=True, required=True))
    preferred_affinity = lazy_attribute(lambda info: _terms(info.pod, anti=False, required=False))
    preferred_anti_affinity = lazy_attribute(lambda info: _terms(info.pod, anti=True, required=False))


class Footprint(NamedTuple):
    """The resources that a placed pod takes on its node; equal for all replicas of a workload.

    Attributes:
        is_huge: True if an amount is so large that the sum over the pods of a node may exceed 2^63 - 1.
    """

    requests: tuple[tuple[str, int], ...]
    nonzero_cpu_milli: int
    nonzero_memory_bytes: int
    is_huge: bool


def _terms(pod: Pod, *, anti: bool, required: bool) -> tuple[AffinityTerm, ...]:
    both = pod.spec.affinity
    affinity = None if both is None else both.pod_anti_affinity if anti else both.pod_affinity
    if affinity is None:
        return ()
    if required:
        return tuple(_term(pod, term, 0) for term in affinity.required or ())
    return tuple(_term(pod, term.pod_affinity_term, term.weight) for term in affinity.preferred or ())


def _term(pod: Pod, term: PodAffinityTerm, weight: int) -> AffinityTerm:
    namespaces = frozenset(term.namespaces or ())
    if not namespaces and term.namespace_selector is None:
        namespaces = frozenset((pod.namespace,))
    return AffinityTerm(
        namespaces, _selector(term.namespace_selector), _selector(term.label_selector), term.topology_key, weight
    )


def _tagged(image: str) -> str:
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def _selector(selector: LabelSelector | None) -> Selector:
    return NOTHING if selector is None else compile_selector(selector)


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
        candidates = last if before is None else [before, *last]
        alike = next((other for other in candidates if _share(other, info)), None)
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
