"""The scripts of plans, run by bash with a real kubectl, against a real API server, kube-scheduler and controllers.

Only the kubelets are stand-ins: they make bound pods ready, and end those that are being deleted. In each case, one
node has room for each replacement, so that there is one place where a pod may end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from extender import Cluster, MovePlan
from tests.builders import Object, make_node, make_pdb, make_pod, make_pod_group
from tests.builders.pod import PodBuilder
from tests.end_to_end.group_plane import GATES, GroupControlPlane, clean_up
from tests.offline.plan.carrying_out import SCHEDULER
from tests.stock.api_client import ApiError
from tests.stock.build import Binaries
from tests.stock.waiting import wait_until

pytestmark = [
    pytest.mark.stock,
    pytest.mark.slow,
    pytest.mark.clients,
    pytest.mark.controllers,
    pytest.mark.timeout(1200),
]
GANGS = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "featureGates": {"GenericWorkload": True},
}
STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
_CONTROLLERS = ("replicaset-controller", "statefulset-controller", "disruption-controller")
_WAITS = "waiting, because the API server answers"


@pytest.fixture(scope="module")
def module_plane(stock_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroupControlPlane]:
    with (
        GroupControlPlane(stock_binaries, tmp_path_factory.mktemp("scripts")) as plane,
        plane.scheduler(SCHEDULER, gates=GATES),
        plane.controllers(*_CONTROLLERS),
    ):
        yield plane


@pytest.fixture
def stage(module_plane: GroupControlPlane, tmp_path: Path) -> Iterator[Stage]:
    yield Stage(module_plane, tmp_path)
    for kind in ("ReplicaSet", "StatefulSet"):
        module_plane.client.delete_all(kind, "default")

    def is_empty() -> bool:
        clean_up(module_plane)
        return not module_plane.client.list("Pod", "default")

    assert wait_until(is_empty)


class Ended(NamedTuple):
    """A script that has ended."""

    status: int
    output: str


@dataclass(slots=True)
class Stage:
    """A cluster on which scripts run.

    Attributes:
        is_ready: called with the output of the script so far; pods become ready only while it returns True.
    """

    plane: GroupControlPlane
    folder: Path
    is_ready: Callable[[str], bool] = lambda _: True
    _runs: list[str] = field(default_factory=list)

    def prepare(self, *objects: Object) -> None:
        """Creates the objects, those with `replicas` last, so that they adopt their pods; waits until all is known."""
        self.plane.client.create(*(each for each in objects if "replicas" not in each.get("spec", {})))
        self.plane.client.create(*(each for each in objects if "replicas" in each.get("spec", {})))
        assert wait_until(self._is_known)

    def _is_known(self) -> bool:
        self._be_kubelets("")
        pods, budgets = self.plane.client.list("Pod", "default"), self.plane.client.list("PodDisruptionBudget")
        adopted = Counter(each["metadata"]["labels"]["app"] for each in pods if "ownerReferences" in each["metadata"])
        owners = [*self.plane.client.list("ReplicaSet"), *self.plane.client.list("StatefulSet")]
        return (
            all(adopted[each["metadata"]["name"]] == each["spec"]["replicas"] for each in owners)
            and all(_is_ready(each) or _is_refused(each) for each in pods)
            and all(each["status"].get("currentHealthy") for each in budgets)
        )

    def planned(self, *pods: str, **options: Any) -> MovePlan:
        plan = Cluster.from_kubeconfig(self.plane.kubeconfig, policy=GANGS).plan(*pods, **options)
        assert plan.succeeds and plan.moves, plan
        return plan

    def nodes_of_pods(self) -> Counter[tuple[str, str]]:
        """Returns how many pods of each app are on each node; "" if they have none."""
        pods = self.plane.client.list("Pod", "default")
        return Counter((each["metadata"]["labels"]["app"], each["spec"].get("nodeName", "")) for each in pods)

    def cordoned(self) -> set[str]:
        nodes = self.plane.client.list("Node")
        return {each["metadata"]["name"] for each in nodes if each["spec"].get("unschedulable")}

    def run(self, script: str, *, interrupted_at: str = "", **environment: str) -> Ended:
        """Runs the script to its end.

        Args:
            interrupted_at: output after which the script gets the signal of Ctrl-C.
        """
        kubectl = self.plane.binaries["kubectl"]
        (self.folder / "moves.sh").write_text(script)
        variables = {
            "PATH": f"{kubectl.parent}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(self.plane.kubeconfig),
            "HOME": str(self.folder),
            "TIMEOUT": "120",
            **environment,
        }
        log = self.folder / "log"
        with log.open("w") as file:
            process = subprocess.Popen(
                ["bash", "moves.sh"],
                env=variables,
                cwd=self.folder,
                stdout=file,
                stderr=file,
                start_new_session=True,
                preexec_fn=_heed_interrupts,
            )
            try:
                self._watch(process, log, interrupted_at)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        print(log.read_text())
        return Ended(process.returncode, log.read_text())

    def _watch(self, process: subprocess.Popen[bytes], log: Path, interrupted_at: str) -> None:
        deadline = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < deadline:
            self._be_kubelets(log.read_text())
            if interrupted_at and interrupted_at in log.read_text():
                os.killpg(process.pid, signal.SIGINT)
                interrupted_at = ""
            time.sleep(0.05)

    def _be_kubelets(self, output: str) -> None:
        is_ready = self.is_ready(output)
        for pod in self.plane.client.list("Pod", "default"):
            name = pod["metadata"]["name"]
            with suppress(ApiError):  # it may be gone by now
                if "deletionTimestamp" in pod["metadata"]:
                    self.plane.client.delete("Pod", name)
                elif pod["spec"].get("nodeName") and not _is_ready(pod) and is_ready:
                    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                    self.plane.client.patch("Pod", name, {"status": ready}, subresource="status")


def _heed_interrupts() -> None:
    """Undoes that a shell lets the commands which it starts in the background ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _is_ready(pod: Object) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def _is_refused(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


def node(name: str, cpu: int) -> Object:
    return make_node(name).capacity(cpu=str(cpu), memory="32Gi", pods="20").label(host=name).obj()


def pod(name: str, cpu: int, app: str = "") -> PodBuilder:
    return make_pod(name).label(app=app or name).req(cpu=str(cpu))


def busy(on: str, cpu: int) -> Object:
    """A pod that no plan moves."""
    return pod(f"busy-{on}", cpu).annotation(STAYS).node(on).obj()


def replicas(kind: str, count: int, template: PodBuilder) -> Object:
    made = template.obj()
    app = made["metadata"]["labels"]["app"]
    spec: Object = {
        "replicas": count,
        "selector": {"matchLabels": {"app": app}},
        "template": {"metadata": {"labels": {"app": app}}, "spec": made["spec"]},
    }
    if kind == "StatefulSet":
        spec |= {"serviceName": app, "updateStrategy": {"type": "OnDelete"}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": app, "namespace": "default"},
        "spec": spec,
    }


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster, the pods to place in it, and the options of the plan."""

    objects: list[Object]
    targets: tuple[str, ...] = ("default/big",)
    options: dict[str, Any] = field(default_factory=dict)


BIG = pod("big", 4).obj()
ROOM_ON_B = [node("a", 4), node("b", 4), node("c", 4), busy("b", 2), busy("c", 3)]
"""A pod with 2 CPUs that leaves node a has room on b only."""


def _replicas() -> Case:
    return Case([*ROOM_ON_B, pod("web-x", 2, "web").node("a").obj(), replicas("ReplicaSet", 1, pod("web", 2)), BIG])


def _numbered_replicas() -> Case:
    """The replacement has the name of the pod that is evicted, and exists as soon as that is gone."""
    return Case([*ROOM_ON_B, pod("db-0", 2, "db").node("a").obj(), replicas("StatefulSet", 1, pod("db", 2)), BIG])


def _bare_pod() -> Case:
    return Case([*ROOM_ON_B, pod("bare", 2).node("a").obj(), BIG], options={"bare_pods": True})


def _group() -> Case:
    movers = [pod(f"web-{on}", 3, "web").node(on).obj() for on in "ab"]
    members = [pod(f"member-{on}", 4).group("gang").node_selector(host=on).obj() for on in "ab"]
    nodes = [node("a", 4), node("b", 4), node("c", 6)]
    group = make_pod_group("gang", 2)
    targets = ("default/member-a", "default/member-b")
    return Case([*nodes, group, *movers, replicas("ReplicaSet", 2, pod("web", 3)), *members], targets)


def _budget() -> Case:
    movers = [pod(f"web-{number}", 1, "web").node("a").obj() for number in range(2)]
    nodes = [node("a", 2), node("b", 4), busy("b", 2)]
    big = pod("big", 2).node_selector(host="a").obj()
    budget = make_pdb("web", {"app": "web"}, maxUnavailable=1)
    return Case([*nodes, budget, *movers, replicas("ReplicaSet", 2, pod("web", 1)), big])


def _chain() -> Case:
    """The pod on a can only go to b, where there is room only once the pod on b has gone to c."""
    first, second = pod("x", 3).node_selector(host="b"), pod("y", 3)
    controllers = [replicas("ReplicaSet", 1, first), replicas("ReplicaSet", 1, second)]
    placed = [pod("x", 3).node_selector(host="b").node("a").obj(), pod("y", 3).node("b").obj()]
    big = pod("big", 3).node_selector(host="a").obj()
    return Case([*(node(name, 4) for name in "abc"), *placed, *controllers, big])


def _directed() -> Case:
    """kube-scheduler would place the replacement on c, where a member of the group needs the room."""
    members = [pod(f"member-{on}", 4).group("gang").node_selector(host=on).obj() for on in "ac"]
    nodes = [node("a", 4), node("b", 4), node("c", 4), busy("b", 1)]
    mover = [pod("web-x", 3, "web").node("a").obj(), replicas("ReplicaSet", 1, pod("web", 3))]
    return Case([*nodes, make_pod_group("gang", 2), *mover, *members], ("default/member-a", "default/member-c"))


def _released() -> Case:
    """Once both nodes are free, kube-scheduler would place the first pod on a, the only node for the second one."""
    moved = [("web", "a", "c"), ("api", "b", "d")]
    placed = [pod(f"{app}-x", 2, app).node_selector(host=to).node(on).obj() for app, on, to in moved]
    controllers = [replicas("ReplicaSet", 1, pod(app, 2).node_selector(host=to)) for app, _, to in moved]
    nodes = [node("a", 5), node("b", 4), node("c", 4), node("d", 4), busy("c", 2), busy("d", 2)]
    waiting = [pod("first", 4).obj(), pod("second", 4).node_selector(host="a").obj()]
    return Case([*nodes, *placed, *controllers, *waiting], ("default/first", "default/second"))


def _emptied_node() -> Case:
    placed = [pod("web-x", 2, "web").node("a").obj(), pod("db-0", 1, "db").node("a").obj()]
    controllers = [replicas("ReplicaSet", 1, pod("web", 2)), replicas("StatefulSet", 1, pod("db", 1))]
    nodes = [node("a", 4), node("b", 4), busy("b", 1)]
    return Case([*nodes, *placed, *controllers], (), {"empty_nodes": ["a"]})


CASES = {
    "replicas": _replicas,
    "numbered replicas": _numbered_replicas,
    "a pod without controller": _bare_pod,
    "a group": _group,
    "a chain": _chain,
    "an emptied node": _emptied_node,
    "a budget": _budget,
    "a directed pod": _directed,
    "a node released early": _released,
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_script_leaves_every_pod_where_the_plan_says(stage: Stage, case: Callable[[], Case]) -> None:
    made = case()
    stage.prepare(*made.objects)
    plan = stage.planned(*made.targets, **made.options)
    expected = _expected(stage, plan)
    assert case is not _directed or plan.moves[0].cordoned == ("c",)
    assert case is not _released or plan.moves[0].released == ("b",)
    if case is _budget:
        stage.is_ready = lambda output: _WAITS in output
    ended = stage.run(plan.to_script())
    assert (ended.status, stage.nodes_of_pods()) == (0, expected), ended.output
    assert "warning" not in ended.output
    assert (_WAITS in ended.output) == (case is _budget)
    assert stage.cordoned() == set(plan.emptied)
    again = stage.run(plan.to_script())
    assert (again.status, stage.nodes_of_pods()) == (0, expected), again.output
    assert again.output.count("skipped, because") == len(plan.moves)
    assert "no pod was moved: does kubectl talk to the cluster of the plan?" in again.output


def _expected(stage: Stage, plan: MovePlan) -> Counter[tuple[str, str]]:
    """Returns where the pods are after the plan, in the form of `Stage.nodes_of_pods`."""
    expected = stage.nodes_of_pods()
    for move in plan.moves:
        app = plan.evicted[move.pod].labels["app"]
        expected[app, move.source] -= 1
        expected[app, move.target] += 1
    for placement in plan.placements:
        app = placement.pod.removeprefix("default/")
        expected[app, ""] -= 1
        expected[app, placement.node] += 1
    return +expected


def test_a_replacement_without_a_node_ends_the_script_and_leaves_no_node_cordoned(stage: Stage) -> None:
    stage.prepare(*_replicas().objects)
    script = stage.planned("default/big").to_script()
    stage.plane.client.create(pod("thief", 2).node("b").obj())
    ended = stage.run(script, TIMEOUT="4")
    assert ended.status == 1
    assert "error: the replacement of pod default/web-x gets no node: see kubectl get pods -n default" in ended.output
    assert "stopped after 1 of 1 moves, and nothing else is evicted; make a new plan" in ended.output
    assert stage.cordoned() == set()
    assert wait_until(lambda: stage.nodes_of_pods().keys() & {("web", "a"), ("big", "a")})


def test_a_budget_that_allows_nothing_ends_the_script_before_the_eviction(stage: Stage) -> None:
    stage.prepare(*_replicas().objects)
    script = stage.planned("default/big").to_script()
    before = stage.nodes_of_pods()
    stage.plane.client.create(make_pdb("web", {"app": "web"}, maxUnavailable=0))
    wait_until(lambda: "conditions" in stage.plane.client.get("PodDisruptionBudget", "web")["status"])
    ended = stage.run(script, TIMEOUT="3")
    assert (ended.status, stage.nodes_of_pods(), stage.cordoned()) == (1, before, set())
    assert "pod default/web-x was not evicted in 3 s" in ended.output
    assert "see kubectl get pdb -n default" in ended.output
    interrupted = stage.run(script, interrupted_at=_WAITS)
    assert (interrupted.status, stage.nodes_of_pods(), stage.cordoned()) == (130, before, set())
    assert "stopped after 0 of 1 moves" in interrupted.output


def test_a_replacement_on_another_node_is_a_warning_and_ends_a_strict_script(stage: Stage) -> None:
    stage.prepare(*_chain().objects)
    script = stage.planned("default/big").to_script()
    stage.plane.client.create(node("huge", 64))
    strict = stage.run(script, STRICT="1")
    assert (strict.status, stage.cordoned()) == (3, set())
    assert "warning: planned was c, so the rest of the plan may not hold" in strict.output
    assert stage.nodes_of_pods()["x", "a"] == 1
    relaxed = stage.run(script)
    assert (relaxed.status, stage.nodes_of_pods()["big", "a"]) == (0, 1)
    assert "step 1 of 2: skipped, because pod default/y is no longer on b" in relaxed.output


def test_a_pod_without_controller_is_created_by_the_next_run_if_the_first_could_not(stage: Stage) -> None:
    stage.prepare(*_bare_pod().objects)
    script = stage.planned("default/big", bare_pods=True).to_script()
    failed = stage.run(script.replace('|| kubectl create -f "$file"', "|| false"))
    assert (failed.status, stage.cordoned(), stage.nodes_of_pods()["bare", "a"]) == (1, set(), 0)
    assert "pod default/bare is not created again: its manifest is default.bare.yaml" in failed.output
    again = stage.run(script)
    assert (again.status, stage.nodes_of_pods()["bare", "b"]) == (0, 1), again.output
    assert "creating default/bare from default.bare.yaml, because an earlier run has evicted it" in again.output
