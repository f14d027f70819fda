"""`extender schedule` asks other extenders: what the stock scheduler asks, and with the answers of real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import PodBuilder, make_node, make_pod, make_priority_class
from tests.end_to_end.conftest import StartExtender, StartScheduler
from tests.end_to_end.scheduling import condition, events, placed
from tests.running import extender_entry
from tests.scheduler.fake_extender import FakeExtender, all_pass
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process, free_port
from tests.stock.test_noopext import listening
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock

GPU = "example.com/gpu"
HEADER = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


@pytest.fixture
def policy(tmp_path: Path) -> Callable[..., Path]:
    """Writes a policy with these extenders."""

    def write(*extenders: dict[str, Any]) -> Path:
        path = tmp_path / "policy.yaml"
        path.write_text(yaml.safe_dump({**HEADER, "extenders": list(extenders)}))
        return path

    return write


def rich_pod(name: str) -> PodBuilder:
    """With much that no scheduler reads, and an extender may."""
    fields = {
        "env": [{"name": "MODEL", "value": "m"}],
        "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }
    pod = make_pod(name).first_container(**fields).annotation({"example.com/hint": "b"}).label(app="x")
    return pod.spec(volumes=[{"name": "scratch", "emptyDir": {}}], hostname="h")


NAMES_FIRST = pytest.mark.parametrize(
    "names", [pytest.param(True, id="names"), pytest.param(False, id="whole nodes", marks=pytest.mark.slow)]
)


@NAMES_FIRST
def test_they_are_asked_what_the_stock_scheduler_asks(
    control_plane: ControlPlane, start_scheduler: StartScheduler, policy: Callable[..., Path], names: bool
) -> None:
    """Nothing comes of any call, so that both schedulers are in the same place: the bind fails, no victim is left."""
    client = control_plane.client
    client.create(make_priority_class("high", 10))
    client.create(*(make_node(name).capacity(cpu="1", memory="1Gi", pods="10").obj() for name in ("a", "b")))
    client.create(*(rich_pod(f"victim-{node}").req(cpu="1").node(node).obj() for node in ("a", "b")))
    client.create(rich_pod("small").obj())
    client.create(rich_pod("big").req(cpu="1").spec(priorityClassName="high").obj())

    with FakeExtender(filter=all_pass, prioritize=[], preempt={}, bind={"Error": "not today"}) as fake:
        verbs = {"filter", "prioritize", "preempt", "bind"}
        with control_plane.scheduler({"extenders": [extender_entry(fake.url, names=names)]}):
            assert wait_until(lambda: {verb for verb, _ in fake.asked} == verbs)
        by_stock = {verb: compared(fake.requests(verb)[0]) for verb in verbs}
        fake.asked.clear()
        with start_scheduler("--policy", str(policy(extender_entry(fake.url, names=names)))):
            assert wait_until(lambda: {verb for verb, _ in fake.asked} == verbs)
        by_ours = {verb: compared(fake.requests(verb)[0]) for verb in verbs}
    assert by_ours == by_stock
    assert placed(control_plane).keys() == {"victim-a", "victim-b"}


def test_a_bind_that_an_extender_refuses_reads_as_from_the_stock_scheduler(
    control_plane: ControlPlane, start_scheduler: StartScheduler, policy: Callable[..., Path]
) -> None:
    client = control_plane.client
    client.create(make_node("a").capacity(cpu="4", memory="1Gi", pods="10").obj())

    def refusal(name: str) -> tuple[Any, ...]:
        client.create(make_pod(name).obj())
        found = wait_until(lambda: condition(control_plane, name))
        [event, *_] = wait_until(lambda: events_about(control_plane, name))
        return found["reason"], found["message"], event["reason"], event["message"]

    with FakeExtender(bind={"Error": "not today"}) as fake:
        entry = extender_entry(fake.url, verbs=("bind",))
        with control_plane.scheduler({"extenders": [entry]}):
            by_stock = refusal("p")
        client.delete("Pod", "p")
        with start_scheduler("--policy", str(policy(entry))):
            by_ours = refusal("q")
    assert by_ours == by_stock == ("SchedulerError", "not today", "FailedScheduling", "not today")


def events_about(control_plane: ControlPlane, name: str) -> list[Any]:
    failed = events(control_plane, "FailedScheduling")
    return [event for event in failed if event["involvedObject"]["name"] == name]


def compared(request: dict[str, Any]) -> Any:
    """The request without what the schedulers' own writes to pods change, and without what is empty."""
    for pod in _pods(request):
        pod["metadata"].pop("resourceVersion")
        pod["metadata"].pop("managedFields", None)  # of the write above; kube-scheduler sends them until 1.35
        pod["metadata"].pop("generation", None)
        pod["status"] = {name: value for name, value in pod.get("status", {}).items() if name in ("phase", "qosClass")}
    if names := request.get("NodeNames"):
        names.sort()
    if nodes := request.get("Nodes"):
        nodes["items"].sort(key=lambda node: node["metadata"]["name"])
    if "PodUID" in request:
        request.pop("Node")  # ties are broken at random
    return _filled(request)


