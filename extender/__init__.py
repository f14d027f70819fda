"""A kube-scheduler extender with its own scheduling engine and cache.

A program can load a cluster from a file, and define a rule:

    from extender import Cluster, Node, Pod, predicate

    cluster = Cluster.load("cluster.yaml")
    print(cluster.decide(cluster.pod("default/web-0")).feasible)

    @predicate
    def on_ssd(pod: Pod, node: Node) -> bool:
        return node.labels.get("disk") == "ssd"

Programs and rules import from `__all__` only. docs/rules.md lists it with the members that rules may use, and a test
compares the list with the code. Everything else may change with any version.

The package from top to bottom: users start `cli`, gunicorn starts `wsgi`, and `app` builds the processes. `web` serves
the `verbs` to kube-scheduler, `scheduler` is our own scheduling loop, and `offline` answers questions about clusters in
files. All three decide with the `plugins` that `policy` selects and `framework` runs, on a `table` of columns. The
`cache` updates the table from what `cluster` watches. `extender_v1` has the payloads, `model` the objects of the API.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extender.engine import Decision
    from extender.errors import ExtenderError
    from extender.framework.permit import Handle, Wait, WaitingPod
    from extender.model.node import Node
    from extender.model.pod import Pod
    from extender.offline.cluster import Cluster
    from extender.offline.recording.reading import Recording
    from extender.offline.recording.replay import replay
    from extender.offline.what_if.scenario import Scenario
    from extender.plugins.users import PredicateFunction, permit, predicate, priority, reserve
    from extender.table import NodeInfo, NodePods, PodInfo, Table
    from extender.table.labels import Rows
    from extender.table.nodes.columns import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

__all__ = [
    "CPU",
    "EPHEMERAL_STORAGE",
    "MEMORY",
    "PODS",
    "Cluster",
    "Decision",
    "ExtenderError",
    "Handle",
    "Node",
    "NodeInfo",
    "NodePods",
    "Pod",
    "PodInfo",
    "PredicateFunction",
    "Recording",
    "Rows",
    "Scenario",
    "Table",
    "Wait",
    "WaitingPod",
    "permit",
    "predicate",
    "priority",
    "replay",
    "reserve",
]

_HOMES = {
    "CPU": "extender.table.nodes.columns",
    "EPHEMERAL_STORAGE": "extender.table.nodes.columns",
    "Handle": "extender.framework.permit",
    "MEMORY": "extender.table.nodes.columns",
    "PODS": "extender.table.nodes.columns",
    "Cluster": "extender.offline.cluster",
    "Decision": "extender.engine",
    "ExtenderError": "extender.errors",
    "Node": "extender.model.node",
    "NodeInfo": "extender.table",
    "NodePods": "extender.table",
    "Pod": "extender.model.pod",
    "PodInfo": "extender.table",
    "PredicateFunction": "extender.plugins.users",
    "Recording": "extender.offline.recording.reading",
    "Rows": "extender.table.labels",
    "Scenario": "extender.offline.what_if.scenario",
    "Table": "extender.table",
    "Wait": "extender.framework.permit",
    "WaitingPod": "extender.framework.permit",
    "permit": "extender.plugins.users",
    "predicate": "extender.plugins.users",
    "priority": "extender.plugins.users",
    "replay": "extender.offline.recording.replay",
    "reserve": "extender.plugins.users",
}


def __getattr__(name: str) -> object:
    """Imports a public name at its first use, so that `extender --help` does not load NumPy."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
