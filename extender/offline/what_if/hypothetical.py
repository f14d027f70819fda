"""POST /simulate: would these pods fit, with these nodes that do not exist yet? As an autoscaler asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace as with_fields

from extender.errors import MalformedCluster, MalformedRequest
from extender.model.devices.slices import ResourceSlice
from extender.model.meta import Object
from extender.model.node import Node
from extender.offline.explain.new_nodes import copy_of, slice_for
from extender.offline.manifests.objects import to_object, with_defaults
from extender.offline.manifests.templates import required_workload
from extender.offline.state import ClusterState
from extender.offline.what_if.scenario import Scenario, apply
from extender.offline.what_if.simulation import Simulation

_MOST_NODES, _MOST_PODS, _MOST_SLICES = 1000, 10_000, 10_000


class NodeTemplate(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Nodes to come. `resource_slices`: the devices that each brings; their `nodeName` becomes its name."""

    node: dict[str, Any]
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    resource_slices: list[dict[str, Any]] = []


class SimulationRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The question.

    Attributes:
        pods: manifests of pods, or of what has a pod template, placed in this order among those of one priority.
        only_templates: the nodes that there are take none of them.
        remove_nodes: names of nodes that are gone; their pods wait too, as their controllers make them anew.
    """

    pods: list[dict[str, Any]]
    node_templates: list[NodeTemplate] = []
    only_templates: bool = False
    remove_nodes: list[str] = []


_DECODE = msgspec.json.Decoder(SimulationRequest)


def answer_simulation(state: ClusterState, body: bytes) -> dict[str, Any]:
    """Places the pods on a copy of the cluster with the templates' nodes; nobody is evicted, and nothing remembered.

    Returns:
        {"complete", "placements": [{"pod", "node", "template"}], "remaining": [{"pod", "reason"}], "lost", "notes"}.

    Raises:
        MalformedRequest: the body is no such question.
        MalformedCluster, ConfigurationError: a manifest in it would be refused by the API server.
        UnknownNode: there is no node of a name in `remove_nodes`.
        RuleFailed: a rule of the user's raised.
    """
    try:
        request = _DECODE.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(f"the body is no simulation: {error}") from None
    nodes = sum(template.count for template in request.node_templates)
    slices = sum(template.count * len(template.resource_slices) for template in request.node_templates)
    workloads = [required_workload(pod) for pod in request.pods[: _MOST_PODS + 1]]
    all_nodes = nodes + len(state.table.nodes.rows)
    made = sum(all_nodes if each.replicas is None else max(each.replicas, 0) for each in workloads)
    if nodes > _MOST_NODES or slices > _MOST_SLICES or max(made, len(workloads)) > _MOST_PODS:
        raise MalformedRequest(
            f"want at most {_MOST_NODES} nodes with {_MOST_SLICES} resourceSlices, and {_MOST_PODS} pods"
        )
    calm = state.profiles.with_each(lambda profile: replace(profile, preemption=None))
    simulation = Simulation(state.copy(calm))
    if request.only_templates:
        _close(simulation.state)
    templates = dict(_add_templates(simulation.state, request))
    before = set(simulation.state.infos)
    scenario = Scenario(remove_nodes=request.remove_nodes, create=[(each, None) for each in workloads])
    notes = apply(scenario, simulation)
    simulation.run()
    return _answer(simulation, before, templates, notes)


def _answer(simulation: Simulation, before: set[str], templates: Mapping[str, str], notes: list[str]) -> dict[str, Any]:
    evicted = {each.pod: each.comes_back for each in simulation.log.evictions}
    made = [info.pod for key, info in simulation.state.infos.items() if key not in before or key in evicted]
    remaining = [
        {"pod": pod.key, "reason": simulation.log.reasons.get(pod.key, "")} for pod in made if not pod.node_name
    ]
    lost = [pod for pod, comes_back in evicted.items() if not comes_back]
    placements = [
        {"pod": each.pod, "node": each.node, "template": templates.get(each.node)}
        for each in simulation.log.placements.values()
    ]
    complete = not (remaining or lost)
    return {"complete": complete, "placements": placements, "remaining": remaining, "lost": lost, "notes": notes}


def _close(state: ClusterState) -> None:
    for row in state.table.nodes.rows.tolist():
        node = state.table.nodes.node(row)
        state.add(with_fields(node, spec=with_fields(node.spec, unschedulable=True)))


def _add_templates(state: ClusterState, request: SimulationRequest) -> Iterator[tuple[str, str]]:
    """Adds the nodes and their devices; yields the name of each with its template's."""
    for index, template in enumerate(request.node_templates):
        place = f"nodeTemplates[{index}]"
        node = _of(template.node, Node, f"{place}.node")
        slices = [
            _of(each, ResourceSlice, f"{place}.resourceSlices[{number}]")
            for number, each in enumerate(template.resource_slices)
        ]
        for number in range(1, template.count + 1):
            name = f"{node.name}-{number}"
            if state.table.nodes.has(name):
                raise MalformedCluster(f"{place}.node: there is a node {name} in the cluster already")
            state.add(copy_of(node, name))
            for each in slices:
                state.add(slice_for(each, name))
            yield name, node.name


def _of(item: Mapping[str, Any], kind: type[Object], place: str) -> Any:
    obj = to_object({"kind": kind.__name__, **item}, place)
    if not isinstance(obj, kind):
        raise MalformedCluster(f"{place}: want a {kind.__name__}")
    return next(iter(with_defaults([obj])))
