"""Creates nodes as they join a cluster: with what kubelet, CSI drivers, DRA drivers and DaemonSets bring.

A new node is a copy of a node of the cluster, or comes from a manifest. What identifies the template is known by the
keys of its labels, never by their values: a label whose value happens to be the node's name stays. docs/what-if.md has
a table of what is copied, with the upstream sources.

The pods of DaemonSets are created as their controller does: one on each node that the template selects and tolerates.
Sources: upstream pkg/controller/daemon nodeShouldRunDaemonPod, ReplaceDaemonSetPodNodeNameNodeAffinity.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from extender.engine import Engine, quantities_of
from extender.errors import MalformedCluster
from extender.framework.node_selectors import required_node_selector
from extender.framework.profile import Profiles
from extender.framework.topology import HOSTNAME, ZONE
from extender.model.controllers import DaemonSet
from extender.model.devices import ResourceSlice
from extender.model.meta import (
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Object,
    ObjectMeta,
)
from extender.model.node import Node
from extender.model.pod import Affinity, NodeAffinity, Pod
from extender.model.selectors import compile_selector
from extender.model.storage import CSINode, CSIStorageCapacity, PersistentVolume
from extender.offline.replicas import is_daemon, is_pinned
from extender.offline.state import ClusterState
from extender.offline.workloads import as_created, lacks_class, pod_of_template
from extender.plugins.registry import default_profile

NodeTemplate = str | Node | Sequence[Object]
"""The name of a node of the cluster, or a Node, which may be in a list with what its drivers report about it."""

_OS, _ARCH = "kubernetes.io/os", "kubernetes.io/arch"
_DEFAULTS = {_OS: "linux", _ARCH: "amd64"}
# Taints that a node has for a time: until it is initialized, while it is unhealthy, or before it is replaced.
_LIFE_TAINT = re.compile(
    r"node\.kubernetes\.io/.*|node\.cloudprovider\.kubernetes\.io/.*|.*/uninitialized|.*/(.*-)?not-ready"
    r"|ToBeDeletedByClusterAutoscaler|DeletionCandidate.*|karpenter\.sh/(disrupt.*|unregistered)"
    r"|(ignore|startup|status)-taint\.cluster-autoscaler\.kubernetes\.io/.*|NodeWithImpairedVolumes"
    r"|cloud\.google\.com/impending-node-termination|aws-node-termination-handler/.*"
    r"|remediator\.(kubernetes\.azure|aks\.microsoft)\.com/unschedulable|UpdateInProgress"
    r"|node\.cluster\.x-k8s\.io/outdated-revision|kops\.k8s\.io/scheduled-for-update"
    r"|deployment\.machine\.sapcloud\.io/prefer-no-schedule"
)


_REPORTED: Sequence[type[Object]] = (CSINode, ResourceSlice, CSIStorageCapacity)

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class FreshNode:
    """A new node, the objects that its drivers report, and the pods that are on it from the start."""

    node: Node
    objects: Sequence[Object]
    pods: Sequence[Pod]

    def all(self) -> Iterator[Object]:
        """Yields the node, then everything that comes with it."""
        yield self.node
        yield from self.objects
        yield from self.pods


@dataclass(frozen=True, slots=True)
class FreshNodes:
    """New nodes from one template, and notes on what is not known about them."""

    nodes: Sequence[FreshNode]
    notes: Sequence[str]


def add_nodes(state: ClusterState, template: NodeTemplate, count: int) -> Sequence[str]:
    """Adds `count` new nodes with all that comes with them; returns notes on what is not known about them.

    Raises:
        UnknownNode: the cluster has no node of this name.
        MalformedCluster: a list does not have exactly one Node, or the Node has a malformed quantity.
    """
    if isinstance(template, str):
        like, objects = state.node(template), None
    else:
        like, objects = _manifest(template)
    free = (name for number in itertools.count(1) if not state.has_node(name := f"{like.name}-new-{number}"))
    names = list(itertools.islice(free, count))
    fresh = copies_of(state, like, names) if objects is None else from_manifest(state, like, names, objects)
    for node in fresh.nodes:
        for obj in node.all():
            state.add(obj)
    return fresh.notes


def _manifest(template: Node | Sequence[Object]) -> tuple[Node, list[Object]]:
    """Returns the node that a manifest describes, and the other objects in it. Raises MalformedCluster."""
    objects = [template] if isinstance(template, Node) else list(template)
    nodes = [obj for obj in objects if isinstance(obj, Node)]
    if len(nodes) != 1:
        raise MalformedCluster(f"expected one Node, got {len(nodes)}")
    return nodes[0], [obj for obj in objects if obj is not nodes[0]]


def copies_of(state: ClusterState, template: Node, names: Sequence[str]) -> FreshNodes:
    """Returns a new node for each name, like a node of the cluster."""
    keys = _local_keys(state)
    of_drivers = (obj for kind in _REPORTED for obj in state.objects.all(kind).values())
    reported = [obj for obj in of_drivers if _is_about(obj, template, keys)]
    static = [info.pod for info in state.pods_on(template.name) if is_pinned(info.pod) and not is_daemon(info.pod)]
    classes = ", ".join(sorted({each.storage_class_name for each in _of(CSIStorageCapacity, reported)}))
    notes = [f"as much local storage of StorageClass {classes} counts as free as on it"] if classes else []
    return _with_pods(state, template, names, reported, static, keys, template.name, notes)


def from_manifest(
    state: ClusterState, template: Node, names: Sequence[str], objects: Sequence[Object] = ()
) -> FreshNodes:
    """Returns a new node for each name, as a manifest describes it.

    `objects` are what the drivers of one such node report. Objects that are not about this node are left out.

    Raises MalformedCluster if the manifest has a malformed quantity.
    """
    keys = _local_keys(state, template, objects)
    reported = [obj for obj in objects if _is_about(obj, template, keys)]
    drivers = sorted({each.name for csi_node in state.objects.all(CSINode).values() for each in csi_node.drivers})
    capacities = state.objects.all(CSIStorageCapacity).values()
    local = {each.storage_class_name for each in capacities if _has_local_topology(each, keys)}
    classes = sorted(local.difference(each.storage_class_name for each in _of(CSIStorageCapacity, reported)))
    left_out = Counter(type(obj).__name__ for obj in objects if not _is_about(obj, template, keys))
    notes = []
    if left_out:
        kinds = ", ".join(f"{count} {kind}" for kind, count in left_out.items())
        notes.append(f"left out, because no driver reports them for node {template.name} alone: {kinds}")
    if drivers and not _of(CSINode, reported):
        text = f"many volumes of {', '.join(drivers)} can be attached, so no such limit counts there"
        notes.append(f"a manifest does not say how {text}")
    if classes:
        text = f"much local storage of StorageClass {', '.join(classes)} is free, so none counts there"
        notes.append(f"a manifest does not say how {text}")
    with quantities_of(template):
        return _with_pods(state, template, names, reported, (), keys, None, notes)


def shapes(state: ClusterState, most: int) -> list[Node]:
    """Returns one node of each shape, at most `most`.

    Two nodes have the same shape if their lasting taints, their allocatable resources, the number of their devices and
    their labels are equal, except labels that identify a node.
    """
    by_shape: dict[object, Node] = {}
    devices: Counter[str | None] = Counter()
    for resource_slice in state.objects.all(ResourceSlice).values():
        devices[resource_slice.spec.node_name] += len(resource_slice.spec.devices or ())
    keys = _local_keys(state)
    for node in state.nodes():
        bare = _bare(node, "", keys, _DEFAULTS)
        labels, allocatable = frozenset(bare.labels.items()), frozenset((node.allocatable or {}).items())
        by_shape.setdefault((labels, allocatable, devices[node.name], tuple(bare.taints)), node)
        if len(by_shape) == most:
            break
    return list(by_shape.values())


def _with_pods(
    state: ClusterState,
    template: Node,
    names: Sequence[str],
    reported: Sequence[Object],
    static: Sequence[Pod],
    keys: frozenset[str],
    like: str | None,
    notes: Sequence[str],
) -> FreshNodes:
    """Returns the nodes with the pods of DaemonSets; `notes` are added to those on the pods."""
    if not names:
        return FreshNodes((), ())
    defaults = {
        key: template.labels.get(f"beta.{key}") or _usual(state, key) or value for key, value in _DEFAULTS.items()
    }
    nodes = [_bare(template, name, keys, defaults) for name in names]
    daemons, of_pods = _daemons_for(state, nodes[0], static, like)
    fresh = [
        FreshNode(
            node,
            [_reported_for(each, template.name, node.name, keys) for each in reported],
            [*(_static_on(node.name, pod) for pod in static), *(_placed(node.name, pod) for pod in daemons)],
        )
        for node in nodes
    ]
    return FreshNodes(fresh, [f"new nodes like {template.name}: {note}" for note in (*of_pods, *notes)])


def _bare(template: Node, name: str, keys: frozenset[str], defaults: dict[str, str]) -> Node:
    """Returns the node as kubelet registers it: with its own identity, uncordoned, without conditions and images."""
    labels = {**defaults, **template.labels, HOSTNAME: name}
    labels |= {beta: labels[key] for key in _DEFAULTS if (beta := f"beta.{key}") not in labels}
    labels |= {key: name for key in keys if key in labels}
    metadata = ObjectMeta(name=name, uid=name, labels=labels, annotations=template.metadata.annotations)
    taints = [taint for taint in template.taints if not _LIFE_TAINT.fullmatch(taint.key)]
    spec = replace(template.spec, unschedulable=None, taints=taints or None)
    return replace(
        template, metadata=metadata, spec=spec, status=replace(template.status, conditions=None, images=None)
    )


def _usual(state: ClusterState, key: str) -> str | None:
    """Returns the value that most nodes have for a label; None if no node has the label."""
    values = Counter(node.labels[key] for node in state.nodes() if key in node.labels)
    return max(values, key=lambda value: values[value], default=None)


def _local_keys(state: ClusterState, template: Node | None = None, objects: Sequence[Object] = ()) -> frozenset[str]:
    """Returns the keys of the labels that have another value on each node.

    These are the hostname, and those topology keys of CSI drivers and of local volumes that single out one node. Other
    topology keys, such as a zone, have the same value on a new node.

    Args:
        template: a node that the cluster lacks. It counts for a key that no node of the cluster has: the value in a
            manifest may be a placeholder.
        objects: what drivers report about the template.
    """
    csi_nodes = [*state.objects.all(CSINode).values(), *_of(CSINode, objects)]
    drivers = (driver for csi_node in csi_nodes for driver in csi_node.drivers)
    candidates = {key for driver in drivers for key in driver.topology_keys or ()}
    for volume in state.objects.all(PersistentVolume).values():
        terms = (volume.node_selector.node_selector_terms if volume.node_selector else None) or ()
        candidates.update(each.key for term in terms for each in term.match_expressions or ())
    for capacity in (*state.objects.all(CSIStorageCapacity).values(), *_of(CSIStorageCapacity, objects)):
        candidates.update(requirement.key for requirement in compile_selector(capacity.node_topology).requirements)
    nodes = state.nodes()
    labelled = {key: [node for node in nodes if key in node.labels] for key in candidates}
    if template is not None:
        labelled |= {key: [template] for key in candidates if not labelled[key] and key in template.labels}
    return frozenset((HOSTNAME, *(key for key in candidates if _singles_out(key, labelled[key]))))


def _singles_out(key: str, labelled: Sequence[Node]) -> bool:
    """Returns True if each node has its own value of this topology key, which all these nodes have.

    Either the values are the nodes' names or hostnames, or all values differ, even those of two nodes in one zone.
    """
    if labelled and all(node.labels[key] in (node.name, node.labels.get(HOSTNAME)) for node in labelled):
        return True
    zones = [node.labels[ZONE] for node in labelled if ZONE in node.labels]
    return len({node.labels[key] for node in labelled}) == len(labelled) and len(set(zones)) < len(zones)


def _of(kind: type[T], objects: Sequence[Object]) -> list[T]:
    return [obj for obj in objects if isinstance(obj, kind)]


def _is_about(obj: Object, node: Node, keys: frozenset[str]) -> bool:
    """Returns True if kubelet or a driver reports the object for this node alone."""
    match obj:
        case CSINode():
            return obj.name == node.name
        case ResourceSlice():
            return obj.spec.node_name == node.name
        case CSIStorageCapacity():
            return _has_local_topology(obj, keys) and compile_selector(obj.node_topology).matches(node.labels)
    return False


def _has_local_topology(capacity: CSIStorageCapacity, keys: frozenset[str]) -> bool:
    """Returns True if the capacity is that of one node, not of a zone or of all nodes."""
    return any(each.key in keys for each in compile_selector(capacity.node_topology).requirements)


def _reported_for(obj: Object, template: str, name: str, keys: frozenset[str]) -> Object:
    """Returns what a driver reports for the new node, where it reports `obj` for the template."""
    if isinstance(obj, ResourceSlice):
        pool = obj.spec.pool.name
        own_pool = replace(obj.spec.pool, name=name if pool == template else f"{pool}-{name}")
        metadata = ObjectMeta(name=f"{obj.name}-{name}", uid=f"{obj.name}-{name}", labels=obj.metadata.labels)
        return replace(obj, metadata=metadata, spec=replace(obj.spec, node_name=name, pool=own_pool))
    if isinstance(obj, CSIStorageCapacity):
        metadata = ObjectMeta(name=f"{obj.name}-{name}", namespace=obj.namespace, uid=f"{obj.key}-{name}")
        return replace(obj, metadata=metadata, node_topology=_selecting(obj.node_topology, name, keys))
    return replace(obj, metadata=ObjectMeta(name=name, uid=name, annotations=obj.metadata.annotations))


def _selecting(selector: LabelSelector | None, name: str, keys: frozenset[str]) -> LabelSelector:
    """Returns the selector with the new node's value of the keys that single out a node."""
    requirements = compile_selector(selector).requirements
    return LabelSelector(
        match_expressions=[
            LabelSelectorRequirement(
                key=each.key, operator=each.operator, values=[name] if each.key in keys else sorted(each.values) or None
            )
            for each in requirements
        ]
    )


