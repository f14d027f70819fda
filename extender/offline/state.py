"""Holds the cluster that all offline answers use: its objects, and the engine that decides about its pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from extender.engine import DecisionLimit, Engine, quantities_of
from extender.errors import MalformedCluster, UnknownNode, UnknownPod
from extender.framework.profile import Profiles
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.workloads import PodDisruptionBudget, PriorityClass
from extender.offline.manifests import schema
from extender.offline.manifests.admission import Admitted, admit
from extender.offline.manifests.structure import is_stored
from extender.offline.manifests.templates import workload_of
from extender.plugins.registry import default_profile
from extender.policy.policy import followed
from extender.runtime.text import did_you_mean, nearest, with_suggestion
from extender.snapshots.objects import completed, to_pod
from extender.table import PodInfo, Table
from extender.table.object_index import Objects

Amounts = NDArray[np.int64]

_MOST_COMPARED = 5000  # at most this many node names are compared with a misspelt one
_ONLY_SCORED = ("nonzero-cpu", "nonzero-memory")


class ClusterState:
    """Nodes, pods and the other objects that scheduling reads, as they are at one moment.

    Attributes:
        engine: decides about pods, and can change the cluster for the length of a `with` block (`Engine.suppose`).
        infos: the pods that are on a node or wait for one, by `namespace/name`.
        finished: the keys of pods that have succeeded or failed; these pods take no resources.
        kubernetes_version: the version that the API server reported, as v1.37.1; "" if it is unknown. Decisions follow
            it, unless the profiles name another version.
        nodes_unread: True if the nodes could not be read, so that no decision about them can be made.
        pods_unread: why some pods could not be read; None if all pods were read.
    """

    def __init__(
        self,
        objects: Iterable[Object],
        profiles: Profiles | None = None,
        limit: DecisionLimit | None = None,
        kubernetes_version: str = "",
    ) -> None:
        """Adds the objects. Raises MalformedCluster if an object has a malformed quantity."""
        profiles = profiles or Profiles([default_profile()])
        if kubernetes_version:
            profiles = profiles.following(followed(kubernetes_version)[0])
        self.kubernetes_version = kubernetes_version
        self.engine = Engine(Table(profiles.features), profiles, limit)
        self.infos: dict[str, PodInfo] = {}
        self.finished: set[str] = set()
        self.nodes_unread = False
        self.pods_unread: str | None = None
        for obj in objects:
            with quantities_of(obj):
                self.add(obj)

    @classmethod
    def load(cls, path: Path, profiles: Profiles | None = None, notes: list[str] | None = None) -> ClusterState:
        """Loads a cluster from a file, a directory or standard input (`-`). Raises MalformedCluster, OSError.

        `notes` gets remarks on what was left out.
        """
        from extender.snapshots.files import read_snapshot  # the YAML parser is needed only here

        stored = read_snapshot(path, profiles.watch if profiles else (), notes)
        return cls(stored.objects, profiles, kubernetes_version=stored.kubernetes_version)

    def copy(self, profiles: Profiles | None = None) -> ClusterState:
        """Returns an independent copy, which decides by `profiles` if they are given."""
        chosen = profiles.following(self.profiles.features.version) if profiles else self.profiles
        twin = ClusterState((), chosen, self.engine.limit)
        twin.kubernetes_version = self.kubernetes_version
        twin.finished = set(self.finished)
        twin.nodes_unread = self.nodes_unread
        twin.pods_unread = self.pods_unread
        for _, objects in self.objects.kinds():
            for obj in objects.values():
                twin.add(obj)
        for node in self.nodes():
            twin.add(node)
        for info in self.infos.values():
            twin.add_info(info)
        return twin

    # ---- reading

    @property
    def table(self) -> Table:
        """The arrays of nodes and pods that the engine decides on."""
        return self.engine.table

    @property
    def profiles(self) -> Profiles:
        return self.engine.profiles

    @property
    def objects(self) -> Objects:
        """The objects of all kinds except nodes and pods."""
        return self.engine.table.objects

    @property
    def pending(self) -> list[PodInfo]:
        """The pods that are not on a node yet."""
        return [info for info in self.infos.values() if not info.pod.node_name]

    def every_object(self) -> Iterator[Object]:
        """Yields all nodes, pods and other objects in their current state; finished pods are left out."""
        yield from self.nodes()
        yield from (info.pod for info in self.infos.values())
        for _, objects in self.objects.kinds():
            yield from objects.values()

    def info(self, key: str) -> PodInfo:
        """Returns the pod `namespace/name`. Raises UnknownPod if it does not exist or has finished."""
        if key in self.finished:
            raise UnknownPod(f"pod {key} has finished: it takes no resources and is not scheduled again")
        if key not in self.infos:
            namespace = key.partition("/")[0]
            empty = "" if namespace in self.inhabited() else f": namespace {namespace} has no pods at all"
            advice = did_you_mean(self._similar_pods(key)) or " (name it NAMESPACE/NAME)"
            raise UnknownPod(f"no pod {key} in this cluster{empty}{advice}")
        return self.infos[key]

    def inhabited(self) -> set[str]:
        """Returns the namespaces that have pods, or had some that have finished."""
        return {key.partition("/")[0] for key in (*self.infos, *self.finished)}

    def _similar_pods(self, key: str) -> list[str]:
        """Returns the keys of the pods that the user may have meant by `key`.

        These are namesakes in other namespaces; else the pods of a workload with this name; else pods of a similar
        name. Of the last two kinds, pods in the namespace of `key` are preferred. Pending pods come first.
        """
        namespace, _, name = key.partition("/")
        keys = (*(info.pod.key for info in self.pending), *self.infos)
        names = {each: each.partition("/")[2] for each in keys}
        if namesakes := [each for each, other in names.items() if other == name]:
            return namesakes
        nearby = {each: other for each, other in names.items() if each.startswith(f"{namespace}/")}
        for among in (nearby, names):
            if replicas := [each for each, other in among.items() if other.startswith(f"{name}-")]:
                return replicas
        for among in (nearby, names):
            near = nearest(name, list(among.values())[:_MOST_COMPARED])
            if near:
                return [each for each, other in among.items() if other in near]
        return []

    def node_names(self) -> list[str]:
        return self.table.nodes.names_of(self.table.nodes.rows)

    def nodes(self) -> list[Node]:
        return [self.table.nodes.node(row) for row in self.table.nodes.rows.tolist()]

    def has_node(self, name: str) -> bool:
        return self.table.nodes.has(name)

    def node(self, name: str) -> Node:
        """Returns the node of this name. Raises UnknownNode if it does not exist."""
        if not self.has_node(name):
            names = self.node_names()[:_MOST_COMPARED]
            raise UnknownNode(with_suggestion(f"no node {name} in this cluster", name, names))
        return self.table.nodes.node(self.table.nodes.row_of[name])

    def node_of(self, pod: Pod) -> str | None:
        """Returns the name of the node that the pod is on; None if the pod is not on a node of this cluster."""
        slot = self.table.pods.slot_of.get(pod.uid)
        return None if slot is None else self.table.nodes.names[self.table.pods.row[slot]]

    def pods_on(self, name: str) -> list[PodInfo]:
        """Returns the pods on the node of this name."""
        return self.table.pods.at(self.table.pods.on(self.table.nodes.row_of[name]))

    def resources(self) -> dict[str, tuple[Amounts, Amounts]]:
        """Returns (allocatable, requested) by resource, each int64[node] in the order of `nodes()`.

        cpu is in millicores, memory in bytes, everything else in whole units.
        """
        nodes, rows = self.table.nodes, self.table.nodes.rows
        return {
            name: (nodes.allocatable[index][rows], nodes.requested[index][rows])
            for name, index in nodes.resources.items()
            if name not in _ONLY_SCORED
        }

    def budgets_of(self, info: PodInfo) -> list[PodDisruptionBudget]:
        """Returns the PodDisruptionBudgets that cover the pod."""
        budgets = self.objects.all(PodDisruptionBudget)
        return [budgets[key] for key in self.table.budgets.covering(info.group)]

    # ---- changing

    def add(self, obj: Object) -> None:
        """Adds or replaces an object of any kind."""
        if isinstance(obj, Node):
            self.table.set_node(obj)
        elif isinstance(obj, Pod) and obj.finished:
            self.finished.add(obj.key)
        elif isinstance(obj, Pod):
            self.add_info(PodInfo(obj))
        else:
            self.table.set_object(type(obj).__name__, obj)

    def add_info(self, info: PodInfo) -> None:
        """Adds or replaces a pod that has not finished. The pod may be on a node, nominated to a node, or waiting."""
        pod = info.pod
        self.infos[pod.key] = info
        self.table.withdraw(pod.uid)
        if pod.node_name:
            self.table.place(info, pod.node_name)
        elif pod.status.nominated_node_name:
            self.table.nominate(info, pod.status.nominated_node_name)

    def remove(self, kind: str, key: str) -> None:
        """Removes a node or an object of another kind, but not a pod; unknown keys are ignored."""
        if kind == Node.__name__:
            self.table.remove_node(key)
        else:
            self.table.remove_object(kind, key)

    def remove_pod(self, info: PodInfo) -> None:
        self.infos.pop(info.pod.key, None)
        self.table.withdraw(info.uid)
        self.table.take_away(info.uid)

    def request(self, info: PodInfo, counts: Mapping[str, int]) -> None:
        """Adds the requests of `counts[node]` identical pods to each node, without placing the pods one by one."""
        nodes = self.table.nodes
        vector = nodes.vector(info.footprint)
        for name, count in counts.items():
            nodes.request(nodes.row_of[name], vector * count)

    def admit(self, pod: Pod | Mapping[str, Any]) -> Admitted:
        """Returns the pod as the API server would store it.

        A mapping is checked as a manifest first, unless its metadata shows that an API server has stored it.

        Raises:
            MalformedCluster: the manifest is not a valid pod; the message has the path of every fault.
        """
        if isinstance(pod, Pod):
            return Admitted(pod)
        if isinstance(pod, Mapping) and is_stored(pod):
            return Admitted(self.stored(pod))
        workload = workload_of(_checked(pod), "pod")
        assert workload is not None
        converted = to_pod(workload.manifest)
        with quantities_of(converted):
            return admit(converted, workload.manifest, self.objects)

    def stored(self, pod: Mapping[str, Any]) -> Pod:
        """Converts the manifest of a pod that an API server has stored; checks less than for a new pod.

        Missing defaults are filled in, because a manifest may be written by hand.

        Raises:
            MalformedCluster: a field is unknown or has the wrong type.
        """
        converted = to_pod(_checked(pod))
        if faults := schema.faults("Pod", pod):
            raise MalformedCluster(f"pod: {'; '.join(faults)}")
        with quantities_of(converted):
            return completed(converted, self.objects.all(PriorityClass).values())


def _checked(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(pod, Mapping) or pod.get("kind", "Pod") != "Pod":
        raise MalformedCluster("pod: expected a Pod")
    return pod
