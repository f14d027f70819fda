"""Each shape from its installation to its removal and back, by the commands of docs/install.md, while pods arrive.

The Deployment's controllers and kube-scheduler are the real ones. Only the kubelet is the test's: it runs containers as
processes, and restarts kube-scheduler when its manifest has changed.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from tests.builders import make_namespace, make_node, make_pod
from tests.installation.kubelet import Kubelet, LeaderAddress
from tests.installation.page import Shell, commands
from tests.installation.test_control_plane import MANIFEST
from tests.manifests.rendering import NAMES, NAMESPACE, SHAPES, Object
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.clients, pytest.mark.controllers, pytest.mark.timeout(600)]

WHOLE = pytest.mark.skipif(os.environ.get("CHART") != "all", reason="takes minutes: make test-chart")
DEFAULT, OWN = "default-scheduler", "extender-scheduler"
SECTIONS = {"beside": "Beside", "scheduler": "Scheduler", "service": "Service"}
MOMENT_SECONDS = 30.0 + 15.0
"""The longest that docs/install.md lets a pod wait, at a first start, and the slack of a busy machine."""
MANDATORY = [each.replace(" --set kubeScheduler.extender.ignorable=true", "") for each in commands("Service")]
"""Installs the service for rules that must hold: kube-scheduler places no pod without it."""
FOLDER = "/etc/kubernetes/extender"


class Arrivals:
    """Creates a pod every half second for each scheduler, in a namespace of their own."""

    def __init__(self, plane: ControlPlane) -> None:
        self._client = plane.client
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)

    def __enter__(self) -> Self:
        self._client.create(make_namespace("arrivals"))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            if self._ended.wait(0.5):
                return
            for name in (DEFAULT, OWN):
                pod = make_pod(f"{name}-{number}", "arrivals").scheduler(name).req(cpu="1m")
                self._client.create(pod.obj())

    def waiting(self, scheduler: str) -> set[str]:
        """Returns the pods of a scheduler without a node."""
        pods = self._client.list("Pod", "arrivals", fieldSelector=f"spec.nodeName=,spec.schedulerName={scheduler}")
        return {each["metadata"]["name"] for each in pods}

    def longest_wait(self, scheduler: str) -> float:
        """Returns the seconds, by the API server's clock, until a pod of the scheduler was bound."""
        pods = self._client.list("Pod", "arrivals", fieldSelector=f"spec.nodeName=n,spec.schedulerName={scheduler}")
        return max(seconds_until_bound(pod) for pod in pods)

    def stranded(self, scheduler: str) -> set[str]:
        """Returns those of the pods that wait now which still do after the documented moment."""
        now = self.waiting(scheduler)
        wait_until(lambda: not now & self.waiting(scheduler), MOMENT_SECONDS)
        return now & self.waiting(scheduler)


