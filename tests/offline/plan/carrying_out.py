"""Carries plans out on a real control plane, as docs/plan.md says, and compares every step with the plan.

The API server evicts pods, and kube-scheduler places their replacements. Stand-ins do the rest: one for the kubelets,
which makes bound pods ready and ends those that are being deleted, and one for the controllers, which recreates pods
and keeps the status of budgets. They act in an order that does not depend on the machine's speed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import permutations

from extender import Cluster, Move, MovePlan
from extender.offline.state import ClusterState
from extender.offline.workloads import as_created
from extender.table import PodInfo
from tests.builders import Object, make_namespace
from tests.offline.plan.live_clusters import LiveCase
from tests.stock.api_client import RESOURCES, ApiError
from tests.stock.control_plane import ControlPlane

SCHEDULER = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
_MOST_PLANS = 6
_MOST_SECONDS = 60
_STATUS = ("PersistentVolume", "PersistentVolumeClaim")


class Differs(Exception):
    """The control plane does not do what the plan says. The message says what."""


class Rehearsal:
    """Carries one case out.

    Attributes:
        counts: what was carried out: "plans", "moves", of these "directed" ones, which cordon other nodes, and
            "released" ones, which uncordon nodes before the last move; and "ties", which are pods on an equally good
            node.
    """

    def __init__(self, plane: ControlPlane, case: LiveCase) -> None:
        self._plane = plane
        self._client = plane.client
        self._case = case
        self._pods: list[Object] = []
        self._owners: list[Object] = []
        self._created = 0
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        """Prepares the case, carries plans out until all targets are placed, and deletes everything.

        If a pod has gone to another of several equally good nodes, the rest of the plan may not hold, so a new one is
        made, as a user would.

        Raises:
            Differs: see there.
        """
        try:
            self._prepare()
            for _ in range(_MOST_PLANS):
                plan = self._planned()
                self.counts["plans"] += 1
                if self._carried_out(plan):
                    return
                if not self._case.waits:
                    self._create_targets()
                if not self._waiting_targets():
                    return
            raise Differs(f"no plan was carried out to its end within {_MOST_PLANS}")
        finally:
            self._delete_all()

    # ---- before and after

    def _prepare(self) -> None:
        case = self._case
        self._client.create(make_namespace(case.namespace), *case.nodes, *case.others)
        for obj in case.others:
            if obj["kind"] in _STATUS:
                kind, name = obj["kind"], obj["metadata"]["name"]
                bound = {"status": {"phase": "Bound"}}
                self._client.patch(kind, name, bound, namespace=case.namespace, subresource="status")
        self._owners = self._client.create(*case.controllers)
        owners = {each["metadata"]["name"]: each for each in self._owners}
        apps = [owners.get(pod["metadata"]["labels"]["app"]) for pod in case.pods]
        self._client.create_many(_owned(pod, owner) for pod, owner in zip(case.pods, apps, strict=True))
        self._until(lambda: all(map(_is_ready, self._pods)), "pods are ready")
        if case.waits:
            self._create_targets()

    def _create_targets(self) -> None:
        self._client.create(*self._case.targets)
        self._case.waits = True
        self._until(lambda: all(_node(pod) or _is_refused(pod) for pod in self._targets()), "targets are tried")

    def _delete_all(self) -> None:
        namespace = self._case.namespace
        self._owners = []
        for kind in ("ReplicaSet", "ReplicationController", "StatefulSet", "PodDisruptionBudget", "Service"):
            self._client.delete_all(kind, namespace)
        for obj in self._case.nodes:
            with suppress(ApiError):  # it is gone if a deletion was repeated because its answer was lost
                self._client.delete("Node", obj["metadata"]["name"])

        def is_empty() -> bool:
            self._client.delete_all("Pod", namespace)
            return not self._client.list("Pod", namespace)

        self._until(is_empty, "pods are deleted")
        for obj in self._case.others:
            if obj["kind"] in _STATUS:
                with suppress(ApiError):
                    self._client.delete(obj["kind"], obj["metadata"]["name"], namespace=namespace)

    # ---- the plan

    def _planned(self) -> MovePlan:
        cluster = Cluster.from_kubeconfig(self._plane.kubeconfig)
        wanted = [_key(pod) for pod in self._waiting_targets()] if self._case.waits else self._case.targets
        plan = cluster.plan(*wanted, seconds=20)
        if not plan.succeeds:
            raise Differs(f"no plan: {plan}")
        return plan

    def _carried_out(self, plan: MovePlan) -> bool:
        """Carries the plan out; returns False if a pod has gone to another of several equally good nodes.

        Then the moves end, and the nodes are uncordoned.
        """
        held = set(plan.cordoned)
        for number, move in enumerate(plan.moves):
            if not self._move(move, held, f"step {number + 1} of {_shown(plan)}") and move is not plan.moves[-1]:
                self._uncordon(held - set(plan.cordoned))
                return False
        self._uncordon(held - set(plan.cordoned))
        if not self._case.waits:
            self._create_targets()
        self._until(lambda: not self._waiting_targets(), f"the targets are placed by {_shown(plan)}")
        actual = {_key(pod): _node(pod) for pod in self._targets()}
        expected = {each.pod: each.node for each in plan.placements}
        placed = {key: actual[key] for key in expected}
        if placed != expected:
            self._check_tied(placed, f"the targets of {_shown(plan)}, expected {expected}")
        if waiting := [_key(pod) for pod in self._pods if not _node(pod)]:
            raise Differs(f"{waiting} wait for a node after {_shown(plan)}")
        return True

    def _move(self, move: Move, held: set[str], where: str) -> bool:
        """Carries one move out as docs/plan.md says; returns False if a pod has gone elsewhere, to an equal node."""
        self.counts += Counter(moves=1, directed=bool(move.cordoned), released=bool(move.released))
        if move.source not in held:
            held.add(move.source)
            self._cordon([move.source])
        self._cordon(move.cordoned)
        self._refresh()
        old = next(pod for pod in self._pods if _key(pod) == move.pod)
        known = {_uid(pod) for pod in self._pods}
        self._evict(old, where)
        self._until(lambda: _uid(old) not in map(_uid, self._pods), f"{move.pod} is gone in {where}")
        self._uncordon(move.uncordoned)
        held -= set(move.uncordoned)

        def replacements() -> list[Object]:
            new = [pod for pod in self._pods if _uid(pod) not in known and pod not in self._targets()]
            return [pod for pod in new if _node(pod)]

        self._until(lambda: bool(replacements()), f"the replacement of {move.pod} is placed in {where}")
        [new] = replacements()
        self._uncordon(move.cordoned)
        if _node(new) != move.target:
            self._check_tied({_key(new): _node(new)}, f"{where}: {move}")
            return False
        self._uncordon(move.released)
        held -= set(move.released)
        expected = {each.pod: each.node for each in move.placements}

        def actual() -> dict[str, str]:
            return {_key(pod): _node(pod) for pod in self._pods if _key(pod) in expected}

        self._until(lambda: all(actual().values()), f"{list(expected)} are placed in {where}")
        if (placed := actual()) != expected:
            self._check_tied(placed, f"{where}: {move}")
            return False
        return True

    def _evict(self, pod: Object, where: str) -> None:
        metadata = {"name": pod["metadata"]["name"], "namespace": self._case.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        path = RESOURCES["Pod"].path(metadata["namespace"], metadata["name"])

        def is_evicted() -> bool:
            try:
                self._client.request("POST", f"{path}/eviction", eviction)
            except ApiError as error:
                if error.status != 429:
                    raise
                return False
            return True

        self._until(is_evicted, f"the API server allows an eviction: {where}")

    def _cordon(self, names: Sequence[str]) -> None:
        for name in names:
            self._client.patch("Node", name, {"spec": {"unschedulable": True}})

    def _uncordon(self, names: Sequence[str] | set[str]) -> None:
        for name in names:
            self._client.patch("Node", name, {"spec": {"unschedulable": None}})

    # ---- comparing

    def _check_tied(self, placed: dict[str, str], where: str) -> None:
        """Checks that the pods are on nodes that were among the best when they were placed, in some order.

        Raises:
            Differs: a pod is on a node that was not among the best.
        """
        self.counts["ties"] += len(placed)
        state = Cluster.from_kubeconfig(self._plane.kubeconfig)._state
        infos = {key: state.infos[key] for key in placed}
        for info in infos.values():
            state.remove_pod(info)
        found = [dict(_best(state.copy(), order)) for order in permutations(infos.values())]
        if not any(all(placed[key] in best[key] for key in placed) for best in found):
            raise Differs(f"placed {placed}, but the best nodes are {found[0]}: {where}")

    # ---- pods

    def _targets(self) -> list[Object]:
        names = {pod["metadata"]["name"] for pod in self._case.targets}
        return [pod for pod in self._pods if pod["metadata"]["name"] in names]

    def _waiting_targets(self) -> list[Object]:
        self._refresh()
        return [pod for pod in self._targets() if not _node(pod)]

    def _refresh(self) -> None:
        """Lists the pods, and does the kubelets' work."""
        self._pods = self._client.list("Pod", self._case.namespace)
        for pod in self._pods:
            name = pod["metadata"]["name"]
            with suppress(ApiError):  # it may be gone by now
                if _node(pod) and "deletionTimestamp" in pod["metadata"]:
                    self._client.delete("Pod", name, namespace=self._case.namespace)
                elif _node(pod) and pod["status"]["phase"] == "Pending":
                    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                    self._client.patch(
                        "Pod", name, {"status": ready}, namespace=self._case.namespace, subresource="status"
                    )

        self._recreate()
        self._count_healthy()

    def _recreate(self) -> None:
        """Creates the pods that their controllers lack. A StatefulSet waits until the old pod is gone."""
        for owner in self._owners:
            app, is_numbered = owner["metadata"]["name"], owner["kind"] == "StatefulSet"
            own = [pod for pod in self._pods if pod["metadata"]["labels"]["app"] == app]
            active = [pod for pod in own if "deletionTimestamp" not in pod["metadata"]]
            names = {pod["metadata"]["name"] for pod in own}
            replicas = owner["spec"]["replicas"]
            if is_numbered:
                missing = sorted({f"{app}-{number}" for number in range(replicas)} - names)
            else:
                missing = [f"{app}-new{self._created + number}" for number in range(replicas - len(active))]
            self._created += len(missing)
            for name in missing:
                self._client.create(_from_template(owner, name, self._case))

    def _count_healthy(self) -> None:
        """Sets the status of budgets, as the disruption controller does."""
        for budget in self._client.list("PodDisruptionBudget", self._case.namespace):
            app = budget["spec"]["selector"]["matchLabels"]["app"]
            expected = next((each["spec"]["replicas"] for each in self._owners if each["metadata"]["name"] == app), 0)
            own = [pod for pod in self._pods if pod["metadata"]["labels"]["app"] == app and _is_ready(pod)]
            healthy = sum("deletionTimestamp" not in pod["metadata"] for pod in own)
            desired = _desired(budget["spec"], expected)
            status = {
                "observedGeneration": budget["metadata"]["generation"],
                "expectedPods": expected,
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "disruptionsAllowed": max(healthy - desired, 0),
                "disruptedPods": None,
            }
            if any(budget["status"].get(key) != value for key, value in status.items()):
                name = budget["metadata"]["name"]
                patch = {"status": status}
                self._client.patch(
                    "PodDisruptionBudget", name, patch, namespace=self._case.namespace, subresource="status"
                )

    def _until(self, probe: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _MOST_SECONDS
        self._refresh()
        while not probe():
            if time.monotonic() > deadline:
                raise Differs(f"waited in vain until {what}: {[_described(pod) for pod in self._pods]}")
            time.sleep(0.05)
            self._refresh()


def _best(state: ClusterState, order: Sequence[PodInfo]) -> Iterator[tuple[str, list[str]]]:
    """Yields the best nodes of each pod, after the pods before it are where they really are."""
    for info in order:
        yield info.pod.key, list(state.engine.decide(as_created(info.pod)).best)
        state.add_info(info)


def _desired(spec: Object, expected: int) -> int:
    if "maxUnavailable" in spec:
        return max(expected - int(spec["maxUnavailable"]), 0)
    least = spec["minAvailable"]
    return int(least) if isinstance(least, int) else -(-int(least.removesuffix("%")) * expected // 100)


def _owned(pod: Object, owner: Object | None) -> Object:
    if owner is None:
        return pod
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [reference]}}


