"""A Binding is sent late, or arrives late, while the term of its sender ends; real servers, in every way that we know.

There is room for one pod on the node, and another pod wants it as soon as somebody else leads. In the end the API
server has one pod there. `make test-faults` runs all cases, `make test` some of them. Times are short: a leader that is
cut off leads for 2 s, its Lease is taken after 3 s, and a write may be in flight for 4 s.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.builders import make_priority_class
from tests.end_to_end.scheduling import asking, sized
from tests.faults.client import Request
from tests.faults.elections import ELECTION, short_terms
from tests.faults.gate import Gate
from tests.faults.injection import Injector, Severity
from tests.faults.lives import Lives
from tests.faults.proxy import FaultyProxy, kubeconfig_through, proxy_before
from tests.faults.test_restored import RestorablePlane
from tests.faults.test_unsettled_writes import leads
from tests.running import ONLY_EXTENDER, extender_entry
from tests.stock.api_client import ApiClient, ApiError
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.timeout(240)]

WHOLE = bool(os.environ.get("FAULTS"))
SETTLE_SECONDS = 4.0
LATE_SECONDS = 3.5  # from the moment at which a Binding was sent until it arrives
END_SECONDS = 60.0
SHORT_LEASE = {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "400ms"}
TIMES = short_terms(SETTLE_SECONDS)
IDENTITY = "EXTENDER_IDENTITY"
# The API server is restored within a term, and while a write is in flight.
LONG_TIMES = {
    "EXTENDER_SETTLE_SECONDS": "15",
    "EXTENDER_ASSUMED_TTL_SECONDS": "15",
    "EXTENDER_LEASE_DURATION_SECONDS": "40",
    "EXTENDER_RENEW_DEADLINE_SECONDS": "30",
    "EXTENDER_RETRY_PERIOD_SECONDS": "0.4",
}


def is_binding(request: Request) -> bool:
    """Returns True if it is the Binding of the first pod."""
    return request.name.endswith("/pods/a/binding")


def is_of_lease(request: Request) -> bool:
    return "/leases" in request.name


class Scene:
    """The API server, a node for one pod, and a proxy between the API server and the first sender."""

    def __init__(self, client: ApiClient, proxy: FaultyProxy) -> None:
        self.client, self.proxy = client, proxy
        client.create(make_priority_class("polite", 1000, preemptionPolicy="Never"), sized("n1", "1").obj())

    def create(self, name: str) -> None:
        """Creates a pod; the second goes before the first, but makes nobody leave."""
        pod = asking(name, "1")
        self.client.create((pod if name == "a" else pod.priority_class("polite")).obj())

    def bound(self) -> list[str]:
        """Returns the pods that have a node."""
        return [pod["metadata"]["name"] for pod in self.client.list("Pod") if pod["spec"].get("nodeName")]

    def hold(self) -> None:
        """Binds of the first pod get no answer from now on, and arrive late."""
        self.proxy.hold(is_binding, resets=False)

    def release_late(self) -> None:
        """Delivers what was held back, if anything was sent, so late as a write may still arrive."""
        if wait_until(lambda: self.proxy.held, 2 * SETTLE_SECONDS):
            time.sleep(LATE_SECONDS)
        self.proxy.let_pass()
        self.proxy.release()

    def check(self) -> None:
        """Somebody places a pod, and nobody a second one."""
        assert wait_until(self.bound, END_SECONDS), "nothing is bound"
        time.sleep(SETTLE_SECONDS)
        assert len(self.bound()) == 1, self.bound()


@dataclass
class Duel:
    """Two replicas, of which the first leads."""

    verb: str
    scene: Scene
    first: Lives
    second: Lives
    gate: Gate | None = None

    def bind(self, name: str, *processes: Lives) -> None:
        """Creates the pod, and has these processes bind it."""
        self.scene.create(name)
        self.ask(name, *processes)

    def ask(self, name: str, *processes: Lives) -> None:
        """Asks these processes again and again to bind the pod, until a pod is bound; `schedule` needs not be asked."""
        if self.verb == "serve":
            threading.Thread(target=self._ask_again_and_again, args=(name, processes), daemon=True).start()

    def _ask_again_and_again(self, name: str, processes: tuple[Lives, ...]) -> None:
        uid = self.scene.client.get("Pod", name)["metadata"]["uid"]
        ends_at = time.monotonic() + END_SECONDS
        is_over = False
        while time.monotonic() < ends_at and not is_over:
            for each in processes:
                if not each.ended:
                    _ask_to_bind(each, name, uid)
            time.sleep(0.1)
            with suppress(OSError, ApiError):
                is_over = bool(self.scene.bound())


def _ask_to_bind(process: Lives, name: str, uid: str) -> None:
    body = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": "n1"}
    with suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=15)
        connection.request("POST", "/scheduler/bind", json.dumps(body), {"Content-Type": "application/json"})
        connection.getresponse().read()


# ---- the ways in which a Binding outlives a term


def repeated(duel: Duel) -> None:
    """A kept connection ends without a byte once another may lead; the client would send the Binding again."""
    proxy = duel.scene.proxy
    proxy.swallow(is_binding, 5.0)
    duel.bind("a", duel.first)
    assert wait_until(lambda: proxy.swallowed)
    proxy.lose(is_of_lease)
    duel.scene.hold()
    duel.bind("b", duel.second)
    duel.scene.release_late()


def dialled(duel: Duel) -> None:
    """The connection for the Binding opens once another may lead."""
    assert duel.gate is not None
    duel.gate.dial_seconds = 4.0
    duel.scene.hold()
    duel.scene.proxy.end_idle()
    duel.bind("a", duel.first)
    duel.bind("b", duel.second)
    duel.scene.release_late()


def stopped(duel: Duel) -> None:
    """The process of the leader stands still while its Binding is under way, and goes on when another leads."""
    duel.scene.hold()
    duel.bind("a", duel.first)
    assert wait_until(lambda: duel.scene.proxy.held)

    def lead() -> None:
        duel.bind("b", duel.second)
        duel.scene.release_late()
        assert wait_until(lambda: leads(duel.second, elects=True), END_SECONDS)

    duel.first.stop_for(lead)


def other_numbers(duel: Duel) -> None:
    """The leader leads for longer after a renewal than the next one would."""
    duel.scene.proxy.lose(is_of_lease)
    time.sleep(FIRST_TIMES[other_numbers]["seconds"])
    duel.scene.hold()
    duel.bind("a", duel.first)
    duel.bind("b", duel.second)
    duel.scene.release_late()


def settled(duel: Duel) -> None:
    """A control: nobody loses anything."""
    duel.bind("a", duel.first)
    assert wait_until(duel.scene.bound)
    duel.bind("b", duel.second)


FIRST_TIMES: Mapping[Callable[[Duel], None], Mapping[str, Any]] = {
    other_numbers: {
        "seconds": 5.0,
        "first": {"EXTENDER_LEASE_DURATION_SECONDS": "6", "EXTENDER_RENEW_DEADLINE_SECONDS": "5.7"},
        "second": {"EXTENDER_LEASE_DURATION_SECONDS": "6"},
    }
}
WAYS = (repeated, dialled, stopped, other_numbers, settled)
CASES = [(verb, way) for verb in ("serve", "schedule") for way in WAYS]
PART = [("serve", repeated), ("serve", dialled), ("serve", other_numbers)]


@contextmanager
def duelling(
    verb: str, control_plane: ControlPlane, directory: Path, first: Mapping[str, str], second: Mapping[str, str]
) -> Iterator[Duel]:
    """The first goes to the API server by way of a gate and the proxy."""
    with ExitStack() as stack:
        proxy = stack.enter_context(proxy_before(control_plane, Injector(0, Severity({}, (0.0, 0.0)))))
        gate = stack.enter_context(Gate(proxy.port))
        through = kubeconfig_through(gate, control_plane, directory)

        def replica(kubeconfig: Path, times: Mapping[str, str]) -> Lives:
            return Lives(verb, directory, "--kubeconfig", str(kubeconfig), *ELECTION, settings={**TIMES, **times})

        leader = stack.enter_context(replica(through, first))
        assert wait_until(lambda: leads(leader, elects=True), 60), leader.log()
        standby = stack.enter_context(replica(control_plane.kubeconfig, second))
        assert wait_until(standby.said, 60)
        yield Duel(verb, Scene(control_plane.client, proxy), leader, standby, gate)


@pytest.mark.parametrize(
    ("verb", "way"), [pytest.param(*case, id=f"{case[0]}, {case[1].__name__}") for case in (CASES if WHOLE else PART)]
)
def test_no_write_outlives_the_term_of_its_sender(
    verb: str, way: Callable[[Duel], None], control_plane: ControlPlane, tmp_path: Path
) -> None:
    times = FIRST_TIMES.get(way, {})
    with duelling(verb, control_plane, tmp_path, times.get("first", {}), times.get("second", {})) as duel:
        way(duel)
        duel.scene.check()


def elected(name: str, **fields: object) -> dict[str, Any]:
    """A KubeSchedulerConfiguration with an election."""
    lease = {"leaderElect": True, "resourceNamespace": "default", "resourceName": name, **SHORT_LEASE}
    return {"leaderElection": lease, **fields}


def test_a_lease_that_kube_scheduler_releases_vouches_for_nothing(control_plane: ControlPlane, tmp_path: Path) -> None:
    """kube-scheduler and `extender schedule` share a Lease; the former releases it while its Binding is under way."""
    with proxy_before(control_plane, Injector(0, Severity({}, (0.0, 0.0)))) as proxy:
        through = kubeconfig_through(proxy, control_plane, tmp_path)
        scene = Scene(control_plane.client, proxy)
        scene.hold()
        with control_plane.scheduler(elected("extender"), kubeconfig=through) as scheduler:
            scene.create("a")
            assert wait_until(lambda: proxy.held)
            flags = ("--kubeconfig", str(control_plane.kubeconfig), *ELECTION)
            with Lives("schedule", tmp_path, *flags, settings=TIMES) as extender:
                assert wait_until(extender.ready)
                scene.create("b")
                scheduler.stop()
                scene.release_late()
                scene.check()


@dataclass(frozen=True)
class Beside:
    """A kube-scheduler with an extender beside it."""

    scheduler: Process
    extender: Lives


@contextmanager
def beside(control_plane: ControlPlane, kubeconfig: Path, directory: Path) -> Iterator[Beside]:
    flags = ("--kubeconfig", str(kubeconfig), *ELECTION, "--lease-follows-calls")
    with Lives("serve", directory, *flags, settings=TIMES) as extender:
        assert wait_until(extender.ready, 60), extender.log()
        entry = extender_entry(f"http://127.0.0.1:{extender.port}/scheduler", httpTimeout="15s")
        profile = {"schedulerName": "default-scheduler", "plugins": ONLY_EXTENDER}
        configuration = elected("kube-scheduler", extenders=[entry], profiles=[profile])
        with control_plane.scheduler(configuration) as scheduler:
            yield Beside(scheduler, extender)


@pytest.mark.parametrize("ends_extender", (False, True) if WHOLE else (False,))
def test_two_kube_schedulers_with_an_extender_beside_each_fill_no_node_over(
    ends_extender: bool, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """SIGTERM to the kube-scheduler that leads, while its extender has a Binding under way."""
    with ExitStack() as stack:
        proxy = stack.enter_context(proxy_before(control_plane, Injector(0, Severity({}, (0.0, 0.0)))))
        through = kubeconfig_through(proxy, control_plane, tmp_path)
        scene = Scene(control_plane.client, proxy)
        first = stack.enter_context(beside(control_plane, through, tmp_path))
        stack.enter_context(beside(control_plane, control_plane.kubeconfig, tmp_path))
        scene.hold()
        scene.create("a")
        assert wait_until(lambda: proxy.held, 60)
        scene.create("b")
        first.scheduler.stop()
        if ends_extender:
            first.extender.terminate()
        scene.release_late()
        scene.check()


if WHOLE:  # it restarts the API server twice, and so takes two minutes

    @pytest.fixture
    def plane(stock_binaries: Binaries, tmp_path: Path) -> Iterator[RestorablePlane]:
        with RestorablePlane(stock_binaries, tmp_path / "plane") as plane:
            yield plane

    def test_a_lease_from_a_backup_vouches_for_nothing(plane: RestorablePlane, tmp_path: Path) -> None:
        """The Lease in the backup names a process that leads no more, and the leader has a Binding under way."""
        with ExitStack() as stack:
            proxy = stack.enter_context(proxy_before(plane, Injector(0, Severity({}, (0.0, 0.0)))))
            scene = Scene(plane.client, proxy)
            through = kubeconfig_through(proxy, plane, tmp_path)
            earlier, leader = (
                Lives("serve", tmp_path, "--kubeconfig", str(path), *ELECTION, settings={**LONG_TIMES, IDENTITY: name})
                for path, name in ((plane.kubeconfig, "earlier"), (through, "leader"))
            )
            stack.enter_context(earlier)
            assert wait_until(lambda: leads(earlier, elects=True), 2 * END_SECONDS), earlier.said()
            stack.enter_context(leader)
            assert wait_until(lambda: "held by earlier" in leader.said(), END_SECONDS)
            for name in ("a", "b"):
                scene.create(name)
            plane.copy()
            earlier.terminate()
            scene.client = plane.client
            assert wait_until(lambda: leads(leader, elects=True), 2 * END_SECONDS), leader.log()
            earlier.start()
            assert wait_until(earlier.said, END_SECONDS)
            scene.hold()
            duel = Duel("serve", scene, leader, earlier)
            duel.ask("a", leader)
            assert wait_until(lambda: proxy.held, END_SECONDS), leader.log()
            sent_at = time.monotonic()
            plane.restore()
            scene.client = plane.client
            duel.ask("b", earlier)
            time.sleep(max(0.0, sent_at + 14.0 - time.monotonic()))
            proxy.let_pass()
            proxy.release()
            scene.check()