def _daemons_for(
    state: ClusterState, node: Node, static: Sequence[Pod], like: str | None
) -> tuple[list[Pod], list[str]]:
    """Returns one pod of each DaemonSet that runs on the new node, and notes on pods that do not run as they should."""
    daemons: list[Pod] = []
    notes: list[str] = []
    templates = daemon_templates(state, notes, like)
    with ExitStack() as supposed:
        on_node = [_static_on(node.name, pod) for pod in static]
        supposed.enter_context(state.engine.suppose(objects=[node, *on_node]))
        for template in templates:
            if not nodes_of_daemons(state, template, [node.name]):
                continue
            pod = _without_own_claims(template)
            name = f"{pod.namespace}/{pod.controller.name if pod.controller else pod.name}"
            if not state.engine.feasible(daemon_on(node.name, pod), [node.name]):
                notes.append(f"the pod of DaemonSet {name} does not fit there")
                continue
            supposed.enter_context(state.engine.suppose(objects=[_placed(node.name, pod)]))
            daemons.append(pod)
            if pod is not template:
                notes.append(f"the devices and volumes that DaemonSet {name} claims for each pod are not counted there")
    return daemons, notes


def _without_own_claims(pod: Pod) -> Pod:
    """Returns the pod without the claims that controllers would create for it alone."""
    volumes = [each for each in pod.spec.volumes or () if each.ephemeral is None]
    claims = [each for each in pod.spec.resource_claims or () if each.resource_claim_template_name is None]
    if len(volumes) == len(pod.spec.volumes or ()) and len(claims) == len(pod.spec.resource_claims or ()):
        return pod
    return pod.with_spec(volumes=volumes or None, resource_claims=claims or None)


