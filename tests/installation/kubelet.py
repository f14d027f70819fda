"""A kubelet for the extender's pods: it runs their containers as processes, and ends them as a kubelet would."""

from __future__ import annotations

import base64
import re
import threading
import traceback
from pathlib import Path
from typing import Any, Self

import yaml

from tests.end_to_end.service import Service
from tests.manifests.rendering import NAMESPACE, Object
from tests.running import EXTENDER, RunningExtender
from tests.stock.api_client import ApiError
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process, free_port

_LOOK_SECONDS = 0.1
_TLS = "/etc/extender/tls"


class Kubelet:
    """`with Kubelet(plane, folder) as kubelet:` runs the pods of a namespace that have a node.

    A container that ends is started again. Its ports are free ones of 127.0.0.1; files are those of the Secret and the
    ConfigMap that it mounts. A pod that is deleted ends in order: kube-scheduler first, then the extender beside it.
    """

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane, self._folder = plane, folder
        self._pods: dict[str, _Pod] = {}
        self._started = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self.faults: list[str] = []

    def __enter__(self) -> Self:
        self._folder.mkdir()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def port_of(self, address: str) -> int | None:
        """Returns the port for calls of the pod with this address; None if it does not run."""
        return next((pod.calls for pod in tuple(self._pods.values()) if pod.address == address), None)

    def ports(self) -> list[int]:
        """Returns the ports for calls of all pods."""
        return [pod.calls for pod in tuple(self._pods.values())]

    def logs(self) -> str:
        """Returns what all containers have said, also those of pods that are gone."""
        return "".join(path.read_text(errors="replace") for path in sorted(self._folder.glob("*.log")))

    def _run(self) -> None:
        try:
            while not self._ended.wait(_LOOK_SECONDS):
                try:
                    self._synchronise()
                except Exception:  # the test is to see it, and pods of others go on
                    self.faults.append(traceback.format_exc())
        finally:
            for pod in self._pods.values():
                pod.end_at_once()

    def _synchronise(self) -> None:
        found = {each["metadata"]["uid"]: each for each in self._plane.client.list("Pod", NAMESPACE)}
        for uid, pod in found.items():
            if "nodeName" not in pod["spec"]:
                continue
            if uid not in self._pods and "deletionTimestamp" not in pod["metadata"]:
                self._started += 1
                self._pods[uid] = _Pod(self._plane, self._folder, pod, self._started)
            if uid not in self._pods or self._pods[uid].advance("deletionTimestamp" in pod["metadata"]):
                self._plane.client.delete("Pod", pod["metadata"]["name"], namespace=NAMESPACE)
                self._pods.pop(uid, None)
        for uid in self._pods.keys() - found.keys():
            self._pods.pop(uid).end_at_once()


