"""A control plane with controllers and fake kubelets, and the schedulers that the specs are run against."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import yaml

from tests.running import schedule, serve
from tests.stock.build import Binaries
from tests.stock.cleaning import SYSTEM_NAMESPACES
from tests.stock.control_plane import ControlPlane
from tests.stock.process import free_port
from tests.stock.waiting import wait_until

NAMESPACE = "extender-system"
_MANIFESTS = Path(__file__).parents[2] / "manifests"
_RIGHTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
_START_SECONDS = 120
_APIS = ("resource.k8s.io/v1beta1=true", "resource.k8s.io/v1beta2=true", "scheduling.k8s.io/v1beta1=true")
# Those that the specs' framework looks for on each node; without, it waits a minute before each spec.
_DAEMONS = ("kube-proxy", "fluentd-elasticsearch", "node-problem-detector")


class UpstreamCluster(ControlPlane):
    """`with UpstreamCluster(binaries, directory, 6) as plane:` has nodes whose pods run, and the shipped accounts.

    Attributes:
        switched: the feature gates of all servers and schedulers, "Name=true" each.
    """

    apiserver_flags: Sequence[str] = ("--allow-privileged=true", f"--runtime-config={','.join(_APIS)}")

    def __init__(self, binaries: Binaries, directory: Path, nodes: int, gates: Sequence[str] = ()) -> None:
        super().__init__(binaries, directory)
        self._nodes = nodes
        self.switched = gates
        self.gate_flags = ("--feature-gates", ",".join(gates)) if gates else ()
        self.apiserver_flags = (*self.apiserver_flags, *self.gate_flags)

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._start_controllers()
            self.kubectl("create", "namespace", NAMESPACE)
            kubelet: list[str | Path] = [
                self.binaries["fakekubelet"],
                "--kubeconfig",
                self.kubeconfig,
                "--nodes",
                str(self._nodes),
            ]
            self.spawn("fakekubelet", kubelet, "fakekubelet.log")
            assert wait_until(lambda: len(self.client.list("Node")) == self._nodes)
            self._apply(_daemon_set(name) for name in _DAEMONS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def account(self, shape: str) -> Path:
        """The kubeconfig of the service account that the manifests of a shape make, with its rights."""
        built = list(yaml.safe_load_all(self.kubectl("kustomize", str(_MANIFESTS / shape))))
        self._apply(item for item in built if item["kind"] in _RIGHTS)
        return self.write_kubeconfig(shape, self.service_account_token(NAMESPACE, "extender"))

    def _start_controllers(self) -> None:
        config = self.kubeconfig
        command: list[str | Path] = [
            self.binaries["kube-controller-manager"],
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--cert-dir={self.directory / 'controller-manager'}",
            "--leader-elect=false",
            f"--service-account-private-key-file={self.directory / 'server.key'}",
            f"--root-ca-file={self.ca_file}",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            *self.gate_flags,
        ]
        self.spawn("kube-controller-manager", command, "kube-controller-manager.log")
        assert wait_until(lambda: len(self.client.list("ServiceAccount")) >= len(SYSTEM_NAMESPACES))

    def _apply(self, items: Iterator[dict[str, Any]]) -> None:
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(items))


@contextmanager
def stock(plane: UpstreamCluster) -> Iterator[None]:
    with plane.scheduler(gates=plane.switched):
        yield


@contextmanager
def webhook(plane: UpstreamCluster) -> Iterator[None]:
    """The stock scheduler, and `extender serve` for all four verbs beside its own plugins."""
    with (
        serve(plane.account("service"), plane.directory, *plane.gate_flags, timeout_seconds=_START_SECONDS) as extender,
        plane.scheduler(extender.configuration(), gates=plane.switched),
    ):
        yield


@contextmanager
def loop(plane: UpstreamCluster) -> Iterator[None]:
    """`extender schedule` in the place of the stock scheduler."""
    with schedule(plane.account("scheduler"), plane.directory, *plane.gate_flags, timeout_seconds=_START_SECONDS):
        yield


MODES: dict[str, Callable[[UpstreamCluster], AbstractContextManager[None]]] = {
    "stock": stock,
    "webhook": webhook,
    "loop": loop,
}

# What needs a kubelet that is not a fake.
_NEEDS_A_KUBELET = (
    "on single node (supports|retries|runs|must)|on multiple nodes|CRUD Tests|registers plugin|NodePrepareResources|"
    "if a claim is not ready|force-delete|map configs and devices|metadata|must manage ResourceSlices|"
    "ReconcilePoolWithName|runs pod after driver starts|update|with multiple drivers|device health|"
    "[Dd]evice [Pp]lugin|creates slices"
)


class Group(NamedTuple):
    """Specs whose text matches `focus` and not `skip`, with the nodes and the feature gates that they need."""

    focus: str
    skip: str = ""
    nodes: int = 6
    gates: Sequence[str] = ()


_ASYNC = "async preemption"
GROUPS = {
    "scheduling": Group(r"\[sig-scheduling\]", _ASYNC),
    "pod groups": Group("FeatureGate:GenericWorkload", gates=("GenericWorkload=true",)),
    # It fills all nodes, and gives all of them five minutes, which fake kubelets of six nodes do not keep.
    "asynchronous preemption": Group(_ASYNC, nodes=2),
    "local volumes": Group("Pod with node different|StatefulSet with pod affinity|Stress with local volumes"),
    "devices": Group(r"\[sig-node\] \[DRA\]", f"DRAExtendedResource|{_NEEDS_A_KUBELET}"),
    "extended resources": Group("FeatureGate:DRAExtendedResource", _NEEDS_A_KUBELET),
}


def run_specs(plane: UpstreamCluster, group: Group, report: Path, timeout_minutes: int, alone: str = "") -> None:
    """Runs the specs of a group, or those `alone` that match; ginkgo writes its report and, beside it, its log.

    The servers' logs are kept in a folder of the report's name. Specs may fail; a run that gives no report raises.
    """
    report.parent.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [
        plane.binaries["e2e.test"],
        f"--kubeconfig={plane.kubeconfig}",
        "--provider=skeleton",
        f"--ginkgo.focus={alone or group.focus}",
        f"--ginkgo.skip={'|'.join(filter(None, (group.skip, '' if group.gates else 'OffByDefault')))}",
        "--ginkgo.seed=7",
        "--ginkgo.v",
        f"--ginkgo.timeout={timeout_minutes}m",
        f"--ginkgo.json-report={report}",
        "--disable-log-dump=true",
        "--dump-logs-on-failure=false",
        "--num-nodes=-1",
        "--test.timeout=0",
    ]
    with (report.with_suffix(".log")).open("w") as log:
        subprocess.run(command, cwd=plane.directory, stdout=log, stderr=subprocess.STDOUT, check=False)
    shutil.copytree(
        plane.directory, report.with_suffix(""), ignore=lambda _, names: {n for n in names if not n.endswith(".log")}
    )
    if not report.exists():
        raise RuntimeError(f"no specs were run; see {log.name}")


def _daemon_set(name: str) -> dict[str, Any]:
    labels = {"app": name}
    spec = {
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-node-critical",
        "containers": [{"name": "c", "image": "registry.example/pause:3.10"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
