"""Carries out the operations on a real control plane; `python -m tests.offline.controllers.live_operations --help`.

Evictions go to the API server's eviction subresource, and kube-controller-manager and kube-scheduler do the rest. A
stand-in for the kubelets makes bound pods ready, and ends those that are being deleted.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tests.builders import Object, make_namespace
from tests.offline.controllers.operations import generated, ours, outcome
from tests.stock.api_client import RESOURCES, ApiClient, ApiError
from tests.stock.build import MARKERS, build
from tests.stock.control_plane import ControlPlane

FILE = Path(__file__).parent / "operations.json.gz"
CASES, RECORDED, _BATCH = 300, 40, 75
_CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
    "disruption-controller",
    "pod-garbage-collector-controller",
)
_PREPARING_SECONDS, _MOST_SECONDS = 6, 300
_QUIET_SECONDS = 25  # a Job waits ten seconds before it replaces a failed pod, and twenty after the second
_ACTING_SECONDS = (0, 1, 4)
_ORDERS = 12
_READ = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job", "PodDisruptionBudget")


def recorded() -> list[Object]:
    """Returns {"operation", "objects", "now", "theirs"} of each case."""
    cases: list[Object] = json.loads(gzip.decompress(FILE.read_bytes()))
    return cases


def carried_out(plane: ControlPlane, cases: list[Object]) -> Iterator[Object]:
    """Prepares all cases, carries out their operations at the same time, and yields what became of their pods."""
    batch = _Batch(plane.client, cases)
    batch.prepare()
    objects = batch.objects_by_case()
    with plane.scheduler():
        batch.operate(objects)
    for case in cases:
        pods = [pod for pod in batch.pods(case["name"]) if not _is_leaving(pod) or _node(pod) in batch.dead]
        after = [
            {"uid": _uid(pod), "app": pod["metadata"]["labels"].get("app", ""), "node": _node(pod)} for pod in pods
        ]
        before = objects[case["name"]]
        yield {
            "operation": case["operation"],
            "objects": before,
            "now": batch.began[case["name"]],
            "theirs": outcome(before, after),
        }


class _Batch:
    def __init__(self, client: ApiClient, cases: list[Object]) -> None:
        self._client = client
        self._cases = {case["name"]: case for case in cases}
        self._threads = ThreadPoolExecutor(8)
        nodes = [obj for case in cases for obj in case["objects"] if obj["kind"] == "Node"]
        self.dead = {node["metadata"]["name"] for node in nodes if node["spec"].get("taints")}
        self._all_pods: list[Object] = []
        self.began: dict[str, str] = {}
        """When each operation began, which decides which ages count as equal."""

    def pods(self, case: str) -> list[Object]:
        return [pod for pod in self._all_pods if pod["metadata"]["namespace"] == case]

    def prepare(self) -> None:
        """Creates everything, and brings the pods into the states of their plans."""
        self._client.create_many(make_namespace(name) for name in self._cases)
        everything = [obj for case in self._cases.values() for obj in case["objects"]]
        self._client.create_many(obj for obj in everything if obj["kind"] == "Node")
        self._client.create_many(obj for obj in everything if obj["kind"] != "Node")
        self._until_quiet(lambda: False, _PREPARING_SECONDS)
        for name, case in self._cases.items():
            for app, plans in case["plans"].items():
                pods = sorted(
                    (each for each in self.pods(name) if each["metadata"]["labels"].get("app") == app), key=_name
                )
                self._each(lambda pair: self._set(*pair), list(zip(pods, plans, strict=False)))
                rest = [(pod, {**plans[0], "state": "ready", "leaves": False}) for pod in pods[len(plans) :]]
                self._each(lambda pair: self._set(*pair), rest)
        self._until_quiet(self._fill_up, _QUIET_SECONDS)

    def _set(self, pod: Object, plan: Object) -> None:
        self._bind(pod, _pinned_to(pod) or plan["node"])
        if plan["cost"]:
            cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": plan["cost"]}}}
            self._patch(pod, cost)
        if plan["state"] != "starting":
            self._run(pod, is_ready=plan["state"] == "ready", age=plan["age"])
        if plan["leaves"]:
            self._client.request("DELETE", self._path(pod), {"gracePeriodSeconds": 36000})

    def _fill_up(self) -> bool:
        """Binds pods that replace those that leave; returns True if there were any."""
        waiting = [pod for pod in self._all_pods if not _node(pod) and not _is_leaving(pod)]
        for pod in waiting:
            case = pod["metadata"]["namespace"]
            self._bind(pod, _pinned_to(pod) or f"{case}-n2")
            self._run(pod, is_ready=True, age=10)
        return bool(waiting)

    def objects_by_case(self) -> dict[str, list[Object]]:
        self._refresh()
        nodes = self._client.list("Node")
        for node in nodes:
            node.update(apiVersion="v1", kind="Node")
        found: dict[str, list[Object]] = {name: [] for name in self._cases}
        for node in nodes:
            if (case := node["metadata"]["labels"].get("case")) in found:
                found[case].append(_plain(node))
        for kind in _READ:
            for obj in self._client.list(kind):
                if (namespace := obj["metadata"]["namespace"]) in found:
                    found[namespace].append(_plain({"apiVersion": RESOURCES[kind].group_version, "kind": kind, **obj}))
        for pod in self._all_pods:
            found[pod["metadata"]["namespace"]].append(_plain({"apiVersion": "v1", "kind": "Pod", **pod}))
        return found

    def operate(self, objects: dict[str, list[Object]]) -> None:
        evicted: dict[str, list[str]] = {}
        for name, case in self._cases.items():
            verb, *arguments = case["operation"]
            self.began[name] = datetime.now(UTC).isoformat()
            if verb == "drain":
                self._client.patch("Node", arguments[0], {"spec": {"unschedulable": True}})
                before = [obj for obj in objects[name] if obj["kind"] == "Pod" and _node(obj) == arguments[0]]
                movable = [pod for pod in before if not _is_leaving(pod) and _owner_kind(pod) != "DaemonSet"]
                ordered = sorted(movable, key=lambda pod: (pod["metadata"]["creationTimestamp"], _name(pod)))
                evicted[name] = [_uid(pod) for pod in ordered]
            elif verb == "remove":
                self._client.delete("Node", arguments[0])
            else:
                kind, app, count = arguments
                self._client.patch(kind, app, {"spec": {"replicas": count}}, namespace=name)
        removed = {case["operation"][1] for case in self._cases.values() if case["operation"][0] == "remove"}

        def act() -> bool:
            is_changed = self._kubelets(removed)
            present = {_uid(pod): pod for pod in self._all_pods if not _is_leaving(pod)}
            for uids in evicted.values():
                for uid in [uid for uid in uids if uid in present]:
                    if self._evict(present[uid]):
                        uids.remove(uid)
                        is_changed = True
            return is_changed or any(_node(pod) in removed for pod in self._all_pods)

        self._until_quiet(act, _QUIET_SECONDS)

    def _kubelets(self, removed: set[str]) -> bool:
        served = [pod for pod in self._all_pods if _node(pod) and _node(pod) not in self.dead | removed]
        ending = [pod for pod in served if _is_leaving(pod)]
        starting = [pod for pod in served if not _is_leaving(pod) and pod["status"]["phase"] == "Pending"]
        self._each(self._end, ending)
        self._each(lambda pod: self._run(pod, is_ready=True, age=0), starting)
        return bool(ending or starting)

    def _end(self, pod: Object) -> None:
        if _owner_kind(pod) == "Job":
            self._patch(pod, {"status": {"phase": "Failed"}}, "status")
        with suppress(ApiError):
            self._client.delete("Pod", _name(pod), namespace=pod["metadata"]["namespace"])

    def _evict(self, pod: Object) -> bool:
        metadata = {"name": _name(pod), "namespace": pod["metadata"]["namespace"]}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        try:
            self._client.request("POST", f"{self._path(pod)}/eviction", eviction)
        except ApiError as error:
            if error.status not in (404, 429, 500):
                raise
            return error.status == 404
        return True

    def _bind(self, pod: Object, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": _name(pod)}, "target": target}
        self._client.request("POST", f"{self._path(pod)}/binding", binding)

    def _run(self, pod: Object, *, is_ready: bool, age: int) -> None:
        since = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True" if is_ready else "False", "lastTransitionTime": since}
        self._patch(pod, {"status": {"phase": "Running", "conditions": [ready]}}, "status")

    def _patch(self, pod: Object, patch: Object, subresource: str = "") -> None:
        with suppress(ApiError):  # it may be gone by now
            self._client.patch(
                "Pod", _name(pod), patch, namespace=pod["metadata"]["namespace"], subresource=subresource
            )

    def _path(self, pod: Object) -> str:
        return RESOURCES["Pod"].path(pod["metadata"]["namespace"], _name(pod))

    def _refresh(self) -> bool:
        """Lists the pods; returns True if others exist than before."""
        before = {(_uid(pod), _node(pod), _is_leaving(pod)) for pod in self._all_pods}
        self._all_pods = [pod for pod in self._client.list("Pod") if pod["metadata"]["namespace"] in self._cases]
        return {(_uid(pod), _node(pod), _is_leaving(pod)) for pod in self._all_pods} != before

    def _until_quiet(self, act: Callable[[], bool], quiet_seconds: int) -> None:
        started = changed = time.monotonic()
        while time.monotonic() < min(changed + quiet_seconds, started + _MOST_SECONDS):
            is_changed = self._refresh()
            if act() or is_changed:
                changed = time.monotonic()
            time.sleep(0.5)

    def _each(self, act: Callable[[Any], None], pods: Iterable[Any]) -> None:
        list(self._threads.map(act, pods))


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _uid(obj: Object) -> str:
    return str(obj["metadata"]["uid"])


def _node(pod: Object) -> str:
    return str(pod["spec"].get("nodeName") or "")


def _is_leaving(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _owner_kind(pod: Object) -> str:
    return str(next((owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())), ""))


def _pinned_to(pod: Object) -> str:
    """The node of a DaemonSet's pod."""
    required = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = required.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    return str(next((term["matchFields"][0]["values"][0] for term in terms if term.get("matchFields")), ""))


