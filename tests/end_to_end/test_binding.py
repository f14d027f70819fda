"""How `extender schedule` binds on a real API server: how fast, what it measures, and what a refusal reads like."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from tests.builders import make_pod
from tests.end_to_end.conftest import StartScheduler
from tests.end_to_end.scheduling import condition, events, placed, sized
from tests.faults.injection import Injector, Severity
from tests.faults.proxy import kubeconfig_through, proxy_before
from tests.running import extender_entry, schedule
from tests.scheduler.fake_extender import FakeExtender
from tests.stock.admission_policy import denying
from tests.stock.api_client import ApiError
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock
POINT = "scheduler_framework_extension_point_duration_seconds_count"
PROFILE = 'profile="default-scheduler",status="Success"'


@pytest.mark.slow
def test_bindings_keep_to_the_rate_of_the_policy_and_the_first_pod_is_measured(
    control_plane: ControlPlane, start_scheduler: StartScheduler, tmp_path: Path
) -> None:
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    (tmp_path / "policy.yaml").write_text(json.dumps({**header, "clientConnection": {"qps": 4, "burst": 2}}))
    control_plane.client.create(sized("n", "64").obj())
    with start_scheduler("--policy", str(tmp_path / "policy.yaml")) as scheduler:

        def is_count(sample: str, count: int) -> bool:
            return scheduler.metric(sample) == count

        began_at = time.monotonic()
        control_plane.client.create(*(make_pod(f"p{number}").req(cpu=f"{1 + number}m").obj() for number in range(10)))
        assert wait_until(lambda: len(placed(control_plane)) == 10)
        assert time.monotonic() - began_at >= (10 - 2) / 4 * 0.9
        measured = {"PreEnqueue": 1, "PreFilter": 1, "Filter": 1, "Reserve": 1, "PreBind": 1, "Bind": 10}
        for point, count in measured.items():
            sample = f'{POINT}{{extension_point="{point}",{PROFILE}}}'
            assert wait_until(partial(is_count, sample, count)), point


@pytest.mark.slow
def test_a_bind_that_hangs_is_logged_while_it_hangs(
    control_plane: ControlPlane, start_scheduler: StartScheduler, tmp_path: Path
) -> None:
    control_plane.client.create(sized("n", "4").obj())
    released = Event()

    def bind(request: object) -> object:
        released.wait(60)
        return {"Error": "too late"}

    with FakeExtender(bind=bind) as fake:
        header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        entry = extender_entry(fake.url, verbs=("bind",), httpTimeout="60s")
        (tmp_path / "policy.yaml").write_text(json.dumps({**header, "extenders": [entry]}))
        with start_scheduler("--policy", str(tmp_path / "policy.yaml")) as scheduler:
            control_plane.client.create(make_pod("slow").obj())
            expected = "bind has no answer yet pod=default/slow node=n seconds="
            assert wait_until(lambda: expected in scheduler.process.log.read_text())
            released.set()


def test_an_open_bind_is_reported_until_the_binding_arrives(control_plane: ControlPlane, tmp_path: Path) -> None:
    """The Binding is held back on its way. Once it arrives, the API server replaces the condition."""
    control_plane.client.create(sized("n", "4").obj())
    with proxy_before(control_plane, Injector(0, Severity({}, (0.0, 0.0)))) as proxy:
        kubeconfig = kubeconfig_through(proxy, control_plane, tmp_path)
        with schedule(kubeconfig, tmp_path, named=False):
            proxy.hold(lambda request: request.name.endswith("/pods/p/binding"), resets=True)
            control_plane.client.create(make_pod("p").obj())
            found = wait_until(lambda: condition(control_plane, "p"))
            assert (found["status"], found["reason"]) == ("False", "SchedulerError")
            message = found["message"]
            assert message.startswith('running Bind plugin "DefaultBinder": ')
            assert message.endswith("; the pod may be bound, and keeps its place on node n until this is known")
            reported = wait_until(lambda: events(control_plane, "FailedScheduling"))
            assert [each["message"] for each in reported] == [message]
            assert events(control_plane, "Scheduled") == []
            proxy.let_pass()
            proxy.release()
            scheduled = wait_until(lambda: events(control_plane, "Scheduled"))
            assert [each["message"] for each in scheduled] == ["Successfully assigned default/p to n"]
        bound = condition(control_plane, "p")
        assert (placed(control_plane), bound["status"], bound.get("message")) == ({"p": "n"}, "True", None)


@contextmanager
def no_pod_may_be_bound(plane: ControlPlane) -> Iterator[None]:
    target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "probe"}, "target": {"name": "n"}}

    def is_in_force() -> bool:
        try:
            plane.client.request("POST", "/api/v1/namespaces/default/pods/probe/binding?dryRun=All", target)
        except ApiError as error:
            return "not today" in str(error)
        return False

    plane.client.create(make_pod("probe").scheduler("another").obj())
    validation = {"expression": "false", "message": "not today"}
    with denying(plane, "CREATE", "pods/binding", validation, is_in_force):
        yield


def refusal(plane: ControlPlane, name: str) -> tuple[str, ...]:
    """Returns the condition and the event of a new pod whose bind is refused, with another name."""
    plane.client.create(make_pod(name).obj())
    found = wait_until(lambda: condition(plane, name))
    about = wait_until(
        lambda: [each for each in events(plane, "FailedScheduling") if each["involvedObject"]["name"] == name]
    )
    texts = (found["reason"], found["message"], about[0]["message"])
    assert found["observedGeneration"] == plane.client.get("Pod", name)["metadata"]["generation"]
    return tuple(text.replace(name, "NAME") for text in texts)


def test_a_refused_bind_reads_as_from_the_stock_scheduler(
    control_plane: ControlPlane, start_scheduler: StartScheduler
) -> None:
    control_plane.client.create(sized("n", "4").obj())
    with no_pod_may_be_bound(control_plane):
        with control_plane.scheduler():
            by_stock = refusal(control_plane, "first")
        control_plane.client.delete("Pod", "first")
        with start_scheduler():
            by_ours = refusal(control_plane, "second")
    assert by_ours == by_stock
    assert by_ours[1].startswith('running Bind plugin "DefaultBinder": ')
    assert by_ours[1].endswith("not today")
