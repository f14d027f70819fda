"""A Service that follows the leader, at an API server in memory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from extender.cluster.election import elector
from extender.cluster.election.elector import LeaderService
from extender.cluster.kube_client import ApiCall, Caller
from extender.errors import Conflict, NotFound
from tests.stock.waiting import wait_until

SERVICE = {"metadata": {"name": "extender", "uid": "u"}, "spec": {"ports": [{"name": "https", "port": 443}]}}
SLICES, SERVICES, PODS = "endpointslices", "services", "pods"


class FakeApi(Caller):
    """A Service, pods and one EndpointSlice, with versions."""

    def __init__(self) -> None:
        self.services: list[Any] = [SERVICE]
        self.pods: list[Any] = []
        self.slice: Any = None
        self.writes = 0
        self.leases: list[str] = []
        self.refused = 0

    def call(self, call: ApiCall) -> bytes:
        url = urlsplit(call.path)
        assert "/namespaces/ns/" in url.path
        collection = url.path.split("/")[-1]
        if call.method == "GET" and collection in (SERVICES, PODS):
            assert parse_qs(url.query) in (
                {"fieldSelector": ["metadata.name=extender"]},
                {"labelSelector": ["app=extender"]},
            )
            return json.dumps({"items": self.services if collection == SERVICES else self.pods}).encode()
        if collection == "leases":
            return self._lease(json.loads(call.body))
        return json.dumps(self._slice(call.method, json.loads(call.body or b"null"))).encode()

    def _lease(self, written: Any) -> bytes:
        if written["metadata"]["name"] in self.leases:
            self.refused += 1
            raise Conflict("it exists", 409)
        self.leases.append(written["metadata"]["name"])
        return b"{}"

    def _slice(self, method: str, written: Any) -> Any:
        if method == "GET" and self.slice is None:
            raise NotFound("there is none", 404)
        if method == "PUT" and written["metadata"]["resourceVersion"] != self.slice["metadata"]["resourceVersion"]:
            raise Conflict("another has written", 409)
        if method != "GET":
            self.writes += 1
            written["metadata"]["resourceVersion"] = str(self.writes)
            self.slice = written
        return self.slice

    def led_to(self) -> str:
        return self.slice["endpoints"][0]["addresses"][0] if self.slice else ""


def pod(address: str, created: int, *, ready: str = "True", **metadata: str) -> dict[str, Any]:
    status = {"podIP": address, "conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"creationTimestamp": f"2026-11-22T07:00:{created:02d}Z", **metadata}, "status": status}


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


Start = Callable[..., LeaderService]


@pytest.fixture
def start(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr(elector, "UPDATE_SECONDS", 0.01)
    monkeypatch.setattr(elector, "PROXIES_SECONDS", 0.0)
    started: list[LeaderService] = []

    def start(address: str = "10.0.0.1", leading: Callable[[], bool] = lambda: True) -> LeaderService:
        started.append(LeaderService(api, "ns", "extender", address, 8888, {"app": "extender"}, leading))
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.stop()


def test_the_slice_is_one_that_proxies_take_and_goes_with_its_service(api: FakeApi, start: Start) -> None:
    start()
    assert wait_until(lambda: api.slice)
    metadata = api.slice["metadata"]
    assert metadata["labels"] == {
        "kubernetes.io/service-name": "extender",
        "endpointslice.kubernetes.io/managed-by": "extender",
    }
    assert metadata["ownerReferences"] == [{"apiVersion": "v1", "kind": "Service", "name": "extender", "uid": "u"}]
    assert api.slice["ports"] == [{"name": "https", "port": 8888, "protocol": "TCP"}]
    assert api.slice["endpoints"] == [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}]
    assert api.slice["addressType"] == "IPv4"


def test_an_ipv6_address_is_called_one(api: FakeApi, start: Start) -> None:
    start("fd00::1")
    assert wait_until(lambda: api.slice)
    assert api.slice["addressType"] == "IPv6"


def test_who_leads_takes_it_over_and_who_does_not_leaves_it(api: FakeApi, start: Start) -> None:
    leading = {"10.0.0.1"}
    for address in ("10.0.0.1", "10.0.0.2"):
        start(address, lambda address=address: address in leading)
    assert wait_until(lambda: api.led_to() == "10.0.0.1")
    leading ^= {"10.0.0.1", "10.0.0.2"}
    assert wait_until(lambda: api.led_to() == "10.0.0.2")
    assert api.writes == 2


def test_what_others_did_to_it_is_put_right(api: FakeApi, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    start()
    assert wait_until(lambda: api.slice)
    api.slice = None
    assert wait_until(lambda: api.led_to() == "10.0.0.1")
    api.slice["endpoints"] = [{"addresses": ["10.0.0.9"]}]
    assert wait_until(lambda: api.led_to() == "10.0.0.1")
    assert wait_until(lambda: "service points to the leader service=extender address=10.0.0.1" in caplog.messages)


def test_a_service_that_is_missing_is_waited_for(api: FakeApi, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    api.services = []
    start()
    assert wait_until(lambda: "service ns/extender not found" in caplog.text)
    api.services = [SERVICE]
    assert wait_until(lambda: api.led_to() == "10.0.0.1")


@pytest.mark.parametrize(
    ("pods", "successor"),
    [
        pytest.param([pod("10.0.0.1", 1), pod("10.0.0.2", 2), pod("10.0.0.3", 3)], "10.0.0.3", id="the youngest"),
        pytest.param([pod("10.0.0.2", 2), pod("10.0.0.3", 3, ready="False")], "10.0.0.2", id="that is ready"),
        pytest.param([pod("10.0.0.2", 2), pod("10.0.0.3", 3, deletionTimestamp="x")], "10.0.0.2", id="and is to stay"),
        pytest.param([pod("10.0.0.2", 2), pod("", 3)], "10.0.0.2", id="and has an address"),
        pytest.param([pod("10.0.0.1", 1)], "10.0.0.1", id="none: it stays"),
    ],
)
def test_a_leader_that_ends_leads_it_to_its_successor(
    api: FakeApi, start: Start, caplog: pytest.LogCaptureFixture, pods: list[Any], successor: str
) -> None:
    caplog.set_level("INFO")
    api.pods = pods
    leader = start()
    assert wait_until(lambda: api.led_to() == "10.0.0.1")
    leader.hand_over()
    assert api.led_to() == successor
    writes = api.writes
    time.sleep(0.05)  # it looks no more
    assert (api.led_to(), api.writes) == (successor, writes)
    logged = f"service points to the successor service=extender address={successor}" in caplog.messages
    assert logged is (successor != "10.0.0.1")


def test_a_standby_that_ends_changes_nothing(api: FakeApi, start: Start) -> None:
    api.pods = [pod("10.0.0.2", 2)]
    start(leading=lambda: False).hand_over()
    assert api.slice is None


def test_a_leader_that_was_called_says_so_in_a_lease(
    api: FakeApi, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a while again, because it may have been deleted although kube-scheduler still calls."""
    monkeypatch.setattr(elector, "CALLED_SECONDS", 0.05)
    leading = start()
    start("10.0.0.2", lambda: False).note_call()
    assert wait_until(api.led_to)
    assert api.leases == []
    leading.note_call()
    assert wait_until(lambda: api.leases == ["extender-called-by-kube-scheduler"])
    leading.note_call()  # the API server refuses another of this name
    assert wait_until(lambda: api.refused == 1)
    api.leases.clear()
    leading.note_call()
    assert wait_until(lambda: api.leases == ["extender-called-by-kube-scheduler"])