def seconds_until_bound(pod: Object) -> float:
    (bound,) = (each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
    times = (bound["lastTransitionTime"], pod["metadata"]["creationTimestamp"])
    end, start = (datetime.fromisoformat(each) for each in times)
    return (end - start).total_seconds()


class Cluster:
    """A control plane whose kube-scheduler is configured by a file of its node, and a node for the pods."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.client = plane.client
        self.shell = Shell(plane, folder)
        self._plane, self._folder = plane, folder
        self._stack, self._scheduler = ExitStack(), ExitStack()

    def __enter__(self) -> Self:
        try:
            return self._start()
        except BaseException:
            self.__exit__()
            raise

    def _start(self) -> Self:
        self._manifest.parent.mkdir(parents=True)
        self._manifest.write_text(MANIFEST)
        self.client.create(make_node("n").capacity(cpu="64", memory="64Gi", pods="5000").obj())
        names = ("deployment-controller", "replicaset-controller", "garbage-collector-controller")
        self._stack.enter_context(self._plane.controllers(*names))
        self.kubelet = self._stack.enter_context(Kubelet(self._plane, self._folder / "pods"))
        self._service = self._stack.enter_context(LeaderAddress(self._plane, self.kubelet))
        self._restart_kube_scheduler()
        self.arrivals = self._stack.enter_context(Arrivals(self._plane))
        return self

    def __exit__(self, *_: object) -> None:
        self._scheduler.close()
        self._stack.close()

    @property
    def _manifest(self) -> Path:
        return self.shell.root / "etc/kubernetes/manifests/kube-scheduler.yaml"

    def follow(self, section: str, part: str = "") -> None:
        """Runs the commands of the page; no pod of the cluster's own scheduler is stranded by one of them."""
        for command in commands(section, part):
            self.run(command)

    def run(self, command: str) -> None:
        manifest = self._manifest.read_text()
        if "port-forward" not in command:
            self.shell(self._here(command))
        if self._manifest.read_text() != manifest:
            self._restart_kube_scheduler()
        assert self.arrivals.stranded(DEFAULT) == set(), command
        assert self.kubelet.faults == []

    def passes(self, command: str) -> bool:
        """Returns True if the command succeeds."""
        try:
            self.shell(self._here(command))
        except AssertionError:
            return False
        return True

    def _here(self, command: str) -> str:
        """Returns the command with the addresses and files that take the place of the node's."""
        if FOLDER in command:
            path = self._folder / "kube-scheduler.yaml"
            path.write_text(yaml.safe_dump(self._configuration()))
            command = command.replace(f"{FOLDER}/kube-scheduler.yaml", str(path))
        if "--url" in command:
            command = command.replace(":8888/", f":{self.kubelet.ports()[0]}/")
        return command

    def _configuration(self) -> dict[str, Any]:
        """Returns the configuration that kube-scheduler's manifest names; {} if it names none."""
        if f"--config={FOLDER}/" not in self._manifest.read_text():
            return {}
        folder = self.shell.root / FOLDER[1:]
        text = (folder / "kube-scheduler.yaml").read_text().replace(FOLDER, str(folder))
        configuration: dict[str, Any] = yaml.safe_load(text)
        del configuration["clientConnection"]
        configuration["extenders"][0]["urlPrefix"] = f"https://127.0.0.1:{self._service.port}/scheduler"
        return {**configuration, "leaderElection": {"leaderElect": False}}

    def _restart_kube_scheduler(self) -> None:
        self._scheduler.close()
        self._scheduler.enter_context(self._plane.scheduler(self._configuration()))

    def left(self) -> set[str]:
        """Returns what there is in the namespace, and what a release has in the cluster."""
        kinds = ("Lease", "Secret", "Role", "RoleBinding", "ServiceAccount", "ConfigMap", "Service", "Pod")
        found = {name for kind in kinds for name in self._names(kind, NAMESPACE)}
        elsewhere = (("ClusterRole", None), ("ClusterRoleBinding", None), ("RoleBinding", "kube-system"))
        return found | {name for kind, scope in elsewhere for name in self._names(kind, scope) if NAMESPACE in name}

    def _names(self, kind: str, namespace: str | None) -> set[str]:
        return {f"{kind}/{each['metadata']['name']}" for each in self.client.list(kind, namespace)}


@pytest.fixture
def cluster(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(control_plane, tmp_path) as cluster:
        yield cluster


@pytest.mark.parametrize("shape", [pytest.param("beside", marks=WHOLE), "scheduler"])
def test_a_scheduler_of_its_own_is_installed_changed_removed_and_installed_again(cluster: Cluster, shape: str) -> None:
    section = SECTIONS[shape]
    cluster.follow(section)
    assert cluster.arrivals.stranded(OWN) == set()
    cluster.follow(section, "Verify")
    cluster.follow("Beside", "Change")
    assert cluster.arrivals.stranded(OWN) == set()
    cluster.follow("Beside", "Remove")
    assert cluster.left() == set()
    assert cluster.arrivals.waiting(OWN)
    cluster.run(commands(section)[0])
    assert cluster.arrivals.stranded(OWN) == set()
    assert "forbidden" not in cluster.kubelet.logs().lower()


@WHOLE
def test_the_service_is_installed_changed_removed_and_installed_again(cluster: Cluster) -> None:
    install = [*MANDATORY, "sh control-plane.sh kubeadm install"]
    for command in install:
        cluster.run(command)
    cluster.follow("Service", "Verify")
    cluster.run(commands("Beside", "Change")[0])
    cluster.follow("Service", "Remove")
    assert cluster.left() == set()
    for command in install:
        cluster.run(command)
    assert cluster.arrivals.longest_wait(DEFAULT) <= MOMENT_SECONDS
    assert "forbidden" not in cluster.kubelet.logs().lower()


@WHOLE
def test_a_service_that_was_removed_while_it_was_called_comes_back(cluster: Cluster) -> None:
    """Until then every pod waits, its own too; the page's commands give those a node."""
    for command in (*MANDATORY, "sh control-plane.sh kubeadm install"):
        cluster.run(command)
    *_, install = MANDATORY
    cluster.shell(f"helm uninstall extender --namespace {NAMESPACE} --no-hooks")
    assert wait_until(lambda: not cluster.client.list("Pod", NAMESPACE))
    cluster.shell(install.replace(" --wait", ""))
    assert wait_until(lambda: len(cluster.client.list("Pod", NAMESPACE)) == 2)
    assert wait_until(lambda: cluster.arrivals.waiting(DEFAULT))
    for command in commands("Service", "If it is gone"):
        cluster.run(command.replace("NODE", "n"))
    cluster.shell(f"kubectl -n {NAMESPACE} rollout status deployment/extender --timeout=120s")
    assert cluster.arrivals.stranded(DEFAULT) == set()


CHANGES = ("service", "beside", "scheduler", "beside", "service", "scheduler", "service")
"""Shapes in an order in which each follows each other one."""


@WHOLE
def test_each_shape_is_changed_to_each_other(cluster: Cluster) -> None:
    for command in MANDATORY:
        cluster.run(command)
    take_out = commands("Service", "Remove")[:2]
    (change,) = commands("Service", "Change of shape")
    for before, shape in pairwise(CHANGES):
        if before == "service":
            cluster.run("sh control-plane.sh kubeadm install")
            for command in take_out:
                cluster.run(command)
        cluster.run(change.replace("shape=beside", f"shape={shape}"))
        if shape != "service":
            assert cluster.arrivals.stranded(OWN) == set(), f"{before} was changed to {shape}"
    assert cluster.arrivals.longest_wait(DEFAULT) <= MOMENT_SECONDS


@WHOLE
@pytest.mark.parametrize("shape", SHAPES)
def test_the_manifests_pass_the_doctor_and_are_removed_without_a_trace(cluster: Cluster, shape: str) -> None:
    def run(command: str) -> None:
        cluster.run(command.replace("manifests/beside", f"manifests/{shape}").replace(NAMES["beside"], NAMES[shape]))

    if shape == "service":
        for command in MANDATORY[:2]:
            run(command)
    for command in commands("Without Helm"):
        run(command)
    doctor = next(each for each in commands(SECTIONS[shape], "Verify") if each.startswith("extender doctor"))
    command = doctor.replace("extender-system/extender", f"extender-system/{NAMES[shape]}")
    assert wait_until(lambda: cluster.passes(command)), command
    for command in commands("Without Helm", "Remove"):
        run(command)
    assert {each for each in cluster.left() if not each.startswith("Secret/")} == set()
    assert "forbidden" not in cluster.kubelet.logs().lower()
