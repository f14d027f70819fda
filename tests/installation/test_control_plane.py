"""examples/control-plane.sh on the files of a node: kube-scheduler takes what it writes, and all of it is undone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from extender.cli.main import cli
from tests.manifests.rendering import NAME, NAMESPACE, ROOT, apply
from tests.stock.control_plane import ControlPlane

pytestmark = [pytest.mark.stock, pytest.mark.clients]

SCRIPT = ROOT / "examples/control-plane.sh"
MANIFEST = """\
apiVersion: v1
kind: Pod
metadata:
  labels:
    component: kube-scheduler
    tier: control-plane
  name: kube-scheduler
  namespace: kube-system
spec:
  containers:
  - command:
    - kube-scheduler
    - --authentication-kubeconfig=/etc/kubernetes/scheduler.conf
    - --authorization-kubeconfig=/etc/kubernetes/scheduler.conf
    - --bind-address=127.0.0.1
    - --kubeconfig=/etc/kubernetes/scheduler.conf
    - --leader-elect=true
    image: registry.k8s.io/kube-scheduler:v1.37.1
    livenessProbe:
      httpGet: {host: 127.0.0.1, path: /livez, port: probe-port, scheme: HTTPS}
    name: kube-scheduler
    volumeMounts:
    - mountPath: /etc/kubernetes/scheduler.conf
      name: kubeconfig
      readOnly: true
  hostNetwork: true
  priorityClassName: system-node-critical
  volumes:
  - hostPath:
      path: /etc/kubernetes/scheduler.conf
      type: FileOrCreate
    name: kubeconfig
