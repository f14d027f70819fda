"""Installations of any shapes beside each other, by the chart or the manifests: none takes anything of another."""

from __future__ import annotations

import re
import shutil
from itertools import combinations, pairwise, product
from pathlib import Path

import pytest
import yaml

from tests.installation.helm import Helm, there
from tests.manifests.rendering import (
    MANIFESTS,
    NAMES,
    NAMESPACE,
    ROOT,
    SHAPES,
    Object,
    apply,
    container_of,
    objects,
    the,
)
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane

pytestmark = [pytest.mark.stock, pytest.mark.clients]

Release = tuple[str, str, str]
"""The shape, the name and the namespace."""
EACH_PAIR = [SHAPES[index] for index in (0, 0, 1, 1, 2, 2, 0, 2, 1, 0)]
"""Shapes in an order in which each follows each of them, also itself."""
RELEASES: list[Release] = [
    *((shape, f"extender-{shape}", namespace) for shape in SHAPES for namespace in (NAMESPACE, "other")),
    *((shape, f"second-{shape}", NAMESPACE) for shape in SHAPES),
]
"""Every pair of shapes, also of the same, in one namespace and, by the same name, in two."""
OWN = ("--lease-name=", "--leader-service=", "--scheduler-name=")


def identities(items: list[Object]) -> set[tuple[str, str, str]]:
    """Returns what the objects are, and the Secrets and the names of schedulers that they refer to."""
    found = {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in items}
    for deployment in (each for each in items if each["kind"] == "Deployment"):
        namespace = deployment["metadata"]["namespace"]
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        found |= {("Secret", namespace, each["secret"]["secretName"]) for each in volumes if "secret" in each}
        args = container_of(deployment)["args"]
        found |= {("flag", namespace, each) for each in args if each.startswith(OWN)}
        found.add(("selector", namespace, str(deployment["spec"]["selector"])))
    return found


def test_no_pair_shares_anything(stock_binaries: Binaries) -> None:
    rendered = {
        release: identities(objects(stock_binaries, {"shape": release[0]}, release[2], release[1]))
        for release in RELEASES
    }
    pairs = list(combinations(RELEASES, 2))
    assert set(pairwise(EACH_PAIR)) == set(product(SHAPES, SHAPES))
    assert [pair for pair in pairs if rendered[pair[0]] & rendered[pair[1]]] == []


@pytest.mark.parametrize(
    "places",
    [
        pytest.param([("first", NAMESPACE), ("second", NAMESPACE)], id="in one namespace"),
        pytest.param([("first", NAMESPACE), ("second", "other")], id="in two namespaces"),
        pytest.param([("extender", NAMESPACE), ("extender", "other")], id="of one name in two namespaces"),
    ],
)
def test_each_shape_is_installed_beside_each_and_outlives_it(
    control_plane: ControlPlane, places: list[tuple[str, str]]
) -> None:
    """A release is installed beside another, which is then removed, and so on; what is left is whole each time."""
    helm = Helm(control_plane)
    older: tuple[str, str] | None = None
    for index, shape in enumerate(EACH_PAIR):
        name, namespace = places[index % 2]
        helm.install(name, f"--set=shape={shape}", namespace=namespace)
        manifest = helm.manifest(name, namespace)
        if older:
            there(control_plane, helm.manifest(*older))
            helm.uninstall(older[0], namespace=older[1])
        there(control_plane, manifest)
        older = name, namespace


def test_the_notes_name_another_release_that_places_the_same_pods(control_plane: ControlPlane) -> None:
    helm = Helm(control_plane)
    try:
        assert "Warning" not in helm.install("extender")
        assert "Warning" not in helm.install("second", "--set=shape=scheduler")
        warning = f"the Deployment {NAMESPACE}/extender places the pods of extender-scheduler too"
        assert warning in helm.install("extender", namespace="other")
        assert "Warning" not in helm.upgrade("extender", "--set=schedulerName=mine", namespace="other")
    finally:
        for name, namespace in (("extender", NAMESPACE), ("second", NAMESPACE), ("extender", "other")):
            helm.uninstall(name, "--ignore-not-found", namespace=namespace)


def test_the_manifests_of_all_shapes_share_nothing(control_plane: ControlPlane) -> None:
    for shape in SHAPES:
        apply(control_plane, shape)
    texts = {shape: (MANIFESTS / shape / "all.yaml").read_text() for shape in SHAPES}
    found = {shape: there(control_plane, texts[shape]) for shape in SHAPES}
    for one, other in product(SHAPES, SHAPES):
        assert one == other or identities(found[one]) & identities(found[other]) == set()
    commands = {shape: container_of(the(found[shape], "Deployment", NAMES[shape]))["args"][0] for shape in SHAPES}
    assert commands == {"beside": "serve", "service": "serve", "scheduler": "schedule"}
    control_plane.kubectl("delete", "-k", str(MANIFESTS / "beside"))
    for shape in ("service", "scheduler"):
        there(control_plane, texts[shape])


def test_the_overlay_of_the_page_is_rendered(control_plane: ControlPlane, tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/install.md").read_text(), re.DOTALL)
    (overlay,) = (block for block in blocks if "kind: Kustomization" in block)
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    (tmp_path / "kustomization.yaml").write_text(overlay)
    rendered = list(yaml.safe_load_all(control_plane.kubectl("kustomize", str(tmp_path))))
    pod = the(rendered, "Deployment", NAMES["beside"])["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "system"}
    assert pod["initContainers"][0]["image"] == "registry.example.com/podseat:0.2.0"


@pytest.mark.parametrize("shape", SHAPES)
def test_an_overlay_adds_components_and_a_policy_of_its_own(
    control_plane: ControlPlane, shape: str, tmp_path: Path
) -> None:
    """As docs/install.md shows it; kustomize allows files of its own folder only, so the overlay has copies."""
    apply(control_plane, shape)
    files = {path.relative_to(MANIFESTS): path.read_text() for path in (MANIFESTS / shape).rglob("*.*")}
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [shape],
        "components": [f"{shape}/policy", f"{shape}/network-policy", f"{shape}/alerts"],
        "replicas": [{"name": NAMES[shape], "count": 3}],
        "images": [{"name": "podseat", "newName": "registry.example.com/podseat"}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    rendered = list(yaml.safe_load_all(control_plane.kubectl("kustomize", str(tmp_path))))
    assert {"NetworkPolicy", "ServiceMonitor", "PrometheusRule"} <= {each["kind"] for each in rendered}
    deployment = the(rendered, "Deployment", NAMES[shape])
    assert deployment["spec"]["replicas"] == 3
    container = container_of(deployment)
    assert "--policy=/etc/extender/policy/policy.yaml" in container["args"]
    assert container["image"] == "registry.example.com/podseat:0.2.0"
    (policy,) = (each for each in rendered if each["metadata"]["name"].startswith(f"{NAMES[shape]}-policy-"))
    volumes = {each["name"]: each for each in deployment["spec"]["template"]["spec"]["volumes"]}
    assert volumes["policy"]["configMap"]["name"] == policy["metadata"]["name"]
    known = yaml.safe_dump_all(each for each in rendered if not each["apiVersion"].startswith("monitoring"))
    control_plane.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-", stdin=known
    )
