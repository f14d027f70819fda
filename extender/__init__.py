"""A kube-scheduler extender with an engine and a cache of its own.

In a program of one's own, a cluster from a file and a rule:

    from extender import Cluster, predicate

    cluster = Cluster.load("cluster.yaml")
    print(cluster.decide(cluster.pod("default/web-0")).feasible)

    @predicate
    def on_ssd(pod: Pod, node: Node) -> bool:
        return node.labels.get("disk") == "ssd"

The package, from the top: `cli` and `wsgi` are what people and gunicorn start; `app` plugs everything together; `web`
serves the `verbs`, `scheduler` is a loop of its own, and `offline` asks the same engine about clusters in files;
`policy` chooses the `plugins` that `framework` runs, on a `table` of columns that the `cache` keeps true to what
`cluster` watches; `extender_v1` holds the payloads, `model` the objects of the API.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extender.model.node import Node
    from extender.model.pod import Pod
    from extender.offline.cluster import Cluster
    from extender.offline.decision import Decision
    from extender.plugins.users import predicate, priority
    from extender.table import PodInfo, Table
    from extender.table.labels import Rows

__all__ = ["Cluster", "Decision", "Node", "Pod", "PodInfo", "Rows", "Table", "predicate", "priority"]

_HOMES = {
    "Cluster": "extender.offline.cluster",
    "Decision": "extender.offline.decision",
    "Node": "extender.model.node",
    "Pod": "extender.model.pod",
    "PodInfo": "extender.table",
    "Rows": "extender.table.labels",
    "Table": "extender.table",
    "predicate": "extender.plugins.users",
    "priority": "extender.plugins.users",
}


def __getattr__(name: str) -> object:
    """Imports what is asked for when it is asked for: the command's --help must not wait for NumPy."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
