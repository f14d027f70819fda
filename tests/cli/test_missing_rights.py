"""`extender explain` without rights to nodes or pods: what can be said, and what that leaves uncertain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from extender.cli.main import cli
from extender.errors import ClusterError
from tests.builders import make_node, make_pod
from tests.builders.pod import PodBuilder
from tests.cluster.fake_api import NODES, PODS, answer, fake_api

VERDICT = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}
WAITING = json.dumps(make_pod("waiting").req(cpu="2").obj())


def extender(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, given)


@pytest.mark.parametrize(
    ("pod", "status", "printed"),
    [
        pytest.param(make_pod("p").status(conditions=[VERDICT]), 3, "0/2 nodes are available", id="refused"),
        pytest.param(make_pod("p").gate("example.com/wait"), 3, "it is gated by example.com/wait", id="gated"),
        pytest.param(make_pod("p").node("n"), 0, "pod default/p: it is bound to n", id="bound"),
        pytest.param(make_pod("p").scheduler("kueue"), 1, "its schedulerName is kueue\n", id="of another scheduler"),
        pytest.param(make_pod("p"), 1, "pod default/p: no verdict", id="new"),
    ],
)
def test_without_nodes_the_answer_is_taken_from_the_pods_conditions(
    pod: PodBuilder, status: int, printed: str, tmp_path: Path
) -> None:
    with fake_api() as api:
        api.fail(NODES, answer(403, "no"), answer(403, "no"))
        api.put(PODS, pod.obj())
        config = str(api.kubeconfig(tmp_path))
        found = extender("explain", "p", "--kubeconfig", config)
        listed = extender("explain", "--kubeconfig", config)
    assert (found.exit_code, printed in found.stdout) == (status, True)
    assert "note: nodes could not be read (403: no), so the verdict" in found.stdout
    assert (listed.exit_code, "no pods are pending" in listed.stdout) == (0, status == 0)


@pytest.mark.parametrize(
    "arguments",
    [["explain", "p", "--node", "n"], ["simulate"], ["snapshot", "-o", "-"], ["capacity", "-f", "-"]],
    ids=lambda given: str(given[0]),
)
def test_commands_that_need_nodes_say_that_they_cannot_read_them(arguments: list[str], tmp_path: Path) -> None:
    with fake_api() as api:
        api.fail(NODES, answer(403, "no"))
        printed = extender(*arguments, "--kubeconfig", str(api.kubeconfig(tmp_path)), given=WAITING)
    assert isinstance(printed.exception, ClusterError)
    expected = "nodes could not be read (403: no): without them only `extender explain POD` has an answer"
    assert (str(printed.exception), printed.stdout) == (expected, "")


def test_without_pods_only_a_manifest_can_be_explained(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.json"
    manifest.write_text(WAITING)
    with fake_api(make_node("a").obj(), make_node("b").obj()) as api:
        api.fail(PODS, answer(403, "no"), answer(403, "no"))
        config = str(api.kubeconfig(tmp_path))
        by_name = extender("explain", "p", "--kubeconfig", config)
        of_file = extender("explain", "-f", str(manifest), "--kubeconfig", config)
    assert isinstance(by_name.exception, ClusterError)
    printed = "pods could not be read (403: no); explain its manifest with -f FILE"
    assert str(by_name.exception) == f"no pod default/p among the readable ones: {printed}"
    assert (of_file.exit_code, "2/2 nodes are available" in of_file.stdout) == (0, True)
    assert "every node counts as empty" in of_file.stdout
