"""Two replicas and a Lease at the real API server: one answers, and whatever becomes of it the other takes over."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.builders import make_node, make_pod
from tests.end_to_end.service import Service
from tests.end_to_end.workload import violations
from tests.running import EXTENDER, ONLY_EXTENDER, RunningExtender
from tests.stock.api_client import ApiClient, ApiError
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process, free_port
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.slow]

ROOM, ASKED = 120, 140
SHORT_LEASE = ("--lease-duration-seconds=3",)
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "extender", "namespace": "default"},
    "spec": {"ports": [{"name": "https", "port": 8888}]},
}
FILTER = {"Pod": {"metadata": {"name": "p", "namespace": "default", "uid": "u"}}, "NodeNames": ["n00"]}


class Replica(RunningExtender):
    """A RunningExtender that may be stopped, and need not be ready."""

    def signal(self, number: signal.Signals) -> None:
        """To the server and its worker, for the server would start another worker in the place of a lost one."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in (self.process.pid, *map(int, children)):
            os.kill(pid, number)

    def filter(self) -> tuple[dict[str, Any], str | None]:
        """The answer to a filter call, and its Connection header."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", "/scheduler/filter", json.dumps(FILTER), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return json.loads(answer.read()), answer.getheader("Connection")
        finally:
            connection.close()


StartReplica = Callable[..., Replica]


@pytest.fixture
def start(control_plane: ControlPlane, tmp_path: Path) -> Iterator[StartReplica]:
    replicas: list[Replica] = []

    def start(name: str, *flags: str) -> Replica:
        port = free_port()
        command: list[str | Path] = [
            EXTENDER,
            "serve",
            "--kubeconfig",
            control_plane.kubeconfig,
            "--bind",
            f"127.0.0.1:{port}",
        ]
        election = ["--leader-elect", "--lease-namespace=default"]
        log = tmp_path / f"{name}.log"
        process = Process(name, [*command, *election, "--drain-seconds=0", *flags], log)
        replicas.append(Replica(process, port))
        return replicas[-1]

    yield start
    for replica in replicas:
        if replica.process.running:
            replica.signal(signal.SIGCONT)
        replica.process.stop()


class Scheduler(threading.Thread):
    """Calls filter again and again on one connection, as a scheduler does: a new one where the server has closed it."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port, self.ending = port, threading.Event()
        self.answers: list[dict[str, Any]] = []

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        while not self.ending.wait(0.02):
            if connection.sock and select.select([connection.sock], [], [], 0)[0]:
                connection.close()
            try:
                connection.request(
                    "POST", "/scheduler/filter", json.dumps(FILTER), {"Content-Type": "application/json"}
                )
                self.answers.append(json.loads(connection.getresponse().read()))
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if self.answers:  # before the first the Service may lead nowhere yet
                    self.answers.append({"Error": repr(error)})


