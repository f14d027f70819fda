"""A cluster in memory that can be asked: where would this pod go, and why?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from extender.errors import Conflict, UnknownNode
from extender.framework.profile import Profiles
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.offline.claims.making import admit_new
from extender.offline.decision import Decision
from extender.offline.explain.explanation import Explanation
from extender.offline.explain.overview import PendingPod, pending_pods
from extender.offline.manifests.objects import to_object, to_pod, with_defaults
from extender.offline.manifests.snapshot import write_snapshot
from extender.offline.manifests.templates import Workload, required_workload
from extender.offline.state import ClusterState
from extender.offline.what_if.capacity import MOST_PODS, Capacity, capacity
from extender.offline.what_if.comparison import Comparison, compare
from extender.offline.what_if.result import SimulationResult, simulate
from extender.offline.what_if.scenario import Scenario
from extender.offline.what_if.simulation import Progress
from extender.plugins.registry import default_profile
from extender.policy.loading import read as read_policy

CONFLICT = 409


def state_of(cluster: Cluster) -> ClusterState:
    """Returns what the answers about the cluster are made of; for this package alone."""
    return cluster._state


def explain_workload(cluster: Cluster, workload: Workload) -> Explanation:
    """Explains the first pod of a workload, with the claims that will be made for it; for this package alone."""
    state, admitted = admit_new(cluster._state, workload)
    return Explanation(state, admitted.pod, admitted.notes)


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
        self._state = ClusterState(objects, profiles)

    @classmethod
    def load(cls, path: str | Path, profiles: Profiles | None = None) -> Self:
        """The cluster in a file or directory: YAML or JSON as `kubectl get -o yaml` prints it.

        Raises:
            MalformedCluster: with file and place.
            OSError: the file cannot be read.
        """
        from extender.offline.manifests.files import load_snapshot  # YAML is not needed by who has the objects

        return cls(load_snapshot(Path(path)), profiles)

    @classmethod
    def from_objects(cls, items: Iterable[Mapping[str, Any]], profiles: Profiles | None = None) -> Self:
        """The cluster of these objects: dicts as `kubectl get -o json` has them under `items`.

        Kinds that scheduling does not look at are left out.

        Raises:
            MalformedCluster: with the number of the item, and the path in it.
        """
        found = (to_object(item, f"items[{number}]") for number, item in enumerate(items))
        return cls(with_defaults([obj for obj in found if obj is not None]), profiles)

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes."""
        table = self._state.table
        return table.nodes.names_of(table.nodes.rows)

    @property
    def pending(self) -> list[Pod]:
        """The pods that stand on no node."""
        return [info.pod for info in self._state.pending]

    def pod(self, key: str) -> Pod:
        """The pod `namespace/name`. Raises UnknownPod: there is none, or it has finished."""
        return self._state.info(key).pod

    def decide(self, pod: Pod | Mapping[str, Any]) -> Decision:
        """Decides about the pod on every node. One that stands on a node is judged as if it did not.

        A mapping is a manifest: it gets what an API server with these objects would fill in.

        Raises:
            MalformedCluster: `pod` is no pod, with the path of every fault, or states a quantity that is none.
            RuleFailed: a rule of the user's raised.
        """
        return self._state.decide(self._state.admit(pod).pod)

    def explain(self, pod: Pod | Mapping[str, Any] | str) -> Explanation:
        """Tells in numbers why the pod waits or where it would go, and the smallest change that would let it run.

        `pod` may be `namespace/name` of one in the cluster. Raises as `decide` and `pod` do.
        """
        admitted = self._state.admit(self.pod(pod) if isinstance(pod, str) else pod)
        return Explanation(self._state, admitted.pod, admitted.notes)

    def explain_pending(
        self, namespace: str = "", progress: Callable[[int, int], None] | None = None
    ) -> list[PendingPod]:
        """Returns every pod that waits, in one namespace or in all, with its blocker; the same causes together.

        `progress` is told how many are done, and of how many.
        """
        return pending_pods(self._state, namespace, progress)

    def simulate(
        self,
        scenario: Scenario | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> SimulationResult:
        """Places the pods that wait, after the scenario's changes, on a copy; the cluster itself stays as it is.

        Raises:
            UnknownNode, UnknownPod, MalformedCluster, ConfigurationError: the scenario asks for what is not possible.
            RuleFailed: a rule of the user's raised.
        """
        return simulate(self._state, scenario or Scenario(), seed, None, progress)

    def drain(self, *nodes: str, seed: int = 0) -> SimulationResult:
        """Finds new homes for the pods of these nodes, by name or `key=value`. Raises as `simulate`."""
        return self.simulate(Scenario(drain=nodes), seed)

    def capacity(
        self,
        templates: Sequence[Workload | Mapping[str, Any]],
        weights: Sequence[int] = (),
        most: int = MOST_PODS,
        progress: Progress | None = None,
    ) -> Capacity:
        """Counts how many more pods of the templates fit: manifests of pods, or of what has a pod template.

        Raises:
            MalformedCluster: a template would be refused by the API server.
        """
        read = [each if isinstance(each, Workload) else required_workload(each) for each in templates]
        return capacity(self._state, read, weights, most, progress)

    def compare(
        self,
        other: Profiles | Mapping[str, Any] | None = None,
        scenario: Scenario | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Comparison:
        """Compares with the placements by `other`: a KubeSchedulerConfiguration or a Policy; None: the defaults.

        Raises:
            ConfigurationError: `other` has faults; else as `simulate`.
        """
        second = Profiles(read_policy(other).profiles) if isinstance(other, Mapping) else other
        second = second or Profiles([default_profile()])
        return compare(self._state, self._state.profiles, second, scenario or Scenario(), seed, progress)

    def snapshot(self, *, redact: bool = False, compress: bool = False) -> bytes:
        """Writes the cluster down as a v1 List in JSON, which `load` reads; `redact`: names become hashes."""
        return write_snapshot(self._state.objects(), redact=redact, compress=compress)

    def bind(self, pod: Pod | Mapping[str, Any], node: str) -> None:
        """Puts the pod on the node, whether or not it fits. Bound there already is well.

        Raises:
            UnknownNode: there is no such node.
            Conflict: the pod stands on another one.
            MalformedCluster: `pod` is a mapping, but no pod.
        """
        known, table = to_pod(pod), self._state.table
        if node not in table.nodes.row_of:
            raise UnknownNode(f"no node {node} in this cluster")
        standing = table.pods.slot_of.get(known.uid)
        if standing is None:
            self._state.add(known.placed_on(node))
        elif table.pods.row[standing] != table.nodes.row_of[node]:
            raise Conflict(f"pod {known.key} stands on another node than {node}", CONFLICT)
