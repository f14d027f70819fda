"""Changes a simulated cluster before pods are placed: drains or adds nodes, scales or creates workloads."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from extender.errors import ConfigurationError, UnknownNode, UnknownPod
from extender.model.node import Node
from extender.model.pod import Pod, PodStatus
from extender.model.workloads import ReplicaSet, StatefulSet
from extender.offline.claims.creation import add_claims_like, create_companions, is_of_stateful_set, replica
from extender.offline.daemons import daemon_on, nodes_of_daemons
from extender.offline.explain.changes.new_nodes import like, of_new_type
from extender.offline.explain.changes.taints import with_cordon
from extender.offline.manifests.templates import COMPLETION_INDEX, POD_HASH, Workload, required_workload
from extender.offline.state import ClusterState, is_pinned
from extender.offline.what_if import budgets
from extender.offline.what_if.simulation import Simulation, in_order
from extender.runtime.near_names import did_you_mean, nearest
from extender.table import PodInfo
from extender.table.pods.pod_templates import twin

# kubectl's name for a kind of workload -> the kind of the object that owns its pods.
KINDS = {
    "deploy": "ReplicaSet",
    "deployment": "ReplicaSet",
    "rs": "ReplicaSet",
    "replicaset": "ReplicaSet",
    "sts": "StatefulSet",
    "statefulset": "StatefulSet",
    "job": "Job",
    "rc": "ReplicationController",
}

MOST_NEW = 1_000_000
_HASH = re.compile("[bcdfghjklmnpqrstvwxz2456789]{4,10}")  # the characters that upstream's rand.SafeEncodeString uses


@dataclass(frozen=True, slots=True)
class Scenario:
    """The changes to make before pods are placed. Nodes are given by name, or by a label `key=value`.

    Attributes:
        cordon: nodes that take no new pods.
        drain: nodes to cordon; their pods are evicted as far as PodDisruptionBudgets allow.
        add_nodes: pairs of a node's name or a Node to copy, and how many copies to add.
        remove_nodes: nodes to remove with everything on them.
        scale: pairs of NAMESPACE/KIND/NAME and the new number of replicas.
        delete: NAMESPACE/NAME of pods, or NAMESPACE/KIND/NAME of workloads.
        create: pairs of a workload or manifest, and its number of replicas; None means as many as the manifest says.
    """

    cordon: Sequence[str] = ()
    drain: Sequence[str] = ()
    add_nodes: Sequence[tuple[str | Node, int]] = ()
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
        ConfigurationError: a number of pods or nodes is negative or more than MOST_NEW.
    """
    state = simulation.state
    notes: list[str] = []
    # Nodes are selected before new ones are added: a copy has the labels of its original, so it would be selected too.
    removed = _selected(state, scenario.remove_nodes)
    drained = [name for name in _selected(state, scenario.drain) if name not in removed]
    cordoned = [*_selected(state, scenario.cordon), *drained]
    for template, count in scenario.add_nodes:
        _add_nodes(state, template, _checked_count("new nodes", count))
    for name in cordoned:
        state.add(with_cordon(state.node(name), unschedulable=True))
    for name in removed:
        _remove_node(simulation, name)
    for target in scenario.delete:
        for info in pods_of(state, target):
            simulation.remove(info)
    for target, count in scenario.scale:
        simulation.add(_scaled(simulation, target, _checked_count(target, count)))
    created: dict[str, str] = {}
    for template_or_manifest, replicas in scenario.create:
        if isinstance(template_or_manifest, Workload):
            workload = template_or_manifest
        else:
            workload = required_workload(template_or_manifest)
        new = _created(simulation, workload, replicas, notes)
        _check_names(new, workload.source, created, state)
        simulation.add(new)
    # Pods that were pending already go first: they are older than those that the drain will evict.
    if drained:
        simulation.run()
        notes += drain(simulation, drained)
    return notes


def _checked_count(what: str, count: int) -> int:
    if 0 <= count <= MOST_NEW:
        return count
    raise ConfigurationError([f"{what}: expected a number from 0 to {MOST_NEW}, got {count}"])


def _remove_node(simulation: Simulation, name: str) -> None:
    state = simulation.state
    for info in state.pods_on(name):
        if is_pinned(info.pod):
            simulation.remove(info)
        else:
            simulation.evict(info, f"node {name} removed")
    state.remove(Node.__name__, name)


