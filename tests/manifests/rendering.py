"""The chart as helm renders it, and the manifests that are made of it: `python -m tests.manifests.rendering`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.stock.build import KUBERNETES_VERSION, Binaries, build
from tests.stock.control_plane import ControlPlane

ROOT = Path(__file__).parents[2]
CHART, MANIFESTS = ROOT / "charts" / "podseat", ROOT / "manifests"
SHAPES = ("beside", "service", "scheduler")
NAMESPACE, NAME = "extender-system", "extender"
_HELMS = ("app.kubernetes.io/managed-by", "helm.sh/chart")

Object = dict[str, Any]


class RenderError(Exception):
    """Helm turned the values down; the message is what it said."""


def render(binaries: Binaries, values: Mapping[str, Any], namespace: str = NAMESPACE) -> str:
    """Returns what `helm template` prints. Raises RenderError."""
    return _helm(binaries, values, namespace, "template", NAME, "--kube-version", f"v{KUBERNETES_VERSION}")


def notes(binaries: Binaries, values: Mapping[str, Any]) -> str:
    """Returns what `helm install` tells people at its end."""
    return _helm(binaries, values, NAMESPACE, "install", NAME, "--dry-run=client").partition("NOTES:\n")[2]


def _helm(binaries: Binaries, values: Mapping[str, Any], namespace: str, *command: str) -> str:
    words = [binaries["helm"], *command, CHART, "--namespace", namespace, "--values", "-"]
    ended = subprocess.run(words, input=json.dumps(values), capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RenderError(ended.stderr)
    return ended.stdout


def objects(binaries: Binaries, values: Mapping[str, Any], namespace: str = NAMESPACE) -> list[Object]:
    """Returns the objects of the chart with these values."""
    return [document for document in yaml.safe_load_all(render(binaries, values, namespace)) if document]


def the(found: list[Object], kind: str, name: str = NAME) -> Object:
    """Returns the one of a kind and name."""
    (one,) = (each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return one


def manifest(binaries: Binaries, shape: str) -> str:
    """Returns the manifests of a shape, with nothing in them that is only helm's."""
    found = [each for each in objects(binaries, {"shape": shape}) if not _is_hook(each)]
    for each in found:
        for label in _HELMS:
            del each["metadata"]["labels"][label]
    head = f"# Made of charts/podseat by `make manifests`, as `shape: {shape}`; do not edit.\n"
    return head + yaml.safe_dump_all(found, sort_keys=False, width=120)


def _is_hook(each: Object) -> bool:
    """Returns True for what only helm creates, such as the pod of `helm test`."""
    return "helm.sh/hook" in each["metadata"].get("annotations", {})


def apply(control_plane: ControlPlane, shape: str) -> str:
    """Applies the manifests of a shape; returns what kubectl says."""
    control_plane.kubectl("apply", "-f", str(MANIFESTS / "namespace.yaml"))
    return control_plane.kubectl("apply", "--server-side", "--validate=strict", "-k", str(MANIFESTS / shape))


def container_of(deployment: Object, name: str = "extender") -> Object:
    """Returns a container of the Deployment, one that goes on running beside the others too."""
    pod = deployment["spec"]["template"]["spec"]
    (found,) = (each for each in (*pod["containers"], *pod.get("initContainers", ())) if each["name"] == name)
    return dict(found)


if __name__ == "__main__":
    for shape in SHAPES:
        (MANIFESTS / shape / "all.yaml").write_text(manifest(build(), shape))
