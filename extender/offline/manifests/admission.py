"""Applies the defaults and admission plugins of an API server to new pods, groups and claims, or refuses them.

`structure` and `checks` have already checked what depends on the object alone. LimitRanges fill in requests and limits,
and have minima and maxima. ResourceQuotas, admission webhooks and policies, and the Pod Security levels of namespaces
are ignored. Start at `admit` for pods, and at `companion` and `admitted` for the objects in the same file.

Sources: upstream pkg/apis/core/v1/defaults.go, pkg/registry/core/pod/strategy.go, plugin/pkg/admission/{priority,
limitranger,runtimeclass,defaulttolerationseconds}, pkg/api/pod/util.go DefaultPodLevelResources.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import asdict, replace

from extender.errors import MalformedCluster
from extender.model.devices import ResourceClaim, ResourceClaimTemplate
from extender.model.formats import HUGE_PAGES
from extender.model.meta import LabelSelector, LabelSelectorRequirement, Object
from extender.model.pod import (
    Affinity,
    Container,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    ResourceRequirements,
    TimedToleration,
    Toleration,
)
from extender.model.pod_groups import CompositePodGroup, PodGroup, SchedulingGroup
from extender.model.quantity import (
    INT64_MAX,
    NANO,
    NANO_PER_MILLI,
    ResourceList,
    milli_from_nano,
    nano,
    units_from_nano,
)
from extender.model.requests import container_totals, is_pod_level
from extender.model.storage import PersistentVolumeClaim
from extender.model.workloads import (
    LimitRange,
    LimitRangeItem,
    Namespace,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
)
from extender.offline.manifests import checks, schema, structure
from extender.snapshots.objects import (
    DEFAULT_SCHEDULER,
    READ_KINDS,
    SYSTEM_CLASSES,
    admitted_priority,
    applied,
    identified,
    named,
    refused,
    to_object,
    with_ports,
)
from extender.table.object_index import Objects

T = TypeVar("T", bound=Object)

_EVICTION_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EVICTION_SECONDS = 300
_CHECKED = frozenset(
    kind.__name__ for kind in (PodGroup, CompositePodGroup, PersistentVolumeClaim, ResourceClaim, ResourceClaimTemplate)
)
_NOT_APPLIED = frozenset(("Pod", "Node"))  # pods are workloads, and kubelets create nodes
_HIGHEST_PRIORITY = 10**9
_ADMIN_LABEL = "resource.kubernetes.io/admin-access"


@dataclass(slots=True)
class Admitted:
    """A pod as the API server would store it. `notes` say what was filled in."""

    pod: Pod
    notes: list[str] = field(default_factory=list)


def admit(pod: Pod, manifest: Mapping[str, Any], objects: Objects) -> Admitted:
    """Returns a new pod as an API server with these objects would store it.

    Args:
        manifest: the manifest of `pod`, for fields that `Pod` lacks because no scheduling rule reads them.

    Raises:
        MalformedCluster: the API server would refuse the pod; the message says why.
    """
    admitted = Admitted(pod)
    ranges = limit_ranges_of(pod.namespace, objects)
    whole = _in_thousandths(pod.spec.resources)
    admitted.pod = pod.with_spec(scheduler_name=pod.spec.scheduler_name or DEFAULT_SCHEDULER, resources=whole)
    host_network = bool(pod.spec.host_network)
    _each_container(admitted, lambda each: replace(each, resources=_in_thousandths(each.resources)))
    _each_container(admitted, lambda each: with_ports(each, host_network))
    _each_container(admitted, lambda each: _requests_from_limits(each, admitted.notes))
    for limits in sorted(ranges, key=lambda each: each.key):
        for item in limits.spec.limits or ():
            if item.type == _CONTAINER:
                _each_container(admitted, partial(_with_defaults, item, limits.name, admitted.notes))
    _priority(admitted, objects)
    admitted.pod = admitted.pod.with_spec(tolerations=_with_eviction_tolerations(admitted.pod.spec))
    _runtime_class(admitted, manifest.get("spec") or {}, objects)
    admitted.pod = _with_pod_level_resources(_with_label_keys(admitted.pod), admitted.notes)
    quotas = sorted(each.name for each in objects.all(ResourceQuota).values() if each.namespace == pod.namespace)
    if quotas:
        text = f"ResourceQuota {', '.join(quotas)} of namespace {pod.namespace} may refuse the pod; it is not checked"
        admitted.notes.append(text)
    faults = list(checks.admitted_faults(admitted.pod))
    faults = faults or [fault for limits in ranges for fault in limit_violations(admitted.pod, limits)]
    if faults:
        raise _refused(pod, "; ".join(dict.fromkeys(faults)))
    return admitted


def _refused(pod: Pod, reason: str) -> MalformedCluster:
    return refused(f"pod {pod.key}", reason)


def _each_container(admitted: Admitted, change: Callable[[Container], Container]) -> None:
    spec = admitted.pod.spec
    admitted.pod = admitted.pod.with_spec(
        containers=[change(each) for each in spec.containers or ()],
        init_containers=[change(each) for each in spec.init_containers or ()],
    )


def _in_thousandths(requirements: ResourceRequirements | None) -> ResourceRequirements | None:
    """Rounds amounts up to thousandths, the precision in which the API server stores them."""
    if requirements is None:
        return None
    return ResourceRequirements(requests=_rounded_up(requirements.requests), limits=_rounded_up(requirements.limits))


def _rounded_up(amounts: ResourceList | None) -> ResourceList | None:
    if amounts is None:
        return None
    return {
        name: amount if nano(amount) % NANO_PER_MILLI == 0 else f"{milli_from_nano(nano(amount))}m"
        for name, amount in amounts.items()
    }


def _requests_from_limits(container: Container, notes: list[str]) -> Container:
    requirements = container.resources
    own = (requirements.requests if requirements else None) or {}
    taken = _missing((requirements and requirements.limits) or {}, own)
    if not requirements or not taken:
        return container
    notes.append(f"container {container.name}: requests {_listed(taken)}, taken from its limits")
    return replace(container, resources=replace(requirements, requests={**own, **taken}))


def _runtime_class(admitted: Admitted, spec: Mapping[str, Any], objects: Objects) -> None:
    name, overhead = spec.get("runtimeClassName"), admitted.pod.spec.overhead
    if name is None:
        if overhead is not None:
            raise _refused(admitted.pod, "spec.overhead: only a RuntimeClass can set it")
        return
    runtime_class = _named(RuntimeClass, name, objects, admitted.pod)
    fixed = runtime_class.overhead.pod_fixed if runtime_class.overhead else None
    if overhead is not None and (runtime_class.overhead is None or (overhead and not _equal(overhead, fixed or {}))):
        raise _refused(admitted.pod, f"spec.overhead: is not the overhead of RuntimeClass {name}")
    if fixed:
        admitted.notes.append(f"overhead {_listed(fixed)}, from RuntimeClass {name}")
        admitted.pod = admitted.pod.with_spec(overhead=fixed)
    written = spec.get("tolerations") or []
    kept = _runtime_scheduling(admitted, runtime_class, [(each or {}).get("tolerationSeconds") for each in written])
    for position, toleration in enumerate(written):
        faults = checks.toleration(toleration or {}, f"spec.tolerations[{position}]")
        if position in kept and (fault := next(faults, None)):
            raise _refused(admitted.pod, fault)


def _equal(first: ResourceList, second: ResourceList) -> bool:
    return {name: nano(amount) for name, amount in first.items()} == {n: nano(amount) for n, amount in second.items()}


def _runtime_scheduling(
    admitted: Admitted, runtime_class: RuntimeClass, seconds: Sequence[int | None]
) -> Collection[int]:
    """Adds the RuntimeClass's node selector and tolerations to the pod; drops tolerations that another one covers.

    Args:
        seconds: the tolerationSeconds of each toleration in the manifest. The pod may have more tolerations, because
            `_with_eviction_tolerations` appends the defaults.

    Returns:
        The positions of the tolerations that are kept. They count the pod's tolerations first, then those of the class.
    """
    scheduling, spec = runtime_class.scheduling, admitted.pod.spec
    own = spec.tolerations or []
    if not scheduling:
        return range(len(own))
    _select_nodes(admitted, runtime_class.name, scheduling.node_selector or {})
    limits = [*seconds, *(_EVICTION_SECONDS for _ in own[len(seconds) :])]
    timed = [TimedToleration(**asdict(each), toleration_seconds=limit) for each, limit in zip(own, limits, strict=True)]
    together = [*timed, *(scheduling.tolerations or ())]
    kept = list(_merged_tolerations(together))
    admitted.pod = admitted.pod.with_spec(tolerations=[_untimed(together[position]) for position in kept])
    if scheduling.node_selector or scheduling.tolerations:
        admitted.notes.append(f"nodeSelector and tolerations from RuntimeClass {runtime_class.name}")
    return kept


def _select_nodes(admitted: Admitted, class_name: str, its: Mapping[str, str]) -> None:
    own = admitted.pod.spec.node_selector or {}
    for key in own.keys() & its.keys():
        if own[key] != its[key]:
            reason = f"spec.nodeSelector.{key}: RuntimeClass {class_name} needs {its[key]!r}, got {own[key]!r}"
            raise _refused(admitted.pod, reason)
    admitted.pod = admitted.pod.with_spec(node_selector={**own, **its} or None)


def _untimed(toleration: Toleration) -> Toleration:
    return Toleration(toleration.key, toleration.operator, toleration.value, toleration.effect)


def _priority(admitted: Admitted, objects: Objects) -> None:
    pod, name = admitted.pod, admitted.pod.spec.priority_class_name
    if name and name not in SYSTEM_CLASSES:
        _named(PriorityClass, name, objects, pod)
    spec = admitted_priority(f"pod {pod.key}", "pod", pod.spec, objects.all(PriorityClass).values())
    admitted.pod = replace(pod, spec=spec)
    if spec.priority_class_name and spec.priority != pod.spec.priority:
        admitted.notes.append(f"priority {spec.priority}, from PriorityClass {spec.priority_class_name}")


def _with_eviction_tolerations(spec: PodSpec) -> list[Toleration]:
    """Returns the tolerations of the spec, plus the defaults for a node that is not ready or unreachable.

    Source: upstream DefaultTolerationSeconds.
    """
    own = spec.tolerations or []
    missing = [
        taint
        for taint in _EVICTION_TAINTS
        if not any(each.key in ("", taint) and each.effect in ("", "NoExecute") for each in own)
    ]
    return [*own, *(Toleration(key=taint, operator="Exists", effect="NoExecute") for taint in missing)]


def _with_label_keys(pod: Pod) -> Pod:
    """Returns the pod with matchLabelKeys and mismatchLabelKeys merged into the label selectors.

    The pod's labels with these keys are added to the selector of the same spread constraint or affinity term.
    """
    spec = pod.spec
    constraints = [
        replace(each, label_selector=_merged(each.label_selector, each.match_label_keys, None, pod))
        for each in spec.topology_spread_constraints or ()
    ]
    affinity = spec.affinity
    if affinity is not None:
        affinity = Affinity(
            node_affinity=affinity.node_affinity,
            pod_affinity=_merged_affinity(affinity.pod_affinity, pod),
            pod_anti_affinity=_merged_affinity(affinity.pod_anti_affinity, pod),
        )
    return pod.with_spec(topology_spread_constraints=constraints or None, affinity=affinity)


def _merged_affinity(affinity: PodAffinity | None, pod: Pod) -> PodAffinity | None:
    if affinity is None:
        return None

    def merged(term: PodAffinityTerm) -> PodAffinityTerm:
        selector = _merged(term.label_selector, term.match_label_keys, term.mismatch_label_keys, pod)
        return replace(term, label_selector=selector)

    preferred = [replace(each, pod_affinity_term=merged(each.pod_affinity_term)) for each in affinity.preferred or ()]
    return PodAffinity(required=list(map(merged, affinity.required or ())) or None, preferred=preferred or None)


def _merged(
    selector: LabelSelector | None, matched: list[str] | None, mismatched: list[str] | None, pod: Pod
) -> LabelSelector | None:
    if selector is None:  # a missing selector selects no pods, and must not become one that selects some
        return None
    added = [
        LabelSelectorRequirement(key=key, operator=operator, values=[pod.labels[key]])
        for operator, keys in (("In", matched), ("NotIn", mismatched))
        for key in keys or ()
        if key in pod.labels
    ]
    return replace(selector, match_expressions=[*(selector.match_expressions or ()), *added]) if added else selector


def _named(kind: type[T], name: str, objects: Objects, pod: Pod) -> T:
    obj = objects.get(kind, name)
    if obj is None:
        existing = ", ".join(sorted(objects.all(kind))) or "none"
        raise MalformedCluster(
            f"pod {pod.key}: no {kind.__name__} {name} is in the cluster, so the API server would refuse the "
            f"pod (existing ones: {existing})"
        )
    return obj


def _listed(amounts: ResourceList) -> str:
    return ", ".join(f"{name}={amount}" for name, amount in amounts.items())


def _merged_tolerations(tolerations: Sequence[TimedToleration]) -> Iterator[int]:
    """Yields the positions of the tolerations that no other covers; if tolerations are equal, the first is kept.

    Source: upstream pkg/util/tolerations.
    """
    kept: list[TimedToleration] = []
    for position, each in enumerate(tolerations):
        later = [other for other in tolerations[position + 1 :] if other != each]
        if not any(_covers(other, each) for other in (*kept, *later)):
            kept.append(each)
            yield position


def _covers(one: TimedToleration, other: TimedToleration) -> bool:
    """Returns True if `one` tolerates all that `other` tolerates (upstream isSuperset)."""
    if one == other:
        return True
    if one.key != other.key and (one.key or one.operator != "Exists"):
        return False
    if one.effect not in ("", other.effect):
        return False
    if one.effect == "NoExecute" and _lasts_longer(other.toleration_seconds, one.toleration_seconds):
        return False
    if one.operator in ("", "Equal"):
        return other.operator == "Equal" and one.value == other.value
    return one.operator == "Exists"


def _lasts_longer(first: int | None, second: int | None) -> bool:
    """Returns True if the time limit `first` is longer than `second`; None means no limit."""
    return second is not None and (first is None or first > second)


def _with_pod_level_resources(pod: Pod, notes: list[str]) -> Pod:
    """Returns the pod with its pod-level requests and limits completed from its containers, if it has any."""
    whole = pod.spec.resources
    if whole is None or not (whole.requests or whole.limits):
        return pod
    limits = {**_huge_page_limits(pod, whole), **(whole.limits or {})}
    missing = _missing_requests(pod, limits, whole.requests or {})
    if missing:
        notes.append(f"the pod requests {_listed(missing)} as a whole")
    requests = {**(whole.requests or {}), **missing}
    limits = {**_missing_limits(pod, requests, limits), **limits}
    return pod.with_spec(resources=replace(whole, requests=requests or None, limits=limits or None))


def _huge_page_limits(pod: Pod, whole: ResourceRequirements) -> ResourceList:
    """Returns the sum of the containers' limits, for each size of huge pages that the pod does not request itself."""
    totals = container_totals(pod, limits=True)
    return {
        name: _quantity(nanos)
        for name, nanos in totals.items()
        if name.startswith(HUGE_PAGES) and name not in (whole.requests or {})
    }


