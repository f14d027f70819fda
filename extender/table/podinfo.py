"""Holds a pod with everything that rules derive from it, computed once (upstream framework.PodInfo)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

from extender.model.meta import LabelSelector
from extender.model.pod import Pod, PodAffinityTerm, Volume
from extender.model.pod_volumes import Attachable, ClaimUse, Mount, attachables_of, claims_of, mounts_of
from extender.model.requests import NONZERO_DEFAULTS, lacks_cpu_or_memory, nonzero_requests, pod_requests, was_resized
from extender.model.selectors import NOTHING, Selector, compile_selector

T = TypeVar("T")


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
        return Footprint(
            tuple(sorted((name, amount) for name, amount in requests.items() if amount)),
            *nonzero_requests(self.pod, requests),
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

    @lazy_attribute
    def claims(self) -> tuple[ClaimUse, ...]:
        return claims_of(self.pod)

    @lazy_attribute
    def attachables(self) -> tuple[Attachable, ...]:
        return attachables_of(self.pod)

    @lazy_attribute
    def mounts(self) -> tuple[Mount, ...]:
        return mounts_of(self.pod)

    @lazy_attribute
    def required_affinity(self) -> tuple[AffinityTerm, ...]:
        return self._terms(anti=False, required=True)

    @lazy_attribute
    def required_anti_affinity(self) -> tuple[AffinityTerm, ...]:
        return self._terms(anti=True, required=True)

    @lazy_attribute
    def preferred_affinity(self) -> tuple[AffinityTerm, ...]:
        return self._terms(anti=False, required=False)

    @lazy_attribute
    def preferred_anti_affinity(self) -> tuple[AffinityTerm, ...]:
        return self._terms(anti=True, required=False)

    def _terms(self, *, anti: bool, required: bool) -> tuple[AffinityTerm, ...]:
        both = self.pod.spec.affinity
        affinity = None if both is None else both.pod_anti_affinity if anti else both.pod_affinity
        if affinity is None:
            return ()
        if required:
            return tuple(self._term(term, 0) for term in affinity.required or ())
        return tuple(self._term(term.pod_affinity_term, term.weight) for term in affinity.preferred or ())

    def _term(self, term: PodAffinityTerm, weight: int) -> AffinityTerm:
        namespaces = frozenset(term.namespaces or ())
        if not namespaces and term.namespace_selector is None:
            namespaces = frozenset((self.pod.namespace,))
        return AffinityTerm(
            namespaces, _selector(term.namespace_selector), _selector(term.label_selector), term.topology_key, weight
        )


class Footprint(NamedTuple):
    """The resources that a placed pod takes on its node; equal for all replicas of a workload."""

    requests: tuple[tuple[str, int], ...]
    nonzero_cpu_milli: int
    nonzero_memory_bytes: int


def _tagged(image: str) -> str:
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def _selector(selector: LabelSelector | None) -> Selector:
    return NOTHING if selector is None else compile_selector(selector)