def _plain(obj: Object) -> Object:
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}


def differences(cases: list[Object]) -> Iterator[str]:
    """Yields a text for each case in which the simulation and the control plane do not agree."""
    for case in cases:
        if case["theirs"] not in _possible(case):
            first = next(_possible(case))
            yield f"{case['operation']}\n  ours   {first}\n  theirs {case['theirs']}"


def _possible(case: Object) -> Iterator[Object]:
    """Yields our outcomes at several moments, and, if a workload is scaled, with several orders of its pods.

    A controller acts some time after the operation, and two ages that are equal to it by then may not be so before: an
    age passes a power of two nanoseconds (17.2 s, 34.4 s, ...). What is right at one of the moments is right. Which of
    several pods with equal times is deleted is a matter of chance, because a controller's sort is not stable.
    """
    began = datetime.fromisoformat(case["now"])
    for number in range(_ORDERS if case["operation"][0] == "scale" else 1):
        objects = [_renamed(obj, Random(f"{number}/{_name(obj)}")) if number else obj for obj in case["objects"]]
        for seconds in _ACTING_SECONDS:
            outcome = ours(case["operation"], objects, (began + timedelta(seconds=seconds)).isoformat())
            yield {**outcome, "gone": sorted(name.rpartition("~")[2] for name in outcome["gone"])}


def _renamed(obj: Object, dice: Random) -> Object:
    """Returns a pod under a name that sorts elsewhere; names decide about pods that are equal. Ordinals stay."""
    if obj["kind"] != "Pod" or _owner_kind(obj) == "StatefulSet":
        return obj
    return {**obj, "metadata": {**obj["metadata"], "name": f"{dice.random()}~{_name(obj)}"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help=f"keep the first {RECORDED} for `make test`")
    arguments = parser.parse_args()
    binaries = build(on_request=MARKERS["controllers"])
    found: list[Object] = []
    for start in range(0, arguments.cases, _BATCH):
        numbers = range(start, min(start + _BATCH, arguments.cases))
        cases = [generated(number, arguments.seed) for number in numbers]
        with (
            TemporaryDirectory() as directory,
            ControlPlane(binaries, Path(directory)) as plane,
            plane.controllers(*_CONTROLLERS),
        ):
            found += carried_out(plane, cases)
        print(f"{len(found)} operations carried out", flush=True)
    if arguments.record:
        FILE.write_bytes(gzip.compress(json.dumps(found[:RECORDED], sort_keys=True).encode(), mtime=0))
    different = list(differences(found))
    print("\n".join(different))
    print(f"{len(different)} of {len(found)} differ")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