@contextmanager
def serving(control_plane: ControlPlane, *replicas: Replica) -> Iterator[None]:
    """The stock scheduler asks whichever replica is ready, and decides nothing itself."""
    with Service([(replica.port, replica.ready) for replica in replicas]) as service:
        configuration = RunningExtender(replicas[0].process, service.port).configuration(plugins=ONLY_EXTENDER)
        configuration["extenders"][0]["httpTimeout"] = "2s"
        with control_plane.scheduler({**configuration, "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}):
            yield


def leader_and_standby(*replicas: Replica) -> tuple[Replica, Replica]:
    assert wait_until(lambda: any(replica.ready() for replica in replicas))
    leader, standby = sorted(replicas, key=lambda replica: not replica.ready())
    return leader, standby


def lease(client: ApiClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("Lease", "extender")["spec"]
    return found


def placed(client: ApiClient) -> int:
    return sum("nodeName" in pod["spec"] for pod in client.list("Pod", "default"))


def create_pods(client: ApiClient, begin: int, end: int) -> None:
    client.create(*(make_pod(f"p{i:03d}").req(cpu="100m").obj() for i in range(begin, end)))


def test_the_standby_is_warm_and_says_whom_it_waits_for(control_plane: ControlPlane, start: StartReplica) -> None:
    client = control_plane.client
    client.create(make_node("n00").obj())
    leader = start("one")
    assert wait_until(leader.ready)
    holder = lease(client)["holderIdentity"]
    assert holder.startswith(f"{socket.gethostname()}_")
    standby = start("two")
    assert wait_until(lambda: f"held by {holder}" in standby.readiness()[1])
    status, text = standby.readiness()
    assert (status, "[+]cache ok" in text) == (503, True)
    assert f"[-]lease failed: waiting for the lease default/extender held by {holder}" in text
    answer, connection = standby.filter()
    assert answer["Error"].endswith(f"waiting for the lease default/extender held by {holder}")
    assert connection == "close"
    assert leader.filter() == ({**answer, "NodeNames": ["n00"], "Error": ""}, None)
    assert [replica.metric('extender_leader{name="extender"}') for replica in (leader, standby)] == [1, 0]


def test_the_lease_is_written_as_client_go_writes_it_and_released(
    control_plane: ControlPlane, start: StartReplica
) -> None:
    leader = start("one")
    assert wait_until(leader.ready)
    held = lease(control_plane.client)
    assert held["acquireTime"] <= held["renewTime"]
    assert (held["leaseDurationSeconds"], held["leaseTransitions"]) == (15, 0)
    assert wait_until(lambda: lease(control_plane.client)["renewTime"] > held["renewTime"])
    assert lease(control_plane.client)["acquireTime"] == held["acquireTime"]
    leader.process.stop()
    released = lease(control_plane.client)
    assert (released["holderIdentity"], released["leaseDurationSeconds"], released["leaseTransitions"]) == ("", 1, 0)
    successor = start("two")
    assert wait_until(successor.ready)
    assert lease(control_plane.client)["leaseTransitions"] == 1


@pytest.mark.parametrize(
    "end", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM], ids=["killed", "stopped", "terminated"]
)
def test_the_other_takes_over_and_no_node_is_filled_over(
    control_plane: ControlPlane, start: StartReplica, end: signal.Signals
) -> None:
    client = control_plane.client
    resources = {"cpu": "1", "memory": "8Gi", "pods": "110"}
    client.create(*(make_node(f"n{i:02d}").allocatable(resources).capacity(resources).obj() for i in range(ROOM // 10)))
    leader, standby = leader_and_standby(start("one", *SHORT_LEASE), start("two", *SHORT_LEASE))
    with serving(control_plane, leader, standby):
        create_pods(client, 0, ASKED // 2)
        assert wait_until(lambda: placed(client) > ASKED // 4)
        leader.signal(end)
        create_pods(client, ASKED // 2, ASKED)
        assert wait_until(standby.ready)
        if end is signal.SIGSTOP:
            leader.signal(signal.SIGCONT)
            assert wait_until(lambda: "held by" in leader.readiness()[1])
        assert wait_until(lambda: placed(client) >= ROOM)
    assert placed(client) == ROOM
    assert violations(client.list("Node"), client.list("Pod", "default")) == []
    assert wait_until(lambda: standby.metric('extender_cache_size{type="assumed_pods"}') == 0)


def test_a_service_leads_to_the_leader_and_no_call_is_refused_while_it_hands_over(
    control_plane: ControlPlane, start: StartReplica
) -> None:
    client, addresses = control_plane.client, {"one": "10.0.0.1", "two": "10.0.0.2"}
    client.create(make_node("n00").obj(), SERVICE)
    for name, address in addresses.items():
        ready = {"podIP": address, "conditions": [{"type": "Ready", "status": "True"}]}
        client.create(make_pod(name).label(app="extender").node("n00").obj())
        client.patch("Pod", name, {"status": ready}, subresource="status")
    replicas = {
        name: start(name, "--leader-service=extender", f"--own-address={address}", "--own-namespace=default",
                    "--own-labels=app=extender", "--drain-seconds=5")
        for name, address in addresses.items()
    }  # fmt: skip
    assert wait_until(lambda: all(replica.ready() for replica in replicas.values()))
    assert wait_until(lambda: led_to(client) in addresses.values())
    leader = next(name for name, address in addresses.items() if address == led_to(client))
    (successor,) = set(replicas) - {leader}

    def leads(address: str) -> bool:
        return led_to(client) == address

    with Service([(each.port, partial(leads, addresses[name])) for name, each in replicas.items()]) as service:
        scheduler = Scheduler(service.port)
        scheduler.start()
        assert wait_until(lambda: len(scheduler.answers) > 10)
        replicas[leader].process.stop(grace_seconds=30)
        assert wait_until(lambda: replicas[successor].metric('extender_leader{name="extender"}') == 1)
        asked = len(scheduler.answers)
        assert wait_until(lambda: len(scheduler.answers) > asked + 10)
        scheduler.ending.set()
        scheduler.join()
    assert led_to(client) == addresses[successor]
    assert [answer["Error"] for answer in scheduler.answers if answer["Error"]] == []


def led_to(client: ApiClient) -> str:
    """The address that the Service leads to."""
    try:
        (endpoint,) = client.get("EndpointSlice", "extender")["endpoints"]
    except ApiError:
        return ""
    return str(endpoint["addresses"][0])


def test_the_lease_changes_hands_again_and_again(control_plane: ControlPlane, start: StartReplica) -> None:
    client = control_plane.client
    resources = {"cpu": "1", "memory": "8Gi", "pods": "110"}
    client.create(*(make_node(f"n{i:02d}").allocatable(resources).capacity(resources).obj() for i in range(ROOM // 10)))
    replicas = (start("one", *SHORT_LEASE), start("two", *SHORT_LEASE))
    leader, standby = leader_and_standby(*replicas)
    with serving(control_plane, *replicas):
        for turn in range(3):
            create_pods(client, turn * ASKED // 3, (turn + 1) * ASKED // 3)
            leader.signal(signal.SIGSTOP)
            assert wait_until(standby.ready)
            leader.signal(signal.SIGCONT)
            assert wait_until(lambda: not leader.ready())  # noqa: B023  asked at once
            leader, standby = standby, leader
        assert wait_until(lambda: placed(client) >= ROOM)
    assert placed(client) == ROOM
    assert violations(client.list("Node"), client.list("Pod", "default")) == []
    assert lease(client)["leaseTransitions"] >= 3
