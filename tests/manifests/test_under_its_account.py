"""The service under exactly the manifests' account, RBAC on: every call that it makes is allowed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from extender.model.kinds import KINDS
from tests.builders import make_node, make_pod
from tests.faults.injection import Injector, Severity
from tests.faults.proxy import FaultyProxy, proxy_before
from tests.manifests.rendering import NAME, NAMESPACE, apply, container_of
from tests.running import EXTENDER, ONLY_EXTENDER, RunningExtender
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process, free_port
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.clients]

NO_FAULTS = Severity({}, (0, 0), (0, 0))


def kubeconfig(control_plane: ControlPlane, proxy: FaultyProxy) -> Path:
    """The account's, by way of a proxy that only counts."""
    token = control_plane.service_account_token(NAMESPACE, "extender")
    path = control_plane.write_kubeconfig("extender", token)
    document = json.loads(path.read_text())
    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
    path.write_text(json.dumps(document))
    return path


def test_every_call_is_allowed_from_the_first_list_to_the_release_of_the_lease(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    client = control_plane.client
    apply(control_plane, "service")
    client.create(make_node("n").capacity(cpu="2", memory="8Gi", pods="10").obj())
    client.create(*(make_pod(f"low-{i}").req(cpu="1").label(app="low").obj() for i in range(2)))
    with proxy_before(control_plane, Injector(0, NO_FAULTS)) as proxy:
        port = free_port()
        where: list[str | Path] = ["--kubeconfig", kubeconfig(control_plane, proxy), "--bind", f"127.0.0.1:{port}"]
        container = container_of(client.get("Deployment", NAME, NAMESPACE))
        election = [flag for flag in container["args"] if flag.startswith(("--leader", "--lease", "--own"))]
        election += [f"--own-namespace={NAMESPACE}", "--own-address=10.0.0.1"]
        process = Process("extender", [EXTENDER, "serve", *where, *election, "--drain-seconds=0"], tmp_path / "log")
        extender = RunningExtender(process, port)
        try:
            extender.wait_until_ready()
            with control_plane.scheduler(extender.configuration(plugins=ONLY_EXTENDER)):
                assert wait_until(lambda: all("nodeName" in pod["spec"] for pod in client.list("Pod", "default")))
            assert wait_until(lambda: client.list("EndpointSlice", NAMESPACE))
            os.kill(process.pid, signal.SIGUSR2)
            assert wait_until(lambda: "cache compared " in process.log.read_text())
        finally:
            process.stop()
    assert client.get("Lease", "extender", NAMESPACE)["spec"]["holderIdentity"] == ""
    asked = {name for name, _ in proxy.answered}
    assert {f"GET {kind.path}" for kind in KINDS.values() if not kind.optional} <= asked
    assert sum("/binding" in name for name in asked) == 2
    assert {(name, status) for name, status in proxy.answered if status in (401, 403)} == set()
    assert not [name for name in asked if "secrets" in name]