def _placed(node_name: str, pod: Pod) -> Pod:
    return daemon_on(node_name, pod).placed_on(node_name)


def _static_on(node_name: str, pod: Pod) -> Pod:
    """Returns the static pod as kubelet creates it on the new node from the same manifest."""
    return _named_for(node_name, as_created(pod)).placed_on(node_name)


def _named_for(node_name: str, pod: Pod) -> Pod:
    name = f"{pod.name}-{node_name}"
    return replace(pod, metadata=replace(pod.metadata, name=name, uid=f"{pod.namespace}/{name}"))


_EXAMINED = ("NodeAffinity", "TaintToleration")
_NODE_FIELD = "metadata.name"


def nodes_of_daemons(state: ClusterState, pod: Pod, names: Iterable[str] | None = None) -> list[str]:
    """Returns the nodes for which the controller would create this pod, however few resources they have free.

    Args:
        names: the nodes to look at; by default all.
    """
    # Controllers do not read the scheduling policy, so the default profile is used.
    engine = Engine(state.table, Profiles([default_profile()]))
    candidates = [name for name in names or state.node_names() if pod.node_name in ("", name)]
    for plugin in _EXAMINED:
        refused = engine.filter_by(plugin, pod, candidates)
        candidates = [name for name in candidates if name not in refused]
    return candidates