def _from_template(owner: Object, name: str, case: LiveCase) -> Object:
    """Returns the pod that a controller creates: like the pod of this name that it had, or else from its template."""
    like = next((pod for pod in case.pods if pod["metadata"]["name"] == name), None)
    template = owner["spec"]["template"]
    metadata = {**template["metadata"], "name": name, "namespace": case.namespace}
    spec = template["spec"]
    if like is not None:
        metadata |= {"labels": like["metadata"]["labels"]}
        spec = {key: value for key, value in like["spec"].items() if key != "nodeName"}
    return _owned({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, owner)


def _shown(plan: MovePlan) -> str:
    moves = [f"{each.pod} {each.source}->{each.target} {' '.join(each.uncordoned)}".strip() for each in plan.moves]
    return f"{moves} for {[f'{each.pod} {each.node}' for each in plan.placements]}"


def _described(pod: Object) -> str:
    messages = [each.get("message", "") for each in pod["status"].get("conditions", ()) if each["status"] == "False"]
    return f"{pod['metadata']['name']} on {_node(pod) or messages}"


def _key(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def _node(pod: Object) -> str:
    return str(pod["spec"].get("nodeName") or "")


def _is_ready(pod: Object) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def _is_refused(pod: Object) -> bool:
    return any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions", ()))
