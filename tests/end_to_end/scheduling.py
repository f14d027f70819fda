"""A cluster that a running `extender schedule` looks after, and what can be seen of it from outside."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from tests.builders import Builder, NodeBuilder, Object, PodBuilder, make_node, make_pod
from tests.running import RunningScheduler
from tests.stock.api_client import ApiError
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until


def placed(control_plane: ControlPlane) -> dict[str, str]:
    """Pod name -> node of every pod that is bound."""
    listed = control_plane.client.list("Pod", "default")
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in listed if pod["spec"].get("nodeName")}


def condition(control_plane: ControlPlane, name: str, kind: str = "PodScheduled") -> dict[str, Any]:
    conditions = control_plane.client.get("Pod", name)["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == kind), {})


def events(control_plane: ControlPlane, reason: str) -> list[Any]:
    return [event for event in control_plane.client.list("Event", "default") if event["reason"] == reason]


def sized(name: str, cpu: str) -> NodeBuilder:
    return make_node(name).capacity(cpu=cpu, memory="8Gi", pods="110")


def asking(name: str, cpu: str) -> PodBuilder:
    return make_pod(name).req(cpu=cpu)


def kind_of(built: Builder | Object) -> str:
    obj = built.obj() if isinstance(built, Builder) else built
    return str(obj["kind"])


class Scene:
    """An empty cluster with a scheduler, which several tests may use one after another."""

    def __init__(self, control_plane: ControlPlane, scheduler: RunningScheduler) -> None:
        self.control_plane, self.client, self.scheduler = control_plane, control_plane.client, scheduler
        self._await_watches()
        self._await_known(nodes=0, pods=0)

    def given(self, *built: Builder | Object) -> None:
        """Creates objects, and waits until the scheduler knows them: each kind has a watch of its own."""
        self.create(*built)
        if {kind_of(each) for each in built} - {"Node", "Pod"}:
            self._await_watches()
        self._await_known(len(self.client.list("Node")), len(self.client.list("Pod")))

    def create(self, *built: Builder | Object) -> None:
        self.client.create(*(each.obj() if isinstance(each, Builder) else each for each in built))

    def pods(self) -> set[str]:
        """The names of the pods that are there, placed or not."""
        return {pod["metadata"]["name"] for pod in self.client.list("Pod", "default")}

    def placed(self) -> dict[str, str]:
        return placed(self.control_plane)

    def place_of(self, name: str) -> str:
        """Waits until the pod has a node; "" where it never gets one."""
        return wait_until(lambda: self.placed().get(name, ""))

    def refusal_of(self, name: str, reason: str = "Unschedulable") -> str:
        """Waits until the pod's condition says why it waits, and returns the message; "" if there is none."""
        return wait_until(lambda: self._message(name, reason))

    def nomination_of(self, name: str) -> str:
        """Returns the node that the pod is to run on at this moment, though others are still there; "" for nowhere."""
        try:
            node: str = self.client.get("Pod", name)["status"].get("nominatedNodeName", "")
        except ApiError:  # evicted, or deleted by the test
            return ""
        return node

    def terminating(self) -> set[str]:
        return {
            pod["metadata"]["name"]
            for pod in self.client.list("Pod", "default")
            if "deletionTimestamp" in pod["metadata"]
        }

    def delete_pods(self, names: Collection[str]) -> None:
        """As the kubelet does in the end."""
        for name in names:
            self.client.delete("Pod", name)

    def _message(self, name: str, reason: str) -> str:
        recorded = condition(self.control_plane, name)
        return str(recorded["message"]) if recorded.get("reason") == reason else ""

    def _await_watches(self) -> None:
        """Waits until the scheduler has received all objects that there are, and fails if it missed a deletion."""
        status, report = self.scheduler.get("/debug/cache/compare", "POST")
        assert status == 200, report
        compared = json.loads(report)
        assert not compared["undecided"] + compared["differences"], report

    def _await_known(self, nodes: int, pods: int) -> None:
        wanted = {"nodes": nodes, "pods": pods}
        known = wait_until(lambda: self._known() == wanted or None)
        assert known, f"the scheduler knows of {self._known()}, not of {wanted}"

    def _known(self) -> dict[str, float]:
        return {kind: self.scheduler.metric(f'extender_cache_size{{type="{kind}"}}') for kind in ("nodes", "pods")}
