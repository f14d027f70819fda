"""Each shape as its Deployment starts it, under its account, RBAC on: pods are placed, an upgrade refuses no call."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from extender.cli.main import cli
from tests.builders import PodBuilder, make_node, make_pod
from tests.end_to_end.scheduling import placed
from tests.end_to_end.service import Service
from tests.manifests.packaging import package
from tests.manifests.rendering import NAME, NAMES, NAMESPACE, Object, apply, container_of
from tests.running import EXTENDER, RunningExtender
from tests.stock.api_client import ApiClient
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process, free_port
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.clients]

SCHEDULER_NAME, BESIDE, TLS = "extender-scheduler", f"{NAMES['beside']}-scheduler", "/etc/extender/tls"
LEADS = f'extender_leader{{name="{NAMES["beside"]}"}}'
SHORT = {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"}


class InPod(RunningExtender):
    """An extender with an address for probes, and one for calls."""

    def __init__(self, process: Process, port: int, port_of_calls: int) -> None:
        super().__init__(process, port)
        self.port_of_calls = port_of_calls


class Pods:
    """What a ReplicaSet and a kubelet make of a Deployment: pods that exist, and processes of the extender in them."""

    def __init__(self, control_plane: ControlPlane, directory: Path, name: str = NAME) -> None:
        self._plane, self._directory, self._name = control_plane, directory, name
        control_plane.client.create(make_node("n").capacity(cpu="8", memory="8Gi", pods="20").obj())
        self.template = control_plane.client.get("Deployment", name, NAMESPACE)
        token = control_plane.service_account_token(NAMESPACE, name)
        self.kubeconfig = control_plane.write_kubeconfig(name, token)
        self.running: dict[str, InPod] = {}

    def start(self, name: str, address: str, *more: str) -> InPod:
        """Runs the extender's container in a new pod, until it is ready as its probe sees it."""
        self._plane.client.create(self._pod(name))
        calls, probes = free_port(), free_port()
        replaced = {"$(EXTENDER_OWN_NAMESPACE)": NAMESPACE, TLS: str(self._directory), "0.0.0.0": "127.0.0.1"}
        replaced |= {":8888": f":{calls}", ":8889": f":{probes}"}
        command: list[str | Path] = [
            EXTENDER,
            *(_replaced(each, replaced) for each in container_of(self.template)["args"]),
            *more,
        ]
        environment = [f"--own-namespace={NAMESPACE}", f"--own-address={address}"] if command[1] == "serve" else []
        process = Process(
            name, [*command, *environment, f"--kubeconfig={self.kubeconfig}"], self._directory / f"{name}.log"
        )
        self.running[name] = InPod(process, probes, calls)
        self.running[name].wait_until_ready(60)
        ready = {"podIP": address, "conditions": [{"type": "Ready", "status": "True"}]}
        self._plane.client.patch("Pod", name, {"status": ready}, namespace=NAMESPACE, subresource="status")
        return self.running[name]

    def _pod(self, name: str) -> Object:
        template = self.template["spec"]["template"]
        metadata = {**template["metadata"], "name": name, "namespace": NAMESPACE}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], "nodeName": "n"}}

    def stop(self, name: str) -> str:
        """SIGTERM, as when a pod goes; returns its log, in which nothing was forbidden."""
        self._plane.client.delete("Pod", name, namespace=NAMESPACE)
        extender = self.running.pop(name)
        extender.process.stop(grace_seconds=30)
        log = extender.process.log.read_text()
        assert "forbidden" not in log.lower(), log
        return log

    def kube_scheduler(self, **fields: Any) -> dict[str, Any]:
        """Returns the configuration that the shape's ConfigMap holds."""
        data = self._plane.client.get("ConfigMap", f"{self._name}-kube-scheduler", NAMESPACE)["data"]
        configuration: dict[str, Any] = yaml.safe_load(data["kube-scheduler.yaml"])
        return {**configuration, **fields}


def _replaced(text: str, pairs: dict[str, str]) -> str:
    for old, new in pairs.items():
        text = text.replace(old, new)
    return text


@pytest.fixture
def pods(request: pytest.FixtureRequest, control_plane: ControlPlane, tmp_path: Path) -> Iterator[Pods]:
    apply(control_plane, request.param)
    pods = Pods(control_plane, tmp_path, NAMES[request.param])
    yield pods
    for name in tuple(pods.running):
        pods.running[name].process.stop(grace_seconds=30)


def asking(name: str, scheduler: str = SCHEDULER_NAME) -> PodBuilder:
    return make_pod(name).scheduler(scheduler).req(cpu="100m")


