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
NAMES = {"beside": "extender-beside", "service": NAME, "scheduler": "extender-scheduler"}
"""The names of the manifests' releases, which differ, so that the shapes can be installed beside each other."""
_HELMS = ("app.kubernetes.io/managed-by", "helm.sh/chart")

Object = dict[str, Any]


class RenderError(Exception):
    """Helm turned the values down; the message is what it said."""


def render(binaries: Binaries, values: Mapping[str, Any], namespace: str = NAMESPACE, name: str = NAME) -> str:
    """Returns what `helm template` prints. Raises RenderError."""
    return _helm(binaries, values, namespace, "template", name, "--kube-version", f"v{KUBERNETES_VERSION}")


def notes(binaries: Binaries, values: Mapping[str, Any]) -> str:
    """Returns what `helm install` prints at its end."""
    return _helm(binaries, values, NAMESPACE, "install", NAME, "--dry-run=client").partition("NOTES:\n")[2]


def _helm(binaries: Binaries, values: Mapping[str, Any], namespace: str, *command: str) -> str:
    words: list[str | Path] = [binaries["helm"], *command, CHART, "--namespace", namespace, "--values", "-"]
    ended = subprocess.run(words, input=json.dumps(values), capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RenderError(ended.stderr)
    return str(ended.stdout)


def objects(
    binaries: Binaries, values: Mapping[str, Any], namespace: str = NAMESPACE, name: str = NAME
) -> list[Object]:
    """Returns the objects of the chart with these values."""
    return [document for document in yaml.safe_load_all(render(binaries, values, namespace, name)) if document]


def the(found: list[Object], kind: str, name: str = NAME) -> Object:
    """Returns the one of a kind and name."""
    (one,) = (each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return one


def manifest(binaries: Binaries, shape: str) -> str:
    """Returns the manifests of a shape, with nothing in them that is only helm's."""
    return _manifest(shape, _without_helm(objects(binaries, {"shape": shape}, name=NAMES[shape])))


def _without_helm(found: list[Object]) -> list[Object]:
    kept = [each for each in found if not _is_hook(each)]
    for each in kept:
        metadata = each["metadata"]
        for label in _HELMS:
            del metadata["labels"][label]
        if metadata.get("annotations", {}).pop("helm.sh/resource-policy", None) and not metadata["annotations"]:
            del metadata["annotations"]
    return kept


def _manifest(shape: str, found: list[Object]) -> str:
    head = f"# Made of charts/podseat by `make manifests`, as `shape: {shape}`; do not edit.\n"
    return head + yaml.dump_all(found, Dumper=_Dumper, sort_keys=False, width=120)


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as a block."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(str, _Dumper.represent_str)

_OPTIONS: dict[str, tuple[Object, tuple[str, ...]]] = {
    "network-policy": ({"networkPolicy": {"enabled": True}}, ("NetworkPolicy",)),
    "alerts": (
        {"metrics": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}},
        ("ServiceMonitor", "PrometheusRule"),
    ),
}
"""Component -> the values that add its objects, and their kinds."""
_COMPONENT: Object = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
_RULES = '''from extender import Node, Pod, predicate


@predicate
def keep_team(pod: Pod, node: Node, *, label: str = "example.com/team") -> str | None:
    """Keeps pods with the label on nodes with the same value."""
    value = pod.labels.get(label)
    return None if value is None or node.labels.get(label) == value else "node(s) belonged to another team"
'''


def files(binaries: Binaries, shape: str) -> dict[str, str]:
    """Returns path -> content of all that is made for a shape: its manifests, and kustomize components for them."""
    made = {"all.yaml": manifest(binaries, shape)}
    for component, (values, kinds) in _OPTIONS.items():
        found = _without_helm(objects(binaries, {"shape": shape, **values}, name=NAMES[shape]))
        made[f"{component}/all.yaml"] = _manifest(shape, [each for each in found if each["kind"] in kinds])
        made[f"{component}/kustomization.yaml"] = _manifest(shape, [{**_COMPONENT, "resources": ["all.yaml"]}])
    policy = _policy(shape)
    made["policy/policy.yaml"], made["policy/rules.py"] = yaml.safe_dump(policy, sort_keys=False), _RULES
    made["policy/kustomization.yaml"] = _manifest(shape, [_policy_component(binaries, shape, policy)])
    return made


def _policy(shape: str) -> Object:
    plugins: Object = {"filter": {"enabled": [{"name": "rules:keep_team"}]}}
    if shape != "scheduler":  # kube-scheduler runs its own plugins
        plugins = {"multiPoint": {"disabled": [{"name": "*"}]}, **plugins}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": _scheduler_name(shape), "plugins": plugins}],
    }


def _scheduler_name(shape: str) -> str:
    return "default-scheduler" if shape == "service" else f"{NAMES[shape].removesuffix('-scheduler')}-scheduler"


def _policy_component(binaries: Binaries, shape: str, policy: Object) -> Object:
    """Returns a component that mounts a ConfigMap as the chart does with the value `policy`."""
    found = objects(binaries, {"shape": shape, "policy": policy}, name=NAMES[shape])
    deployment = the(found, "Deployment", NAMES[shape])
    where = "initContainers" if shape == "beside" else "containers"
    container = container_of(deployment)
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    pod, config_map = "/spec/template/spec", f"{NAMES[shape]}-policy"
    patch = [
        {"op": "replace", "path": f"{pod}/{where}/0/args", "value": container["args"]},
        {"op": "replace", "path": f"{pod}/{where}/0/volumeMounts", "value": container["volumeMounts"]},
        {"op": "replace", "path": f"{pod}/volumes", "value": volumes},
    ]
    return {
        **_COMPONENT,
        "configMapGenerator": [
            {"name": config_map, "namespace": NAMESPACE, "files": ["policy.yaml", "rules.py"]},
        ],
        "patches": [{"target": {"kind": "Deployment", "name": NAMES[shape]}, "patch": yaml.safe_dump(patch)}],
    }


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
        for path, content in files(build(on_request=["helm"]), shape).items():
            (MANIFESTS / shape / path).parent.mkdir(exist_ok=True)
            (MANIFESTS / shape / path).write_text(content)
