"""Carries out the steps of a case on a real API server, beside a running `extender schedule`."""

from __future__ import annotations

import json
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from tests.builders import Object
from tests.end_to_end.group_plane import GroupControlPlane
from tests.group_cases.cases import Case, budget, claim_with_volume, manifest
from tests.running import SCHEDULER_NAME, RunningScheduler
from tests.stock.api_client import RESOURCES, ApiError
from tests.stock.waiting import wait_until

WAIT_SECONDS = 90
WATCH_SECONDS = 3600
NO_CHANGE_SECONDS = 3


class CasePlane(GroupControlPlane):
    """Serves all kinds of groups. Pods may have a priority without a class, as in Kubernetes' own tests."""

    apiserver_flags = (
        f"{GroupControlPlane.apiserver_flags[0]},Priority",
        "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true,"
        "PodGroupPreemptionPolicy=true",
        "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
    )


class Witness:
    """Remembers what watches have shown, by UID.

    Attributes:
        nominated: the nodes to which a pod was nominated.
        history: bindings and departures of pods, in order.
        conditions: the status, reason and message of each condition that a group has had.
    """

    def __init__(self, plane: CasePlane) -> None:
        self.nominated: defaultdict[str, set[str]] = defaultdict(set)
        self.history: list[tuple[str, str]] = []
        self.conditions: defaultdict[str, list[tuple[str, str, str]]] = defaultdict(list)
        for kind, note in (
            ("Pod", self._note_pod),
            ("PodGroup", self._note_group),
            ("CompositePodGroup", self._note_group),
        ):
            events = plane.client.watch(kind, WATCH_SECONDS)
            threading.Thread(target=self._follow, args=(events, note), daemon=True).start()

    def _follow(self, events: Iterable[Object], note: Callable[[Object], None]) -> None:
        try:
            for event in events:
                note(event)
        except (OSError, ApiError, ValueError):  # the API server has ended
            return

    def _note_pod(self, event: Object) -> None:
        pod = event["object"]
        uid = pod["metadata"]["uid"]
        if node := pod.get("status", {}).get("nominatedNodeName"):
            self.nominated[uid].add(node)
        leaves = event["type"] == "DELETED" or "deletionTimestamp" in pod["metadata"]
        for what in (["bound"] if pod["spec"].get("nodeName") else []) + (["leaves"] if leaves else []):
            if (what, uid) not in self.history:
                self.history.append((what, uid))

    def _note_group(self, event: Object) -> None:
        group = event["object"]
        for condition in group.get("status", {}).get("conditions", []):
            found = condition["status"], condition["reason"], condition.get("message", "")
            self.conditions[group["metadata"]["uid"]].append(found)


def policy_of(case: Case, folder: Path) -> Path:
    """Writes a policy that retries after a second, with the rules that the case needs."""
    rules: dict[str, tuple[str, dict[str, Any]]] = {}
    if case.scores:
        rules["preset"] = ("score", {"scores": case.scores})
    if case.slots is not None:
        rules["slots"] = ("filter", {"places": case.slots})
    if case.inject is not None:
        rules["interrupted"] = ("filter", {"when": case.inject["when"], "folder": str(folder)})
    if case.bind_fails is not None:
        rules["refused_once"] = ("preBind", {"pod_name": case.bind_fails, "folder": str(folder)})
    if case.counts_post_filter:
        rules["counted"] = ("postFilter", {"folder": str(folder)})
    shutil.copy(Path(__file__).parent / "rules.py", folder / "group_rules.py")
    plugins: dict[str, Any] = {
        point: {"enabled": [{"name": f"group_rules:{rule}"}]} for rule, (point, _) in rules.items()
    }
    if case.inject is not None:  # the rule must see the pod even if no node has room for it, so it comes first
        plugins["filter"]["enabled"].append({"name": "NodeResourcesFit"})
        plugins["filter"]["disabled"] = [{"name": "*"}]
    arguments = [{"name": f"group_rules:{rule}", "args": given} for rule, (_, given) in rules.items()]
    policy = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
        "profiles": [{"schedulerName": SCHEDULER_NAME, "plugins": plugins, "pluginConfig": arguments}],
    }
    path = folder / "policy.yaml"
    path.write_text(json.dumps(policy))
    return path


