"""Answers POST /simulate: would these pods fit if these new nodes existed? An autoscaler may ask this."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace as with_fields

from extender.errors import MalformedCluster, MalformedRequest
from extender.model.devices import ResourceSlice
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod_groups import PodGroup, SchedulingGroup
from extender.offline.fresh_nodes import from_manifest
from extender.offline.manifests.admission import companion
from extender.offline.manifests.templates import Workload, required_workload
from extender.offline.state import ClusterState
from extender.offline.what_if.scenario import Scenario, apply
from extender.offline.what_if.simulation import Simulation
from extender.snapshots.objects import to_object, with_defaults

_MOST_NODES = 1000
_MOST_PODS = 10_000
_MOST_SLICES = 10_000


class NodeTemplate(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Describes `count` new nodes, each a copy of `node` with copies of its devices (`resource_slices`)."""

    node: dict[str, Any]
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    resource_slices: list[dict[str, Any]] = []


class SimulationRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The body of a POST /simulate request.

    Attributes:
        pods: manifests of pods, or of objects with a pod template. Pods of equal priority are placed in this order.
        pod_groups: manifests of PodGroups and CompositePodGroups to create first.
        fewest_nodes: True to find, for each template, the smallest number of new nodes on which all pods fit if no
            other template is used.
        only_templates: True if pods may be placed on the new nodes only.
        remove_nodes: names of nodes to remove. Their pods are placed again too, because controllers recreate them.
    """

    pods: list[dict[str, Any]] = []
    node_templates: list[NodeTemplate] = []
    pod_groups: list[dict[str, Any]] = []
    fewest_nodes: bool = False
    only_templates: bool = False
    remove_nodes: list[str] = []


_DECODER = msgspec.json.Decoder(SimulationRequest)


def answer_simulation(state: ClusterState, body: bytes) -> dict[str, Any]:
    """Places the pods on a copy of the cluster to which the new nodes are added; no pod is preempted.

    Returns:
        {"complete", "placements": [{"pod", "node", "template"}], "remaining": [{"pod", "reason"}], "lost", "notes"},
        and "fewestNodes": [{"template", "count"}] if the request asks for it.

    Raises:
        MalformedRequest: the body is not a valid request, or asks for too much.
        MalformedCluster, ConfigurationError: the API server would refuse a manifest in the request.
        UnknownNode: `remove_nodes` names a node that does not exist.
        RuleFailed: a user's rule raised.
    """
    request = _decoded(body)
    workloads = [required_workload(pod) for pod in request.pods[: _MOST_PODS + 1]]
    nodes = sum(template.count for template in request.node_templates)
    slices = sum(template.count * len(template.resource_slices) for template in request.node_templates)
    nodes_then = nodes + len(state.node_names())
    pods = sum(nodes_then if each.replicas is None else max(each.replicas, 0) for each in workloads)
    if nodes > _MOST_NODES or slices > _MOST_SLICES or max(pods, len(workloads)) > _MOST_PODS:
        raise MalformedRequest(
            f"too large: expected at most {_MOST_NODES} nodes with {_MOST_SLICES} resourceSlices, and {_MOST_PODS} pods"
        )
    groups = [_group(item, number) for number, item in enumerate(request.pod_groups)]
    workloads = [replace(each, companions=groups) for each in workloads]
    answer = _simulated(state, request, workloads)
    if request.fewest_nodes:
        templates = range(len(request.node_templates))
        answer["fewestNodes"] = [_fewest(state, request, workloads, index) for index in templates]
    return answer


def _group(item: Mapping[str, Any], number: int) -> SchedulingGroup:
    place = f"podGroups[{number}]"
    group = companion({"kind": PodGroup.__name__, **item}, place)
    if not isinstance(group, SchedulingGroup):
        raise MalformedCluster(f"{place}: expected a PodGroup or a CompositePodGroup")
    return group


def _fewest(
    state: ClusterState, request: SimulationRequest, workloads: Sequence[Workload], index: int
) -> dict[str, Any]:
    """Finds the smallest number of new nodes with which all pods fit, if all new nodes are of one template.

    Returns {"template", "count"}; the count is None if all of the template's nodes together are not enough.
    """
    template = request.node_templates[index]

    def is_enough(count: int) -> bool:
        alone = [with_fields(template, count=count)] if count else []
        answer = _simulated(state, with_fields(request, node_templates=alone), workloads)
        return bool(answer["complete"])

    name = template.node.get("metadata", {}).get("name")
    if not is_enough(template.count):
        return {"template": name, "count": None}
    return {"template": name, "count": bisect_left(range(template.count), True, key=is_enough)}


def _simulated(state: ClusterState, request: SimulationRequest, workloads: Sequence[Workload]) -> dict[str, Any]:
    """Returns the answer to the request, without the key `fewestNodes`."""
    without_preemption = state.profiles.with_each(lambda profile: replace(profile, preemption=None))
    simulation = Simulation(state.copy(without_preemption))
    if request.only_templates:
        for node in simulation.state.nodes():
            simulation.state.add(with_fields(node, spec=with_fields(node.spec, unschedulable=True)))
    templates, notes = _add_templates(simulation.state, request)
    before = set(simulation.state.infos)
    scenario = Scenario(remove_nodes=request.remove_nodes, create=[(each, None) for each in workloads])
    notes += apply(scenario, simulation)
    simulation.settle()
    return _answer(simulation, before, templates, notes)


def _decoded(body: bytes) -> SimulationRequest:
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(f"the body is not a valid simulation request: {error}") from None


def _answer(simulation: Simulation, before: set[str], templates: Mapping[str, str], notes: list[str]) -> dict[str, Any]:
    evicted = {eviction.pod: eviction.comes_back for eviction in simulation.log.evictions}
    new = [info.pod for key, info in simulation.state.infos.items() if key not in before or key in evicted]
    remaining = [
        {"pod": pod.key, "reason": simulation.log.reasons.get(pod.key, "")} for pod in new if not pod.node_name
    ]
    lost = [pod for pod, comes_back in evicted.items() if not comes_back]
    placements = [
        {"pod": each.pod, "node": each.node, "template": templates.get(each.node)}
        for each in simulation.log.placements.values()
    ]
    complete = not (remaining or lost)
    return {"complete": complete, "placements": placements, "remaining": remaining, "lost": lost, "notes": notes}


def _add_templates(state: ClusterState, request: SimulationRequest) -> tuple[dict[str, str], list[str]]:
    """Adds the new nodes to `state`, with their devices and the pods of DaemonSets.

    Returns {name of a new node: name of its template}, and notes on what is not known about the nodes.
    """
    templates: dict[str, str] = {}
    notes: list[str] = []
    for index, template in enumerate(request.node_templates):
        place = f"nodeTemplates[{index}]"
        node = _converted(template.node, Node, f"{place}.node")
        slices = [
            _converted(each, ResourceSlice, f"{place}.resourceSlices[{number}]")
            for number, each in enumerate(template.resource_slices)
        ]
        # They are slices of the template's node, whatever node they were reported for.
        slices = [with_fields(each, spec=with_fields(each.spec, node_name=node.name)) for each in slices]
        names = [f"{node.name}-{number}" for number in range(1, template.count + 1)]
        for name in names:
            if state.has_node(name):
                raise MalformedCluster(f"{place}.node: a node {name} already exists in the cluster")
        fresh = from_manifest(state, node, names, slices)
        for obj in (obj for each in fresh.nodes for obj in each.all()):
            state.add(obj)
        templates |= dict.fromkeys(names, node.name)
        notes += fresh.notes
    return templates, notes


def _converted(item: Mapping[str, Any], kind: type[Object], place: str) -> Any:
    obj = to_object({"kind": kind.__name__, **item}, place)
    if not isinstance(obj, kind):
        raise MalformedCluster(f"{place}: expected a {kind.__name__}")
    return next(iter(with_defaults([obj])))
