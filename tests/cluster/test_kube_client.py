"""Credentials and certificates that change while calls go on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest
import trustme

from extender.cluster import kube_client
from extender.cluster.credentials import Kubeconfig
from extender.cluster.kube_client import ApiCall, KubeClient
from extender.errors import ClusterError, Conflict, NotFound, OutcomeUnknown, Refused
from extender.runtime.fibers import FiberPool
from extender.runtime.threads import log_error
from tests.builders import make_node
from tests.cluster.fake_api import NODES, Call, Fault, answer, fake_api, hang_up
from tests.cluster.test_credentials import GRANT, with_plugin
from tests.stock.waiting import wait_until


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_client, "_RETRY_SECONDS", 0.0)


def get(client: KubeClient) -> int:
    with client.get(NODES, {}, 60.0) as response:
        response.read()
    return response.status


def test_a_plugin_that_hangs_delays_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_client, "_RENEWAL_SECONDS", 0.05)
    with fake_api(make_node("n").obj(), authority=trustme.CA()) as api:
        hanging = f"[ -e {tmp_path}/used ] && sleep 60; : > {tmp_path}/used; " + GRANT % '{"token":"t"}'
        path = with_plugin(tmp_path, hanging, clusters=[{"name": "one", "cluster": api.address()}])
        client = KubeClient(Kubeconfig(path))
        api.token = "another"
        assert [get(client) for _ in range(3)] == [401] * 3
        api.token = "t"
        assert get(client) == 200
        client.close()


def test_a_replaced_authority_is_no_longer_trusted(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    with fake_api(make_node("n").obj(), authority=old) as api:
        client = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
        assert get(client) == 200
        api.change_authority(new)
        kubeconfig = api.kubeconfig(tmp_path)
        kubeconfig_text = kubeconfig.read_text()
        kubeconfig.write_text("")  # in the midst of being written; before a call fails, it is not read
        for _ in range(2):
            with pytest.raises(Refused, match="certificate"):
                get(client)
        kubeconfig.write_text(kubeconfig_text)
        assert wait_until(lambda: _answers(client))
        client.close()


def _answers(client: KubeClient) -> bool:
    try:
        return get(client) == 200
    except Refused:
        return False


def test_every_request_is_observed_once(tmp_path: Path) -> None:
    recorded: list[tuple[str, str]] = []
    with fake_api(make_node("n").obj()) as api:
        client = KubeClient(
            Kubeconfig(api.kubeconfig(tmp_path)), lambda method, _host, code, _: recorded.append((method, code))
        )
        assert get(client) == 200
        with pytest.raises(ClusterError):
            client.call(ApiCall("DELETE", NODES, b""))
    with pytest.raises(Refused):
        client.call(ApiCall("POST", NODES, b"{}"))
    assert recorded == [("GET", "200"), ("DELETE", "501"), ("POST", "<error>")]
    client.close()


BINDING = "/api/v1/namespaces/default/pods/p/binding"


def test_an_endless_response_takes_no_longer_than_its_call(tmp_path: Path) -> None:
    over = threading.Event()

    def go_on_for_ever(call: Call) -> None:
        while not over.wait(0.01):
            call.wfile.write(b"HTTP/1.1 102 Processing\r\n\r\n")

    with fake_api() as api:
        client = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
        api.fail(BINDING, go_on_for_ever)
        with pytest.raises(OutcomeUnknown, match="the response was not complete"):
            client.call(ApiCall("POST", BINDING, b"{}", timeout_seconds=0.2))
        over.set()
        client.close()


def test_nothing_is_sent_after_the_deadline(tmp_path: Path) -> None:
    """Because another process may lead by then."""
    with fake_api() as api:
        client = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
        with pytest.raises(Refused, match="in time"):
            client.call(ApiCall("POST", BINDING, b"{}", timeout_seconds=0.0))
        assert api.calls == []
        client.close()


@pytest.mark.parametrize(
    ("query", "sent"), [("", "?timeout=2.5s"), ("?fieldManager=x", "?fieldManager=x&timeout=2.5s")]
)
def test_a_write_carries_the_time_after_which_the_api_server_gives_it_up(tmp_path: Path, query: str, sent: str) -> None:
    with fake_api() as api:
        client = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
        with pytest.raises(ClusterError):
            client.call(ApiCall("POST", f"{BINDING}{query}", b"{}", timeout_seconds=2.5))
        with pytest.raises(ClusterError):
            client.call(ApiCall("GET", f"{BINDING}{query}", b"", timeout_seconds=2.5))
        assert api.calls == [f"POST {BINDING}{sent}", f"GET {BINDING}{query}"]
        client.close()


def test_a_call_is_sent_twice_at_most(tmp_path: Path) -> None:
    with fake_api(make_node("n").obj()) as api:
        client = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
        with ThreadPoolExecutor(3) as threads:  # so that there are three kept connections
            together = threading.Barrier(3)
            api.fail(NODES, *[lambda _: together.wait(60) is not None] * 3)
            assert list(threads.map(lambda _: get(client), range(3))) == [200] * 3
        api.fail(BINDING, *[hang_up] * 3)
        with pytest.raises(OutcomeUnknown):
            client.call(ApiCall("POST", BINDING, b"{}"))
        assert api.calls.count(f"POST {BINDING}?timeout=10s") == 2
        client.close()


def _not_found_in_plain_text(call: Call) -> None:
    call.wfile.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 21\r\n\r\ndefault backend - 404")


@pytest.mark.parametrize(
    ("second", "error"),
    [
        pytest.param(answer(404), NotFound, id="the object is gone"),
        pytest.param(answer(409), Conflict, id="a conflict"),
        pytest.param(answer(403), OutcomeUnknown, id="refused"),
        pytest.param(_not_found_in_plain_text, OutcomeUnknown, id="a gateway without the API server"),
    ],
)
def test_what_the_second_attempt_says_about_the_first(tmp_path: Path, second: Fault, error: type[ClusterError]) -> None:
    with fake_api(make_node("n").obj()) as api:
        client = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
        assert get(client) == 200  # so that there is a kept connection
        api.fail(BINDING, hang_up, second)
        with pytest.raises(error):
            client.call(ApiCall("POST", BINDING, b"{}"))
        assert api.calls.count(f"POST {BINDING}?timeout=10s") == 2
        client.close()


def test_without_threads_calls_are_refused_and_credentials_are_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fibers, answers = FiberPool("test", 1, log_error), SimpleQueue[object]()
    fibers.start()

    def ask() -> None:
        try:
            answers.put(get(client))
        except ClusterError as error:
            answers.put(error)

    def cannot_start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with fake_api(make_node("n").obj(), authority=trustme.CA()) as api:
        client = KubeClient(Kubeconfig(api.kubeconfig(tmp_path, token="old")))
        api.token = "old"
        with monkeypatch.context() as limited:
            limited.setattr(threading.Thread, "start", cannot_start)
            fibers.submit(ask)
            refused = answers.get(timeout=60)
        assert isinstance(refused, Refused)
        assert refused.status == 503
        api.kubeconfig(tmp_path, token="new")
        api.token = "new"
        assert wait_until(lambda: get(client) == 200)
        client.close()
    fibers.stop(60)
