"""The proxy does what its faults say: else a storm proves nothing."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

import pytest

from tests.builders import make_node, make_pod
from tests.faults.injection import Call, Fault, Injection, Injector, Severity
from tests.faults.proxy import FaultyProxy, proxy_before
from tests.stock.control_plane import ADMIN_TOKEN, ControlPlane

pytestmark = pytest.mark.stock

PODS = "/api/v1/pods?limit=500"
HANG_SECONDS = 0.3


class Scripted(Injector):
    """Every call of one kind meets the same fault."""

    def __init__(self, call: Call, fault: Fault, after_seconds: float = 0.0) -> None:
        super().__init__(0, Severity({}, (0, 0), (0, 0)))
        self._call, self._injection = call, Injection(fault, after_seconds, HANG_SECONDS, share=0.5)

    def draw(self, call: Call) -> Injection | None:
        return self._injection if call is self._call else None


def ask(plane: ControlPlane, proxy: FaultyProxy, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """Status and body; (0, b"") where there was no answer, (status, b"") where it broke off."""
    context = ssl.create_default_context(cafile=str(plane.ca_file))
    connection = http.client.HTTPSConnection("127.0.0.1", proxy.port, context=context, timeout=60)
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"}
    status = 0
    try:
        connection.request(method, path, json.dumps(body) if body else None, headers)
        response = connection.getresponse()
        status = response.status
        return status, response.read()
    except (OSError, http.client.HTTPException):
        return status, b""
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("fault", "status", "done"),
    [
        pytest.param(Fault.RESET, 0, False, id="reset"),
        pytest.param(Fault.THROTTLED, 429, False, id="throttled"),
        pytest.param(Fault.FAILED, 500, False, id="failed"),
        pytest.param(Fault.HUNG, 0, False, id="hung"),
        pytest.param(Fault.SLOW, 201, True, id="slow"),
        pytest.param(Fault.TRUNCATED, 201, True, id="truncated"),
        pytest.param(Fault.UNANSWERED, 0, True, id="unanswered"),
        pytest.param(Fault.LEFT_HANGING, 0, True, id="left hanging"),
        pytest.param(Fault.DONE_YET_FAILED, 500, True, id="done yet failed"),
        pytest.param(Fault.ENDLESS, 0, True, id="endless"),
        pytest.param(Fault.UNMEASURED, 201, True, id="unmeasured"),
        pytest.param(Fault.UNREADABLE, 400, True, id="unreadable"),
        pytest.param(Fault.SURPLUS, 201, True, id="surplus"),
    ],
)
def test_a_bind_meets_its_fault(control_plane: ControlPlane, fault: Fault, status: int, done: bool) -> None:
    control_plane.client.create(make_node("n").obj(), make_pod("p").obj())
    injector = Scripted(Call.BIND, fault)
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    with proxy_before(control_plane, injector) as proxy:
        got, body = ask(control_plane, proxy, "POST", "/api/v1/namespaces/default/pods/p/binding", binding)
    assert injector.injected == {(Call.BIND, fault): 1}
    assert got == status
    assert bool(body) == (status > 0 and fault is not Fault.TRUNCATED)
    assert ("nodeName" in control_plane.client.get("Pod", "p")["spec"]) is done


@pytest.mark.parametrize(
    ("fault", "after_seconds", "status", "ending"),
    [
        pytest.param(Fault.GONE, 0.0, 410, b'"code": 410}', id="410 for an answer"),
        pytest.param(Fault.GONE, 0.3, 200, b'"code": 410}}\n', id="410 in its midst"),
        pytest.param(Fault.GARBLED, 0.3, 200, b"", id="garbled"),
        pytest.param(Fault.TRUNCATED, 0.3, 200, b"", id="truncated"),
        pytest.param(Fault.RESET, 0.3, 200, b"", id="reset in its midst"),
        pytest.param(Fault.HUNG, 0.3, 200, b"", id="hung"),
        pytest.param(Fault.THROTTLED, 0.0, 429, b'"code": 429}', id="throttled"),
    ],
)
def test_a_watch_meets_its_fault(
    control_plane: ControlPlane, fault: Fault, after_seconds: float, status: int, ending: bytes
) -> None:
    injector = Scripted(Call.WATCH, fault, after_seconds)
    with proxy_before(control_plane, injector) as proxy:
        got, body = ask(control_plane, proxy, "GET", "/api/v1/pods?watch=1&resourceVersion=0")
    assert injector.injected == {(Call.WATCH, fault): 1}
    assert got == status
    assert body.endswith(ending)
    assert bool(body) is bool(ending)


def test_a_list_passes_unharmed_where_nothing_strikes(control_plane: ControlPlane) -> None:
    control_plane.client.create(make_pod("p").obj())
    with proxy_before(control_plane, Scripted(Call.BIND, Fault.RESET)) as proxy:
        status, body = ask(control_plane, proxy, "GET", PODS)
    assert status == 200
    assert [item["metadata"]["name"] for item in json.loads(body)["items"]] == ["p"]


def test_a_slow_list_comes_whole_and_a_truncated_one_does_not(control_plane: ControlPlane) -> None:
    control_plane.client.create(make_pod("p").obj())
    with proxy_before(control_plane, Scripted(Call.LIST, Fault.SLOW)) as proxy:
        assert json.loads(ask(control_plane, proxy, "GET", PODS)[1])["items"]
    with proxy_before(control_plane, Scripted(Call.LIST, Fault.TRUNCATED)) as proxy:
        assert ask(control_plane, proxy, "GET", PODS) == (200, b"")


def test_a_seed_gives_the_same_faults_again() -> None:
    severity = Severity(dict.fromkeys(Call, 0.5), (1, 2), (1, 2))
    one, other = Injector(7, severity), Injector(7, severity)
    assert [one.draw(Call.BIND) for _ in range(50)] == [other.draw(Call.BIND) for _ in range(50)]
    assert {injection is None for injection in [one.draw(Call.LIST) for _ in range(50)]} == {True, False}
