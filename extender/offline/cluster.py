"""A cluster in memory that can be asked: where would this pod go, and why?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self

from extender.errors import Conflict, MalformedCluster, MalformedQuantity, UnknownNode, UnknownPod
from extender.framework.find_fit import find_fit
from extender.framework.profile import Profiles
from extender.framework.score import score
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.offline.decision import Decision
from extender.offline.objects import to_object, to_pod
from extender.plugins.registry import default_profile
from extender.preemption import preempt
from extender.table import PodInfo, Table

CONFLICT = 409


class Cluster:
    """Nodes, pods and the other objects that scheduling looks at, as they are at one moment.

    Nothing but `bind` changes it. One thread at a time may use it.

        cluster = Cluster.load("cluster.yaml")
        decision = cluster.decide(cluster.pod("shop/web-0"))
        if decision.feasible:
            cluster.bind(decision.pod, decision.best[0])

    Args:
        objects: of the kinds in `extender.model.kinds`; finished pods hold nothing and are left out.
        profiles: the rules to decide by; kube-scheduler's defaults unless given.

    Raises:
        MalformedCluster: an object states a quantity that is none.
    """

    def __init__(self, objects: Iterable[Object], profiles: Profiles | None = None) -> None:
        self._profiles = profiles or Profiles([default_profile()])
        self._table = Table()
        self._pods: dict[str, PodInfo] = {}
        for obj in objects:
            with _naming(obj):
                self._add(obj)

    @classmethod
    def load(cls, path: str | Path, profiles: Profiles | None = None) -> Self:
        """The cluster in a file or directory: YAML or JSON as `kubectl get -o yaml` prints it.

        Raises:
            MalformedCluster: with file and place.
            OSError: the file cannot be read.
        """
        from extender.offline.files import load  # YAML is not needed by who has the objects

        return cls(load(Path(path)), profiles)

    @classmethod
    def from_objects(cls, items: Iterable[Mapping[str, Any]], profiles: Profiles | None = None) -> Self:
        """The cluster of these objects: dicts as `kubectl get -o json` has them under `items`.

        Kinds that scheduling does not look at are left out.

        Raises:
            MalformedCluster: with the number of the item, and the path in it.
        """
        found = (to_object(item, f"items[{number}]") for number, item in enumerate(items))
        return cls((obj for obj in found if obj is not None), profiles)

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes."""
        return [self._table.nodes.names[row] for row in self._table.nodes.rows.tolist()]

    @property
    def pending(self) -> list[Pod]:
        """The pods that stand on no node."""
        return [info.pod for info in self._pods.values() if not info.pod.node_name]

    def pod(self, key: str) -> Pod:
        """The pod `namespace/name`.

        Raises:
            UnknownPod: there is none.
        """
        if key not in self._pods:
            raise UnknownPod(f"no pod {key} in this cluster (pods go by NAMESPACE/NAME)")
        return self._pods[key].pod

    def decide(self, pod: Pod | Mapping[str, Any]) -> Decision:
        """Where the pod could go, over all nodes. A pod that stands on a node is judged as if it did not.

        Raises:
            MalformedCluster: `pod` is no pod, or states a quantity that is none.
        """
        info = PodInfo(to_pod(pod))
        profile, table = self._profiles.of(info.pod), self._table
        with _naming(info.pod), self._without(info):
            fit = find_fit(profile, info, table, table.nodes.rows)
            feasible = fit.feasible
            scoring = score(profile, info, table, feasible)
            helpless = len(feasible) or profile.preemption is None
            preemption = None if helpless else preempt(profile, info, table, fit)
        return Decision(info.pod, table.nodes.names, fit, scoring, preemption)

    def bind(self, pod: Pod | Mapping[str, Any], node: str) -> None:
        """Puts the pod on the node, whether or not it fits. Bound there already is well.

        Raises:
            UnknownNode: there is no such node.
            Conflict: the pod stands on another one.
            MalformedCluster: `pod` is a mapping, but no pod.
        """
        known = to_pod(pod)
        if node not in self._table.nodes.row_of:
            raise UnknownNode(f"no node {node} in this cluster")
        standing = self._table.pods.slot_of.get(known.uid)
        if standing is None:
            self._add(known.placed_on(node))
        elif self._table.pods.row[standing] != self._table.nodes.row_of[node]:
            raise Conflict(f"pod {known.key} stands on another node than {node}", CONFLICT)

    def _add(self, obj: Object) -> None:
        if isinstance(obj, Node):
            self._table.set_node(obj)
        elif isinstance(obj, Pod):
            self._add_pod(obj)
        else:
            self._table.set_object(type(obj).__name__, obj)

    def _add_pod(self, pod: Pod) -> None:
        if pod.finished:
            return
        info = self._pods[pod.key] = PodInfo(pod)
        self._table.withdraw(pod.uid)
        if pod.node_name:
            self._table.place(info, pod.node_name)
        elif pod.status.nominated_node_name:
            self._table.nominate(info, pod.status.nominated_node_name)

    def _without(self, info: PodInfo) -> AbstractContextManager[None]:
        return self._table.supposing(gone=[info.uid]) if info.uid in self._table.pods.slot_of else nullcontext()


@contextmanager
def _naming(obj: Object) -> Iterator[None]:
    """A quantity in `obj` that is none is reported with the object's name."""
    try:
        yield
    except MalformedQuantity as error:
        raise MalformedCluster(f"{type(obj).__name__} {obj.key}: {error}") from None
