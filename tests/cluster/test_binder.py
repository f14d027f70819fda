"""Every way in which a bind can end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trustme

from extender.cluster.binder import ApiBinder, WatchedBinder
from extender.cluster.credentials import Kubeconfig
from extender.cluster.kube_client import JSON, KubeClient
from extender.errors import Conflict, ExtenderError, NotFound, OutcomeUnknown, Refused
from extender.runtime.clock import ManualClock
from extender.runtime.fibers import FiberPool
from extender.runtime.ports import Binding, Check, always
from extender.runtime.threads import HangingCalls, log_error
from tests.builders import make_pod
from tests.cluster.fake_api import PODS, FakeApiServer, Fault, accept_and_hang_up, answer, fake_api, hang, hang_up
from tests.stock.waiting import wait_until

BINDING = "/api/v1/namespaces/default/pods/p/binding"


def raw(status: int, body: bytes, before: bytes = b"") -> Fault:
    """An answer of these bytes."""
    head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return lambda call: call.wfile.write(before + head + body)


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with fake_api() as api:
        api.put(PODS, make_pod("p").uid("u").obj())
        yield api


@pytest.fixture
def connection(api: FakeApiServer, tmp_path: Path) -> Iterator[KubeClient]:
    connection = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
    yield connection
    connection.close()


class FiberBinder(ApiBinder):
    """Binds in a fiber, as the loop does."""

    def __init__(self, client: KubeClient, pool: FiberPool) -> None:
        super().__init__(client)
        self._pool = pool

    def bind(self, binding: Binding, check: Check = always) -> None:
        bound: Future[None] = Future()

        def bind() -> None:
            try:
                bound.set_result(super(FiberBinder, self).bind(binding, check))
            except ExtenderError as error:
                bound.set_exception(error)

        self._pool.submit(bind)
        bound.result(60)


@pytest.fixture(params=["thread", "fiber"])
def binder(connection: KubeClient, request: pytest.FixtureRequest) -> Iterator[ApiBinder]:
    if request.param == "thread":
        yield ApiBinder(connection)
        return
    pool = FiberPool("binder", 8, log_error)
    pool.start()
    yield FiberBinder(connection, pool)
    pool.stop(30)


def node_of_p(api: FakeApiServer) -> str | None:
    node: str | None = api.collections[PODS]["default/p"]["spec"].get("nodeName")
    return node


def test_it_binds(api: FakeApiServer, binder: ApiBinder) -> None:
    binder.bind(Binding("default", "p", "u", "n1"))
    assert node_of_p(api) == "n1"


def test_bound_to_the_same_node_already_is_bound(api: FakeApiServer, binder: ApiBinder) -> None:
    binder.bind(Binding("default", "p", "u", "n1"))
    binder.bind(Binding("default", "p", "u", "n1"))
    assert node_of_p(api) == "n1"


@pytest.mark.parametrize("node", ["n2", "n", "n11"])
def test_bound_to_another_node_is_a_conflict(binder: ApiBinder, node: str) -> None:
    binder.bind(Binding("default", "p", "u", "n1"))
    with pytest.raises(Conflict, match='already assigned to node "n1"'):
        binder.bind(Binding("default", "p", "u", node))


def test_a_recreated_pod_is_a_conflict(api: FakeApiServer, binder: ApiBinder) -> None:
    with pytest.raises(Conflict, match="UID in precondition: old"):
        binder.bind(Binding("default", "p", "old", "n1"))
    assert node_of_p(api) is None


def test_a_pod_that_is_gone(binder: ApiBinder) -> None:
    with pytest.raises(NotFound):
        binder.bind(Binding("default", "gone", "u", "n1"))


def test_a_name_cannot_leave_its_place_in_the_path(api: FakeApiServer, binder: ApiBinder) -> None:
    with pytest.raises(NotFound):
        binder.bind(Binding("default", "x/../p", "u", "n1\r\nX: y"))
    assert api.calls == ["POST /api/v1/namespaces/default/pods/x%2F..%2Fp/binding?timeout=10s"]


CALLING = 'Internal error occurred: failed calling webhook "binds.example.com"'
DENIED = 'admission webhook "binds.example.com" denied the request'
AUTHORIZING = b'Internal Server Error: "/api/v1/namespaces/default/pods/p/binding": Post "https://authz": EOF'
STORING = 'Operation cannot be fulfilled on pods/binding "p"'


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        pytest.param(answer(400), Refused, id="400"),
        pytest.param(answer(403, "not allowed"), Refused, id="403"),
        pytest.param(answer(422), Refused, id="422"),
        pytest.param(answer(429, **{"Retry-After": "1"}), Refused, id="429"),
        pytest.param(answer(500), OutcomeUnknown, id="500"),
        pytest.param(answer(503), OutcomeUnknown, id="503"),
        pytest.param(answer(504), OutcomeUnknown, id="504"),
        pytest.param(answer(500, f"{CALLING}: connection refused"), Refused, id="no admission webhook"),
        pytest.param(answer(503, f"{DENIED}: no"), Refused, id="503 by an admission webhook"),
        pytest.param(answer(409, f"{DENIED}: no"), Refused, id="409 by an admission webhook"),
        pytest.param(answer(404, f"{DENIED}: no"), Refused, id="404 by an admission webhook"),
        pytest.param(answer(503, "apiserver is shutting down"), Refused, id="the server shuts down"),
        pytest.param(raw(500, AUTHORIZING), Refused, id="no authorization webhook"),
        pytest.param(answer(500, "Internal error occurred: etcd"), OutcomeUnknown, id="500 of the storage"),
        pytest.param(answer(409, f"{STORING}: etcdserver: request timed out"), OutcomeUnknown, id="409 of etcd"),
        pytest.param(answer(409, f"{STORING}: rpc error: code = Unavailable"), OutcomeUnknown, id="409 without etcd"),
        pytest.param(answer(409, f"{STORING}: pod p has non-empty .spec.schedulingGates"), Conflict, id="gates"),
        pytest.param(answer(408), OutcomeUnknown, id="408"),
        pytest.param(answer(307), OutcomeUnknown, id="a redirection"),
        pytest.param(raw(500, b'{"message":"\xff'), OutcomeUnknown, id="500 in no UTF-8"),
        pytest.param(raw(403, b"\xff\xfe"), OutcomeUnknown, id="403 in no text"),
        pytest.param(raw(403, b"Forbidden"), Refused, id="403 in plain text"),
        pytest.param(raw(404, b"default backend - 404"), Refused, id="404 of a gateway"),
        pytest.param(raw(404, b'{"message":"no route"}'), Refused, id="404 of a gateway in JSON"),
        pytest.param(raw(403, b"", before=b"HTTP/1.1 100 X\r\n\r\n"), Refused, id="100 and then 403"),
        pytest.param(hang_up, OutcomeUnknown, id="the connection dies before it is done"),
        pytest.param(lambda call: call.wfile.write(b"nonsense\r\n\r\n"), OutcomeUnknown, id="not HTTP"),
    ],
)
def test_a_bind_that_ends_otherwise(
    api: FakeApiServer, binder: ApiBinder, fault: Fault, error: type[ExtenderError]
) -> None:
    api.fail(BINDING, fault)
    with pytest.raises(ExtenderError) as caught:
        binder.bind(Binding("default", "p", "u", "n1"))
    assert type(caught.value) is error or (error is OutcomeUnknown and isinstance(caught.value, OutcomeUnknown))
    assert node_of_p(api) is None


def test_the_answer_is_lost_after_the_bind(api: FakeApiServer, binder: ApiBinder) -> None:
    api.fail(BINDING, accept_and_hang_up)
    with pytest.raises(OutcomeUnknown):
        binder.bind(Binding("default", "p", "u", "n1"))
    assert node_of_p(api) == "n1"
    binder.bind(Binding("default", "p", "u", "n1"))


def test_no_answer_in_time(api: FakeApiServer, binder: ApiBinder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KubeClient.call, "__defaults__", (JSON, 0.2, always))
    release = threading.Event()
    api.fail(BINDING, hang(release))
    with pytest.raises(OutcomeUnknown, match="the response was not complete after"):
        binder.bind(Binding("default", "p", "u", "n1"))
    release.set()
    assert wait_until(lambda: api.calls)
    assert len(api.calls) == 1, "a call that may still be under way is not repeated"


def test_after_one_time_out_no_connection_is_used_that_was_idle_then(
    api: FakeApiServer, binder: ApiBinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a firewall has forgotten them all, and says nothing."""
    for index in range(8):
        api.put(PODS, make_pod(f"p{index}").uid(f"u{index}").obj())
    met = threading.Barrier(4)
    api.fail("/api/v1/namespaces/default/pods/p0/binding", *[lambda _: met.wait(60) >= 0] * 4)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: binder.bind(Binding("default", "p0", "u0", "n1")), range(4)))
    monkeypatch.setattr(KubeClient.call, "__defaults__", (JSON, 0.2, always))
    api.freeze()
    with pytest.raises(OutcomeUnknown, match="the response was not complete after"):
        binder.bind(Binding("default", "p1", "u1", "n1"))
    monkeypatch.setattr(KubeClient.call, "__defaults__", (JSON, 20.0, always))
    for index in range(2, 8):
        binder.bind(Binding("default", f"p{index}", f"u{index}", "n1"))


