"""Suggests a new node: a copy of an existing node, with the pods, devices and CSINode that come with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from msgspec.structs import replace

from extender.framework.topology import HOSTNAME
from extender.model.devices.slices import ResourceSlice
from extender.model.meta import NodeSelectorTerm, Object
from extender.model.node import Node
from extender.model.pod import Pod, PodStatus
from extender.model.volumes.storage import CSINode
from extender.offline.explain.changes.suggestion import SuggestedChange
from extender.offline.state import ClusterState, is_pinned

_MOST_SHAPES = 64
_DAEMON_SET = "DaemonSet"
_SIZE = 3


def added_node(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    """Suggests adding a copy of an existing node; the copy runs only DaemonSet pods and has room for the pod."""
    for template in shapes(state):
        node, companions = like(state, template, f"{template.name}-copy")
        if state.has_node(node.name):
            continue
        with state.engine.suppose(objects=[node, *companions]):
            fits = state.engine.feasible(pod, [node.name])
        if fits:
            # Pods are left out, because controllers create them.
            reported = [obj for obj in companions if not isinstance(obj, Pod)]
            text = f"add a node like {template.name}"
            return SuggestedChange("add-node", text, _SIZE, [node.name], set_objects=(node, *reported))
    return None


def like(state: ClusterState, template: Node, name: str) -> tuple[Node, list[Object]]:
    """Returns a copy of the node under another name, and the objects that come with it.

    These objects are the CSINode and the devices that drivers would report for the node, and the pods that would run on
    every such node, such as those of DaemonSets.
    """
    csi_node = state.objects.get(CSINode, template.name)
    companions: list[Object] = []
    if csi_node is not None:
        companions.append(replace(csi_node, metadata=replace(csi_node.metadata, name=name, uid=name)))
    slices = (each for each in state.objects.all(ResourceSlice).values() if each.spec.node_name == template.name)
    companions += [_slice_for(each, name) for each in slices]
    node = copy_of(template, name)
    pinned = (info.pod for info in state.pods_on(template.name) if is_pinned(info.pod) and not info.pod.terminating)
    return node, [*companions, *(_pinned_to(node, pod) for pod in pinned)]


def of_new_type(
    state: ClusterState, template: Node, names: Sequence[str], slices: Sequence[ResourceSlice] = ()
) -> Iterator[tuple[Node, list[Object]]]:
    """Yields, for each name, a node like `template`, and the ResourceSlices and DaemonSet pods that come with it.

    The cluster has no node of this type from which the pods could be copied, so they are chosen by the scheduler's
    rules.
    """
    daemons = _daemons_for(state, copy_of(template, names[0])) if names else []
    for name in names:
        node = copy_of(template, name)
        yield node, [*(_slice_for(each, name) for each in slices), *(_pinned_to(node, pod) for pod in daemons)]


def _daemons_for(state: ClusterState, node: Node) -> list[Pod]:
    """Returns one pod of each DaemonSet that would run on `node`, a node of a type that the cluster lacks.

    The scheduler's rules decide which DaemonSets these are, because the DaemonSet controller uses the same labels and
    taints. Pods for which the node has no room are left out.
    """
    daemons: list[Pod] = []
    with ExitStack() as supposed:
        supposed.enter_context(state.engine.suppose(objects=[node]))
        for pod in _one_of_each_daemon_set(state):
            placed = _pinned_to(node, pod)
            if state.engine.feasible(placed.placed_on(""), [node.name]):
                supposed.enter_context(state.engine.suppose(objects=[placed]))
                daemons.append(pod)
    return daemons


def _one_of_each_daemon_set(state: ClusterState) -> list[Pod]:
    """Returns the newest pod of each DaemonSet, sorted from high to low priority.

    The newest pod was created from the current template.
    """
    youngest: dict[tuple[str, str], Pod] = {}
    for info in state.infos.values():
        pod, owner = info.pod, info.pod.controller
        if owner is None or owner.kind != _DAEMON_SET or not pod.node_name or pod.terminating:
            continue
        other = youngest.setdefault((pod.namespace, owner.name), pod)
        if other.metadata.created_seconds < pod.metadata.created_seconds:
            youngest[pod.namespace, owner.name] = pod
    return sorted(youngest.values(), key=lambda pod: -pod.priority)


def _pinned_to(node: Node, pod: Pod) -> Pod:
    """Returns a copy of a DaemonSet's pod or a static pod, changed to run on `node`."""
    metadata = replace(pod.metadata, name=f"{pod.name}-{node.name}", uid=f"{pod.uid}/{node.name}")
    spec, affinity = pod.spec, pod.spec.affinity
    own = affinity.node_affinity if affinity else None
    if affinity and own and own.required:
        terms = [_with_node(term, pod.node_name, node.name) for term in own.required.node_selector_terms or ()]
        required = replace(own.required, node_selector_terms=terms)
        spec = replace(spec, affinity=replace(affinity, node_affinity=replace(own, required=required)))
    return replace(pod, metadata=metadata, spec=replace(spec, node_name=node.name), status=PodStatus())


def _with_node(term: NodeSelectorTerm, before: str, name: str) -> NodeSelectorTerm:
    """Returns the term with node `name` in each field that requires node `before`, as in a DaemonSet's pods."""
    fields = [replace(each, values=[name]) if each.values == [before] else each for each in term.match_fields or ()]
    return replace(term, match_fields=fields or None)


def _slice_for(template: ResourceSlice, node_name: str) -> ResourceSlice:
    """Returns a copy of the ResourceSlice for another node, in a pool with that node's name."""
    metadata = replace(template.metadata, name=f"{template.name}-{node_name}")
    pool = replace(template.spec.pool, name=node_name)
    return replace(template, metadata=metadata, spec=replace(template.spec, node_name=node_name, pool=pool))


def copy_of(node: Node, name: str) -> Node:
    """Returns a copy of the node under another name, uncordoned and without taints that mark a bad condition.

    Labels with the old name or the old hostname as value get the new name.
    """
    old_names = (node.name, node.labels.get(HOSTNAME))
    labels = {key: name if value in old_names else value for key, value in node.labels.items()}
    copied = replace(node, metadata=replace(node.metadata, name=name, uid=name, labels=labels))
    taints = [taint for taint in copied.taints if not taint.key.startswith("node.kubernetes.io/")]
    return replace(copied, spec=replace(copied.spec, unschedulable=None, taints=taints or None))


def shapes(state: ClusterState) -> list[Node]:
    """Returns one node of each shape.

    Two nodes have the same shape if their taints, their allocatable resources, the number of their devices and their
    labels are equal. Labels whose value is the node's name are not compared.
    """
    by_shape: dict[object, Node] = {}
    devices: Counter[str | None] = Counter()
    for resource_slice in state.objects.all(ResourceSlice).values():
        devices[resource_slice.spec.node_name] += len(resource_slice.spec.devices or ())
    for node in state.nodes():
        labels = frozenset(copy_of(node, "").labels.items())
        allocatable = frozenset((node.allocatable or {}).items())
        by_shape.setdefault((labels, allocatable, devices[node.name], tuple(node.taints)), node)
        if len(by_shape) == _MOST_SHAPES:
            break
    return list(by_shape.values())
