"""etcd, kube-apiserver and kube-scheduler on free ports of 127.0.0.1, RBAC on, all state in one folder.

There is no kubelet, and controllers run only in `with plane.controllers(...)`: a bound pod stays Pending, a deletion
takes no grace, and no namespace has a default service account. Admission that needs a controller is off (see
`_ADMISSION_OFF`).
"""

from __future__ import annotations

import base64
import copy
import http.client
import json
import re
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import trustme

from tests.stock.api_client import RESOURCES, ApiClient
from tests.stock.build import Binaries
from tests.stock.process import Process, StartError, free_port

ADMIN_TOKEN = "admin-token"
_ADMISSION_OFF = (
    "ServiceAccount",  # wants the service account that a controller makes
    "StorageObjectInUseProtection",  # its finalizers are taken away by a controller
    "TaintNodesByCondition",  # its not-ready taint too
)
_START_ATTEMPTS = 3
_ROOT, _AFTER_ROOT = b"/registry/", b"/registry0"


class ControlPlane:
    """`with ControlPlane(binaries, directory) as plane:` starts and stops it; `plane.client` is the administrator."""

    apiserver_flags: Sequence[str] = (
        f"--disable-admission-plugins={','.join(_ADMISSION_OFF)}",
        "--allow-privileged=true",  # as kubeadm sets it
    )

    def __init__(self, binaries: Binaries, directory: Path) -> None:
        self.directory = directory
        self.client: ApiClient
        self.kubeconfig: Path
        self.processes: list[Process] = []
        self.binaries = binaries
        self._etcd_ports, self._port = (0, 0), 0
        self._own_keys: frozenset[str] = frozenset()
        self._ca_file = directory / "ca.pem"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts etcd and the API server on free ports, with an empty store."""
        self._write_credentials()
        self._attempt(self._start_anywhere)
        self._own_keys = frozenset(self._keys())
        self.kubeconfig = self.write_kubeconfig("admin", ADMIN_TOKEN)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_file(self) -> Path:
        """The authority of the API server's certificate."""
        return self._ca_file

    def write_kubeconfig(self, name: str, token: str) -> Path:
        """A kubeconfig for the holder of the token."""
        cluster = {"server": self.server, "certificate-authority": str(self._ca_file)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "stock", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "stock", "context": {"cluster": "stock", "user": name}}],
            "current-context": "stock",
        }
        path = self.directory / f"{name}.kubeconfig"
        path.write_text(json.dumps(document))
        return path

    def service_account_token(self, namespace: str, name: str) -> str:
        path = RESOURCES["ServiceAccount"].path(namespace, name) + "/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        token: str = self.client.request("POST", path, request)["status"]["token"]
        return token

    def client_of(self, token: str) -> ApiClient:
        """A client with another's rights."""
        return ApiClient(self._port, token, str(self._ca_file))

    def new_keys(self) -> list[str]:
        """Returns the keys in etcd of objects that were created after the API server had started.

        Such a key is "/registry/pods/default/p".
        """
        return [key for key in self._keys() if key not in self._own_keys]

    def _keys(self) -> list[str]:
        first, end = (base64.b64encode(key).decode() for key in (_ROOT, _AFTER_ROOT))
        connection = http.client.HTTPConnection("127.0.0.1", self._etcd_ports[0], timeout=30)
        try:
            body = json.dumps({"key": first, "range_end": end, "keys_only": True})
            connection.request("POST", "/v3/kv/range", body)
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return [base64.b64decode(item["key"]).decode() for item in answer["kvs"]]

    def gates(self) -> dict[str, bool]:
        """Returns the feature gates that the API server knows, by name."""
        metrics = self.client.request("GET", "/metrics")
        found = re.findall(r'kubernetes_feature_enabled\{name="(\w+)",[^}]*\} (\d)', metrics)
        return {name: value == "1" for name, value in found}

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Returns what kubectl prints for the administrator. Raises AssertionError with its complaint if it fails."""
        command: list[str | Path] = [self.binaries["kubectl"], "--kubeconfig", self.kubeconfig, *arguments]
        environment = {"HOME": str(self.directory), "KUBECACHEDIR": str(self.directory / "kubectl-cache")}
        result = subprocess.run(command, input=stdin, capture_output=True, text=True, env=environment, check=False)
        if result.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {result.stderr}")
        return result.stdout

    @contextmanager
    def scheduler(
        self,
        configuration: Mapping[str, Any] | None = None,
        verbosity: int = 2,
        kubeconfig: Path | None = None,
        gates: Sequence[str] = (),
    ) -> Iterator[Process]:
        """The stock kube-scheduler, ready, until the block ends; as the administrator, or another's kubeconfig.

        `configuration` holds fields of KubeSchedulerConfiguration (profiles, extenders, ...); how it reaches the API
        server is put in here, and leader election is off unless given. `gates` are feature gates, such as
        "GenericWorkload=true".
        """
        port, number = free_port(), len(self.processes)
        path = self.directory / f"scheduler-{number}.yaml"
        flags = [f"-v={verbosity}", *([f"--feature-gates={','.join(gates)}"] if gates else [])]
        command = self.scheduler_command(path, port, configuration or {}, kubeconfig)
        process = self.spawn("kube-scheduler", [*command, *flags], f"scheduler-{number}.log")
        try:
            process.wait_until(lambda: self.answers(port, "/readyz"), timeout_seconds=180)
            yield process
        finally:
            process.stop()

    def scheduler_command(
        self, path: Path, port: int, configuration: Mapping[str, Any], kubeconfig: Path | None = None
    ) -> list[str | Path]:
        """Returns the command that runs kube-scheduler with a configuration, which it writes to the path."""
        account = kubeconfig or self.kubeconfig
        path.write_text(json.dumps(_scheduler_configuration(configuration, account)))
        return [
            self.binaries["kube-scheduler"],
            f"--config={path}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={self.directory / 'server.pem'}",
            f"--tls-private-key-file={self.directory / 'server.key'}",
            f"--authentication-kubeconfig={account}",
            f"--authorization-kubeconfig={account}",
            "--authorization-always-allow-paths=/readyz,/metrics",
        ]

    @contextmanager
    def controllers(self, *names: str, gates: Sequence[str] = ()) -> Iterator[Process]:
        """The stock kube-controller-manager with the named controllers, until the block ends.

        A test that uses it has the marker `controllers`.

        Args:
            names: as in `--controllers`, such as "daemonset-controller"; all that are on by default if there are none.
            gates: feature gates, such as "GenericWorkload=true".
        """
        port, number = free_port(), len(self.processes)
        command: list[str | Path] = [
            self.binaries["kube-controller-manager"],
            f"--kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={self.directory / 'server.pem'}",
            f"--tls-private-key-file={self.directory / 'server.key'}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--kube-api-qps=5000",
            "--kube-api-burst=10000",
            f"--controllers={','.join(names) or '*'}",
            *([f"--feature-gates={','.join(gates)}"] if gates else []),
        ]
        process = self.spawn("kube-controller-manager", command, f"controllers-{number}.log")
        try:
            process.wait_until(lambda: self.answers(port, "/healthz"), timeout_seconds=120)
            yield process
        finally:
            process.stop()

    def _write_credentials(self) -> None:
        """One certificate serves all servers; its key also signs service account tokens."""
        self.directory.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        authority.cert_pem.write_to_path(str(self._ca_file))
        certificate.cert_chain_pems[0].write_to_path(str(self.directory / "server.pem"))
        certificate.private_key_pem.write_to_path(str(self.directory / "server.key"))
        (self.directory / "tokens.csv").write_text(f'{ADMIN_TOKEN},admin,1,"system:masters"\n')

    def start_again(self) -> None:
        """Starts etcd and the API server where they were, with what there was."""
        self._attempt(self._start)

    def _attempt(self, start: Callable[[], None]) -> None:
        for attempt in range(1, _START_ATTEMPTS + 1):
            try:
                start()
            except StartError:
                self.stop()
                if attempt == _START_ATTEMPTS:
                    raise
            else:
                break

    def _start_anywhere(self) -> None:
        self._etcd_ports, self._port = (free_port(), free_port()), free_port()
        self._start()

    def _start(self) -> None:
        etcd_port, peer_port = self._etcd_ports
        etcd = self.spawn("etcd", self._etcd_command(etcd_port, peer_port), "etcd.log")
        etcd.wait_until(lambda: _http_ok(etcd_port, "/readyz"), timeout_seconds=120)
        apiserver = self.spawn("kube-apiserver", self._apiserver_command(etcd_port), "kube-apiserver.log")
        apiserver.wait_until(lambda: self.answers(self._port, "/readyz"), timeout_seconds=120)
        if not etcd.running:  # another etcd has the port, and answered in its place
            raise StartError(f"etcd has ended:\n{etcd.log_tail()}")
        self.client = self.client_of(ADMIN_TOKEN)

    def _etcd_command(self, port: int, peer_port: int) -> list[str | Path]:
        client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
        return [
            self.binaries["etcd"],
            f"--data-dir={self.directory / f'etcd-{port}'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver_command(self, etcd_port: int) -> list[str | Path]:
        key = self.directory / "server.key"
        return [
            self.binaries["kube-apiserver"],
            f"--etcd-servers=http://127.0.0.1:{etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={self.directory / 'server.pem'}",
            f"--tls-private-key-file={key}",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            *self.apiserver_flags,
            "--endpoint-reconciler-type=none",
            "--max-requests-inflight=4000",
            "--max-mutating-requests-inflight=2000",
        ]

    def spawn(self, name: str, command: list[str | Path], log: str) -> Process:
        process = Process(name, command, self.directory / log)
        self.processes.append(process)
        return process

    def stop(self) -> None:
        """Stops all servers. `start_again` then starts them with what they have stored, `start` with nothing."""
        for process in reversed(self.processes):
            process.stop()
        self.processes.clear()

    def answers(self, port: int, path: str) -> bool:
        """Returns True if a server of the control plane answers 200."""
        context = ssl.create_default_context(cafile=str(self._ca_file))
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=5)
        return _answers_200(connection, path)


def _scheduler_configuration(given: Mapping[str, Any], kubeconfig: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        **copy.deepcopy(dict(given)),
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 10000},
    }


def _http_ok(port: int, path: str) -> bool:
    return _answers_200(http.client.HTTPConnection("127.0.0.1", port, timeout=5), path)


def _answers_200(connection: http.client.HTTPConnection, path: str) -> bool:
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