def drain(simulation: Simulation, names: Sequence[str]) -> list[str]:
    """Evicts the pods of cordoned nodes in rounds: once evicted pods run again, budgets allow further evictions.

    As with kubectl, each pod is evicted once. A pod that tolerates cordoned nodes may return to its node.

    Returns:
        A note for each pod that can never be evicted.
    """
    state = simulation.state
    listed = {info.pod.key for info in _movable(state, names)}
    any_evicted = True
    while any_evicted:
        any_evicted = False
        for info in in_order(info for info in _movable(state, names) if info.pod.key in listed):
            if budgets.objection(info, state) is None:
                simulation.evict(info, "drain")
                listed.remove(info.pod.key)
                any_evicted = True
        simulation.run()
    staying = [info for info in _movable(state, names) if info.pod.key in listed]
    simulation.log.kept = {info.pod.key: info.pod.node_name for info in staying}
    several = [info for info in staying if budgets.objection(info, state) == budgets.SEVERAL]
    return [f"pod {info.pod.key} stays on {info.pod.node_name}: {budgets.SEVERAL}" for info in several]


def _movable(state: ClusterState, names: Sequence[str]) -> list[PodInfo]:
    return [info for name in names for info in state.pods_on(name) if not is_pinned(info.pod)]


def _selected(state: ClusterState, selections: Sequence[str]) -> list[str]:
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


def _add_nodes(state: ClusterState, name_or_node: str | Node, count: int) -> None:
    is_copy = isinstance(name_or_node, str)
    template = state.node(name_or_node) if isinstance(name_or_node, str) else name_or_node
    free = (name for number in itertools.count(1) if not state.has_node(name := f"{template.name}-new-{number}"))
    names = list(itertools.islice(free, count))
    copies = (like(state, template, name) for name in names)
    for node, companions in copies if is_copy else of_new_type(state, template, names):
        for obj in (node, *companions):
            state.add(obj)


def pods_of(state: ClusterState, target: str) -> list[PodInfo]:
    """Returns the pods of a workload, or one pod if `target` names a pod. Raises UnknownPod if there is no such pod."""
    namespace, *kind, name = target.split("/")
    if not kind:
        return [state.info(target)]
    if len(kind) > 1 or kind[0].lower() not in KINDS:
        raise ConfigurationError([f"{target}: expected NAMESPACE/KIND/NAME with a kind of {', '.join(KINDS)}"])
    owner_kind = KINDS[kind[0].lower()]
    is_deployment = kind[0].lower().startswith("deploy")

    def workload_of(pod: Pod) -> str:
        owner = pod.controller
        if owner is None or owner.kind != owner_kind:
            return ""
        return _deployment_of(pod, owner.name, state) if is_deployment else owner.name

    workloads = {key: (info.pod.namespace, workload_of(info.pod)) for key, info in state.infos.items()}
    infos = [state.infos[key] for key, workload in workloads.items() if workload == (namespace, name)]
    if not infos:
        others = {name: f"{namespace}/{kind[0]}/{name}" for namespace, name in workloads.values() if name}
        similar = did_you_mean([others[near] for near in nearest(name, others)])
        raise UnknownPod(f"{target} has no pods in this cluster that could be copied or deleted{similar}")
    return infos


def _deployment_of(pod: Pod, replica_set: str, state: ClusterState) -> str:
    """Returns the name of the Deployment that controls the pod's ReplicaSet; "" if no Deployment controls it.

    The ReplicaSet's owner reference decides. If the cluster lacks the ReplicaSet, its name decides: DEPLOYMENT-HASH.
    HASH is the value of the pod's label pod-template-hash, or, without this label, any text that looks like a hash.
    """
    known = state.objects.get(ReplicaSet, f"{pod.namespace}/{replica_set}")
    if known is not None and known.controller is not None:
        return known.controller.name if known.controller.kind == "Deployment" else ""
    name, _, last = replica_set.rpartition("-")
    is_hash = pod.labels[POD_HASH] == last if POD_HASH in pod.labels else bool(_HASH.fullmatch(last))
    return name if is_hash else ""