class _Pod:
    """The containers of a pod, in the order in which they start."""

    def __init__(self, plane: ControlPlane, folder: Path, pod: Object, number: int) -> None:
        self._plane, self._spec = plane, pod["spec"]
        self._name = pod["metadata"]["name"]
        self._folder = folder / self._name
        self._folder.mkdir()
        self._log = folder / f"{number:03}-{self._name}"
        self.address = f"10.0.0.{number}"
        self.calls, self._probes, self._secure = free_port(), free_port(), free_port()
        token = plane.service_account_token(NAMESPACE, self._spec["serviceAccountName"])
        self._kubeconfig = plane.write_kubeconfig(self._name, token)
        self._containers = [*self._spec.get("initContainers", ()), *self._spec["containers"]]
        self._running: list[Process] = []
        self._ending: Process | None = None
        self._is_ready = False

    def advance(self, ends: bool) -> bool:
        """Starts what can start, or ends what has to end; returns True once the pod has ended."""
        if ends:
            while self._running and not self._running[-1].running:
                self._running.pop()
            if self._running and self._running[-1] is not self._ending:
                self._ending = self._running[-1]
                self._ending.terminate()
            return not self._running
        if not self._mounted():
            return False
        for index, process in enumerate(self._running):
            if not process.running:
                self._running[index] = self._start(self._containers[index])
        ready = [self._ready(container) for container in self._containers[: len(self._running)]]
        if len(self._running) < len(self._containers) and all(ready):
            self._running.append(self._start(self._containers[len(self._running)]))
        self._report(len(ready) == len(self._containers) and all(ready))
        return False

    def end_at_once(self) -> None:
        for process in self._running:
            process.kill()

    def _mounted(self) -> bool:
        """Writes the files of the volumes; returns False as long as a Secret does not exist."""
        for volume in self._spec["volumes"]:
            if name := volume.get("secret", {}).get("secretName"):
                try:
                    data = self._plane.client.get("Secret", name, NAMESPACE)["data"]
                except ApiError:
                    return False
                for file, content in data.items():
                    (self._folder / file).write_bytes(base64.b64decode(content))
        return True

    def _start(self, container: Object) -> Process:
        start = self._kube_scheduler if container["name"] == "kube-scheduler" else self._extender
        return start(container)

    def _extender(self, container: Object) -> Process:
        fields = {"metadata.namespace": NAMESPACE, "metadata.name": self._name, "status.podIP": self.address}
        environment = {each["name"]: fields[each["valueFrom"]["fieldRef"]["fieldPath"]] for each in container["env"]}
        replaced = {f"$({name})": value for name, value in environment.items()}
        replaced |= {_TLS: str(self._folder), "0.0.0.0": "127.0.0.1", ":8888": f":{self.calls}"}
        replaced |= {":8889": f":{self._probes}"}
        arguments = [_replaced(each, replaced) for each in container["args"]]
        command: list[str | Path] = [EXTENDER, *arguments, f"--kubeconfig={self._kubeconfig}"]
        return Process(self._name, command, self._log.with_suffix(".extender.log"), environment)

    def _kube_scheduler(self, container: Object) -> Process:
        (name,) = (each["configMap"]["name"] for each in self._spec["volumes"] if each["name"] == "kube-scheduler")
        data = self._plane.client.get("ConfigMap", name, NAMESPACE)["data"]["kube-scheduler.yaml"]
        configuration = yaml.safe_load(data.replace(":8888/", f":{self.calls}/"))
        command = self._plane.scheduler_command(
            self._folder / "kube-scheduler.yaml", self._secure, configuration, self._kubeconfig
        )
        return Process(self._name, command, self._log.with_suffix(".kube-scheduler.log"))

    def _ready(self, container: Object) -> bool:
        if container["name"] == "kube-scheduler":
            return self._plane.answers(self._secure, "/readyz")
        return RunningExtender(self._running[0], self._probes).ready()

    def _report(self, is_ready: bool) -> None:
        if is_ready != self._is_ready:
            self._is_ready = is_ready
            ready = [{"type": "Ready", "status": str(is_ready)}]
            status = {"phase": "Running", "podIP": self.address, "podIPs": [{"ip": self.address}], "conditions": ready}
            self._plane.client.patch("Pod", self._name, {"status": status}, namespace=NAMESPACE, subresource="status")


class LeaderAddress(Service):
    """The Service of the shape `service`: leads each connection to the pod that the EndpointSlice names."""

    def __init__(self, plane: ControlPlane, kubelet: Kubelet) -> None:
        super().__init__([])
        self._plane, self._kubelet = plane, kubelet

    def _ready_port(self) -> int | None:
        slices = self._plane.client.list("EndpointSlice", NAMESPACE)
        endpoints = [endpoint for each in slices for endpoint in each.get("endpoints") or ()]
        addresses = [address for endpoint in endpoints for address in endpoint["addresses"]]
        return next((port for address in addresses if (port := self._kubelet.port_of(address))), None)


def _replaced(text: str, pairs: dict[str, Any]) -> str:
    """Replaces in the order of the pairs."""
    pattern = re.compile("|".join(map(re.escape, pairs)))
    return pattern.sub(lambda found: str(pairs[found.group()]), text)
