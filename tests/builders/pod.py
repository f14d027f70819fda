"""Pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from tests.builders.builder import Builder, Object
from tests.builders.terms import pod_term

PAUSE_IMAGE = "registry.example/pause:3.10"


def make_pod(name: str, namespace: str = "default") -> PodBuilder:
    return PodBuilder(name, namespace)


class PodBuilder(Builder):
    """Starts as one container named `c` that requests nothing, in namespace `default`."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__("v1", "Pod", name, namespace)
        self._spec: Object = {"containers": [{"name": "c", "image": PAUSE_IMAGE}], "terminationGracePeriodSeconds": 0}
        self._status: Object = {}
        self._object |= {"spec": self._spec, "status": self._status}

    def req(self, resources: Mapping[str, str] | None = None, /, **more: str) -> Self:
        """Requests of the first container; extended resources as a mapping: `.req({"example.com/gpu": "1"})`."""
        return self._first_container_resources("requests", {**(resources or {}), **more})

    def limit(self, resources: Mapping[str, str] | None = None, /, **more: str) -> Self:
        """Limits of the first container."""
        return self._first_container_resources("limits", {**(resources or {}), **more})

    def _first_container_resources(self, which: str, resources: Mapping[str, str]) -> Self:
        self._spec["containers"][0].setdefault("resources", {}).setdefault(which, {}).update(resources)
        return self

    def image(self, image: str) -> Self:
        return self.first_container(image=image)

    def first_container(self, **fields: Any) -> Self:
        """Sets any of the API's fields of the first container."""
        self._spec["containers"][0].update(fields)
        return self

    def spec(self, **fields: Any) -> Self:
        """Sets any of the API's fields."""
        self._spec.update(fields)
        return self

    def status(self, **fields: Any) -> Self:
        """Sets any of the API's fields."""
        self._status.update(fields)
        return self

    def host_port(self, port: int, protocol: str = "TCP", ip: str | None = None) -> Self:
        entry: Object = {"containerPort": port, "hostPort": port, "protocol": protocol}
        if ip is not None:
            entry["hostIP"] = ip
        self._spec["containers"][0].setdefault("ports", []).append(entry)
        return self

    def container(self, image: str = PAUSE_IMAGE, **requests: str) -> Self:
        """Adds a further container."""
        self._spec["containers"].append(_container(f"c{len(self._spec['containers'])}", image, requests))
        return self

    def init_container(
        self,
        requests: Mapping[str, str] | None = None,
        /,
        *,
        sidecar: bool = False,
        image: str = PAUSE_IMAGE,
        host_port: int | None = None,
        **more: str,
    ) -> Self:
        """Adds an init container; a sidecar is one with restartPolicy Always."""
        init_containers = self._spec.setdefault("initContainers", [])
        container = _container(f"init{len(init_containers)}", image, {**(requests or {}), **more})
        if host_port is not None:
            container["ports"] = [{"containerPort": host_port, "hostPort": host_port, "protocol": "TCP"}]
        init_containers.append({**container, "restartPolicy": "Always"} if sidecar else container)
        return self

    def pod_level_req(self, **resources: str) -> Self:
        """Pod-level requests (spec.resources)."""
        self._spec.setdefault("resources", {}).setdefault("requests", {}).update(resources)
        return self

    def overhead(self, **resources: str) -> Self:
        self._spec.setdefault("overhead", {}).update(resources)
        return self

    def grace(self, seconds: int) -> Self:
        """Seconds that it is given to end; with 0 it is gone at once, though no kubelet is there."""
        self._spec["terminationGracePeriodSeconds"] = seconds
        return self

    def node(self, name: str) -> Self:
        """Bound to that node."""
        self._spec["nodeName"] = name
        return self

    def nominated(self, node: str) -> Self:
        self._status["nominatedNodeName"] = node
        return self

    def phase(self, phase: str) -> Self:
        self._status["phase"] = phase
        return self

    def start_time(self, timestamp: str) -> Self:
        self._status["startTime"] = timestamp
        return self

    def priority(self, priority: int) -> Self:
        """The API server's admission wants a `priority_class` instead."""
        self._spec["priority"] = priority
        return self

    def priority_class(self, name: str) -> Self:
        self._spec["priorityClassName"] = name
        return self

    def preemption_policy(self, policy: str) -> Self:
        self._spec["preemptionPolicy"] = policy
        return self

    def scheduler(self, name: str) -> Self:
        self._spec["schedulerName"] = name
        return self

    def gate(self, name: str) -> Self:
        self._spec.setdefault("schedulingGates", []).append({"name": name})
        return self

    def group(self, name: str) -> Self:
        """A member of the PodGroup of this name."""
        self._spec["schedulingGroup"] = {"podGroupName": name}
        return self

    def node_selector(self, labels: Mapping[str, str] | None = None, /, **more: str) -> Self:
        self._spec.setdefault("nodeSelector", {}).update({**(labels or {}), **more})
        return self

    def toleration(
        self, key: str = "", value: str | None = None, *, effect: str | None = None, operator: str | None = None
    ) -> Self:
        """Without a value the operator is Exists; without key and value every taint is tolerated."""
        usual = "Exists" if value is None else "Equal"
        toleration = {"operator": usual if operator is None else operator}
        optional = {"key": key or None, "value": value, "effect": effect}
        toleration |= {name: given for name, given in optional.items() if given is not None}
        self._spec.setdefault("tolerations", []).append(toleration)
        return self

    def require_node(self, *terms: Object) -> Self:
        """Required node affinity: one of the terms (see `node_term`) must match."""
        selector = self._affinity("nodeAffinity").setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
        selector.setdefault("nodeSelectorTerms", []).extend(terms)
        return self

    def prefer_node(self, weight: int, term: Object) -> Self:
        preferred = self._affinity("nodeAffinity").setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
        preferred.append({"weight": weight, "preference": term})
        return self

    def affinity(self, topology_key: str, *, weight: int | None = None, **term: Any) -> Self:
        """Pod affinity, required or, with a weight, preferred. `term` as in `pod_term`."""
        return self._pod_affinity("podAffinity", weight, pod_term(topology_key, **term))

    def anti_affinity(self, topology_key: str, *, weight: int | None = None, **term: Any) -> Self:
        """Pod anti-affinity, required or, with a weight, preferred. `term` as in `pod_term`."""
        return self._pod_affinity("podAntiAffinity", weight, pod_term(topology_key, **term))

    def _affinity(self, kind: str) -> Object:
        affinity: Object = self._spec.setdefault("affinity", {}).setdefault(kind, {})
        return affinity

    def _pod_affinity(self, kind: str, weight: int | None, term: Object) -> Self:
        strength = "required" if weight is None else "preferred"
        entry = term if weight is None else {"weight": weight, "podAffinityTerm": term}
        self._affinity(kind).setdefault(f"{strength}DuringSchedulingIgnoredDuringExecution", []).append(entry)
        return self

    def spread(
        self,
        topology_key: str,
        *,
        max_skew: int = 1,
        soft: bool = False,
        labels: Mapping[str, str] | None = None,
        **constraint: Any,
    ) -> Self:
        """A topology spread constraint: DoNotSchedule or, if soft, ScheduleAnyway. `constraint`: the API's fields."""
        when_unsatisfiable = "ScheduleAnyway" if soft else "DoNotSchedule"
        entry = {"maxSkew": max_skew, "topologyKey": topology_key, "whenUnsatisfiable": when_unsatisfiable}
        selector = {} if labels is None else {"labelSelector": {"matchLabels": dict(labels)}}
        self._spec.setdefault("topologySpreadConstraints", []).append({**entry, **selector, **constraint})
        return self

    def volume(self, name: str, source: Object) -> Self:
        """Any volume source: `.volume("disk", {"emptyDir": {}})`."""
        self._spec.setdefault("volumes", []).append({"name": name, **source})
        return self

    def pvc(self, claim: str, *, read_only: bool = False) -> Self:
        source: Object = {"claimName": claim} | ({"readOnly": True} if read_only else {})
        return self.volume(claim, {"persistentVolumeClaim": source})

    def resource_claim(self, name: str, *, template: bool = False) -> Self:
        """A device claim by its name, or by its template's name; every container may use it."""
        field = "resourceClaimTemplateName" if template else "resourceClaimName"
        self._spec.setdefault("resourceClaims", []).append({"name": name, field: name})
        for container in self._spec["containers"]:
            container.setdefault("resources", {}).setdefault("claims", []).append({"name": name})
        return self


def _container(name: str, image: str, requests: Mapping[str, str]) -> Object:
    return {"name": name, "image": image} | ({"resources": {"requests": dict(requests)}} if requests else {})
