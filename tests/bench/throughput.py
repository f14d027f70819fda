"""Pods bound a second on a real API server: the same backlog, scheduled in one way after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from tests.bench.device_backlogs import DEVICE_BACKLOGS
from tests.bench.workloads import (
    EVICTING,
    GROUPS,
    PREEMPTING,
    PREEMPTION,
    backlog_node,
    evicting_gang,
    full_nodes,
    grouped_pods,
    pods_to_schedule,
    preempting_pods,
    standing_pods,
)
from tests.builders import make_pod
from tests.end_to_end.group_plane import GroupControlPlane
from tests.running import ONLY_EXTENDER, SCHEDULER_NAME, VERBS, extender_entry, schedule, serve
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process, free_port
from tests.stock.waiting import wait_until

FIRST_SECONDS = 180  # within which the first pod has to be bound
_GROUP_GATES = ("GenericWorkload=true", "TopologyAwareWorkloadScheduling=true")
_PACKING = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: {SCHEDULER_NAME}
  plugins: {{score: {{enabled: [{{name: DeviceScoring, weight: 100}}]}}}}
  pluginConfig: [{{name: DeviceScoring, args: {{policies: [{{name: FGD}}]}}}}]
"""
_LEFT_OUT = 20  # of so many pods one at the beginning: caches fill, connections open

Scheduling = AbstractContextManager[dict[str, Process]]


@dataclass(frozen=True)
class Setting:
    """A control plane that holds the cluster and the backlog, and what may schedule it.

    Attributes:
        gates: the feature gates of every scheduler.
    """

    binaries: Binaries
    plane: ControlPlane
    directory: Path
    gates: Sequence[str] = ()

    @property
    def flags(self) -> list[str]:
        """The flags of `extender serve` and `extender schedule`."""
        return ["--feature-gates", ",".join(self.gates)] if self.gates else []


@dataclass(frozen=True)
class Throughput:
    """The result of one way of scheduling one backlog.

    Attributes:
        bound: pods that were bound, all of the backlog or as many as the time allowed for.
        cpu_ms: CPU time a bound pod, by process; what the start cost is left out.
        evicted: pods that had to go until then.
    """

    workload: str
    mode: str
    nodes: int
    bound: int
    pods_per_second: float
    cpu_ms: dict[str, float]
    evicted: int = 0


@contextmanager
def _stock(setting: Setting, *extenders: dict[str, Any], **profile: Any) -> Iterator[dict[str, Process]]:
    configuration = {"extenders": list(extenders), "profiles": [{"schedulerName": "default-scheduler", **profile}]}
    with setting.plane.scheduler(configuration, verbosity=0, gates=setting.gates) as scheduler:
        yield {"scheduler": scheduler}


def _beside_noop(names: bool) -> Callable[[Setting], Scheduling]:
    """The stock scheduler asking an extender in Go that decides nothing: what any HTTP extender costs at the least."""

    @contextmanager
    def run(setting: Setting) -> Iterator[dict[str, Process]]:
        port = free_port()
        command: list[str | Path] = [setting.binaries["noopext"], f"--address=127.0.0.1:{port}"]
        url, verbs = f"http://127.0.0.1:{port}/scheduler", ("filter", "prioritize")
        entry = extender_entry(url, names=names, verbs=verbs, httpTimeout="10s")
        with _process("noopext", command, setting) as noop, _stock(setting, entry) as stock:
            yield {**stock, "extender": noop}

    return run


def _beside_ours(
    names: bool, *more: str, verbs: Sequence[str] = VERBS, **profile: Any
) -> Callable[[Setting], Scheduling]:
    """The stock scheduler asking `extender serve`, which decides everything and binds.

    `more` are flags of the extender, `profile` the fields of the scheduler's.
    """

    @contextmanager
    def run(setting: Setting) -> Iterator[dict[str, Process]]:
        flags = ["--log-level=error", *setting.flags, *more]
        with serve(setting.plane.kubeconfig, setting.directory, *flags, timeout_seconds=120) as ours:
            url = f"http://127.0.0.1:{ours.port}/scheduler"
            entry = extender_entry(url, names=names, verbs=verbs, httpTimeout="10s")
            with _stock(setting, entry, **profile) as stock:
                yield {**stock, "extender": ours.process}

    return run


@contextmanager
def _own_loop(setting: Setting, *flags: str) -> Iterator[dict[str, Process]]:
    with schedule(setting.plane.kubeconfig, setting.directory, *setting.flags, *flags, wait=False) as scheduler:
        yield {"scheduler": scheduler.process}


def _all_writes(setting: Setting) -> Scheduling:
    """That client with the finalizer of each claim, too: all that a scheduler has to write."""
    return _bindings_alone(setting, "--finalizers")


def _packing_loop(setting: Setting) -> Scheduling:
    """The loop with the policy FGD for devices."""
    policy = setting.directory / "policy.yaml"
    policy.write_text(_PACKING)
    return _own_loop(setting, "--policy", str(policy))


@contextmanager
def _bindings_alone(setting: Setting, *flags: str) -> Iterator[dict[str, Process]]:
    """A Go client that decides nothing and writes allocations and Bindings: as many as the API server takes."""
    command: list[str | Path] = [setting.binaries["bindonly"], f"--kubeconfig={setting.plane.kubeconfig}", *flags]
    with _process("bindonly", command, setting) as client:
        yield {"scheduler": client}


