"""One look at a live cluster: what is read, what may not be, and a server that is not there."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import yaml

from extender.app.live_lookups import identify
from extender.config.cluster_access import ClusterAccess
from extender.config.settings import Settings
from extender.errors import ClusterError
from extender.model.kinds import ADMISSION_KINDS, KINDS
from extender.model.meta import Object
from extender.offline.live import namespace_of, read_state
from tests.builders import make_node, make_pod
from tests.cluster.fake_api import NODES, PODS, FakeApiServer, answer, fake_api

PRIORITY_CLASSES = KINDS["PriorityClass"].path


def with_pod(api: FakeApiServer) -> FakeApiServer:
    api.put(PODS, make_pod("p").obj())
    return api


def look(access: ClusterAccess, namespace: str = "default") -> tuple[list[Object], list[str]]:
    state, notes = read_state(access, namespace, needs_nodes=False)
    return list(state.every_object()), notes


def test_everything_that_is_served_is_read(tmp_path: Path) -> None:
    with fake_api(make_node("n").obj()) as api:
        limits = ADMISSION_KINDS["LimitRange"].path
        api.collections[limits] = {}
        api.put(limits, {"metadata": {"name": "l", "namespace": "default"}})
        objects, notes = look(ClusterAccess((with_pod(api).kubeconfig(tmp_path),)))
    assert sorted(type(obj).__name__ for obj in objects) == ["LimitRange", "Node", "Pod"]
    assert notes == []


def test_a_kind_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    with fake_api(make_node("n").obj()) as api:
        api.fail(PRIORITY_CLASSES, answer(403, "priorityclasses is forbidden"))
        objects, notes = look(ClusterAccess((with_pod(api).kubeconfig(tmp_path),)))
    assert notes == [
        "priorityclasses could not be read (403: priorityclasses is forbidden), "
        "so the answer leaves out priorities of new pods"
    ]
    assert len(objects) == 2


def test_kinds_that_may_not_be_read_are_named_in_one_note(tmp_path: Path) -> None:
    services = KINDS["Service"].path
    with fake_api(make_node("n").obj()) as api:
        for path in (PRIORITY_CLASSES, services):
            resource = path.rpartition("/")[2]
            recorded = f'{resource} is forbidden: User "jo" cannot list resource "{resource}" in API group ""'
            api.fail(path, answer(403, recorded))
        _, notes = look(ClusterAccess((with_pod(api).kubeconfig(tmp_path),)))
    assert notes == [
        'services, priorityclasses could not be read (403: "jo" may not list them), '
        "so the answer leaves out spreading by services, priorities of new pods"
    ]


def test_without_pods_nodes_are_taken_to_be_empty(tmp_path: Path) -> None:
    with fake_api(make_node("n").obj()) as api:
        api.fail(PODS, answer(403, "no"))
        objects, notes = look(ClusterAccess((with_pod(api).kubeconfig(tmp_path),)))
    assert [type(obj).__name__ for obj in objects] == ["Node"]
    assert notes[0].startswith("pods could not be read (403: no), and every node counts as empty")


def test_the_pods_of_one_namespace_are_better_than_none(tmp_path: Path) -> None:
    of_shop = f"{PODS.removesuffix('pods')}namespaces/shop/pods"
    with fake_api(make_node("n").obj()) as api:
        api.fail(PODS, answer(403, "no"))
        api.collections[of_shop] = {}
        api.put(of_shop, make_pod("p", "shop").obj())
        objects, notes = look(ClusterAccess((api.kubeconfig(tmp_path),)), namespace="shop")
    assert [obj.key for obj in objects] == ["n", "shop/p"]
    assert notes[0].startswith(
        "only pods in the namespace shop could be read (403: no), so the answer lacks pods of other"
    )


def test_without_nodes_there_are_the_pods_themselves(tmp_path: Path) -> None:
    with fake_api() as api:
        api.fail(NODES, answer(403, "nodes is forbidden"))
        objects, notes = look(ClusterAccess((with_pod(api).kubeconfig(tmp_path),)))
    assert [obj.key for obj in objects] == ["default/p"]
    assert notes[0].startswith("nodes could not be read (403: nodes is forbidden), so the verdict")


def test_nothing_can_be_answered_without_nodes_and_pods(tmp_path: Path) -> None:
    with fake_api() as api:
        for path in (NODES, PODS):
            api.fail(path, answer(403, "no"))
        with pytest.raises(ClusterError, match=r"neither nodes nor pods can be read \(403: no\)"):
            read_state(ClusterAccess((api.kubeconfig(tmp_path),)))


def test_a_server_that_fails_is_no_missing_right(tmp_path: Path) -> None:
    with fake_api(make_node("n").obj()) as api:
        api.fail(PODS, answer(500, "etcd is gone"))
        with pytest.raises(ClusterError, match=r"pods cannot be listed \(500: etcd is gone\)"):
            read_state(ClusterAccess((api.kubeconfig(tmp_path),)))


def test_what_serves_no_nodes_is_no_cluster(tmp_path: Path) -> None:
    with fake_api() as api:
        del api.collections[NODES]
        with pytest.raises(ClusterError, match=r"nodes cannot be listed \(404"):
            read_state(ClusterAccess((api.kubeconfig(tmp_path),)))


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with fake_api() as api:
        path = api.kubeconfig(tmp_path)
    with pytest.raises(ClusterError, match=r"cannot be reached: Connection refused; check that the API server is up"):
        read_state(ClusterAccess((path,)))


def test_a_server_that_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.offline.live.FIRST_CALL_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, fake_api() as api:
        document = yaml.safe_load(api.kubeconfig(tmp_path).read_text())
        document["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        (tmp_path / "silent").write_text(yaml.safe_dump(document))
        with pytest.raises(ClusterError):
            read_state(ClusterAccess((tmp_path / "silent",)))


def test_the_context_has_a_namespace(tmp_path: Path) -> None:
    contexts = [{"name": "a", "context": {"namespace": "shop"}}, {"name": "b", "context": {}}]
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump({"contexts": contexts, "current-context": "a"}))
    assert [namespace_of(ClusterAccess((path,), context)) for context in (None, "b", "c")] == ["shop", "", ""]
    assert namespace_of(ClusterAccess((tmp_path / "none",))) == ""


def test_a_cluster_is_known_by_its_address_and_version(tmp_path: Path) -> None:
    with fake_api() as api:
        api.fail("/version", lambda call: call.json(200, {"major": "1", "gitVersion": "v1.37.1"}))
        settings = Settings(kubeconfig=api.kubeconfig(tmp_path))
        (address, version), (_, unknown) = identify(settings), identify(settings)
    assert (address.startswith("http://127.0.0.1:"), version) == (True, "v1.37.1")
    assert unknown.startswith("unknown: 404")


def test_a_file_is_a_cluster_without_a_version(tmp_path: Path) -> None:
    assert identify(Settings(cluster=tmp_path)) == (str(tmp_path), "none (the objects come from a file)")
