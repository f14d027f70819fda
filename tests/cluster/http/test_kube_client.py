"""Credentials and certificates that change while calls go on."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from extender.cluster.http import kube_client
from extender.cluster.http.credentials import Kubeconfig
from extender.cluster.http.kube_client import KubeClient
from extender.errors import ClusterError, Refused
from tests.builders import make_node
from tests.cluster.fake_api import NODES, fake_api
from tests.cluster.http.test_credentials import GRANT, with_plugin
from tests.stock.waiting import wait_until


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_client, "_AGAIN_SECONDS", 0.0)


def get(client: KubeClient) -> int:
    with client.get(NODES, {}, 5.0) as response:
        response.read()
    return response.status


def test_a_plugin_that_hangs_holds_no_call_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_authority_that_is_withdrawn_is_trusted_no_more_and_a_new_one_is(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    with fake_api(make_node("n").obj(), authority=old) as api:
        client = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
        assert get(client) == 200
        api.change_authority(new)
        with pytest.raises(Refused, match="certificate"):
            get(client)
        kubeconfig = api.kubeconfig(tmp_path)
        kubeconfig_text = kubeconfig.read_text()
        kubeconfig.write_text("")  # in the midst of being written
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
    told: list[tuple[str, str]] = []
    with fake_api(make_node("n").obj()) as api:
        client = KubeClient(
            Kubeconfig(api.kubeconfig(tmp_path)), lambda method, _host, code, _: told.append((method, code))
        )
        assert get(client) == 200
        with pytest.raises(ClusterError):
            client.call("DELETE", NODES, b"")
    with pytest.raises(Refused):
        client.call("POST", NODES, b"{}")
    assert told == [("GET", "200"), ("DELETE", "501"), ("POST", "<error>")]
    client.close()
