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
    from extender.devices.device_nodes import DeviceAsk, DeviceNodes
    from extender.engine import Decision
    from extender.errors import ExtenderError
    from extender.framework.permit import Wait, WaitingPod
    from extender.model.devices import ResourceClaim, ResourceSlice
    from extender.model.meta import CustomObject
    from extender.model.node import Node
    from extender.model.pod import Pod
    from extender.model.pod_groups import PodGroup
    from extender.model.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
    from extender.model.workloads import (
        Namespace,
        PodDisruptionBudget,
        PriorityClass,
        ReplicaSet,
        ReplicationController,
        Service,
        StatefulSet,
    )
    from extender.offline.answers import Listing
    from extender.offline.cluster import Cluster
    from extender.offline.experiment.run import ExperimentSample
    from extender.offline.experiment.sweep import ExperimentResult, PolicySummary, experiment
    from extender.offline.explain.explanation import Explanation, FilterVerdict, Reason, ScoreLine, Waterfall
    from extender.offline.explain.group import ChildGroup, DomainOffer, GroupExplanation
    from extender.offline.explain.overview import PendingGroup, PendingPod
    from extender.offline.explain.suggestion import SuggestedChange
    from extender.offline.nodes import NodeUsage
    from extender.offline.plan.plan import MovePlan
    from extender.offline.plan.trial import Move
    from extender.offline.recording.reading import RecordedStep, Recording
    from extender.offline.recording.replay import ChangedDecision, Difference, ReplayResult, replay
    from extender.offline.what_if.capacity import Capacity
    from extender.offline.what_if.comparison import Comparison, Moved
    from extender.offline.what_if.result import Balance, DrainEffect, SimulationResult
    from extender.offline.what_if.scenario import Scenario
    from extender.offline.what_if.simulation import Eviction, Placement
    from extender.plugins.users.binding import bind, permit, post_bind, pre_bind, reserve
    from extender.plugins.users.handle import Handle, ObjectLister
    from extender.plugins.users.predicate import Nominate, PredicateFunction, post_filter, predicate
    from extender.plugins.users.priority import device_priority, priority
    from extender.plugins.users.queueing import pre_enqueue, queue_sort
    from extender.table import NodeInfo, NodePods, PodInfo, Table
    from extender.table.labels import BoolColumn, IntColumn, Rows
    from extender.table.node_columns import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

__all__ = [
    "CPU",
    "EPHEMERAL_STORAGE",
    "MEMORY",
    "PODS",
    "Balance",
    "BoolColumn",
    "CSINode",
    "Capacity",
    "ChangedDecision",
    "ChildGroup",
    "Cluster",
    "Comparison",
    "CustomObject",
    "Decision",
    "DeviceAsk",
    "DeviceNodes",
    "Difference",
    "DomainOffer",
    "DrainEffect",
    "Eviction",
    "ExperimentResult",
    "ExperimentSample",
    "Explanation",
    "ExtenderError",
    "FilterVerdict",
    "GroupExplanation",
    "Handle",
    "IntColumn",
    "Listing",
    "Move",
    "MovePlan",
    "Moved",
    "Namespace",
    "Node",
    "NodeInfo",
    "NodePods",
    "NodeUsage",
    "Nominate",
    "ObjectLister",
    "PendingGroup",
    "PendingPod",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Placement",
    "Pod",
    "PodDisruptionBudget",
    "PodGroup",
    "PodInfo",
    "PolicySummary",
    "PredicateFunction",
    "PriorityClass",
    "Reason",
    "RecordedStep",
    "Recording",
    "ReplayResult",
    "ReplicaSet",
    "ReplicationController",
    "ResourceClaim",
    "ResourceSlice",
    "Rows",
    "Scenario",
    "ScoreLine",
    "Service",
    "SimulationResult",
    "StatefulSet",
    "StorageClass",
    "SuggestedChange",
    "Table",
    "Wait",
    "WaitingPod",
    "Waterfall",
    "bind",
    "device_priority",
    "experiment",
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

_NAMES = {
    "extender.devices.device_nodes": ("DeviceAsk", "DeviceNodes"),
    "extender.engine": ("Decision",),
    "extender.errors": ("ExtenderError",),
    "extender.framework.permit": ("Wait", "WaitingPod"),
    "extender.model.devices": ("ResourceClaim", "ResourceSlice"),
    "extender.model.meta": ("CustomObject",),
    "extender.model.node": ("Node",),
    "extender.model.pod": ("Pod",),
    "extender.model.pod_groups": ("PodGroup",),
    "extender.model.storage": ("CSINode", "PersistentVolume", "PersistentVolumeClaim", "StorageClass"),
    "extender.model.workloads": (
        "Namespace",
        "PodDisruptionBudget",
        "PriorityClass",
        "ReplicaSet",
        "ReplicationController",
        "Service",
        "StatefulSet",
    ),
    "extender.offline.cluster": ("Cluster",),
    "extender.offline.experiment.run": ("ExperimentSample",),
    "extender.offline.experiment.sweep": ("ExperimentResult", "PolicySummary", "experiment"),
    "extender.offline.explain.suggestion": ("SuggestedChange",),
    "extender.offline.explain.explanation": ("Explanation", "FilterVerdict", "Reason", "ScoreLine", "Waterfall"),
    "extender.offline.explain.group": ("ChildGroup", "DomainOffer", "GroupExplanation"),
    "extender.offline.explain.overview": ("PendingGroup", "PendingPod"),
    "extender.offline.answers": ("Listing",),
    "extender.offline.nodes": ("NodeUsage",),
    "extender.offline.plan.plan": ("MovePlan",),
    "extender.offline.plan.trial": ("Move",),
    "extender.offline.recording.reading": ("RecordedStep", "Recording"),
    "extender.offline.recording.replay": ("ChangedDecision", "Difference", "ReplayResult", "replay"),
    "extender.offline.what_if.capacity": ("Capacity",),
    "extender.offline.what_if.comparison": ("Comparison", "Moved"),
    "extender.offline.what_if.result": ("Balance", "DrainEffect", "SimulationResult"),
    "extender.offline.what_if.scenario": ("Scenario",),
    "extender.offline.what_if.simulation": ("Eviction", "Placement"),
    "extender.plugins.users.binding": ("bind", "permit", "post_bind", "pre_bind", "reserve"),
    "extender.plugins.users.handle": ("Handle", "ObjectLister"),
    "extender.plugins.users.predicate": ("Nominate", "PredicateFunction", "post_filter", "predicate"),
    "extender.plugins.users.priority": ("device_priority", "priority"),
    "extender.plugins.users.queueing": ("pre_enqueue", "queue_sort"),
    "extender.table": ("NodeInfo", "NodePods", "PodInfo", "Table"),
    "extender.table.labels": ("BoolColumn", "IntColumn", "Rows"),
    "extender.table.node_columns": ("CPU", "EPHEMERAL_STORAGE", "MEMORY", "PODS"),
}
"""Module -> the public names that it defines."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Imports a public name at its first use, so that `extender --help` does not load NumPy."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Returns the public names, for tab completion."""
    return sorted((*__all__, "__all__", "__doc__", "__name__"))
