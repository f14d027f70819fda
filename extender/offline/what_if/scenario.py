"""Changes to a cluster before pods are placed: nodes drained, added or removed, workloads scaled, made or deleted."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from extender.errors import ConfigurationError, UnknownNode, UnknownPod
from extender.model.node import Node
from extender.model.pod import Pod, PodStatus
from extender.model.selectors import Requirement
from extender.offline.claims.making import add_claims_like, is_of_stateful_set, replica
from extender.offline.explain.cluster_changes import with_cordon
from extender.offline.explain.new_nodes import copy_of, daemons_for, like, pinned_to
from extender.offline.manifests.templates import Workload, required_workload
from extender.offline.state import ClusterState, is_pinned
from extender.offline.what_if import budgets
from extender.offline.what_if.simulation import Simulation, in_order
from extender.table import PodInfo
from extender.table.pods.templates import twin

# The names that workloads go by -> the kind that owns their pods.
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


@dataclass(frozen=True, slots=True)
class Scenario:
    """The changes to make first. Nodes are named, or selected by `key=value`.

    Attributes:
        cordon: nodes that take no new pods.
        drain: nodes that are cordoned, and whose pods are evicted as far as PodDisruptionBudgets allow.
        add_nodes: (a node of the cluster to copy, or a manifest; how many).
        remove_nodes: nodes that are gone, whatever stands on them.
        scale: (NAMESPACE/KIND/NAME, replicas).
        delete: NAMESPACE/NAME of pods, or NAMESPACE/KIND/NAME of workloads.
        create: manifests of pods or of what has a pod template, and how many replicas; None: as many as it says.
    """

    cordon: Sequence[str] = ()
    drain: Sequence[str] = ()
    add_nodes: Sequence[tuple[str | Node, int]] = ()
    remove_nodes: Sequence[str] = ()
    scale: Sequence[tuple[str, int]] = ()
    delete: Sequence[str] = ()
    create: Sequence[tuple[Workload | Mapping[str, Any], int | None]] = ()


def apply(scenario: Scenario, simulation: Simulation) -> list[str]:
    """Makes the changes, and has pods wait that are new or have lost their place.

    Returns:
        What was filled in, for people.

    Raises:
        UnknownNode, UnknownPod: the cluster has nothing of that name.
        MalformedCluster: a workload to create would be refused by the API server.
        ConfigurationError: more than MOST_NEW pods or nodes of one kind, or less than none.
    """
    state, notes = simulation.state, list[str]()
    # Selected before there are new nodes: a copy has the labels of the node that it is to replace.
    removed = _selected(state, scenario.remove_nodes)
    # What is removed has lost its pods before there is anything to drain.
    drained = [name for name in _selected(state, scenario.drain) if name not in removed]
    cordoned = [*_selected(state, scenario.cordon), *drained]
    for wanted, count in scenario.add_nodes:
        _add_nodes(state, wanted, _sensible("new nodes", count))
    for name in cordoned:
        state.add(with_cordon(state.node(name), unschedulable=True))
    for name in removed:
        movable = _movable(state, name)
        for info in state.standing_on(name):
            simulation.remove(info) if info not in movable else simulation.evict(info, f"node {name} removed")
        state.table.remove_node(name)
    for target in scenario.delete:
        for info in _pods_of(state, target):
            simulation.remove(info)
    for target, count in scenario.scale:
        simulation.add(_scaled(simulation, target, _sensible(target, count)))
    for given, replicas in scenario.create:
        workload = given if isinstance(given, Workload) else required_workload(given)
        simulation.add(_created(simulation, workload, replicas, notes))
    # Pods that wait already come first: they are older than what the changes have made.
    if drained:
        simulation.run()
        notes += drain(simulation, drained)
    return notes


def _sensible(what: str, count: int) -> int:
    if 0 <= count <= MOST_NEW:
        return count
    raise ConfigurationError([f"{what}: {count} of them: want 0 to {MOST_NEW}"])


def drain(simulation: Simulation, names: Sequence[str]) -> list[str]:
    """Evicts the pods of cordoned nodes in rounds: a budget allows more once those evicted stand again.

    Returns:
        Why pods stay that will never be let go, for people.
    """
    leaving, table = True, simulation.state.table
    while leaving:
        movable = [info for name in names for info in _movable(simulation.state, name)]
        leaving = False
        for info in in_order(movable):
            if not budgets.objection(info, table):
                simulation.evict(info, "drain")
                leaving = True
        simulation.run()
    kept = [info for name in names for info in _movable(simulation.state, name)]
    simulation.log.kept = {info.pod.key: info.pod.node_name for info in kept}
    several = [info for info in kept if budgets.objection(info, table) == budgets.SEVERAL]
    return [f"pod {info.pod.key} stays on {info.pod.node_name}: {budgets.SEVERAL}" for info in several]


def _movable(state: ClusterState, name: str) -> list[PodInfo]:
    return [info for info in state.standing_on(name) if not is_pinned(info.pod)]


def _selected(state: ClusterState, wanted: Sequence[str]) -> list[str]:
    """The names of the nodes that are named, or have the label `key=value`."""
    names: dict[str, None] = {}
    for each in wanted:
        key, is_label, value = each.partition("=")
        if not is_label:
            names[state.node(each).name] = None
            continue
        rows = state.table.nodes.rows
        having = state.table.nodes.labels.satisfying(Requirement(key, "In", frozenset((value,))), rows)
        if not having.any():
            raise UnknownNode(f"no node has the label {each}")
        names.update(dict.fromkeys(state.table.nodes.names_of(rows[having])))
    return list(names)


def _add_nodes(state: ClusterState, wanted: str | Node, count: int) -> None:
    template = state.node(wanted) if isinstance(wanted, str) else wanted
    free = (name for number in itertools.count(1) if not state.table.nodes.has(name := f"{template.name}-new-{number}"))
    names = list(itertools.islice(free, count))
    # Of a node type that is not there yet none can tell but the pods themselves.
    daemons = daemons_for(state, copy_of(template, names[0])) if names and not isinstance(wanted, str) else []
    for name in names:
        if isinstance(wanted, str):
            node, others = like(state, template, name)
        else:
            node = copy_of(template, name)
            others = [pinned_to(node, each) for each in daemons]
        for obj in (node, *others):
            state.add(obj)


def _pods_of(state: ClusterState, target: str) -> list[PodInfo]:
    """The pods of a workload, or one pod. Raises UnknownPod where there are none."""
    namespace, *kind, name = target.split("/")
    if not kind:
        return [state.info(target)]
    if len(kind) > 1 or kind[0].lower() not in KINDS:
        raise ConfigurationError([f"{target}: want NAMESPACE/KIND/NAME, the kind one of {', '.join(KINDS)}"])
    owner_kind = KINDS[kind[0].lower()]
    is_deployment = kind[0].lower().startswith("deploy")

    def owns(pod: Pod) -> bool:
        owner = pod.controller
        if owner is None or owner.kind != owner_kind or pod.namespace != namespace:
            return False
        return (owner.name.rpartition("-")[0] if is_deployment else owner.name) == name

    found = [info for info in state.infos.values() if owns(info.pod)]
    if not found:
        raise UnknownPod(f"no pod of {target} is in this cluster, so there is none to copy or delete")
    return found


def _scaled(simulation: Simulation, target: str, count: int) -> list[PodInfo]:
    """The new pods, if there are to be more; surplus ones are taken away, first those that wait, then the youngest.

    Of a StatefulSet the highest ordinals go, and those come that are missing.
    """
    there = in_order(_pods_of(simulation.state, target))
    last = there[-1].pod
    surplus, names = _by_ordinal(there, count) or (
        sorted(there, key=lambda info: (bool(info.pod.node_name), -there.index(info)))[: max(len(there) - count, 0)],
        [f"{last.name}-{number}" for number in range(1, count - len(there) + 1)],
    )
    pod = replace(last.placed_on(""), metadata=replace(last.metadata, deletion_timestamp=None), status=PodStatus())
    made = _replicas(pod, names)
    add_claims_like(simulation.state, last, [info.pod for info in made])
    for info in surplus:
        simulation.remove(info)
    return made


def _by_ordinal(there: Sequence[PodInfo], count: int) -> tuple[list[PodInfo], list[str]] | None:
    """The surplus replicas of a StatefulSet, and the names of those to come; None where the names are not its own."""
    ordinals: dict[int, PodInfo] = {}
    base = ""
    for info in there:
        base, _, ordinal = info.pod.name.rpartition("-")
        owner = info.pod.controller
        if not is_of_stateful_set(info.pod) or owner is None or owner.name != base or not ordinal.isdecimal():
            return None
        ordinals[int(ordinal)] = info
    wanted = range(min(ordinals), min(ordinals) + count)  # the lowest that is there is spec.ordinals.start
    surplus = [ordinals[number] for number in sorted(ordinals) if number not in wanted]
    return surplus, [f"{base}-{number}" for number in wanted if number not in ordinals]


def _created(simulation: Simulation, workload: Workload, replicas: int | None, notes: list[str]) -> list[PodInfo]:
    state = simulation.state
    if workload.owner is not None:
        state.add(workload.owner)
    wanted = replicas if replicas is not None else workload.replicas
    count = len(state.table.nodes.rows) if wanted is None else _sensible(workload.source, wanted)
    if not count:
        return []
    names = workload.names(count)
    first = state.admit(workload.manifest if count == 1 else workload.pod(names[0]))
    notes += [f"{workload.source}: {note}" for note in first.notes]
    made = [PodInfo(first.pod)] if count == 1 else _replicas(first.pod, names)
    for info in made:
        if info.pod.key in state.infos:
            raise ConfigurationError([f"{workload.source}: there is a pod {info.pod.key} in the cluster already"])
    return made


def _replicas(pod: Pod, names: Sequence[str]) -> list[PodInfo]:
    made = [replica(pod, name, f"{pod.namespace}/{name}") for name in names]
    if is_of_stateful_set(pod):
        return [PodInfo(each) for each in made]  # each has labels of its own
    first = PodInfo(pod)
    first.precompute()
    return [twin(first, each) for each in made]