def test_a_bind_to_a_server_that_does_not_listen_is_refused(tmp_path: Path) -> None:
    with fake_api() as api:
        connection = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
    with pytest.raises(Refused, match="cannot be reached"):
        ApiBinder(connection).bind(Binding("default", "p", "u", "n1"))


def test_a_kept_connection_that_has_died_is_replaced(api: FakeApiServer, binder: ApiBinder) -> None:
    with pytest.raises(NotFound):
        binder.bind(Binding("default", "warm", "u", "n1"))
    api.restart()
    binder.bind(Binding("default", "p", "u", "n1"))
    assert node_of_p(api) == "n1"


def test_one_that_dies_as_the_call_arrives_is_replaced_too(api: FakeApiServer, binder: ApiBinder) -> None:
    with pytest.raises(NotFound):
        binder.bind(Binding("default", "warm", "u", "n1"))
    api.fail(BINDING, accept_and_hang_up)
    binder.bind(Binding("default", "p", "u", "n1"))
    assert [call for call in api.calls if "/p/" in call] == [f"POST {BINDING}?timeout=10s"] * 2
    assert node_of_p(api) == "n1"


@pytest.mark.parametrize("status", [429, 403, 503])
def test_a_refused_repetition_says_nothing_of_the_call_that_got_no_answer(
    api: FakeApiServer, binder: ApiBinder, status: int
) -> None:
    with pytest.raises(NotFound):
        binder.bind(Binding("default", "warm", "u", "n1"))
    api.fail(BINDING, accept_and_hang_up, answer(status))
    with pytest.raises(OutcomeUnknown, match=str(status)):
        binder.bind(Binding("default", "p", "u", "n1"))
    assert node_of_p(api) == "n1"


