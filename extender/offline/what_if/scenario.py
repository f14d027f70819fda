"""Changes a simulated cluster before pods are placed: drains or adds nodes, scales or creates workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from extender.errors import ConfigurationError, UnknownNode
from extender.model.node import Node
from extender.model.pod import Pod
from extender.offline.claims import add_claims_like, create_companions, precomputed, replica, replica_infos
from extender.offline.explain.pod_terms import with_cordon
from extender.offline.fresh_nodes import NodeTemplate, add_nodes, daemon_on, node_of_daemon, nodes_of_daemons
from extender.offline.manifests.templates import Workload, required_workload
from extender.offline.replicas import counts_terminating, is_daemon, is_pinned
from extender.offline.state import ClusterState
from extender.offline.what_if import budgets
from extender.offline.what_if.simulation import Simulation
from extender.offline.workloads import controller_of, in_order, pods_of, replicas_of, wanted, with_scale
from extender.table import PodInfo

MOST_NEW_NODES, MOST_NEW_PODS = 10_000, 100_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """The changes to make before pods are placed. Nodes are given by name, or by a label `key=value`.

    Attributes:
        cordon: nodes that take no new pods.
        drain: nodes to cordon; their pods are evicted as far as PodDisruptionBudgets allow.
        add_nodes: pairs of a node to copy and how many copies to add. The node is given by name or as a Node, which may
            be in a list with its CSINode, ResourceSlices and CSIStorageCapacities.
        remove_nodes: nodes to remove with everything on them.
        scale: pairs of NAMESPACE/KIND/NAME and the new number of replicas.
        delete: NAMESPACE/NAME of pods, or NAMESPACE/KIND/NAME of workloads.
        create: pairs of a workload or manifest, and its number of replicas; None means as many as the manifest says.
    """

    cordon: Sequence[str] = ()
    drain: Sequence[str] = ()
    add_nodes: Sequence[tuple[NodeTemplate, int]] = ()
    remove_nodes: Sequence[str] = ()
    scale: Sequence[tuple[str, int]] = ()
    delete: Sequence[str] = ()
    create: Sequence[tuple[Workload | Mapping[str, Any], int | None]] = ()


def apply(scenario: Scenario, simulation: Simulation) -> list[str]:
    """Makes the changes. New pods, and pods that have lost their node, are put into the simulation's queue.

    Returns:
        Notes on defaults that were filled in, and on pods that cannot be evicted.

    Raises:
        UnknownNode, UnknownPod: the cluster has no object of that name.
        MalformedCluster: the API server would refuse a workload.
        ConfigurationError: a number is negative, or more than MOST_NEW_NODES or MOST_NEW_PODS.
    """
    state = simulation.state
    notes: list[str] = []
    # Nodes are selected before new ones are added: a copy has the labels of its original, so it would be selected too.
    removed = selected_nodes(state, scenario.remove_nodes)
    drained = [name for name in selected_nodes(state, scenario.drain) if name not in removed]
    cordoned = [*selected_nodes(state, scenario.cordon), *drained]
    for template, count in scenario.add_nodes:
        notes += add_nodes(state, template, _checked_count("new nodes", count, MOST_NEW_NODES))
    for name in cordoned:
        state.add(with_cordon(state.node(name), unschedulable=True))
    for name in removed:
        _remove_node(simulation, name)
    for target in scenario.delete:
        for info in pods_of(state, target):
            simulation.remove(info)
    for target, count in scenario.scale:
        simulation.add(_scaled(simulation, target, _checked_count(target, count), notes))
    created: dict[str, str] = {}
    for each, replicas in scenario.create:
        workload = each if isinstance(each, Workload) else required_workload(each)
        new = created_pods(state, workload, replicas, notes)
        check_names(new, workload.source, created, state)
        simulation.add(new)
    # Pods that were pending already go first: they are older than those that the drain will evict.
    if drained:
        simulation.settle()
        budgets.observe(state, every=bool(scenario.scale or scenario.create or scenario.delete))
        notes += drain(simulation, drained)
    return notes


def _checked_count(what: str, count: int, most: int = MOST_NEW_PODS) -> int:
    if 0 <= count <= most:
        return count
    raise ConfigurationError([f"{what}: expected a number from 0 to {most}, got {count}"])


def _remove_node(simulation: Simulation, name: str) -> None:
    """Removes the node and its pods, as PodGC does. Pods that only this node could run are not recreated."""
    state = simulation.state
    on_node = state.pods_on(name)
    waiting = [info for info in state.pending if is_daemon(info.pod) and node_of_daemon(info.pod) == name]
    for info in [*on_node, *waiting]:
        if is_pinned(info.pod) or (info.pod.terminating and not counts_terminating(info.pod, state)):
            simulation.remove(info)
        else:
            simulation.evict(info, f"node {name} removed")
    state.remove(Node.__name__, name)


def drain(simulation: Simulation, names: Sequence[str]) -> list[str]:
    """Evicts the pods of cordoned nodes in rounds: once evicted pods run again, budgets allow further evictions.

    As with kubectl, each pod is evicted once. A pod that tolerates cordoned nodes may return to its node. A pod that is
    being deleted already leaves without an eviction, unless its node is lost.

    Returns:
        A note for each pod that can never be evicted, or that does not leave.
    """
    state = simulation.state
    listed = {info.pod.key for info in _movable(state, names) if not info.pod.terminating}
    any_evicted = True
    while any_evicted:
        any_evicted = False
        for info in in_order(info for info in _movable(state, names) if info.pod.key in listed):
            if budgets.objection(info.pod, state) is None:
                simulation.evict(info, "drain")
                listed.remove(info.pod.key)
                any_evicted = True
        simulation.settle()
    staying = [info for info in _movable(state, names) if info.pod.key in listed]
    simulation.log.kept = {info.pod.key: info.pod.node_name for info in staying}
    several = [info.pod for info in staying if budgets.objection(info.pod, state) == budgets.SEVERAL]
    hanging = [info.pod for info in _movable(state, names) if info.pod.terminating]
    return [
        *(f"pod {pod.key} stays on {pod.node_name}: {budgets.SEVERAL}" for pod in several),
        *(f"pod {pod.key} stays on {pod.node_name}: it is being deleted, but its node is lost" for pod in hanging),
    ]


def _movable(state: ClusterState, names: Sequence[str]) -> list[PodInfo]:
    return [info for name in names for info in state.pods_on(name) if not is_pinned(info.pod)]


def selected_nodes(state: ClusterState, selections: Sequence[str]) -> list[str]:
    """Returns the names of the selected nodes; a selection is a node's name or a label `key=value`."""
    names: dict[str, None] = {}
    for selection in selections:
        key, is_label, value = selection.partition("=")
        if not is_label:
            names[state.node(selection).name] = None
            continue
        labelled = [node.name for node in state.nodes() if node.labels.get(key) == value]
        if not labelled:
            raise UnknownNode(f"no node has the label {selection}")
        names.update(dict.fromkeys(labelled))
    return list(names)