def _missing_requests(pod: Pod, limits: ResourceList, own: ResourceList) -> ResourceList:
    """Returns the missing pod-level requests: the sum over the containers; without a sum, the pod-level limit."""
    totals = {
        name: _quantity(nanos)
        for name, nanos in container_totals(pod).items()
        if is_pod_level(name) and not name.startswith(HUGE_PAGES)
    }
    from_limits = {name: amount for name, amount in limits.items() if is_pod_level(name)}
    return _missing({**from_limits, **totals}, own)


def _missing_limits(pod: Pod, requests: ResourceList, own: ResourceList) -> ResourceList:
    """Returns pod-level limits for the resources that every container limits: the sum, but at least the request."""
    totals = container_totals(pod, limits=True)
    containers = (*pod.init_containers, *pod.containers)
    candidates = [name for name in requests if is_pod_level(name) and name not in own]
    limited = [
        name
        for name in candidates
        if all(name in ((each.resources.limits if each.resources else None) or {}) for each in containers)
    ]
    return {name: _quantity(max(totals[name], nano(requests[name]))) for name in limited}


def _quantity(nanos: int) -> str:
    """Converts an amount in billionths to a quantity, such as `2` or `1500000000n`."""
    return str(nanos // NANO) if nanos % NANO == 0 else f"{nanos}n"


Amounts = Mapping[str, int]
_CONTAINER, _POD, _CLAIM = "Container", "Pod", "PersistentVolumeClaim"
_OVERRIDDEN = ("cpu", "memory")  # pod-level amounts of these resources replace the sum over the containers


def limit_ranges_of(namespace: str, objects: Objects) -> list[LimitRange]:
    """Returns the LimitRanges of the namespace."""
    return [each for each in objects.all(LimitRange).values() if each.namespace == namespace]


def limit_violations(pod: Pod, limits: LimitRange) -> Iterator[str]:
    """Yields the reasons why the LimitRange does not allow the pod."""
    for item in limits.spec.limits or ():
        if item.type == _CONTAINER:
            for container in (*pod.init_containers, *pod.containers):
                resources = container.resources or ResourceRequirements()
                where = f"container {container.name}"
                yield from _violations(item, _nanos(resources.requests), _nanos(resources.limits), where, limits.name)
        elif item.type == _POD:
            whole = pod.spec.resources or ResourceRequirements()
            requests = {**container_totals(pod), **_overriding(whole.requests)}
            its_limits = {**container_totals(pod, limits=True), **_overriding(whole.limits)}
            yield from _violations(item, requests, its_limits, "the pod", limits.name)


def claim_limit_violations(claim: PersistentVolumeClaim, limits: LimitRange) -> Iterator[str]:
    """Yields the reasons why the LimitRange does not allow the claim."""
    requests = _nanos(claim.spec.resources.requests if claim.spec.resources else None)
    for item in limits.spec.limits or ():
        if item.type == _CLAIM:
            yield from _violations(LimitRangeItem(min=item.min), requests, {}, "the claim", limits.name)
            for resource, quantity in (item.max or {}).items():
                if resource not in requests or _is_less(nano(quantity), requests[resource]):
                    limit = f"the maximum of {quantity} in LimitRange {limits.name}"
                    yield f"the claim: its request of {resource} is missing, or more than {limit}"


def _with_defaults(item: LimitRangeItem, name: str, notes: list[str], container: Container) -> Container:
    """Returns the container with an item's default requests and limits.

    A default that is missing follows from the item's min or max.
    """
    limits = {**(item.max or {}), **(item.default or {})}
    requests = {**(item.min or {}), **limits, **(item.default_request or {})}
    resources = container.resources or ResourceRequirements()
    new_requests, new_limits = _missing(requests, resources.requests), _missing(limits, resources.limits)
    for kind, added in (("requests", new_requests), ("limits", new_limits)):
        if added:
            notes.append(f"container {container.name}: {kind} {_listed(added)}, from LimitRange {name}")
    if not (new_requests or new_limits):
        return container
    filled = ResourceRequirements(
        requests={**(resources.requests or {}), **new_requests}, limits={**(resources.limits or {}), **new_limits}
    )
    return replace(container, resources=filled)


def _missing(defaults: ResourceList, own: ResourceList | None) -> ResourceList:
    return {name: amount for name, amount in defaults.items() if name not in (own or {})}


def _violations(item: LimitRangeItem, requests: Amounts, limits: Amounts, where: str, name: str) -> Iterator[str]:
    both = (("request", requests), ("limit", limits))
    for resource, quantity in (item.min or {}).items():
        if resource not in requests:
            yield f"{where}: has no request of {resource}, for which LimitRange {name} has a minimum of {quantity}"
        for kind, amounts in both:
            if _is_less(amounts.get(resource), nano(quantity)):
                yield f"{where}: its {kind} of {resource} is less than the minimum of {quantity} in LimitRange {name}"
    for resource, quantity in (item.max or {}).items():
        if resource not in limits:
            yield f"{where}: has no limit of {resource}, for which LimitRange {name} has a maximum of {quantity}"
        for kind, amounts in both:
            if _is_less(nano(quantity), amounts.get(resource)):
                yield f"{where}: its {kind} of {resource} is more than the maximum of {quantity} in LimitRange {name}"
    yield from _too_far_apart(item, requests, limits, where, name)


def _too_far_apart(item: LimitRangeItem, requests: Amounts, limits: Amounts, where: str, name: str) -> Iterator[str]:
    for resource, quantity in (item.max_limit_request_ratio or {}).items():
        request, limit = requests.get(resource, 0), limits.get(resource, 0)
        if request <= 0 or limit <= 0 or limit * NANO > nano(quantity) * request:
            yield f"{where}: its limit of {resource} must be at most {quantity} times its request, by LimitRange {name}"


def _is_less(first: int | None, second: int | None) -> bool:
    """Returns True if `first` is less than `second`; False if one of the two is None, which means not set.

    The amounts are in billionths. As upstream, they are rounded before they are compared: to thousandths, or to whole
    units if they are very large.
    """
    if first is None or second is None:
        return False
    if max(units_from_nano(first), units_from_nano(second)) > INT64_MAX // 1000:
        return units_from_nano(first) < units_from_nano(second)
    return milli_from_nano(first) < milli_from_nano(second)


def _nanos(resources: ResourceList | None) -> Amounts:
    return {name: nano(quantity) for name, quantity in (resources or {}).items()}


def _overriding(whole: ResourceList | None) -> Amounts:
    return {name: nanos for name, nanos in _nanos(whole).items() if name in _OVERRIDDEN}


def companion(item: Mapping[str, Any], place: str, namespace: str = "") -> Object | None:
    """Converts an object that scheduling reads besides pods and nodes; returns None for any other object.

    Args:
        namespace: the namespace of an object that names none.

    Raises:
        MalformedCluster: the API server would refuse the object; the message has the path of every fault.
    """
    kind = str(item.get("kind"))
    if kind not in READ_KINDS or kind in _NOT_APPLIED:
        return None
    api_version = READ_KINDS[kind].api_version
    current = applied(item, api_version, place) if item.get("apiVersion") else item
    if current is None:
        return None
    metadata = current.get("metadata") or {}
    if isinstance(metadata, Mapping):  # the checks below report metadata that is not a mapping
        metadata = named(metadata, namespace, place)
    item = {**current, "apiVersion": api_version, "metadata": metadata}
    if kind in _CHECKED:
        item = schema.without_nulls(kind, item)
        if faults := schema.faults(kind, item) or list(structure.companion_faults(kind, item)):
            raise MalformedCluster(f"{place}: {'; '.join(faults)}")
    obj = to_object(item, place)
    return obj and identified(obj)


def admitted(obj: Object, objects: Objects, *, limits_priorities: bool = True, checks_more: bool = False) -> Object:
    """Returns a pod group or a claim as an API server with these objects would store it.

    Args:
        limits_priorities: True if it refuses groups with the priority of a system class.
        checks_more: True if it refuses what `Behaviours.more_objects_are_refused` names.

    Raises:
        MalformedCluster: the API server would refuse it; the message says why.
    """
    if checks_more:
        for fault in _newer_faults(obj):
            raise refused(_owner(obj), fault)
    if isinstance(obj, SchedulingGroup):
        return _with_priority(obj, objects, limits_priorities=limits_priorities)
    for fault in _faults(obj, objects):
        raise refused(_owner(obj), fault)
    return obj


def _newer_faults(obj: Object) -> Iterator[str]:
    match obj:
        case PodGroup() | CompositePodGroup() if obj.is_disrupted_whole and obj.spec.scheduling_policy.gang is None:
            yield 'spec.disruptionMode: cannot have "all" disruption mode when scheduling policy is other than "gang"'
        case ResourceClaim():
            yield from structure.capacity_faults(obj.spec.devices, "spec.devices")
        case ResourceClaimTemplate():
            yield from structure.capacity_faults(obj.spec.spec.devices, "spec.spec.devices")


def _faults(obj: Object, objects: Objects) -> Iterator[str]:
    if isinstance(obj, PersistentVolumeClaim):
        for limits in limit_ranges_of(obj.namespace, objects):
            yield from claim_limit_violations(obj, limits)
    devices = obj.spec.devices if isinstance(obj, ResourceClaim) else None
    devices = obj.spec.spec.devices if isinstance(obj, ResourceClaimTemplate) else devices
    is_admin = any(each.exactly and each.exactly.admin_access for each in (devices and devices.requests) or ())
    namespace = objects.get(Namespace, obj.namespace)
    if is_admin and (namespace is None or namespace.labels.get(_ADMIN_LABEL) != "true"):
        yield f"adminAccess: namespace {obj.namespace} has no label {_ADMIN_LABEL}=true"


def _with_priority(group: SchedulingGroup, objects: Objects, *, limits_priorities: bool) -> SchedulingGroup:
    """Returns the group with the priority of its PriorityClass; refuses a group that sets another priority."""
    spec = admitted_priority(_owner(group), "group", group.spec, objects.all(PriorityClass).values())
    if limits_priorities and (spec.priority or 0) > _HIGHEST_PRIORITY:
        raise refused(_owner(group), f"spec.priority: expected at most {_HIGHEST_PRIORITY}, got {spec.priority}")
    return replace(group, spec=spec)


def _owner(obj: Object) -> str:
    return f"{type(obj).__name__} {obj.key}"
