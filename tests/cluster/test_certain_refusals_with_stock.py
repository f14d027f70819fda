"""When the real API server has certainly not written a Binding: which error answers prove it, and when a call ends."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import pytest

from extender.cluster.binder import ApiBinder
from extender.cluster.credentials import Kubeconfig
from extender.cluster.kube_client import ApiCall, KubeClient
from extender.errors import ClusterError, Conflict, OutcomeUnknown, Refused
from extender.runtime.ports import Binding
from tests.builders import make_pod
from tests.faults.gate import Gate
from tests.faults.proxy import kubeconfig_through
from tests.http_server import HttpServer
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane
from tests.stock.process import free_port
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock

_HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class Admission(BaseHTTPRequestHandler):
    """An admission webhook: /403 denies every request with this status code, and /after/3 allows it after 3 s."""

    asked: ClassVar[set[str]] = set()  # the names of the pods of all requests

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.add(review["request"]["name"])
        *after, number = self.path.split("?")[0].strip("/").split("/")
        response: dict[str, Any] = {"uid": review["request"]["uid"], "allowed": bool(after)}
        if after:
            time.sleep(int(number))
        else:
            response["status"] = {"code": int(number), "message": "no"}
        body = json.dumps({**review, "request": None, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def admission(control_plane: ControlPlane) -> Iterator[str]:
    """The address of an Admission, with the certificate of the API server."""
    server = HttpServer(("127.0.0.1", 0), Admission)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(control_plane.directory / "server.pem", control_plane.directory / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@contextmanager
def admitted_by(plane: ControlPlane, url: str) -> Iterator[None]:
    """Bindings have to pass the webhook at this address."""
    authority = base64.b64encode(plane.ca_file.read_bytes()).decode()
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    webhook = {
        "name": "binds.example.com",
        "clientConfig": {"url": url, "caBundle": authority},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    }
    plane.client.request("POST", _HOOKS, {"metadata": {"name": "of-a-test"}, "webhooks": [webhook]})
    try:
        yield
    finally:
        plane.client.request("DELETE", f"{_HOOKS}/of-a-test")


def outcome_of(plane: ControlPlane, name: str) -> ClusterError | None:
    """Binds the pod to a node; returns the error, if any."""
    connection = KubeClient(Kubeconfig(plane.kubeconfig))
    uid = plane.client.get("Pod", name)["metadata"]["uid"]
    try:
        ApiBinder(connection).bind(Binding("default", name, uid, "n1"))
    except ClusterError as error:
        return error
    finally:
        connection.close()
    return None


def refusal_by(plane: ControlPlane, url: str) -> ClusterError:
    """Binds pods until the webhook at this address refuses one; returns the error. The refused pod has no node."""
    errors: list[ClusterError] = []

    def is_refused() -> bool:
        [pod] = plane.client.create(make_pod(f"p{len(plane.client.list('Pod'))}").obj())
        error = outcome_of(plane, pod["metadata"]["name"])
        if error is None:  # the API server does not know of the webhook yet
            return False
        errors.append(error)
        assert "nodeName" not in plane.client.get("Pod", pod["metadata"]["name"])["spec"]
        return True

    with admitted_by(plane, url):
        assert wait_until(is_refused)
    return errors[0]


@pytest.mark.parametrize(
    "code", [403, 409, 500, *(pytest.param(code, marks=pytest.mark.slow) for code in (404, 429, 503, 504))]
)
def test_a_bind_that_admission_denies_is_refused_whatever_its_status(
    control_plane: ControlPlane, admission: str, code: int
) -> None:
    error = refusal_by(control_plane, f"{admission}/{code}")
    assert type(error) is Refused
    assert (error.status, str(error)) == (code, 'admission webhook "binds.example.com" denied the request: no')


def test_the_api_server_gives_a_write_up_with_its_call_though_it_does_not_see_the_client_go(
    control_plane: ControlPlane, admission: str, tmp_path: Path
) -> None:
    """The network between the two is interrupted, while the API server waits for an admission webhook."""
    plane = control_plane
    with Gate(int(plane.server.rpartition(":")[2])) as gate, admitted_by(plane, f"{admission}/after/3"):
        gate.loses_ends = True
        connection = KubeClient(Kubeconfig(kubeconfig_through(gate, plane, tmp_path)))

        def is_given_up() -> bool:
            [pod] = plane.client.create(make_pod(f"p{len(plane.client.list('Pod'))}").obj())
            name = pod["metadata"]["name"]
            target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}
            path = f"/api/v1/namespaces/default/pods/{name}/binding"
            try:
                connection.call(ApiCall("POST", path, json.dumps(target).encode(), timeout_seconds=1.0))
            except OutcomeUnknown:
                if name in Admission.asked:
                    time.sleep(4.0)  # the webhook has allowed the Binding by now
                    assert "nodeName" not in plane.client.get("Pod", name)["spec"]
                    return True
            return False  # the API server does not know of the webhook yet

        assert wait_until(is_given_up)
        connection.close()


def test_a_bind_is_refused_while_its_admission_webhook_cannot_be_called(control_plane: ControlPlane) -> None:
    error = refusal_by(control_plane, f"https://127.0.0.1:{free_port()}/")
    assert type(error) is Refused
    assert error.status == 500
    assert 'failed calling webhook "binds.example.com"' in str(error)


def test_a_second_bind_is_a_conflict_that_names_the_first(control_plane: ControlPlane) -> None:
    control_plane.client.create(make_pod("p").node("n2").obj())
    assert isinstance(outcome_of(control_plane, "p"), Conflict)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_bind_during_which_etcd_dies_has_no_known_outcome(stock_binaries: Binaries, tmp_path: Path) -> None:
    """The API server answers 409, as to a bind of a pod that has a node; but etcd may have stored it."""
    with ControlPlane(stock_binaries, tmp_path / "plane") as plane, ThreadPoolExecutor(1) as pool:
        plane.client.create(make_pod("p").obj())
        [etcd] = [process for process in plane.processes if process.name == "etcd"]
        uid = plane.client.get("Pod", "p")["metadata"]["uid"]
        connection = KubeClient(Kubeconfig(plane.kubeconfig))
        etcd.suspend()
        bind = pool.submit(ApiBinder(connection).bind, Binding("default", "p", uid, "n1"))
        with pytest.raises(TimeoutError):
            bind.result(3.0)
        etcd.kill()
        with pytest.raises(OutcomeUnknown) as caught:
            bind.result(60.0)
        connection.close()
    print(caught.value)
    assert "pods/binding" in str(caught.value)