@contextmanager
def _process(name: str, command: list[str | Path], setting: Setting) -> Iterator[Process]:
    process = Process(name, command, setting.directory / f"{name}.log")
    try:
        yield process
    finally:
        process.stop()


MODES: dict[str, Callable[[Setting], Scheduling]] = {
    "stock": _stock,
    "noop-names": _beside_noop(names=True),
    "names": _beside_ours(True),
    "names-unscored": _beside_ours(True, verbs=("filter", "preempt", "bind")),
    "names-only": _beside_ours(True, plugins=ONLY_EXTENDER),
    "names-best": _beside_ours(True, "--filter-answer=best"),
    "names-best-only": _beside_ours(True, "--filter-answer=best", plugins=ONLY_EXTENDER),
    "noop-full": _beside_noop(names=False),
    "full": _beside_ours(False),
    "loop": _own_loop,
    "bind-only": _bindings_alone,
}
FOR_DEVICES: dict[str, Callable[[Setting], Scheduling]] = {"loop-fgd": _packing_loop, "bind-all": _all_writes}
"""What differs from MODES for pods with devices only."""


def measure(
    binaries: Binaries, mode: str, workload: str, *, nodes: int, pods: int, seconds: int, directory: Path
) -> Throughput:
    """Schedules the backlog on a fresh control plane, for not longer than that many seconds after the first pod.

    A gang that evicts counts from the creation of its PodGroup, when the scheduler waits for it already.
    Raises TimeoutError where fewer pods are bound than a rate needs.
    """
    gates = _GROUP_GATES if workload in (*GROUPS, EVICTING) else ()
    with (GroupControlPlane if gates else ControlPlane)(binaries, directory) as plane:
        plane.client.create_many(backlog_node(number).obj() for number in range(nodes))
        _create_pods(plane, workload, nodes, pods)
        events = plane.client.watch("Pod", FIRST_SECONDS + seconds, fieldSelector="spec.nodeName!=")
        with {**MODES, **FOR_DEVICES}[mode](Setting(binaries, plane, directory, gates)) as processes:
            processes["apiserver"] = next(each for each in plane.processes if each.name == "kube-apiserver")
            created_at = _create_last(plane, workload, pods)
            stamps, cpu_seconds, evicted = _count(events, processes, pods, seconds)
    first = len(stamps) // _LEFT_OUT
    if len(stamps) - first < 2:
        raise TimeoutError(f"{mode}, {workload}: only {len(stamps)} of {pods} pods were bound")
    counted, began_at = len(stamps) - 1 - first, stamps[first]
    if evicted:  # A wave begins with evictions: the first pod is bound when nearly all have been decided on.
        counted, began_at = len(stamps), created_at or evicted[0]
    cpu_ms = {name: spent * 1000 / counted for name, spent in cpu_seconds.items()}
    rate = counted / (stamps[-1] - began_at)
    return Throughput(workload, mode, nodes, len(stamps), rate, cpu_ms, len(evicted))


def _create_pods(plane: ControlPlane, workload: str, nodes: int, pods: int) -> None:
    if workload in GROUPS:
        plane.client.create_many(grouped_pods(workload, pods))
    elif workload in DEVICE_BACKLOGS:
        backlog = DEVICE_BACKLOGS[workload]
        plane.client.create_many(backlog.objects(nodes))
        plane.client.create_many(each for claim_and_pod in backlog.pods(pods) for each in claim_and_pod)
    elif workload == EVICTING:
        plane.client.create(PREEMPTING)
        plane.client.create_many(full_nodes(nodes))
        plane.client.create_many(evicting_gang(pods)[:-1])
    elif workload == PREEMPTION:
        plane.client.create(PREEMPTING)
        plane.client.create_many(pod.obj() for pod in standing_pods(nodes))
        plane.client.create_many(pod.obj() for pod in preempting_pods(pods))
    else:
        plane.client.create_many(pod.obj() for pod in pods_to_schedule(workload, pods))


def _create_last(plane: ControlPlane, workload: str, pods: int) -> float | None:
    """Creates the PodGroup that evicts once the scheduler works; returns when. None in the other workloads."""
    if workload != EVICTING:
        return None
    plane.client.create(make_pod("standing-probe").obj())
    wait_until(lambda: plane.client.get("Pod", "standing-probe")["spec"].get("nodeName"), FIRST_SECONDS)
    created_at = monotonic()
    plane.client.create(evicting_gang(pods)[-1])
    return created_at


def _count(
    events: Iterator[dict[str, Any]], processes: dict[str, Process], pods: int, seconds: int
) -> tuple[list[float], dict[str, float], list[float]]:
    """Returns when each pod was bound, the CPU seconds since the first that counts, or went, and when others went."""
    stamps: list[float] = []
    before: dict[str, float] = {}
    evicted: list[float] = []
    for event in events:
        if event["type"] == "DELETED":
            evicted.append(monotonic())
            before = before or {name: process.cpu_seconds() for name, process in processes.items()}
        if event["type"] != "ADDED" or event["object"]["metadata"]["name"].startswith("standing-"):
            continue
        stamps.append(monotonic())
        if len(stamps) == pods // _LEFT_OUT + 1 and not evicted:
            before = {name: process.cpu_seconds() for name, process in processes.items()}
        if len(stamps) == pods or stamps[-1] - stamps[0] > seconds:
            break
    return stamps, {name: process.cpu_seconds() - before.get(name, 0) for name, process in processes.items()}, evicted
