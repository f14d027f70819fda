"""SIGTERM ends both processes by themselves, whatever hangs; a crash or an end costs no lead for long."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trustme

from extender.model.kinds import KINDS
from tests.builders import make_node, make_pod
from tests.cluster.fake_api import LEASES, NODES, PODS, FakeApiServer, fake_api, hang
from tests.running import EXTENDER, Running
from tests.stock.process import Process, free_port
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.slow

GRACE_SECONDS = 30.0  # terminationGracePeriodSeconds, unless it is set
BINDING = "/api/v1/namespaces/default/pods/p/binding"
API = "client.authentication.k8s.io/v1"
FILTER = {"Pod": {"metadata": {"name": "p", "namespace": "default", "uid": "u"}}, "NodeNames": ["n"]}
ELECTION = ("--leader-elect", "--lease-namespace=default")


@contextmanager
def api_of_a_node() -> Iterator[FakeApiServer]:
    with fake_api(make_node("n").obj(), authority=trustme.CA()) as api:
        for kind in KINDS.values():
            api.collections.setdefault(kind.path, {})
        yield api


@contextmanager
def started(verb: str, kubeconfig: Path, directory: Path, *flags: str) -> Iterator[Running]:
    port = free_port()
    command: list[str | Path] = [EXTENDER, verb, "--kubeconfig", kubeconfig, "--bind", f"127.0.0.1:{port}", *flags]
    process = Process(verb, command, directory / f"{verb}-{port}.log")
    try:
        yield Running(process, port)
    finally:
        process.stop(0)


def post(running: Running, verb: str, body: object) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=GRACE_SECONDS)
    try:
        connection.request("POST", f"/scheduler/{verb}", json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse().read()
    finally:
        connection.close()


def is_bound(api: FakeApiServer) -> bool:
    return any(call.startswith(f"POST {BINDING}") for call in api.calls)


def bind_in_vain(running: Running, api: FakeApiServer) -> None:
    with suppress(OSError, http.client.HTTPException):  # the process ends before there is an answer
        while not is_bound(api):  # the watch has yet to tell of the pod
            post(running, "bind", {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n"})


def hanging_plugin(directory: Path) -> dict[str, object]:
    """A user whose plugin gives a token, and hangs once there is a file `hang`."""
    plugin, hanging = directory / "plugin", directory / "hang"
    token = json.dumps(
        {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}
    )
    plugin.write_text(f"#!/bin/sh\n[ -e {hanging} ] && exec sleep 1000\necho '{token}'\n")
    plugin.chmod(0o755)
    entry = {"apiVersion": API, "command": str(plugin), "interactiveMode": "Never"}
    return {"exec": entry}


@pytest.mark.parametrize("verb", ["serve", "schedule"])
def test_the_process_ends_within_the_grace_period_even_if_calls_hang(verb: str, tmp_path: Path) -> None:
    released = threading.Event()
    with api_of_a_node() as api:
        kubeconfig = api.kubeconfig(tmp_path, **hanging_plugin(tmp_path))
        api.token = "t"
        flags = ("--no-leader-elect",) if verb == "schedule" else ("--drain-seconds=0",)
        with started(verb, kubeconfig, tmp_path, *flags) as running:
            assert wait_until(running.ready)
            api.fail(BINDING, hang(released))
            api.put(PODS, make_pod("p").uid("u").scheduler("default-scheduler").obj())
            if verb == "serve":
                threading.Thread(target=bind_in_vain, args=(running, api), daemon=True).start()
            assert wait_until(lambda: is_bound(api))
            for path in (NODES, PODS, LEASES):
                api.fail(path, *[hang(released)] * 100)
                api.fail(path, *[hang(released)] * 100, watch=True)
            (tmp_path / "hang").touch()
            api.token = "another"  # a 401, for which the plugin is asked
            api.end_watches()
            status = running.process.stop(GRACE_SECONDS)
            released.set()
    assert status == 0, "it had to be killed"
    assert "Traceback" not in running.process.log.read_text()


def holder(api: FakeApiServer) -> str:
    return str(api.collections[LEASES]["default/extender"]["spec"]["holderIdentity"])


def test_a_worker_that_crashes_leads_on_under_its_lease(tmp_path: Path) -> None:
    with api_of_a_node() as api, started("serve", api.kubeconfig(tmp_path), tmp_path, *ELECTION) as one:
        assert wait_until(one.ready)
        held, other = holder(api), tmp_path / "other"
        other.mkdir()
        with started("serve", api.kubeconfig(other), other, *ELECTION) as standby:
            assert wait_until(lambda: held in standby.readiness("?verbose")[1])
            children = Path(f"/proc/{one.process.pid}/task/{one.process.pid}/children")
            worker = int(children.read_text().split()[0])
            os.kill(worker, signal.SIGKILL)
            assert wait_until(lambda: not Path(f"/proc/{worker}").exists())
            assert wait_until(one.ready)
            assert not standby.ready()
        assert holder(api) == held
        assert api.collections[LEASES]["default/extender"]["spec"]["leaseTransitions"] == 0


def test_a_leader_that_is_to_end_answers_until_another_leads(tmp_path: Path) -> None:
    with api_of_a_node() as api, started("serve", api.kubeconfig(tmp_path), tmp_path, *ELECTION) as one:
        assert wait_until(one.ready)
        held, other = holder(api), tmp_path / "other"
        other.mkdir()
        with started("serve", api.kubeconfig(other), other, *ELECTION) as standby:
            assert wait_until(lambda: held in standby.readiness("?verbose")[1])
            os.kill(one.process.pid, signal.SIGTERM)
            assert wait_until(lambda: holder(api) not in ("", held))
            assert "NodeNames" in json.loads(post(one, "filter", FILTER))
            assert wait_until(standby.ready)
            assert one.process.stop(GRACE_SECONDS) == 0
