"""`extender explain` on a live cluster."""

from __future__ import annotations

import json
import re

import pytest

from tests.builders import make_node, make_pod
from tests.cli.commands import extender
from tests.stock.control_plane import ControlPlane

pytestmark = pytest.mark.stock


def test_a_pod_of_a_live_cluster_is_explained(control_plane: ControlPlane) -> None:
    resources = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    nodes = [make_node(name).allocatable(resources).capacity(resources) for name in ("open", "kept")]
    control_plane.client.create(
        nodes[0].obj(), nodes[1].taint("dedicated", "other").obj(), make_pod("p").req(cpu="1").obj()
    )
    explained = extender("explain", "default/p", "--kubeconfig", str(control_plane.kubeconfig), "-o", "json")
    assert explained.returncode == 0, explained.stderr
    recorded = json.loads(explained.stdout)
    assert "node(s) had untolerated taint(s)" in json.dumps(recorded)
    assert "open" in json.dumps(recorded)


def test_a_pod_that_is_not_there_is_one_line(control_plane: ControlPlane) -> None:
    recorded = extender("explain", "default/none", "--kubeconfig", str(control_plane.kubeconfig))
    assert recorded.returncode == 2
    assert re.fullmatch(r"error: no pod default/none in this cluster.* \(name it NAMESPACE/NAME\)\n", recorded.stderr)