def _scaled(simulation: Simulation, target: str, count: int, notes: list[str]) -> list[PodInfo]:
    """Deletes surplus pods of a workload as its controller does; returns the pods that the controller would create."""
    state = simulation.state
    replicas = replicas_of(state, target)
    controller = controller_of(state, target)
    if len({info.pod.controller for info in replicas.pods}) > 1:
        notes.append(
            f"{target}: a rollout is under way; its pods count as those of one ReplicaSet, and it does not go on"
        )
    number = wanted(controller, count, len(replicas.pods))
    if number < count:
        notes.append(f"{target}: its Job has {number} of {count} pods, because it is suspended or needs only these")
    new = _replicas(replicas.template, replicas.missing(number, state.infos))
    if replicas.pods:
        add_claims_like(state, replicas.pods[-1].pod, [info.pod for info in new])
    for info in replicas.surplus(number, simulation.now):
        simulation.remove(info)
    if controller is not None:
        state.add(with_scale(controller, count))
    return new


def created_pods(state: ClusterState, workload: Workload, replicas: int | None, notes: list[str]) -> list[PodInfo]:
    """Returns the pods of a workload that is created now, and adds to `state` what its manifests bring with them.

    `notes` gets remarks on defaults that were filled in.
    """
    requested = replicas if replicas is not None else workload.replicas
    count = 1 if requested is None else _checked_count(workload.source, requested)
    create_companions(state, workload, count)
    notes += workload.notes
    if not count:
        notes.append(f"{workload.source}: it gets no pods, because it has no replicas or is suspended")
        return []
    names = workload.names(count)
    first = state.admit(workload.manifest if count == 1 else workload.pod(names[0]))
    notes += [f"{workload.source}: {note}" for note in first.notes]
    if requested is None:
        return [PodInfo(daemon_on(name, first.pod)) for name in nodes_of_daemons(state, first.pod)]
    return [PodInfo(first.pod)] if count == 1 else _replicas(first.pod, names)


def check_names(new: Sequence[PodInfo], source: str, created: dict[str, str], state: ClusterState) -> None:
    """Raises ConfigurationError if a new pod has the name of another pod, old or new.

    Adds the new pods to `created`, which maps pods to the manifests that they come from.
    """
    for info in new:
        key = info.pod.key
        if key in created:
            raise ConfigurationError([f"{source}: a pod {key} is given twice, also by {created[key]}"])
        if key in state.infos:
            raise ConfigurationError([f"{source}: a pod {key} already exists in the cluster"])
        created[key] = source


def _replicas(pod: Pod, names: Sequence[str]) -> list[PodInfo]:
    return replica_infos(precomputed(pod), [replica(pod, name, f"{pod.namespace}/{name}") for name in names])
