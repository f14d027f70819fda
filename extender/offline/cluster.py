"""The main class of the library: a cluster in memory that answers where pods would be placed and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from extender.config.cluster_access import ClusterAccess, listed, live_access
from extender.engine import Decision
from extender.errors import Conflict
from extender.framework.profile import Profiles
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.model.redaction import Redaction, translated
from extender.offline.answers import Listing
from extender.offline.explain.explanation import Explanation
from extender.offline.explain.group import GroupExplanation, explain_group
from extender.offline.explain.overview import PendingGroup, PendingPod, pending, pending_pods
from extender.offline.manifests.admission import Admitted
from extender.offline.manifests.templates import Workload, required_workload
from extender.offline.nodes import NodeUsage, node_usage
from extender.offline.plan.attempts import SEARCH_SECONDS
from extender.offline.plan.plan import MovePlan, find_moves, plan
from extender.offline.state import ClusterState
from extender.offline.what_if.capacity import MOST_PODS, Capacity, capacity
from extender.offline.what_if.comparison import Comparison, compare
from extender.offline.what_if.result import SimulationResult, simulate
from extender.offline.what_if.scenario import Scenario
from extender.offline.what_if.simulation import Progress
from extender.plugins.registry import default_profile
from extender.policy.loading import AnyPolicy, profiles_of
from extender.runtime.text import counted
from extender.snapshots.objects import to_objects, to_pod

CONFLICT = 409


class Cluster:
    """Nodes, pods and the other objects that scheduling reads, as they are at one moment.

    Only `bind` changes it. One thread at a time may use it.

        cluster = Cluster.load("cluster.yaml")
        decision = cluster.decide(cluster.pod("shop/web-0"))
        if decision.feasible:
            cluster.bind(decision.pod, decision.best[0])

    Args:
        objects: objects of the kinds in `extender.model.kinds`. Finished pods are left out: they take no resources.
        policy: the rules to decide by: a KubeSchedulerConfiguration or classic Policy, given as the path of its file,
            as a mapping or as an object; None for kube-scheduler's defaults.

    Attributes:
        notes: remarks on what was left out of a file, or could not be read from a live cluster.

    Raises:
        MalformedCluster: an object has a malformed quantity.
    """

    def __init__(self, objects: Iterable[Object], policy: AnyPolicy | None = None) -> None:
        self._state = ClusterState(objects, profiles_of(policy))
        self.notes: list[str] = []

    @classmethod
    def load(cls, path: str | Path, policy: AnyPolicy | None = None) -> Self:
        """Loads a cluster from a YAML or JSON file, as `kubectl get -o yaml` prints it, or from a directory of them.

        Raises:
            MalformedCluster: a file is not valid; the message has the file and the place in it.
            OSError: the file cannot be read.
        """
        notes: list[str] = []
        return cls._of(ClusterState.load(Path(path), profiles_of(policy), notes), notes)

    @classmethod
    def from_kubeconfig(
        cls,
        path: str | Path | None = None,
        *,
        context: str | None = None,
        namespace: str | None = None,
        policy: AnyPolicy | None = None,
    ) -> Self:
        """Reads a live cluster once, as `kubectl get` would. `notes` says what this user may not read.

        Args:
            path: the kubeconfig, or several as in $KUBECONFIG; by default the files that kubectl reads.
            context: a context of the kubeconfig; by default the current context.
            namespace: if this user may not read all pods, only the pods of this namespace are read; by default the
                namespace of the context.

        Raises:
            ConfigurationError: the kubeconfig or the policy cannot be used.
            ClusterError: the API server does not answer, or this user may not read nodes.
        """
        from extender.offline.live import namespace_of, read_state  # the HTTP client is needed only here

        access = live_access(ClusterAccess(listed(path) if path else (), context), "the path of a kubeconfig")
        return cls._of(*read_state(access, namespace or namespace_of(access) or "default", profiles_of(policy)))

    @classmethod
    def from_objects(cls, items: Iterable[Mapping[str, Any]], policy: AnyPolicy | None = None) -> Self:
        """Makes a cluster from dicts, as `kubectl get -o json` prints them under `items`.

        Objects of kinds that scheduling does not read are left out.

        Raises:
            MalformedCluster: an item is not valid; the message has the number of the item and the path of the fault.
        """
        profiles = profiles_of(policy)
        return cls(to_objects(items, profiles.watch if profiles else ()), profiles)

    def with_policy(self, policy: AnyPolicy | None) -> Self:
        """Returns a copy of the cluster that decides by another policy; None means kube-scheduler's defaults.

        Raises:
            ConfigurationError: the policy has faults.
        """
        return self._of(self._state.copy(profiles_of(policy) or Profiles([default_profile()])), self.notes)

    @classmethod
    def _of(cls, state: ClusterState, notes: list[str]) -> Self:
        cluster = cls(())
        cluster._state = state
        cluster.notes = notes
        return cluster

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes."""
        return self._state.node_names()

    @property
    def usage(self) -> Listing[NodeUsage]:
        """The allocatable and requested resources of every node, sorted by name."""
        return Listing(node_usage(self._state))

    @property
    def pending(self) -> list[Pod]:
        """The pods that are not on a node yet."""
        return [info.pod for info in self._state.pending]

    def pod(self, key: str) -> Pod:
        """Returns the pod `namespace/name`. Raises UnknownPod if it does not exist or has finished."""
        return self._state.info(key).pod

    def __repr__(self) -> str:
        return f"{type(self).__name__}({counted(len(self.nodes), 'node')}, {counted(len(self.pending), 'pending pod')})"

    def _repr_html_(self) -> str:
        return self.usage._repr_html_()

    def decide(self, pod: Pod | Mapping[str, Any] | str) -> Decision:
        """Returns the decision about the pod on every node. A pod that is on a node is judged as if it were waiting.

        A mapping is a manifest; its missing defaults are filled in, as by the API server. A str is the
        `namespace/name` of a pod in the cluster.

        Raises:
            MalformedCluster: the manifest is not a valid pod; the message has the path of every fault.
            UnknownPod: the cluster has no pod of this name.
            RuleFailed: a user's rule raised.
        """
        return self._state.engine.decide(self._admitted(pod).pod)

    def explain(self, pod: Pod | Mapping[str, Any] | str) -> Explanation:
        """Explains why the pod is pending or where it would be placed, and what change would let it run.

        Takes the same forms of `pod` as `decide`, and raises the same errors.
        """
        admitted = self._admitted(pod)
        return Explanation(self._state, admitted.pod, admitted.notes, find_moves=find_moves)

    def _admitted(self, pod: Pod | Mapping[str, Any] | str) -> Admitted:
        return self._state.admit(self.pod(pod) if isinstance(pod, str) else pod)

    def explain_group(self, key: str, kind: str = "PodGroup") -> GroupExplanation:
        """Explains why the group `namespace/name` is pending, or where its members would be placed.

        `kind` is PodGroup or CompositePodGroup. Raises UnknownPod if the cluster has no such group.
        """
        return explain_group(self._state, kind, key)

    def explain_pending(
        self, namespace: str = "", progress: Callable[[int, int], None] | None = None
    ) -> Listing[PendingPod]:
        """Returns the pending pods of one namespace or of all, each with the reason why, grouped by cause.

        `progress` is called with the number of pods judged so far, and the total number.
        """
        return Listing(pending_pods(self._state, namespace, progress))

    def explain_pending_groups(self, namespace: str = "") -> Listing[PendingGroup]:
        """Returns the groups of pending pods that cannot be placed completely, each with the reason why."""
        return Listing(pending(self._state, namespace).groups)

    def simulate(
        self,
        scenario: Scenario | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> SimulationResult:
        """Applies the scenario to a copy of the cluster and places all pending pods there.

        Raises:
            UnknownNode, UnknownPod, MalformedCluster, ConfigurationError: the scenario is not possible.
            RuleFailed: a user's rule raised.
        """
        return simulate(self._state, scenario or Scenario(), seed, None, progress)

    def drain(self, *nodes: str, seed: int = 0) -> SimulationResult:
        """Simulates a drain of `nodes`, given by name or label (`key=value`). Raises the errors of `simulate`."""
        return self.simulate(Scenario(drain=nodes), seed)

    def capacity(
        self,
        templates: Sequence[Workload | Mapping[str, Any] | str],
        weights: Sequence[int] = (),
        most: int = MOST_PODS,
        progress: Progress | None = None,
    ) -> Capacity:
        """Counts how many more pods of the templates fit.

        A template is the manifest of a pod or of an object with a pod template. It may also be NAMESPACE/KIND/NAME of
        a workload in the cluster, such as "shop/deploy/web".

        Raises:
            MalformedCluster: the API server would refuse a template.
            ConfigurationError, UnknownPod: a template names a workload that is unknown or has no pods in the cluster.
        """
        workloads = [each if isinstance(each, Workload | str) else required_workload(each) for each in templates]
        return capacity(self._state, workloads, weights, most, progress)

    def plan(
        self,
        *pods: Workload | Mapping[str, Any] | str,
        keep: Sequence[str] = (),
        room_for: Workload | Mapping[str, Any] | str | None = None,
        empty_nodes: Sequence[str] = (),
        empty_count: int | None = None,
        most_moves: int | None = None,
        most_priority: int | None = None,
        bare_pods: bool = False,
        seconds: float = SEARCH_SECONDS,
        seed: int = 0,
    ) -> MovePlan:
        """Finds the fewest evictions after which these pods are placed, or proves that there are none.

        Instead of pods, give `room_for` to make room for the most of a shape, or nodes to empty.

        Args:
            pods: the `namespace/name` of pods that wait for a node, and manifests that are created after the moves.
            keep: namespaces, and label selectors such as "app=db", of pods that are not to be evicted.
            room_for: a manifest, "8x nvidia.com/gpu on one node", or NAMESPACE/KIND/NAME of a workload or podgroup.
            empty_nodes: nodes to empty, given by name or label (`key=value`).
            empty_count: how many of `empty_nodes` to empty, those with the fewest moves; None for all. Without
                `empty_nodes`, the nodes are chosen from all outside the control plane.
            most_moves: the most evictions of a plan; None for 20, or no limit if nodes are emptied.
            most_priority: pods of a higher priority are not evicted; None means that no priority protects a pod.
            bare_pods: True if pods without a controller may be evicted, which you then have to create again.
            seconds: how long to search; then the best plan so far is the answer.

        Raises:
            UnknownPod, UnknownNode: the cluster has no pod or node of this name.
            ConfigurationError: a pod does not wait for a scheduler, `keep` cannot be parsed, or two of pods, `room_for`
                and nodes are given.
            MalformedCluster: the API server would refuse a manifest.
        """
        targets = [each if isinstance(each, Workload | str) else required_workload(each) for each in pods]
        shape = required_workload(room_for) if isinstance(room_for, Mapping) else room_for
        return plan(
            self._state,
            targets,
            keep,
            room_for=shape,
            empty_nodes=empty_nodes,
            empty_count=empty_count,
            most_moves=most_moves,
            most_priority=most_priority,
            bare_pods=bare_pods,
            seconds=seconds,
            seed=seed,
        )

    def compare(
        self,
        other: AnyPolicy | None = None,
        scenario: Scenario | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Comparison:
        """Compares where pods are placed under this cluster's policy and under `other`.

        `other` may be a path, a mapping or an object, like `policy` of the class; None means kube-scheduler's defaults.

        Raises:
            ConfigurationError: `other` has faults.
            The errors of `simulate`.
        """
        second = profiles_of(other) or Profiles([default_profile()])
        return compare(self._state, self._state.profiles, second, scenario or Scenario(), seed, progress)

    def snapshot(self, *, redact: bool = False, key: bytes | None = None, compress: bool = False) -> bytes:
        """Returns the cluster as JSON (a v1 List) that `load` can read; `redact` replaces names by hashes.

        Snapshots that are redacted with the same `key` have equal hashes for equal names. With that key, `translate`
        replaces the hashes in an answer by the names.
        """
        from extender.snapshots.files import write_snapshot  # the YAML parser is needed only here

        redaction = Redaction(key) if redact else None
        return write_snapshot(
            self._state.every_object(),
            redaction=redaction,
            compress=compress,
            kubernetes_version=self._state.kubernetes_version,
        )

    def translate(self, answer: str, key: bytes) -> str:
        """Returns an answer about a redacted snapshot of this cluster with its hashes replaced by the names."""
        return translated(answer, self._state.every_object(), key)

    def bind(self, pod: Pod | Mapping[str, Any], node: str) -> None:
        """Places the pod on the node, whether or not it fits. Does nothing if the pod is on this node already.

        Raises:
            UnknownNode: the cluster has no such node.
            Conflict: the pod is on another node.
            MalformedCluster: `pod` is a mapping, but not a valid pod.
        """
        placed = to_pod(pod)
        self._state.node(node)
        current = self._state.node_of(placed)
        if current is None:
            self._state.add(placed.placed_on(node))
        elif current != node:
            raise Conflict(f"pod {placed.key} is already on node {current}, not {node}", CONFLICT)
