"""The source and the binder against the real API server."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from extender.cluster.binder import ApiBinder
from extender.cluster.credentials import Kubeconfig
from extender.cluster.kube_client import KubeClient
from extender.cluster.watch.source import ClusterSource
from extender.errors import Conflict, NotFound, Refused
from extender.model.kinds import KINDS
from extender.runtime.clock import SystemClock
from extender.runtime.ports import Binding
from tests.builders import make_node, make_pod
from tests.cluster.recorder import Recorder
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock


def test_every_kind_is_served_and_changes_arrive(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.cluster.watch.list_watch_state.PAGE_SIZE", 3)
    client, recorder = control_plane.client, Recorder()
    client.create(*(make_node(f"n{i}").obj() for i in range(10)), make_pod("p").obj())
    connection = KubeClient(Kubeconfig(control_plane.kubeconfig))
    source = ClusterSource(connection, KINDS.values(), recorder, recorder, SystemClock(), Random(1))
    source.start()
    try:
        assert wait_until(lambda: not source.unsynced())
        assert {kind.name for kind in KINDS.values() if not kind.optional} <= set(recorder.objects)
        assert len(recorder.keys("Node")) == 10
        client.delete("Node", "n3")
        client.create(make_node("n10").obj())
        assert wait_until(lambda: "n10" in recorder.keys("Node") and "n3" not in recorder.keys("Node"))
        client.patch("Pod", "p", {"status": {"phase": "Succeeded"}}, subresource="status")
        assert wait_until(lambda: "default/p" not in recorder.keys("Pod"))
    finally:
        source.stop()


def test_binding(control_plane: ControlPlane, tmp_path: Path) -> None:
    client = control_plane.client
    pod, gated = client.create(make_pod("p").obj(), make_pod("gated").gate("example.com/wait").obj())
    uid = pod["metadata"]["uid"]
    binder = ApiBinder(KubeClient(Kubeconfig(control_plane.kubeconfig)))
    with pytest.raises(Conflict, match="UID in precondition"):
        binder.bind(Binding("default", "p", "0-0-0", "n1"))
    with pytest.raises(Conflict, match="schedulingGates"):
        binder.bind(Binding("default", "gated", gated["metadata"]["uid"], "n1"))
    with pytest.raises(NotFound):
        binder.bind(Binding("default", "gone", uid, "n1"))
    for _ in range(2):
        binder.bind(Binding("default", "p", uid, "n1"))
    with pytest.raises(Conflict, match='already assigned to node "n1"'):
        binder.bind(Binding("default", "p", uid, "n2"))
    assert client.get("Pod", "p")["spec"]["nodeName"] == "n1"


def test_without_the_right_to_bind(control_plane: ControlPlane) -> None:
    kubeconfig = control_plane.write_kubeconfig("nobody", "no-such-token")
    with pytest.raises(Refused, match="Unauthorized"):
        ApiBinder(KubeClient(Kubeconfig(kubeconfig))).bind(Binding("default", "p", "u", "n1"))
