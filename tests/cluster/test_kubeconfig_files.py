"""Several kubeconfigs become one, and users are impersonated, as kubectl does both."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender.cluster.credentials import credentials_of, merged
from extender.cluster.kube_client import KubeClient
from extender.config.cluster_access import ClusterAccess
from extender.errors import ConfigurationError
from tests.http_server import HttpServer
from tests.stock.build import Binaries


def kubeconfig(path: Path, **document: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **document}))
    return path


def cluster(name: str, server: str, **fields: str) -> dict[str, Any]:
    return {"name": name, "cluster": {"server": server, **fields}}


def test_the_first_entry_of_a_name_counts_whole(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "a", clusters=[cluster("c", "https://a:1")])
    second = kubeconfig(tmp_path / "b", clusters=[cluster("c", "https://b:1", **{"tls-server-name": "b"})])
    assert merged([first, second])["clusters"] == [cluster("c", "https://a:1")]


def test_the_first_current_context_counts(tmp_path: Path) -> None:
    without, first = kubeconfig(tmp_path / "a"), kubeconfig(tmp_path / "b", **{"current-context": "first"})
    second = kubeconfig(tmp_path / "c", **{"current-context": "second"})
    assert merged([without, first, second])["current-context"] == "first"


def test_a_path_is_relative_to_the_folder_of_its_file(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "x" / "a", clusters=[cluster("c", "https://a", **{"certificate-authority": "ca"})])
    plugin = {"exec": {"command": "./plugin"}, "client-key": "/etc/key"}
    second = kubeconfig(tmp_path / "y" / "b", users=[{"name": "u", "user": plugin}])
    document = merged([first, second])
    assert document["clusters"][0]["cluster"]["certificate-authority"] == str(tmp_path / "x" / "ca")
    user = document["users"][0]["user"]
    assert (user["exec"]["command"], user["client-key"]) == (str(tmp_path / "y" / "plugin"), "/etc/key")


def test_a_missing_file_is_skipped_unless_all_are_missing(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "a", **{"current-context": "c"})
    assert merged([tmp_path / "none", file])["current-context"] == "c"
    with pytest.raises(ConfigurationError, match=f"kubeconfig {tmp_path / 'none'}: no such file"):
        merged([tmp_path / "none", tmp_path / "other"])


def test_a_fault_names_its_file(tmp_path: Path) -> None:
    good, bad = kubeconfig(tmp_path / "a"), kubeconfig(tmp_path / "b", users=[{"name": "u"}, {"name": "u"}])
    with pytest.raises(ConfigurationError) as raised:
        merged([good, bad])
    assert str(raised.value) == f"kubeconfig {bad}: users: 'u' occurs twice"


NAMES = st.sampled_from(["a", "b", "c"])
SERVERS = st.sampled_from(["https://one:1", "https://two:2"])
FILES = ("one.pem", "two.pem")


def fields(**values: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({}, optional={name.replace("_", "-"): value for name, value in values.items()})


def entries(kind: str, values: st.SearchStrategy[dict[str, str]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    entry = st.builds(lambda name, value: {"name": name, kind: value}, NAMES, values)
    return st.lists(entry, max_size=3, unique_by=lambda each: str(each["name"]))


PEM = st.sampled_from(FILES)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "current-context": st.one_of(st.just(""), NAMES),
        "clusters": entries("cluster", fields(server=SERVERS, certificate_authority=PEM, tls_server_name=NAMES)),
        "users": entries("user", fields(client_certificate=PEM, client_key=PEM, username=NAMES, token=NAMES)),
        "contexts": entries("context", fields(cluster=NAMES, user=NAMES, namespace=NAMES)),
    },
)


@pytest.mark.stock
@pytest.mark.clients
@pytest.mark.hypothesis
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=st.lists(st.one_of(st.none(), DOCUMENTS), min_size=1, max_size=3))
def test_files_are_merged_as_by_kubectl(
    stock_binaries: Binaries, tmp_path: Path, documents: list[dict[str, Any] | None]
) -> None:
    paths = [tmp_path / str(number) / "config" for number in range(len(documents))]
    for path, document in zip(paths, documents, strict=True):
        path.unlink(missing_ok=True)
        if document is not None:
            kubeconfig(path, **document)
            for name in FILES:
                (path.parent / name).write_text(f"{name} of {path}")
    command: list[str | Path] = [stock_binaries["kubectl"], "config", "view", "--flatten", "-o", "json"]
    environment = {"KUBECONFIG": os.pathsep.join(map(str, paths)), "HOME": str(tmp_path)}
    expected = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    if all(document is None for document in documents):
        assert expected["clusters"] is None
    else:
        assert flattened(merged(paths)) == flattened(expected)


def flattened(document: dict[str, Any]) -> dict[str, Any]:
    """The entries by name, with the content of files in place of their paths, and without empty fields."""
    lists = {
        kind: {entry["name"]: inline(entry[kind]) for entry in document[f"{kind}s"] or ()}
        for kind in ("cluster", "user", "context")
    }
    return {**lists, "current-context": document["current-context"]}


def inline(value: dict[str, str]) -> dict[str, str]:
    content = {
        f"{field}-data": base64.b64encode(Path(path).read_bytes()).decode()
        for field, path in value.items()
        if field in ("certificate-authority", "client-certificate", "client-key")
    }
    others = {field: text for field, text in value.items() if f"{field}-data" not in content and text}
    return {**others, **content}


@contextmanager
def listening() -> Iterator[tuple[str, list[list[tuple[str, str]]]]]:
    """A server, and the headers about impersonation of each of its requests; the case of their names is no matter."""
    received: list[list[tuple[str, str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(
                sorted((name.lower(), value) for name, value in self.headers.items() if "Impersonate" in name)
            )
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with HttpServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", received
        server.shutdown()


IN_FILE = {"as": "kim", "as-groups": ["g", "h"], "as-uid": "7", "as-user-extra": {"Some/Key ä": ["a", "b"]}}


@pytest.mark.stock
@pytest.mark.clients
@pytest.mark.parametrize(
    ("user", "access"),
    [
        pytest.param({}, ClusterAccess(), id="no user"),
        pytest.param({}, ClusterAccess(user="jo", groups=("a", "b")), id="by options"),
        pytest.param(IN_FILE, ClusterAccess(), id="by the kubeconfig"),
        pytest.param(IN_FILE, ClusterAccess(user="jo ä"), id="another user than the kubeconfig's"),
        pytest.param(IN_FILE, ClusterAccess(groups=("k",)), id="another group than the kubeconfig's"),
    ],
)
def test_users_are_impersonated_as_by_kubectl(
    stock_binaries: Binaries, tmp_path: Path, user: dict[str, Any], access: ClusterAccess
) -> None:
    with listening() as (address, received):
        path = kubeconfig(
            tmp_path / "config",
            clusters=[cluster("c", address)],
            users=[{"name": "u", "user": user}],
            contexts=[{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            **{"current-context": "x"},
        )
        flags = [*(["--as", access.user] if access.user else []), *(f"--as-group={group}" for group in access.groups)]
        command: list[str | Path] = [
            stock_binaries["kubectl"],
            "get",
            "--raw",
            "/version",
            "--kubeconfig",
            path,
            *flags,
        ]
        subprocess.run(command, env={"HOME": str(tmp_path)}, check=True, capture_output=True)
        client = KubeClient(credentials_of(ClusterAccess((path,), None, access.user, access.groups)))
        with client.get("/version", {}, 10.0) as response:
            response.read()
        client.close()
    by_kubectl, by_us = received
    assert by_us == by_kubectl


@pytest.mark.parametrize(
    ("access", "reason"),
    [
        (ClusterAccess(groups=("a",)), "groups, a UID or extra fields to impersonate are given without a user to"),
        (ClusterAccess(user="a\r\nX: y"), "the value of Impersonate-User contains a line break"),
    ],
)
def test_an_impersonation_that_cannot_be_sent_is_refused(tmp_path: Path, access: ClusterAccess, reason: str) -> None:
    path = kubeconfig(
        tmp_path / "config",
        clusters=[cluster("c", "http://127.0.0.1:1")],
        contexts=[{"name": "x", "context": {"cluster": "c"}}],
        **{"current-context": "x"},
    )
    with pytest.raises(ConfigurationError, match=reason):
        credentials_of(ClusterAccess((path,), None, access.user, access.groups)).load()
