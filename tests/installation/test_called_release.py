"""A release that the real kube-scheduler calls, or calls in vain: it is not removed, and its own pods can come up.

The test does what the Deployment's controller and a kubelet would do: it creates the pods of the Deployment, without a
node, and runs their container.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.builders import make_pod
from tests.end_to_end.scheduling import placed
from tests.end_to_end.service import Service
from tests.installation.helm import Helm, HelmError, there
from tests.manifests.rendering import NAME, NAMESPACE, Object
from tests.manifests.test_shapes import Pods, led_to, make_certificates
from tests.stock.api_client import ApiError
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.clients]

ADDRESS, CLUSTER_IP = "10.0.0.1", "10.96.0.99"
CALLED = f"{NAME}-called-by-kube-scheduler"
SERVICE = ("--set=shape=service", f"--set=service.clusterIP={CLUSTER_IP}")


class Cluster:
    """A control plane with a node, and the extender's release in it."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.client = plane.client
        self.helm = Helm(plane)
        self._folder = folder
        make_certificates(folder)

    @contextmanager
    def calling(self, pods: Pods | None, **entry: Any) -> Iterator[None]:
        """Runs kube-scheduler with the entry in its file; the Service leads to these pods, or nowhere."""
        configuration = self.configuration
        backends = [
            (each.port_of_calls, lambda: led_to(self.client) == ADDRESS)
            for each in (pods.running.values() if pods else ())
        ]
        with Service(backends) as service:
            configuration["extenders"][0] |= {"urlPrefix": f"https://localhost:{service.port}/scheduler", **entry}
            files = {"caFile": "ca.crt", "certFile": "caller.crt", "keyFile": "caller.key"}
            tls = {key: str(self._folder / file) for key, file in files.items()}
            configuration["extenders"][0]["tlsConfig"] = tls
            with self.plane.scheduler({**configuration, "leaderElection": {"leaderElect": False}}):
                yield

    def remember(self, pods: Pods) -> None:
        """Keeps kube-scheduler's configuration, as the file on the control plane does."""
        self.configuration = pods.kube_scheduler()

    def places(self, name: str, timeout_seconds: float = 30) -> bool:
        """Returns True if a new pod is placed in this time."""
        self.client.create(make_pod(name).req(cpu="100m").obj())
        return wait_until(lambda: name in placed(self.plane), timeout_seconds)

    def own_pod(self, name: str) -> None:
        """Creates a pod of the Deployment, as its controller would."""
        template = self.client.get("Deployment", NAME, NAMESPACE)["spec"]["template"]
        metadata = {**template["metadata"], "name": name, "namespace": NAMESPACE}
        self.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})

    def own_node(self, name: str) -> str:
        pod: Object = self.client.get("Pod", name, NAMESPACE)
        return str(pod["spec"].get("nodeName", ""))

    def called(self) -> bool:
        try:
            self.client.get("Lease", CALLED, NAMESPACE)
        except ApiError:
            return False
        return True


@pytest.fixture
def cluster(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(control_plane, tmp_path)
    yield cluster
    cluster.helm.uninstall(NAME, "--no-hooks", "--ignore-not-found")


@pytest.fixture
def pods(cluster: Cluster, control_plane: ControlPlane, tmp_path: Path) -> Iterator[Pods]:
    """The release, installed, with a replica that leads."""
    cluster.helm.install(NAME, *SERVICE)
    pods = Pods(control_plane, tmp_path)
    pods.start("leader", ADDRESS)
    cluster.remember(pods)
    assert wait_until(lambda: led_to(control_plane.client) == ADDRESS)
    yield pods
    for extender in pods.running.values():
        extender.process.stop(grace_seconds=30)


def test_a_release_that_is_called_is_neither_removed_nor_changed_in_shape(cluster: Cluster, pods: Pods) -> None:
    """The API server refuses the hook's Lease, because the leader's exists; helm deletes nothing, and pods go on."""
    manifest = cluster.helm.manifest(NAME)
    with cluster.calling(pods):
        assert cluster.places("before")
        assert wait_until(cluster.called)
        with pytest.raises(HelmError, match="shape: kube-scheduler calls this release"):
            cluster.helm.upgrade(NAME, "--set=shape=scheduler")
        with pytest.raises(HelmError, match="extender, which kube-scheduler calls"):
            cluster.helm.uninstall(NAME)
        there(cluster.plane, manifest)
        assert cluster.places("after")
        cluster.helm("rollback", NAME, "1")  # helm upgrades no release whose removal has begun
        cluster.helm.upgrade(NAME, "--set=podAnnotations.changed=yes")
        there(cluster.plane, manifest)


@pytest.mark.parametrize(
    ("entry", "comes_up"),
    [
        pytest.param({}, False, id="all pods wait"),
        pytest.param({"ignorable": True}, True, id="ignorable"),
        pytest.param({"managedResources": [{"name": "example.com/ruled"}]}, True, id="managedResources"),
    ],
)
def test_own_pods_of_a_release_that_kube_scheduler_calls_in_vain(
    cluster: Cluster, pods: Pods, entry: Object, comes_up: bool
) -> None:
    """It was deleted in spite of the entry, and is installed again: a node in the Deployment lets it come up always."""
    pods.stop("leader")
    cluster.helm.uninstall(NAME, "--no-hooks")
    cluster.helm.install(NAME, *SERVICE)
    with cluster.calling(None, **entry):
        cluster.own_pod("waits")
        if comes_up:
            assert wait_until(lambda: cluster.own_node("waits") == "n")
        else:
            assert wait_until(lambda: "Post " in message(cluster, "waits"))
            assert cluster.own_node("waits") == ""
        rescue = '{"spec": {"template": {"spec": {"nodeName": "n"}}}}'
        cluster.plane.kubectl("patch", f"deployment/{NAME}", f"--namespace={NAMESPACE}", "--patch", rescue)
        cluster.own_pod("placed")
        assert cluster.own_node("placed") == "n"


def message(cluster: Cluster, name: str) -> str:
    conditions = cluster.client.get("Pod", name, NAMESPACE)["status"].get("conditions", [])
    return next((str(each.get("message")) for each in conditions if each["type"] == "PodScheduled"), "")
