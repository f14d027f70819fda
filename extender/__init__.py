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
    from extender.framework.permit import Wait, WaitingPod
    from extender.model.devices.claims import ResourceClaim
    from extender.model.devices.slices import ResourceSlice
    from extender.model.meta import CustomObject
    from extender.model.node import Node
    from extender.model.pod import Pod
    from extender.model.scheduling.pod_groups import PodGroup
    from extender.model.volumes.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
    from extender.model.workloads import (
        Namespace,
        PodDisruptionBudget,
        PriorityClass,
        ReplicaSet,
        ReplicationController,
        Service,
        StatefulSet,
    )
    from extender.offline.cluster import Cluster
    from extender.offline.recording.reading import Recording
    from extender.offline.recording.replay import replay
    from extender.offline.what_if.scenario import Scenario
    from extender.plugins.users import (
        Nominate,
        PredicateFunction,
        permit,
        post_bind,
        post_filter,
        pre_bind,
        pre_enqueue,
        predicate,
        priority,
        queue_sort,
        reserve,
    )
    from extender.plugins.users.handle import Handle, ObjectLister
    from extender.table import NodeInfo, NodePods, PodInfo, Table
    from extender.table.labels import BoolColumn, IntColumn, Rows
    from extender.table.nodes.columns import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

__all__ = [
    "CPU",
    "EPHEMERAL_STORAGE",
    "MEMORY",
    "PODS",
    "BoolColumn",
    "CSINode",
    "Cluster",
    "CustomObject",
    "Decision",
    "ExtenderError",
    "Handle",
    "IntColumn",
    "Namespace",
    "Node",
    "NodeInfo",
    "NodePods",
    "Nominate",
    "ObjectLister",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "PodGroup",
    "PodInfo",
    "PredicateFunction",
    "PriorityClass",
    "Recording",
    "ReplicaSet",
    "ReplicationController",
    "ResourceClaim",
    "ResourceSlice",
    "Rows",
    "Scenario",
    "Service",
    "StatefulSet",
    "StorageClass",
    "Table",
    "Wait",
    "WaitingPod",
    "permit",
    "post_bind",
    "post_filter",
    "pre_bind",
    "pre_enqueue",
    "predicate",
    "priority",
    "queue_sort",
    "replay",
    "reserve",
]

_HOMES = {
    "CPU": "extender.table.nodes.columns",
    "EPHEMERAL_STORAGE": "extender.table.nodes.columns",
    "MEMORY": "extender.table.nodes.columns",
    "PODS": "extender.table.nodes.columns",
    "BoolColumn": "extender.table.labels",
    "CSINode": "extender.model.volumes.storage",
    "Cluster": "extender.offline.cluster",
    "CustomObject": "extender.model.meta",
    "Decision": "extender.engine",
    "ExtenderError": "extender.errors",
    "Handle": "extender.plugins.users.handle",
    "IntColumn": "extender.table.labels",
    "Namespace": "extender.model.workloads",
    "Node": "extender.model.node",
    "NodeInfo": "extender.table",
    "NodePods": "extender.table",
    "Nominate": "extender.plugins.users",
    "ObjectLister": "extender.plugins.users.handle",
    "PersistentVolume": "extender.model.volumes.storage",
    "PersistentVolumeClaim": "extender.model.volumes.storage",
    "Pod": "extender.model.pod",
    "PodDisruptionBudget": "extender.model.workloads",
    "PodGroup": "extender.model.scheduling.pod_groups",
    "PodInfo": "extender.table",
    "PredicateFunction": "extender.plugins.users",
    "PriorityClass": "extender.model.workloads",
    "Recording": "extender.offline.recording.reading",
    "ReplicaSet": "extender.model.workloads",
    "ReplicationController": "extender.model.workloads",
    "ResourceClaim": "extender.model.devices.claims",
    "ResourceSlice": "extender.model.devices.slices",
    "Rows": "extender.table.labels",
    "Scenario": "extender.offline.what_if.scenario",
    "Service": "extender.model.workloads",
    "StatefulSet": "extender.model.workloads",
    "StorageClass": "extender.model.volumes.storage",
    "Table": "extender.table",
    "Wait": "extender.framework.permit",
    "WaitingPod": "extender.framework.permit",
    "permit": "extender.plugins.users",
    "post_bind": "extender.plugins.users",
    "post_filter": "extender.plugins.users",
    "pre_bind": "extender.plugins.users",
    "pre_enqueue": "extender.plugins.users",
    "predicate": "extender.plugins.users",
    "priority": "extender.plugins.users",
    "queue_sort": "extender.plugins.users",
    "replay": "extender.offline.recording.replay",
    "reserve": "extender.plugins.users",
}


def __getattr__(name: str) -> object:
    """Imports a public name at its first use, so that `extender --help` does not load NumPy."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
