"""A model of kube-scheduler as an extender's client: what it may send, in which order, and how it gives up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, cast

import msgspec

from extender.cluster.kube_client import ApiCall, KubeClient
from extender.cluster.watch.source import ClusterSource
from extender.errors import ClusterError
from extender.model.kinds import KINDS
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.runtime.ports import LONG_AGO, Telemetry
from tests.simulation.api_server import Json
from tests.simulation.judge import Judge
from tests.simulation.network import Network, SimulatedKubeClient
from tests.simulation.replica import Replica
from tests.simulation.tasks import Process, ProcessClock, Simulation

HTTP_TIMEOUT_SECONDS = 5.0
LONGEST_BACKOFF_SECONDS = 8.0
CANDIDATES = 3
IDLE_SECONDS = 0.5


class View:
    """A Sink that keeps what it gets."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {"Pod": {}, "Node": {}}

    def replaced(self, kind: str, objects: Sequence[Object], asked_at: float = LONG_AGO) -> None:
        self.objects[kind] = {obj.key: obj for obj in objects}

    def changed(self, kind: str, obj: Object) -> None:
        self.objects[kind][obj.key] = obj

    def deleted(self, kind: str, obj: Object) -> None:
        self.objects[kind].pop(obj.key, None)

    def pods(self) -> list[Pod]:
        return cast(list[Pod], [*self.objects["Pod"].values()])