status: {}
"""
"""As kubeadm writes it."""


class Node:
    """The files of a node of the control plane, below a folder."""

    def __init__(self, plane: ControlPlane, root: Path) -> None:
        self.root = root
        self.manifest = root / "etc/kubernetes/manifests/kube-scheduler.yaml"
        self.manifest.parent.mkdir(parents=True)
        self.manifest.write_text(MANIFEST)
        (root / "bin").mkdir()
        (root / "bin/kubectl").symlink_to(plane.binaries["kubectl"])
        (root / "bin/systemctl").write_text(f'#!/bin/sh\necho "$@" >> {root}/systemctl\n')
        (root / "bin/systemctl").chmod(0o755)
        self._environment = {
            "PATH": f"{root}/bin:{os.environ['PATH']}",
            "HOME": str(root),
            "ROOT": str(root),
            "KUBECONFIG": str(plane.kubeconfig),
        }

    def run(self, *arguments: str) -> str:
        """Returns what the script says on stderr."""
        command = ["sh", str(SCRIPT), *arguments]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False).stderr

    def files(self) -> dict[str, str]:
        found = (path for path in (self.root / "etc").rglob("*") if path.is_file())
        return {str(path.relative_to(self.root)): path.read_text() for path in found}


@pytest.fixture
def node(control_plane: ControlPlane, tmp_path: Path) -> Node:
    apply(control_plane, "service")
    return Node(control_plane, tmp_path / "node")


def publish_certificates(control_plane: ControlPlane, folder: Path) -> None:
    ended = CliRunner().invoke(cli, ["certs", str(folder / "pki"), "--secrets", NAMESPACE], catch_exceptions=False)
    control_plane.kubectl("apply", "-f", "-", stdin=ended.output)


@pytest.mark.parametrize("distribution", ["kubeadm", "k3s"])
def test_it_configures_a_node_and_undoes_it(
    control_plane: ControlPlane, node: Node, tmp_path: Path, distribution: str
) -> None:
    before = node.files()
    publish_certificates(control_plane, tmp_path)
    assert node.run(distribution, "install") == ""
    folder = "/etc/kubernetes/extender" if distribution == "kubeadm" else "/etc/rancher/k3s/extender"
    path = node.root / f".{folder}/kube-scheduler.yaml"
    address = control_plane.client.get("Service", NAME, NAMESPACE)["spec"]["clusterIP"]
    (entry,) = yaml.safe_load(path.read_text())["extenders"]
    assert entry["urlPrefix"] == f"https://{address}:8888/scheduler"
    assert entry["tlsConfig"]["serverName"] == f"{NAME}.{NAMESPACE}.svc"
    assert {each.stat().st_mode & 0o777 for each in (path.parent / "tls").iterdir()} == {0o600}
    # From here on the files are where the node has them, so kube-scheduler and the doctor read them below the folder.
    path.write_text(path.read_text().replace(folder, str(path.parent)))
    kubeconfig = yaml.safe_load(path.read_text())["clientConnection"]["kubeconfig"]
    path.write_text(path.read_text().replace(kubeconfig, str(control_plane.kubeconfig)))
    command: list[str | Path] = [
        control_plane.binaries["kube-scheduler"],
        f"--config={path}",
        f"--write-config-to={tmp_path}/written",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    flags = ["--scheduler-config", str(path)]
    found = CliRunner().invoke(cli, ["doctor", *flags], env={"KUBECONFIG": "/nonexistent"}).output
    assert "ok    sampling" in found
    assert "tls-files" not in found
    assert node.run(distribution, "undo") == ""
    assert node.files() == before


def test_the_static_pod_mounts_the_files_and_is_restarted_by_other_certificates(
    control_plane: ControlPlane, node: Node, tmp_path: Path
) -> None:
    publish_certificates(control_plane, tmp_path)
    node.run("kubeadm", "install")
    first = yaml.safe_load(node.manifest.read_text())
    (container,) = first["spec"]["containers"]
    assert container["command"][-1] == "--config=/etc/kubernetes/extender/kube-scheduler.yaml"
    assert not [flag for flag in container["command"] if "--leader-elect" in flag or "--kubeconfig" in flag]
    assert {"name": "extender", "mountPath": "/etc/kubernetes/extender", "readOnly": True} in container["volumeMounts"]
    control_plane.client.create({**first, "metadata": {**first["metadata"], "namespace": "default"}})
    node.run("kubeadm", "install")
    assert yaml.safe_load(node.manifest.read_text()) == first
    publish_certificates(control_plane, tmp_path / "other")
    node.run("kubeadm", "install")
    assert yaml.safe_load(node.manifest.read_text()) != first
    node.run("kubeadm", "undo")
    assert node.manifest.read_text() == MANIFEST


def test_k3s_reads_the_configuration_and_is_restarted(control_plane: ControlPlane, node: Node, tmp_path: Path) -> None:
    publish_certificates(control_plane, tmp_path)
    node.run("k3s", "install")
    arguments = yaml.safe_load((node.root / "etc/rancher/k3s/config.yaml.d/extender.yaml").read_text())
    assert arguments == {"kube-scheduler-arg+": ["config=/etc/rancher/k3s/extender/kube-scheduler.yaml"]}
    node.run("k3s", "undo")
    assert (node.root / "systemctl").read_text() == "restart k3s\n" * 2


@pytest.mark.parametrize("distribution", ["kubeadm", "k3s"])
def test_without_certificates_kube_scheduler_is_left_as_it_is(node: Node, distribution: str) -> None:
    assert "the Secret extender-system/extender-caller has no tls.crt" in node.run(distribution, "install")
    assert node.manifest.read_text() == MANIFEST
    assert not (node.root / "systemctl").exists()


def test_a_manifest_that_is_not_kubeadms_is_left_as_it_is(
    control_plane: ControlPlane, node: Node, tmp_path: Path
) -> None:
    publish_certificates(control_plane, tmp_path)
    for text, complaint in (
        (MANIFEST.replace("--kubeconfig=", "--config="), "has a --config already"),
        (MANIFEST.replace("volumes:", "volumes: # ours"), ""),
        (MANIFEST.replace("    volumeMounts:", "     volumeMounts:"), "is not as kubeadm writes it"),
    ):
        node.manifest.write_text(text)
        assert complaint in node.run("kubeadm", "install")
        if complaint:
            assert node.manifest.read_text() == text
        (node.root / "etc/kubernetes/extender/kube-scheduler.before").unlink(missing_ok=True)