def _scaled(simulation: Simulation, target: str, count: int) -> list[PodInfo]:
    """Removes surplus pods of a workload; returns the new pods to add if the workload has too few pods.

    Pending pods are removed first, then the youngest. A StatefulSet's pods are removed and added by ordinal.
    """
    infos = in_order(pods_of(simulation.state, target))
    last = infos[-1].pod
    surplus, names = _by_ordinal(simulation.state, infos, count) or (
        sorted(infos, key=lambda info: (bool(info.pod.node_name), -infos.index(info)))[: max(len(infos) - count, 0)],
        [f"{last.name}-{number}" for number in range(1, count - len(infos) + 1)],
    )
    new = _replicas(as_created(last), names)
    add_claims_like(simulation.state, last, [info.pod for info in new])
    for info in surplus:
        simulation.remove(info)
    return new


def as_created(pod: Pod) -> Pod:
    """Returns a new pod as the pod's controller would create it: without a node and with an empty status."""
    return replace(pod.placed_on(""), metadata=replace(pod.metadata, deletion_timestamp=None), status=PodStatus())


def _by_ordinal(state: ClusterState, infos: Sequence[PodInfo], count: int) -> tuple[list[PodInfo], list[str]] | None:
    """Returns the surplus pods of a StatefulSet with `count` replicas, and the names of its missing pods.

    Returns None if the name of a pod is not the StatefulSet's name and an ordinal, such as web-0.
    """
    ordinals = ordinals_of(infos)
    if ordinals is None:
        return None
    base, first = first_replica(state, ordinals)
    expected = range(first, first + count)
    surplus = [ordinals[number] for number in sorted(ordinals) if number not in expected]
    return surplus, [f"{base}-{number}" for number in expected if number not in ordinals]


def ordinals_of(infos: Sequence[PodInfo]) -> dict[int, PodInfo] | None:
    """Returns the pods of a StatefulSet by ordinal; None if the name of a pod is not like web-0 for StatefulSet web."""
    ordinals: dict[int, PodInfo] = {}
    for info in infos:
        base, _, ordinal = info.pod.name.rpartition("-")
        owner = info.pod.controller
        if not is_of_stateful_set(info.pod) or owner is None or owner.name != base or not ordinal.isdecimal():
            return None
        ordinals[int(ordinal)] = info
    return ordinals


def first_replica(state: ClusterState, ordinals: Mapping[int, PodInfo]) -> tuple[str, int]:
    """Returns the name of a StatefulSet and its first ordinal, even if the pod with this ordinal does not exist.

    If the cluster lacks the StatefulSet itself, the first ordinal is the lowest one of its pods.
    """
    lowest = min(ordinals)
    pod = ordinals[lowest].pod
    name = pod.name.rpartition("-")[0]
    stateful_set = state.objects.get(StatefulSet, f"{pod.namespace}/{name}")
    return name, lowest if stateful_set is None else stateful_set.first_ordinal


def _created(simulation: Simulation, workload: Workload, replicas: int | None, notes: list[str]) -> list[PodInfo]:
    state = simulation.state
    requested = replicas if replicas is not None else workload.replicas
    count = 1 if requested is None else _checked_count(workload.source, requested)
    create_companions(state, workload, count)
    if not count:
        notes.append(f"{workload.source}: it gets no pods, because it has no replicas or is suspended")
        return []
    names = workload.names(count)
    first = state.admit(workload.manifest if count == 1 else workload.pod(names[0]))
    notes += [f"{workload.source}: {note}" for note in first.notes]
    if requested is None:
        new = [PodInfo(daemon_on(name, first.pod)) for name in nodes_of_daemons(state, first.pod)]
    else:
        new = [PodInfo(first.pod)] if count == 1 else _replicas(first.pod, names)
    return new


def _check_names(new: Sequence[PodInfo], source: str, created: dict[str, str], state: ClusterState) -> None:
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
    pods = [replica(pod, name, f"{pod.namespace}/{name}") for name in names]
    if is_of_stateful_set(pod) or COMPLETION_INDEX in pod.labels:
        # such pods have different labels, so they cannot share computed values
        return [PodInfo(each) for each in pods]
    first = PodInfo(pod)
    first.precompute()
    return [twin(first, each) for each in pods]