def daemon_on(node_name: str, pod: Pod) -> Pod:
    """Returns the DaemonSet's pod for a node; its required node affinity selects only this node."""
    field = NodeSelectorRequirement(key=_NODE_FIELD, operator="In", values=[node_name])
    required = NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[field])])
    return _with_required(_named_for(node_name, pod), required)


def node_of_daemon(pod: Pod) -> str:
    """Returns the node that a DaemonSet's pod is on or waits for; "" if the pod names no node."""
    required = required_node_selector(pod)
    terms = (required.node_selector_terms if required else None) or ()
    fields = (field for term in terms for field in term.match_fields or () if field.key == _NODE_FIELD)
    return pod.node_name or next((value for field in fields for value in field.values or ()), "")


def daemon_templates(state: ClusterState, notes: list[str], like: str | None = None) -> list[Pod]:
    """Returns one new pod of each DaemonSet, without a node; those of high priority come first.

    If the cluster lacks a DaemonSet as an object, its newest pod is copied. The controller has replaced the pod's node
    affinity, so it is not known which nodes such a DaemonSet selects. The newest pod is also copied, with the node
    affinity of the template, if the file lacks a class that the template names.

    Args:
        notes: gets a remark on each DaemonSet whose pods the API server would refuse.
        like: a node; a DaemonSet that is not an object counts only if it has a pod for this node.
    """
    known = {obj.key: obj for obj in state.objects.all(DaemonSet).values() if isinstance(obj, DaemonSet)}
    newest: dict[str, Pod] = {}
    nodes: dict[str, set[str]] = {}
    for info in state.infos.values():
        pod, owner = info.pod, info.pod.controller
        if owner is None or not is_daemon(pod):
            continue
        key = f"{pod.namespace}/{owner.name}"
        nodes.setdefault(key, set()).add(node_of_daemon(pod))
        other = newest.setdefault(key, pod)
        if other.metadata.created_seconds < pod.metadata.created_seconds:
            newest[key] = pod
    templates = [
        _with_required(as_created(pod), None)
        for key, pod in newest.items()
        if key not in known and (like is None or like in nodes[key])
    ]
    for key, obj in known.items():
        if obj.terminating or obj.spec.template is None:
            continue
        if key in newest and lacks_class(obj, state):
            required = required_node_selector(Pod(metadata=obj.metadata, spec=obj.spec.template.spec))
            templates.append(_with_required(as_created(newest[key]), required))
            continue
        try:
            templates.append(pod_of_template(obj, state))
        except MalformedCluster as error:
            notes.append(f"DaemonSet {key} gets no pod there: {error}")
    return sorted(templates, key=lambda pod: -pod.priority)


def _with_required(pod: Pod, required: NodeSelector | None) -> Pod:
    affinity = pod.spec.affinity or Affinity()
    own = affinity.node_affinity or NodeAffinity()
    return pod.with_spec(affinity=replace(affinity, node_affinity=replace(own, required=required)))