def _pods(request: dict[str, Any]) -> list[Any]:
    victims = [pod for each in (request.get("NodeNameToVictims") or {}).values() for pod in each["Pods"]]
    return [request["Pod"], *victims] if "Pod" in request else []


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        filled = {name: _filled(item) for name, item in value.items()}
        return {name: item for name, item in filled.items() if item not in (None, {}, [])}
    return [_filled(item) for item in value] if isinstance(value, list) else value


@pytest.mark.slow
def test_our_own_extender_decides_and_binds(
    control_plane: ControlPlane,
    start_scheduler: StartScheduler,
    start_extender: StartExtender,
    policy: Callable[..., Path],
) -> None:
    client = control_plane.client
    client.create(make_priority_class("high", 10))
    client.create(*(make_node(f"n{i}").capacity(cpu="4", memory="8Gi", pods="110").obj() for i in range(5)))
    client.create(*(make_pod(f"p{i}").req(cpu="1").grace(0).obj() for i in range(20)))
    with (
        start_extender() as extender,
        start_scheduler("--policy", str(policy(extender_entry(f"http://127.0.0.1:{extender.port}/scheduler")))) as ours,
    ):
        assert wait_until(lambda: len(placed(control_plane)) == 20)
        assert wait_until(lambda: extender.metric('extender_binds_total{result="bound"}') == 20)
        assert wait_until(lambda: len(events(control_plane, "Scheduled")) == 20)
        client.create(make_pod("urgent").req(cpu="1").spec(priorityClassName="high").obj())
        assert wait_until(lambda: "urgent" in placed(control_plane)), ours.process.log_tail()
        assert len(placed(control_plane)) == 20
        assert extender.calls("preempt")
        assert ours.metric("scheduler_preemption_attempts_total") >= 1


@NAMES_FIRST
def test_pods_wait_for_an_extender_that_is_not_there_and_for_no_other(
    control_plane: ControlPlane,
    start_scheduler: StartScheduler,
    stock_binaries: Binaries,
    policy: Callable[..., Path],
    tmp_path: Path,
    names: bool,
) -> None:
    port = free_port()
    managing = extender_entry(
        f"http://127.0.0.1:{port}/scheduler",
        names=names,
        verbs=("filter", "prioritize"),
        managedResources=[{"name": GPU, "ignoredByScheduler": True}],  # no node offers it
    )
    client = control_plane.client
    client.create(*(make_node(name).capacity(cpu="1", memory="1Gi", pods="10").obj() for name in ("a", "b")))
    client.create(make_pod("plain").obj(), make_pod("managed").req({GPU: "1"}).limit({GPU: "1"}).obj())
    with start_scheduler("--policy", str(policy(managing))):
        assert wait_until(lambda: "plain" in placed(control_plane))
        assert wait_until(lambda: "cannot be reached" in condition(control_plane, "managed").get("message", ""))
        assert condition(control_plane, "managed")["reason"] == "SchedulerError"
        process = Process("noopext", [stock_binaries["noopext"], f"--address=127.0.0.1:{port}"], tmp_path / "log")
        try:
            process.wait_until(lambda: listening(port))
            assert wait_until(lambda: "managed" in placed(control_plane))
        finally:
            process.stop()


@pytest.mark.slow
def test_one_that_may_be_ignored_is(
    control_plane: ControlPlane, start_scheduler: StartScheduler, policy: Callable[..., Path]
) -> None:
    absent = {**extender_entry(f"http://127.0.0.1:{free_port()}"), "ignorable": True}
    control_plane.client.create(make_node("a").obj(), make_node("b").obj(), make_pod("p").obj())
    with start_scheduler("--policy", str(policy(absent))):
        assert wait_until(lambda: "p" in placed(control_plane))
