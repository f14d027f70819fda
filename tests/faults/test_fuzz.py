"""Nothing that comes in over HTTP crashes, hangs or bloats the service, or makes it answer what hurts the scheduler."""

from __future__ import annotations

import http.client
import json
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import mean

import pytest

from tests.faults.answers import faults_of
from tests.faults.fuzz import Verdict, fuzz, head, recorded_calls, write_cluster
from tests.faults.mortal import MortalExtender
from tests.faults.mutations import large_pod
from tests.faults.serving import threads
from tests.faults.sizes import FUZZ_REQUESTS, SEED, SOAKING
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.timeout(max(3600 if SOAKING else 300, FUZZ_REQUESTS // 50)), pytest.mark.slow]

MIB = 2**20
_CLIENTS = 4
_IMPATIENT = (sys.executable, "-m", "tests.faults.impatient")
_LARGE_PODS, _LONG = 100, 10_000
_PARTS = 100 if FUZZ_REQUESTS > _LONG else 10
_FILLED = 500_000
"""Requests after which all that is kept of past ones is at its limits, as 16 MiB of decisions and 4,096 pods."""


@pytest.fixture
def extender(tmp_path: Path) -> Iterator[MortalExtender]:
    cluster = tmp_path / "cluster.json"
    write_cluster(cluster)
    with MortalExtender(tmp_path, "--cluster", str(cluster), "--log-level=warning", program=_IMPATIENT) as running:
        yield running


def test_mutated_requests_get_lawful_answers_and_leave_nothing_behind(extender: MortalExtender) -> None:
    verdict, resident, worker = Verdict(), list[int](), extender.worker
    share, began_at = FUZZ_REQUESTS // _PARTS, time.monotonic()
    with ProcessPoolExecutor(_CLIENTS, get_context("spawn")) as clients:
        for part in range(_PARTS):
            numbers = range(part * share, (part + 1) * share)
            runs = [clients.submit(fuzz, extender.port, SEED, numbers[first::_CLIENTS]) for first in range(_CLIENTS)]
            for run in runs:
                verdict.add(run.result())
            resident.append(extender.resident_bytes())
            if FUZZ_REQUESTS > _LONG:
                rate = numbers.stop / (time.monotonic() - began_at)
                recorded = f"{resident[-1] // MIB} MiB, {len(verdict.bad)} bad answers, {rate:.0f} a second"
                print(f"{numbers.stop} requests: {recorded}", flush=True)
    print(f"\nfuzz: {sum(verdict.statuses.values())} requests, {len(verdict.bad)} bad answers")
    print(f"  resident MiB by tenths: {[size // MIB for size in resident[_PARTS // 10 - 1 :: _PARTS // 10]]}")
    print(f"  {dict(sorted(verdict.statuses.items()))}", *verdict.bad[:20], sep="\n  ")
    assert verdict.bad == []
    assert extender.worker == worker
    assert {verb for verb, status in verdict.statuses if status == 200} == {"filter", "prioritize", "preempt", "bind"}
    assert _growth(resident) < (4 * MIB if FUZZ_REQUESTS >= 2 * _FILLED else 32 * MIB)
    assert "Traceback" not in extender.running.process.log.read_text()


def _growth(resident: list[int]) -> float:
    """Returns by how much the mean of the last quarter of the run is above that of the quarter before."""
    quarter = len(resident) // 4
    return mean(resident[-quarter:]) - mean(resident[-2 * quarter : -quarter])


def test_pods_of_a_megabyte_and_bodies_of_many_are_not_kept(extender: MortalExtender) -> None:
    random, resident = Random(SEED), []
    call = next(call.request for call in recorded_calls() if call.verb == "filter")
    connection = http.client.HTTPConnection("127.0.0.1", extender.port, timeout=30)
    for _ in range(4):
        for _ in range(_LARGE_PODS):
            assert _post(connection, "filter", large_pod(call, random))[0] == 200
        assert _post(connection, "filter", b'{"Pod":{"spec":{"containers":[%b{}]}}}' % (b"{}," * 2**23))[0] == 400
        resident.append(extender.resident_bytes())
    connection.close()
    print(f"\nlarge: resident MiB {[size // MIB for size in resident]}")
    # One body of 24 MiB may be on its way back, at the end or at the beginning; three would be kept otherwise.
    assert resident[-1] < resident[0] + 48 * MIB


def test_slow_clients_and_half_open_connections_delay_no_other_call(extender: MortalExtender) -> None:
    before = threads(extender)
    with ExitStack() as stack:
        dawdlers = [stack.enter_context(_connected(extender.port)) for _ in range(60)]
        for number, dawdler in enumerate(dawdlers):
            dawdler.sendall(_BEGINNINGS[number % len(_BEGINNINGS)])
        assert _asks_in_vain(extender.port) == []
        assert wait_until(lambda: all(map(_ended, dawdlers[: len(_BEGINNINGS)])))
        assert _asks_in_vain(extender.port) == []
    assert wait_until(lambda: threads(extender) <= before + 2)


def test_clients_that_disconnect_during_an_answer_do_no_harm(extender: MortalExtender) -> None:
    before = threads(extender)
    call = next(call for call in recorded_calls() if call.verb == "filter")
    body = json.dumps(call.request).encode()
    for _ in range(50):
        with _connected(extender.port) as leaving:
            leaving.sendall(head("filter", len(body)) + body)
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    assert _asks_in_vain(extender.port) == []
    assert wait_until(lambda: threads(extender) <= before + 2)
    assert "Traceback" not in extender.running.process.log.read_text()


_BEGINNINGS = (
    b"P",
    b"POST /scheduler/filter HTTP/1.1\r\nHost: localhost\r\n",
    head("filter", 1000),
    head("bind", 10_000_000) + b'{"PodName":',
)


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def _ended(connected: socket.socket) -> bool:
    """The server has had enough; a refusal may come first."""
    try:
        while connected.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def _post(connection: http.client.HTTPConnection, verb: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
    connection.request("POST", f"/scheduler/{verb}", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


def _asks_in_vain(port: int) -> list[str]:
    """Returns what is wrong with the answers to ordinary requests."""
    found = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for call in recorded_calls()[:20]:
        body = json.dumps(call.request).encode()
        status, headers, answer = _post(connection, call.verb, body)
        found += faults_of(call.verb, body, status, headers, answer)
    connection.close()
    return found