class Stage:
    """Plays one case.

    Args:
        folder: where the rules of the policy leave their marks.
    """

    def __init__(self, plane: CasePlane, loop: RunningScheduler, witness: Witness, folder: Path) -> None:
        self._plane = plane
        self._loop = loop
        self._witness = witness
        self._folder = folder
        self._uids: dict[str, str] = {}

    def play(self, case: Case) -> None:
        """Carries out the steps in order. Raises AssertionError with the step that does not hold."""
        if case.inject is not None:
            threading.Thread(target=self._inject, args=(case.inject["pod"],), daemon=True).start()
        for number, step in enumerate(case.steps):
            ((name, value),) = step.items()
            fault = getattr(self, name)(value)
            assert fault is None, f"step {number}, {name} {value}: {fault}"

    def _inject(self, pod: Object) -> None:
        if wait_until((self._folder / "reached").exists, WAIT_SECONDS):
            self.create_pods([pod])
            wait_until(lambda: self._place(pod["name"]), WAIT_SECONDS)
            (self._folder / "created").touch()

    # ---- what is created, changed and deleted

    def create_nodes(self, nodes: list[Object]) -> None:
        self._plane.client.create(*(manifest("Node", node) for node in nodes))

    def create_claims(self, names: list[str]) -> None:
        for name in names:
            self._plane.client.create(*claim_with_volume(name))

    def create_budget(self, fields: Object) -> None:
        self._plane.client.create(budget(fields))

    def create_pod_group(self, fields: Object) -> None:
        self._create_group("PodGroup", fields)

    def create_composite(self, fields: Object) -> None:
        self._create_group("CompositePodGroup", fields)

    def _create_group(self, kind: str, fields: Object) -> None:
        (group,) = self._plane.client.create(manifest(kind, fields))
        self._uids[f"{kind} {fields['name']}"] = group["metadata"]["uid"]

    def update_pod_group(self, fields: Object) -> None:
        self._update("PodGroup", fields)

    def update_composite(self, fields: Object) -> None:
        self._update("CompositePodGroup", fields)

    def _update(self, kind: str, fields: Object) -> None:
        self._plane.client.patch(kind, fields["name"], {"spec": {"schedulingPolicy": fields["schedulingPolicy"]}})

    def delete_pod_group(self, name: str) -> None:
        self._delete("PodGroup", name)

    def delete_composite(self, name: str) -> None:
        self._delete("CompositePodGroup", name)

    def _delete(self, kind: str, name: str) -> None:
        self._plane.client.patch(kind, name, {"metadata": {"finalizers": None}})
        self._plane.client.delete(kind, name)

    def create_pods(self, pods: list[Object]) -> None:
        for pod in self._plane.client.create(*(manifest("Pod", fields) for fields in pods)):
            self._uids[pod["metadata"]["name"]] = pod["metadata"]["uid"]

    def create_pods_in_order(self, pods: list[Object]) -> str | None:
        for pod in pods:
            self.create_pods([pod])
            if (fault := self.active([pod["name"]])) is not None:
                return fault
        return None

    def delete_pods(self, names: list[str]) -> None:
        for name in names:
            self._plane.client.request("DELETE", RESOURCES["Pod"].path("default", name))

    def update_pod(self, fields: Object) -> None:
        gates = {"spec": {"schedulingGates": fields["schedulingGates"]}}
        self._plane.client.patch("Pod", fields["name"], gates)

    def nominate(self, fields: Object) -> None:
        nomination = {"status": {"nominatedNodeName": fields["node"]}}
        self._plane.client.patch("Pod", fields["pod"], nomination, subresource="status")

    def update_node(self, fields: Object) -> None:
        for part in fields.keys() - {"name"}:
            subresource = "status" if part == "status" else ""
            self._plane.client.patch("Node", fields["name"], {part: fields[part]}, subresource=subresource)

    def end_pods(self, names: list[str]) -> None:
        """Deletes the pods at once, as a kubelet does when their containers have ended."""
        for name in names:
            self._plane.client.delete("Pod", name)

    # ---- what is expected of pods

    def scheduled(self, names: list[str]) -> str | None:
        return self._each(names, lambda name: self._node(name) != "")

    def unschedulable(self, names: list[str]) -> str | None:
        return self._each(names, lambda name: self._condition(name) == "Unschedulable")

    def scheduling_error(self, names: list[str]) -> str | None:
        return self._each(names, lambda name: self._condition(name) == "SchedulerError")

    def removed(self, names: list[str]) -> str | None:
        return self._each(names, lambda name: not self._pod(name))

    def preempted(self, names: list[str]) -> str | None:
        return self._each(names, self._is_preempted)

    def _is_preempted(self, name: str) -> bool:
        pod = self._pod(name)
        conditions = pod.get("status", {}).get("conditions", [])
        evicted = any(condition["type"] == "DisruptionTarget" for condition in conditions)
        return not pod or evicted or "deletionTimestamp" in pod["metadata"]

    def nominated(self, names: list[str]) -> str | None:
        return self._each(names, lambda name: bool(self._witness.nominated.get(self._uids[name])))

    def nominated_to(self, expected: Object) -> str | None:
        """The pod is nominated to this node."""

        def holds(name: str) -> bool:
            nominated = self._pod(name).get("status", {}).get("nominatedNodeName")
            return bool(nominated == expected["node"])

        return self._each([expected["pod"]], holds)

    def nominations_stay(self, names: list[str]) -> str | None:
        """The pods are nominated, and keep these nodes although a better one is free."""
        nodes = {name: self._pod(name).get("status", {}).get("nominatedNodeName") for name in names}

        def changed() -> bool:
            return any(
                self._pod(name).get("status", {}).get("nominatedNodeName") != node for name, node in nodes.items()
            )

        return "the nominations have changed" if wait_until(changed, NO_CHANGE_SECONDS) else None

    def preempted_by_group(self, expected: Object) -> str | None:
        names = set(expected["pods"])

        def evicted() -> int:
            events = self._plane.client.list("Event", "default", fieldSelector="reason=Preempted")
            texts = {each["involvedObject"]["name"]: each["message"] for each in events}
            return sum(texts.get(name, "").startswith("Preempted by podgroup") for name in names)

        return None if wait_until(lambda: evicted() == expected["count"], WAIT_SECONDS) else f"got {evicted()}"

    def some_scheduled(self, expected: Object) -> str | None:
        def counts() -> tuple[int, int]:
            pods = [(self._node(name), self._condition(name)) for name in expected["pods"]]
            refused = sum(not node and reason == "Unschedulable" for node, reason in pods)
            return sum(bool(node) for node, _ in pods), refused

        wanted = expected["scheduled"], expected["unschedulable"]
        return None if wait_until(lambda: counts() == wanted, WAIT_SECONDS) else f"got {counts()}"

    def on_nodes(self, expected: Object) -> str | None:
        nodes = {name: self._node(name) for name in expected["pods"]}
        return None if set(nodes.values()) <= set(expected["nodes"]) else f"got {nodes}"

    def in_one_domain(self, expected: Object) -> str | None:
        nodes = {self._pod(name)["spec"]["nodeName"] for name in expected["pods"]}
        domains = {self._plane.client.get("Node", node)["metadata"]["labels"][expected["key"]] for node in nodes}
        return None if len(domains) == 1 else f"got {domains}"

    def in_order(self, expected: list[str]) -> str | None:
        """Of these, each is first seen after the one before it: `bound POD`, and `preempted` for any pod."""
        names = {uid: name for name, uid in self._uids.items()}
        seen = [(what, names[uid]) for what, uid in self._witness.history if uid in names]
        history = [f"bound {name}" if what == "bound" else "preempted" for what, name in seen]
        positions = [history.index(each) if each in history else -1 for each in expected]
        return None if positions == sorted(positions) and positions[0] >= 0 else f"got {history}"

    # ---- what is expected of groups and the queue

    def condition(self, expected: Object) -> str | None:
        """The group has, or has had, a condition with this status and reason, and these parts of its message."""
        kind = expected.get("kind", "PodGroup")
        conditions = self._witness.conditions[self._uids[f"{kind} {expected['group']}"]]

        def holds() -> bool:
            return any(
                (status, reason) == (expected["status"], expected["reason"])
                and all(text in message for text in expected.get("contains", []))
                for status, reason, message in tuple(conditions)
            )

        return None if wait_until(holds, WAIT_SECONDS) else f"got {conditions}"

    def gated(self, names: list[str]) -> str | None:
        return self._each(names, lambda name: self._place(name) in ("gated", "unschedulable"))

    incomplete = gated

    def active(self, names: list[str]) -> str | None:
        """The pods wait in the queue; the running loop may have tried them already."""
        return self._each(names, lambda name: bool(self._place(name)) or self._condition(name) is not None)

    def schedule_one(self, _: bool) -> None:
        """The loop does this without being asked."""

    def post_filter_calls(self, expected: int) -> str | None:
        notes = self._folder / "post-filter-calls"
        calls = notes.read_text().splitlines() if notes.exists() else []
        return None if len(calls) == expected else f"got {calls}"

    def attempts(self, expected: Object) -> str | None:
        found = {view["name"]: view["attempts"] for views in self._queue().values() for view in views}
        counts = {name: found.get(name) for name in expected["pods"]}
        return None if set(counts.values()) == {expected["attempts"]} else f"got {counts}"

    def _each(self, names: list[str], holds: Callable[[str], bool]) -> str | None:
        for name in names:
            if not wait_until(partial(holds, name), WAIT_SECONDS):
                pod = self._pod(name)
                return f"{name}: {pod.get('spec', {}).get('nodeName')} {pod.get('status')} in {self._place(name)}"
        return None

    def _pod(self, name: str) -> Object:
        """Returns the pod; an empty object if it is gone."""
        try:
            return self._plane.client.get("Pod", name)
        except ApiError:
            return {}

    def _node(self, name: str) -> str:
        """Returns the node that the pod is bound to; "" if there is none."""
        node: str = self._pod(name).get("spec", {}).get("nodeName", "")
        return node

    def _condition(self, name: str) -> str | None:
        """Returns the reason of the condition PodScheduled."""
        conditions = self._pod(name).get("status", {}).get("conditions", [])
        return next((each.get("reason", "") for each in conditions if each["type"] == "PodScheduled"), None)

    def _queue(self) -> dict[str, list[Object]]:
        status = json.loads(self._loop.get("/debug/pods")[1])
        return {section: views for section, views in status.items() if isinstance(views, list)}

    def _place(self, name: str) -> str | None:
        """Returns the part of the loop's queue where the pod is."""
        places = [section for section, views in self._queue().items() if any(view["name"] == name for view in views)]
        return places[0] if places and places[0] != "arriving" else None
