"""Processes that record while a real cluster changes under them: whatever threads did, a replay decides the same."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from extender.offline.recording.replay import UNJUDGED, replay
from tests.end_to_end.workload import nodes, pods
from tests.running import ONLY_EXTENDER, schedule, serve
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock
PODS = 150


def bound(control_plane: ControlPlane) -> int:
    listed = control_plane.client.list("Pod", "default")
    return sum(bool(pod["spec"].get("nodeName")) for pod in listed)


@pytest.mark.parametrize("names", [pytest.param(True, id="names"), pytest.param(False, id="full")])
def test_every_call_of_the_stock_scheduler_is_decided_again_as_it_was(
    control_plane: ControlPlane, tmp_path: Path, names: bool
) -> None:
    random, path = Random(11), tmp_path / "recording.jsonl.gz"
    control_plane.client.create(*nodes(20, random))
    with (
        serve(control_plane.kubeconfig, tmp_path, "--record", str(path)) as extender,
        control_plane.scheduler(extender.configuration(names=names, plugins=ONLY_EXTENDER)),
    ):
        control_plane.client.create(*pods(PODS, random))
        assert wait_until(lambda: bound(control_plane) == PODS, timeout_seconds=60)
    result = replay(path)
    assert [each.to_dict() for each in result.changed] == []
    assert result.decided["bind"] >= PODS
    assert result.decided["filter"] >= PODS
    assert set(result.left_out) <= {UNJUDGED}


def test_every_attempt_of_the_loop_is_decided_again_as_it_was(control_plane: ControlPlane, tmp_path: Path) -> None:
    random, path = Random(12), tmp_path / "recording.jsonl.gz"
    control_plane.client.create(*nodes(20, random))
    with schedule(control_plane.kubeconfig, tmp_path, "--record", str(path)):
        control_plane.client.create(*pods(PODS, random))
        assert wait_until(lambda: bound(control_plane) == PODS, timeout_seconds=60)
    result = replay(path)
    assert [each.to_dict() for each in result.changed] == []
    assert result.decided["attempt"] >= PODS
