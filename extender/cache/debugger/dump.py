"""All that the cache counts, in a form to be read by people (upstream backend/cache/debugger CacheDumper)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from extender.cache.cache import Cache
from extender.cache.pod_states import PodState
from extender.table import Table


@dataclass(frozen=True, slots=True)
class DumpedNode:
    """A node as a table has it: cpu in milli, memory and storage in bytes, everything else in units.

    Attributes:
        known: False where only pods on it are.
    """

    name: str
    known: bool
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DumpedPod:
    """A pod: where it counts ("" nowhere), and how sure that is; nothing of what it contains."""

    key: str
    uid: str
    node: str
    state: str


@dataclass(frozen=True, slots=True)
class Dump:
    """The cache at one moment, save that pods may be a moment newer than nodes."""

    nodes: list[DumpedNode]
    pods: list[DumpedPod]
    nominated: Mapping[str, list[str]]


def dump(cache: Cache) -> Dump:
    """The nodes with their sums, the pods with their places, the nominated pods by node."""
    with cache.snapshot("dump") as table:
        nodes = [_node(table, name) for name in sorted(table.nodes.row_of)]
        nominated = {node: sorted(info.pod.key for info in infos.values()) for node, infos in table.nominated.items()}
    pods = [
        DumpedPod(held.pod.key if held.pod else "", uid, held.node_name, _state(held.state))
        for uid, held in cache.view.pods().items()
    ]
    return Dump(nodes, sorted(pods, key=lambda pod: (pod.key, pod.uid)), nominated)


def _node(table: Table, name: str) -> DumpedNode:
    nodes, row = table.nodes, table.nodes.row_of[name]
    allocatable = {resource: int(nodes.allocatable[index, row]) for resource, index in nodes.resources.items()}
    requested = {resource: int(nodes.requested[index, row]) for resource, index in nodes.resources.items()}
    return DumpedNode(name, bool(nodes.present[row]), allocatable, requested)


def _state(state: PodState) -> str:
    return "waiting" if state is PodState.INITIAL else state.name.lower()