def test_a_rotated_token_is_read_again(tmp_path: Path) -> None:
    with fake_api(authority=trustme.CA()) as api:
        api.put(PODS, make_pod("p").uid("u").obj())
        api.token = "first"
        connection = KubeClient(Kubeconfig(api.kubeconfig(tmp_path, token="first")))
        api.token = "second"
        api.kubeconfig(tmp_path, token="second")
        ApiBinder(connection).bind(Binding("default", "p", "u", "n1"))
        assert node_of_p(api) == "n1"
        connection.close()


def test_connections_are_kept_and_shared(
    api: FakeApiServer, binder: ApiBinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    dial = socket.create_connection

    def counted(*args: Any) -> socket.socket:
        opened.append(args)
        return dial(*args)

    monkeypatch.setattr(socket, "create_connection", counted)
    pods = [make_pod(f"p{i}").uid(f"u{i}").obj() for i in range(64)]
    for pod in pods:
        api.put(PODS, pod)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda i: binder.bind(Binding("default", f"p{i}", f"u{i}", "n1")), range(64)))
    assert all(api.collections[PODS][f"default/p{i}"]["spec"]["nodeName"] == "n1" for i in range(64))
    assert len(opened) <= 16


class SlowApi:
    """A ports.Binder that gives no answer for some seconds; each second, the calls that hang are logged."""

    def __init__(self, seconds: int) -> None:
        self.clock = ManualClock()
        self.seconds = seconds
        self.hanging = HangingCalls(self.clock)
        self.watched = WatchedBinder(self, self.hanging)

    def bind(self, binding: Binding, check: Check = always) -> None:
        for _ in range(self.seconds):
            self.clock.advance(1)
            self.hanging.log()
        raise OutcomeUnknown("no answer")


@pytest.mark.parametrize("seconds", [4, 9])
def test_a_bind_that_hangs_is_logged_once_while_it_hangs(seconds: int, caplog: pytest.LogCaptureFixture) -> None:
    api = SlowApi(seconds)
    for turn in (1, 2):
        with pytest.raises(OutcomeUnknown):
            api.watched.bind(Binding("shop", "web-7", "uid", "n1"))
        expected = ["bind has no answer yet pod=shop/web-7 node=n1 seconds=5"] if seconds > 5 else []
        assert caplog.messages == expected * turn