def calls_that_failed(log: str) -> list[Object]:
    calls = [json.loads(line) for line in log.splitlines() if line.startswith("{") and '"call"' in line]
    assert calls
    return [call for call in calls if call["result"] not in ("decided", "passed")]


@pytest.mark.parametrize("pods", ["beside"], indirect=True)
def test_beside(control_plane: ControlPlane, pods: Pods) -> None:
    """The sidecar is ready before its kube-scheduler starts, and ends after it, so that every call is answered."""
    client = control_plane.client
    with ExitStack() as second, ExitStack() as first:
        for name, stack in (("old", first), ("new", second)):
            extender = pods.start(name, "10.0.0.1")
            configuration = pods.kube_scheduler()
            configuration["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{extender.port_of_calls}/scheduler"
            configuration["leaderElection"] |= SHORT
            scheduler = stack.enter_context(control_plane.scheduler(configuration, kubeconfig=pods.kubeconfig))
        # Until then kube-scheduler's calls fail, and it tries a pod again ever more rarely.
        assert wait_until(lambda: any(each.metric(LEADS) for each in pods.running.values()))
        client.create(asking("before", BESIDE).obj())
        assert wait_until(lambda: placed(control_plane) == {"before": "n"})
        first.close()
        assert calls_that_failed(pods.stop("old")) == []
        client.create(asking("after", BESIDE).obj())
        assert wait_until(lambda: placed(control_plane) == {"before": "n", "after": "n"})
        second.close()
        assert "forbidden" not in scheduler.log.read_text().lower()
        assert calls_that_failed(pods.stop("new")) == []


@pytest.mark.parametrize("pods", ["service"], indirect=True)
def test_service(control_plane: ControlPlane, pods: Pods, tmp_path: Path) -> None:
    """With the certificates that `extender certs` makes; the leader is taken away while pods arrive."""
    client, addresses = control_plane.client, {"old": "10.0.0.1", "new": "10.0.0.2"}
    make_certificates(tmp_path)
    pods.start("old", addresses["old"])
    assert wait_until(lambda: led_to(client) == addresses["old"])
    pods.start("new", addresses["new"])
    backends = [
        (extender.port_of_calls, lambda address=addresses[name]: led_to(client) == address)
        for name, extender in pods.running.items()
    ]
    with Service(backends) as service:
        configuration = pods.kube_scheduler(leaderElection={"leaderElect": False})
        configuration["profiles"] = [{"schedulerName": SCHEDULER_NAME}]
        entry = configuration["extenders"][0]
        entry["urlPrefix"] = f"https://localhost:{service.port}/scheduler"
        files = {"caFile": "ca.crt", "certFile": "caller.crt", "keyFile": "caller.key"}
        entry["tlsConfig"] = {key: str(tmp_path / file) for key, file in files.items()}
        with control_plane.scheduler(configuration):
            client.create(*(asking(f"before-{i}").obj() for i in range(5)))
            assert wait_until(lambda: len(placed(control_plane)) == 5)
            client.create(*(asking(f"while-{i}").obj() for i in range(5)))
            log = pods.stop("old")
            assert led_to(client) == addresses["new"]
            client.create(*(asking(f"after-{i}").obj() for i in range(5)))
            assert wait_until(lambda: len(placed(control_plane)) == 15)
    assert calls_that_failed(log + pods.stop("new")) == []


def led_to(client: ApiClient) -> str:
    slices = client.list("EndpointSlice", NAMESPACE)
    return str(slices[0]["endpoints"][0]["addresses"][0]) if slices else ""


def make_certificates(directory: Path) -> None:
    """As `extender certs` makes them, by the names under which a Secret holds them."""
    ended = CliRunner().invoke(cli, ["certs", str(directory), "--dns", "localhost"])
    assert ended.exit_code == 0, ended.output
    for suffix in ("crt", "key"):
        (directory / f"tls.{suffix}").write_bytes((directory / f"server.{suffix}").read_bytes())


@pytest.mark.parametrize("pods", ["scheduler"], indirect=True)
def test_scheduler(control_plane: ControlPlane, pods: Pods) -> None:
    """The new replica is ready while the old one leads, and takes over from it."""
    client = control_plane.client
    pods.start("old", "10.0.0.1")
    client.create(asking("before").obj())
    assert wait_until(lambda: placed(control_plane) == {"before": "n"})
    pods.start("new", "10.0.0.2")
    pods.stop("old")
    client.create(asking("after").obj())
    assert wait_until(lambda: placed(control_plane) == {"before": "n", "after": "n"})
    pods.stop("new")


def named(each: Object) -> str:
    return str(each["metadata"]["name"])


class Rollout:
    """Runs `helm ... --wait` with the packaged chart, and does what the Deployment's controller and a kubelet would."""

    def __init__(self, binaries: Binaries, control_plane: ControlPlane, directory: Path) -> None:
        self.helm: list[str | Path] = [
            binaries["helm"],
            "--kubeconfig",
            control_plane.kubeconfig,
            "--namespace",
            NAMESPACE,
        ]
        self._client = control_plane.client
        self._chart = package(binaries["helm"], directory)

    def begin(self, command: str, *flags: str) -> subprocess.Popen[str]:
        """Returns the helm that waits, once what it waits for is there."""
        generation = self._generation() if command == "upgrade" else 0
        words: list[str | Path] = [*self.helm, command, NAME, self._chart, *flags, "--wait", "--timeout=120s"]
        helm = subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert wait_until(lambda: self._generation() > generation), helm.communicate()[0]
        return helm

    def tell(self, ready: int) -> None:
        """Has so many of two replicas, all of them updated, be ready."""
        reason = "NewReplicaSetAvailable" if ready == 2 else "ReplicaSetUpdated"
        conditions = [
            {"type": "Progressing", "status": "True", "reason": reason},
            {"type": "Available", "status": str(ready == 2)},
        ]
        counts = {"replicas": 2, "updatedReplicas": 2, "readyReplicas": ready, "availableReplicas": ready}
        status = {"observedGeneration": self._generation(), **counts, "conditions": conditions}
        self._client.patch("Deployment", NAME, {"status": status}, namespace=NAMESPACE, subresource="status")

    def test(self, ready: InPod) -> None:
        """Runs `helm test`, and its pod as a process that reaches this replica."""
        helm = subprocess.Popen(
            [*self.helm, "test", NAME, "--timeout=60s"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        name = f"{NAME}-test"
        assert wait_until(lambda: [each for each in self._client.list("Pod", NAMESPACE) if named(each) == name])
        (container,) = self._client.get("Pod", name, NAMESPACE)["spec"]["containers"]
        program, url = container["args"]
        assert url == f"http://{NAME}-metrics.{NAMESPACE}:8889/readyz?verbose"
        reached = url.replace(f"{NAME}-metrics.{NAMESPACE}:8889", f"127.0.0.1:{ready.port}")
        subprocess.run([sys.executable, "-c", program, reached], check=True, capture_output=True)
        ended = {"status": {"phase": "Succeeded"}}
        self._client.patch("Pod", name, ended, namespace=NAMESPACE, subresource="status")
        assert helm.wait(60) == 0, helm.communicate()[0]

    def _generation(self) -> int:
        found = [each for each in self._client.list("Deployment", NAMESPACE) if each["metadata"]["name"] == NAME]
        return int(found[0]["metadata"]["generation"]) if found else 0


def test_helm_wait_ends_when_the_standby_is_ready_too(
    control_plane: ControlPlane, stock_binaries: Binaries, tmp_path: Path
) -> None:
    """A standby that is never ready would have `helm --wait`, Flux and Argo wait for it until they give up."""
    make_certificates(tmp_path)
    rollout = Rollout(stock_binaries, control_plane, tmp_path)
    helm = rollout.begin("install", "--create-namespace", "--set=shape=service")
    pods = Pods(control_plane, tmp_path)
    try:
        pods.start("old-0", "10.0.0.1", "--drain-seconds=0")
        rollout.tell(ready=1)
        pods.start("old-1", "10.0.0.2", "--drain-seconds=0")
        assert helm.poll() is None
        rollout.tell(ready=2)
        assert helm.wait(60) == 0, helm.communicate()[0]
        helm = rollout.begin("upgrade", "--reset-then-reuse-values", "--set=podAnnotations.rolled=out")
        for number, address in enumerate(("10.0.0.3", "10.0.0.4")):
            assert helm.poll() is None
            pods.start(f"new-{number}", address, "--drain-seconds=0")
            pods.stop(f"old-{number}")
        rollout.tell(ready=2)
        assert helm.wait(60) == 0, helm.communicate()[0]
        assert wait_until(lambda: led_to(control_plane.client) in ("10.0.0.3", "10.0.0.4"))
        rollout.test(pods.running["new-0"])
    finally:
        helm.kill()
        helm.communicate()
        for extender in pods.running.values():
            extender.process.stop(grace_seconds=30)
        subprocess.run([*rollout.helm, "uninstall", NAME], check=False, capture_output=True)
