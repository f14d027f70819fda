"""Nodes to come: copies of those that are there, with what comes with such a node by itself."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

from msgspec.structs import replace

from extender.framework.topology import HOSTNAME
from extender.model.devices.slices import ResourceSlice
from extender.model.meta import NodeSelectorTerm, Object
from extender.model.node import Node
from extender.model.pod import Pod, PodStatus
from extender.model.volumes.storage import CSINode
from extender.offline.state import ClusterState, is_pinned

_MOST_SHAPES = 64
_DAEMON_SET = "DaemonSet"


def like(state: ClusterState, template: Node, name: str) -> tuple[Node, list[Object]]:
    """A new node like this one, with its CSINode and its devices as drivers would report them, and its pinned pods."""
    objects = state.table.objects
    csi_node = objects.get(CSINode, template.name)
    reported: list[Object] = []
    if csi_node is not None:
        reported.append(replace(csi_node, metadata=replace(csi_node.metadata, name=name, uid=name)))
    slices = (each for each in objects.all(ResourceSlice).values() if each.spec.node_name == template.name)
    pods = (info.pod for info in state.standing_on(template.name) if is_pinned(info.pod) and not info.pod.terminating)
    node = copy_of(template, name)
    return node, [*reported, *(slice_for(each, name) for each in slices), *(pinned_to(node, each) for each in pods)]


def daemons_for(state: ClusterState, node: Node) -> list[Pod]:
    """One pod of each DaemonSet that would have one on this node, which is like none that is there.

    That is where its pods may go by the scheduler's rules: the controller goes by the same labels and taints, and what
    finds no room takes none.
    """
    found: list[Pod] = []
    with ExitStack() as supposed:
        supposed.enter_context(state.supposing([node]))
        for pod in _one_of_each_daemon_set(state):
            here = pinned_to(node, pod)
            if state.feasible(here.placed_on(""), state.rows_of([node.name])):
                supposed.enter_context(state.supposing([here]))
                found.append(pod)
    return found


def _one_of_each_daemon_set(state: ClusterState) -> list[Pod]:
    """The youngest pod of each: its template may have changed. The most important ones come first, as in a queue."""
    youngest: dict[tuple[str, str], Pod] = {}
    for info in state.infos.values():
        pod, owner = info.pod, info.pod.controller
        if owner is None or owner.kind != _DAEMON_SET or not pod.node_name or pod.terminating:
            continue
        other = youngest.setdefault((pod.namespace, owner.name), pod)
        if _made_at(other) < _made_at(pod):
            youngest[pod.namespace, owner.name] = pod
    return sorted(youngest.values(), key=lambda pod: -pod.priority)


def _made_at(pod: Pod) -> float:
    made = pod.metadata.creation_timestamp
    return made.timestamp() if made else 0.0


def pinned_to(node: Node, pod: Pod) -> Pod:
    """A DaemonSet's pod, or a static one, as it stands on another node; cluster-autoscaler counts both, too."""
    metadata = replace(pod.metadata, name=f"{pod.name}-{node.name}", uid=f"{pod.uid}/{node.name}")
    spec, affinity = pod.spec, pod.spec.affinity
    own = affinity.node_affinity if affinity else None
    if affinity and own and own.required:
        terms = [_with_node(term, pod.node_name, node.name) for term in own.required.node_selector_terms or ()]
        required = replace(own.required, node_selector_terms=terms)
        spec = replace(spec, affinity=replace(affinity, node_affinity=replace(own, required=required)))
    return replace(pod, metadata=metadata, spec=replace(spec, node_name=node.name), status=PodStatus())


def _with_node(term: NodeSelectorTerm, before: str, name: str) -> NodeSelectorTerm:
    """The term by which the DaemonSet controller has chosen the node, for another one."""
    fields = [replace(each, values=[name]) if each.values == [before] else each for each in term.match_fields or ()]
    return replace(term, match_fields=fields or None)


def slice_for(template: ResourceSlice, node_name: str) -> ResourceSlice:
    """The same devices on another node, in a pool of its name."""
    metadata = replace(template.metadata, name=f"{template.name}-{node_name}")
    pool = replace(template.spec.pool, name=node_name)
    return replace(template, metadata=metadata, spec=replace(template.spec, node_name=node_name, pool=pool))


def copy_of(node: Node, name: str) -> Node:
    """A node like this one, new: uncordoned, under another name."""
    labels = {**node.labels, **({HOSTNAME: name} if HOSTNAME in node.labels else {})}
    fresh = replace(node, metadata=replace(node.metadata, name=name, uid=name, labels=labels))
    taints = [taint for taint in fresh.taints if not taint.key.startswith("node.kubernetes.io/")]
    return replace(fresh, spec=replace(fresh.spec, unschedulable=None, taints=taints or None))


def shapes(state: ClusterState) -> list[Node]:
    """One node of each kind: the same labels but for names, taints, resources and devices."""
    nodes, shapes = state.table.nodes, dict[object, Node]()
    slices = state.table.objects.all(ResourceSlice).values()
    devices: Counter[str | None] = Counter()
    for each in slices:
        devices[each.spec.node_name] += len(each.spec.devices or ())
    for row in nodes.rows.tolist():
        node = nodes.node(row)
        labels = frozenset(item for item in node.labels.items() if item[0] != HOSTNAME and item[1] != node.name)
        resources = nodes.allocatable[:, row].tobytes(), devices[node.name]
        shapes.setdefault((labels, resources, int(nodes.taint_set[row])), node)
        if len(shapes) == _MOST_SHAPES:
            break
    return list(shapes.values())