class StockScheduler:
    """One scheduling loop, and a thread for each bind. What its own plugins would refuse it sends nevertheless.

    Args:
        replicas: the extenders behind its urlPrefix, as they are at the moment.
    """

    def __init__(
        self,
        simulation: Simulation,
        network: Network,
        judge: Judge,
        process: Process,
        replicas: Callable[[], Sequence[Replica]],
        *,
        one_passes: bool,
    ) -> None:
        """`one_passes`: filter answers one node that does."""
        self.process, self._simulation, self._network, self._judge = process, simulation, network, judge
        self._replicas, self._random = replicas, Random(simulation.random.random())
        self._one_passes = one_passes
        self._assumed: dict[str, str] = {}
        self._again_at: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        simulation.spawn(process, f"{process.name} main", self._main)

    def _main(self) -> None:
        simulation, self.view = self._simulation, View()
        clock = ProcessClock(simulation, self.process)
        self._client = cast(KubeClient, SimulatedKubeClient(self._network, self.process))
        kinds = [KINDS[name] for name in self.view.objects]
        source = ClusterSource(self._client, kinds, self.view, Telemetry(), clock, self._random)
        source.start()
        while source.unsynced():
            simulation.sleep(0.1)
        while True:
            pod = self._next()
            if pod is None:
                simulation.sleep(IDLE_SECONDS)
            else:
                self._schedule(pod)

    def _next(self) -> Pod | None:
        """The most important pod that waits; what was confirmed is no longer assumed."""
        now, waiting = self._simulation.now, []
        for pod in self.view.pods():
            if pod.node_name:
                self._assumed.pop(pod.uid, None)
            elif not (pod.terminating or pod.uid in self._assumed or self._again_at.get(pod.uid, 0.0) > now):
                waiting.append(pod)
        return max(waiting, key=lambda pod: (pod.priority, self._random.random()), default=None)

    def _schedule(self, pod: Pod) -> None:
        nodes = list(self.view.objects["Node"])
        answer = self._filtered(pod, nodes) if nodes else None
        if answer is None:
            self._back_off(pod)
        elif not answer["NodeNames"]:
            self._preempt(pod, list(answer["FailedNodes"]))
            self._back_off(pod)
        else:
            node = self._best(pod, answer["NodeNames"])
            self._assumed[pod.uid] = node
            run: Callable[[], object] = lambda: self._bind(pod, node)  # noqa: E731  it is begun twice, perhaps
            self._simulation.spawn(self.process, f"bind {pod.name}", run)
            if self._network.happens(self._network.weather.doubled):
                self._simulation.spawn(self.process, f"bind {pod.name} again", run, self._network.delay())

    def _filtered(self, pod: Pod, nodes: list[str]) -> Json | None:
        answer: Json | None = self._call("filter", {"Pod": pod, "Nodes": None, "NodeNames": nodes})
        if answer is None or answer["Error"]:
            return None
        passed, refused = answer["NodeNames"], [*answer["FailedNodes"], *answer["FailedAndUnresolvableNodes"]]
        recorded = sorted([*passed, *refused])
        if self._one_passes and passed:  # nothing is said of the others that do
            sorted_out = len(passed) == 1 and len(set(recorded)) == len(recorded) and set(recorded) <= set(nodes)
        else:
            sorted_out = recorded == sorted(nodes)
        self._judge.require(sorted_out, f"filter answers {answer} to {nodes}")
        return answer

    def _best(self, pod: Pod, nodes: list[str]) -> str:
        scores = self._call("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": nodes}) if len(nodes) > 1 else None
        if scores is None:
            return self._random.choice(nodes)
        valid = sorted(each["Host"] for each in scores) == sorted(nodes) and all(
            type(each["Score"]) is int and 0 <= each["Score"] <= 10 for each in scores
        )
        self._judge.require(valid, f"prioritize answers {scores} to {nodes}")
        best = max(each["Score"] for each in scores)
        return self._random.choice([str(each["Host"]) for each in scores if each["Score"] == best])

    def _bind(self, pod: Pod, node: str) -> None:
        request = {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node}
        answer = self._call("bind", request)
        if answer is None or answer["Error"]:
            self._assumed.pop(pod.uid, None)
            self._back_off(pod)

    def _back_off(self, pod: Pod) -> None:
        self._failures[pod.uid] = count = self._failures.get(pod.uid, 0) + 1
        pause = min(0.5 * 2**count, LONGEST_BACKOFF_SECONDS) * self._random.uniform(0.5, 1)
        self._again_at[pod.uid] = self._simulation.now + pause

    # ---- preemption

    def _preempt(self, pod: Pod, nodes: list[str]) -> None:
        """Makes room for the pod; a nomination that leads to nothing ends, else it would keep others out."""
        awaited = pod.status.nominated_node_name
        if awaited and any(victim.terminating for victim in self._lesser(pod, awaited)):
            return
        node, uids = self._victims(pod, nodes)
        if node:
            self._evict(pod, node, uids)
        if node or awaited:
            body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node or None}}
            self._write("PATCH", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status", body)

    def _victims(self, pod: Pod, nodes: list[str]) -> tuple[str, set[str]]:
        """The node and the UIDs that the extender leaves to choose from; "" where there are none."""
        victims = {node: [one.uid for one in lesser] for node in nodes if (lesser := self._lesser(pod, node))}
        victims = dict(self._random.sample(sorted(victims.items()), min(CANDIDATES, len(victims))))
        if not victims:
            return "", set()
        offered = {
            node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for node, uids in victims.items()
        }
        answer = self._call("preempt", {"Pod": pod, "NodeNameToMetaVictims": offered})
        chosen = answer["NodeNameToMetaVictims"] if answer else {}
        for node, each in chosen.items():
            valid = node in offered and each["Pods"] and all(victim["UID"] for victim in each["Pods"])
            self._judge.require(bool(valid), f"preempt answers {chosen} to {offered}")
        node = min(chosen, key=lambda name: (len(chosen[name]["Pods"]), name), default="")
        return node, {victim["UID"] for victim in chosen[node]["Pods"]} if node else set()

    def _lesser(self, pod: Pod, node: str) -> list[Pod]:
        there = [other for other in self.view.pods() if other.node_name == node and other.priority < pod.priority]
        return sorted(there, key=lambda other: -other.priority)

    def _evict(self, pod: Pod, node: str, uids: set[str]) -> None:
        path = f"/api/v1/namespaces/{pod.namespace}/pods"
        for victim in self.view.pods():
            if victim.uid in uids:
                self._simulation.tell(f"{self.process.name}: {victim.name} makes room for {pod.name} on {node}")
                self._write("DELETE", f"{path}/{victim.name}", {"preconditions": {"uid": victim.uid}})

    def _write(self, method: str, path: str, body: Mapping[str, Any]) -> None:
        try:
            self._client.call(ApiCall(method, path, msgspec.json.encode(body)))
        except ClusterError as error:
            self._simulation.tell(f"{self.process.name}: {method} {path}: {error}")

    # ---- HTTP

    def _call(self, verb: str, request: Mapping[str, Any]) -> Any:
        """The answer, decoded; None where the call failed."""
        replica, body = self._random.choice(self._replicas()), msgspec.json.encode(request)
        box: list[bytes | None] = []
        task = self._simulation.current
        assert task is not None

        def answer() -> None:
            box.append(replica.answer(verb, body))
            if not self._network.happens(self._network.weather.answer_lost):
                self._simulation.after(self._network.delay(), lambda: self._simulation.wake(task) if waits else None)

        if not replica.process.alive or self._network.happens(self._network.weather.lost):
            self._simulation.sleep(self._network.delay())
            return None
        waits = True
        self._simulation.spawn(replica.process, verb, answer, self._network.delay())
        woken = self._simulation.park(HTTP_TIMEOUT_SECONDS)
        waits = False
        found = box[0] if woken and box else None
        return None if found is None else msgspec.json.decode(found)
