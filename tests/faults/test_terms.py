"""A Binding is sent late, or arrives late, while the term of its sender ends; real servers, in every way that we know.

There is room for one pod on the node, and another pod wants it as soon as another process leads. In the end the API
server has one pod there. `make test-faults` runs all cases, `make test` some of them, several at once. Times are short:
a leader that is cut off leads for 2 s, its Lease is taken after 3 s, and a write may be in flight for 6 s.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from extender.cluster.election.lease import RELEASED_SECONDS, Lease, LeaseSpec
from tests.builders import make_priority_class
from tests.end_to_end.scheduling import asking, sized
from tests.faults.client import Request
from tests.faults.elections import ELECTION, election, holder, leads, short_terms
from tests.faults.gate import Gate
from tests.faults.injection import Injector, Severity
from tests.faults.lives import Lives
from tests.faults.proxy import FaultyProxy, kubeconfig_through, proxy_before
from tests.faults.test_restored import RestorablePlane
from tests.running import ONLY_EXTENDER, extender_entry
from tests.stock.api_client import ApiClient, ApiError
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.timeout(600)]

WHOLE = bool(os.environ.get("FAULTS"))
VERBS = ("serve", "schedule")
SETTLE_SECONDS = 6.0
LATE_SECONDS = 4.0  # from the moment at which a Binding was sent until it arrives, when another may lead
HELD_SECONDS = 8.0
END_SECONDS = 120.0
SHORT_LEASE = {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "400ms"}
TIMES = short_terms(SETTLE_SECONDS)
LONG_AGO = "2000-01-01T00:00:00.000000Z"
# The API server is restored within a term, and while a write is in flight.
LONG_TIMES = {
    "EXTENDER_SETTLE_SECONDS": "15",
    "EXTENDER_ASSUMED_TTL_SECONDS": "15",
    "EXTENDER_LEASE_DURATION_SECONDS": "40",
}


def is_of_lease(request: Request) -> bool:
    return "/leases" in request.name


class Scene:
    """The API server, a node for one pod, and a proxy between the API server and the first sender.

    The node has the name of the scene, and the pods' names begin with it, so that several scenes fit in one cluster.
    """

    def __init__(self, client: ApiClient, proxy: FaultyProxy, name: str = "n") -> None:
        self.client, self.proxy, self.name = client, proxy, name
        with suppress(ApiError):  # another scene has created it
            client.create(make_priority_class("polite", 1000, preemptionPolicy="Never"))

    def create_node(self) -> None:
        self.client.create(sized(self.name, "1").obj())

    def create(self, name: str) -> None:
        """Creates a pod; "b" goes before "a", but evicts no pod."""
        pod = asking(f"{self.name}-{name}", "1")
        self.client.create((pod if name == "a" else pod.priority_class("polite")).obj())

    def bound(self) -> list[str]:
        """Returns the pods that have a node."""
        pods = [pod["metadata"]["name"] for pod in self.client.list("Pod") if pod["spec"].get("nodeName")]
        return [name for name in pods if name.startswith(f"{self.name}-")]

    def is_binding(self, request: Request) -> bool:
        """Returns True if it is the Binding of "a"."""
        return request.name.endswith(f"/pods/{self.name}-a/binding")

    def hold(self) -> None:
        """Binds of "a" get no answer from now on, and arrive late."""
        self.proxy.hold(self.is_binding, resets=False)

    def release_late(self) -> None:
        """Delivers what was held back, if anything was sent, so late as a write may still arrive."""
        if wait_until(lambda: self.proxy.held, HELD_SECONDS):
            time.sleep(LATE_SECONDS)
        self.proxy.let_pass()
        self.proxy.release()

    def check(self, *, settled: Callable[[], bool] = lambda: True) -> None:
        """One pod is placed, and never a second one, even once the process that decides knows all."""
        assert wait_until(self.bound, END_SECONDS), "nothing is bound"
        assert wait_until(settled, END_SECONDS)
        time.sleep(1.0)
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

    def second_leads(self) -> bool:
        return leads(self.second, self.scene.name)

    def _ask_again_and_again(self, name: str, processes: tuple[Lives, ...]) -> None:
        scene = self.scene
        pod = f"{scene.name}-{name}"
        body = {"PodName": pod, "PodNamespace": "default", "Node": scene.name}
        body["PodUID"] = scene.client.get("Pod", pod)["metadata"]["uid"]
        ends_at = time.monotonic() + END_SECONDS
        is_over = False
        while time.monotonic() < ends_at and not is_over:
            for each in processes:
                if not each.ended:
                    _ask_to_bind(each, body)
            time.sleep(0.1)
            with suppress(OSError, ApiError):
                is_over = bool(scene.bound())


def _ask_to_bind(process: Lives, body: Mapping[str, str]) -> None:
    with suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=15)
        connection.request("POST", "/scheduler/bind", json.dumps(body), {"Content-Type": "application/json"})
        connection.getresponse().read()


# ---- the ways in which a Binding outlives a term


def repeated(duel: Duel) -> None:
    """A kept connection ends without a byte once another may lead; the client would send the Binding again."""
    proxy = duel.scene.proxy
    proxy.swallow(duel.scene.is_binding, 5.0)
    duel.bind("a", duel.first)
    assert wait_until(lambda: proxy.swallowed)
    proxy.lose(is_of_lease)
    duel.scene.hold()
    duel.bind("b", duel.second)
    duel.scene.release_late()


def dialled(duel: Duel) -> None:
    """The connection for the Binding opens once another may lead."""
    _bind_slowly(duel, 4.0)
    duel.bind("b", duel.second)
    duel.scene.release_late()


def _bind_slowly(duel: Duel, dial_seconds: float) -> None:
    """Binds a pod by a leader that must open a connection, which takes this long."""
    assert duel.gate is not None
    duel.gate.dial_seconds = dial_seconds
    duel.scene.hold()
    duel.scene.proxy.end_idle()
    duel.bind("a", duel.first)


def stopped(duel: Duel) -> None:
    """The process of the leader stands still while its Binding is under way, and goes on when another leads."""
    duel.scene.hold()
    duel.bind("a", duel.first)
    assert wait_until(lambda: duel.scene.proxy.held)
    _stand_still(duel)


def stopped_before(duel: Duel) -> None:
    """The process of the leader stands still while the connection for its Binding opens."""
    _bind_slowly(duel, 1.0)
    time.sleep(0.5)
    _stand_still(duel)


def _stand_still(duel: Duel) -> None:
    def lead() -> None:
        duel.bind("b", duel.second)
        duel.scene.release_late()
        assert wait_until(duel.second_leads, END_SECONDS)

    duel.first.stop_for(lead)


def other_numbers(duel: Duel) -> None:
    """The leader leads for longer after a renewal than the next one would."""
    duel.scene.proxy.lose(is_of_lease)
    time.sleep(FIRST_TIMES[other_numbers]["seconds"])
    duel.scene.hold()
    duel.bind("a", duel.first)
    duel.bind("b", duel.second)
    duel.scene.release_late()


def restored(duel: Duel) -> None:
    """The Lease is as a backup has it: an earlier leader has released it, and knows the outcome of all its writes."""
    scene = duel.scene
    scene.hold()
    duel.bind("a", duel.first)
    assert wait_until(lambda: scene.proxy.held)
    scene.proxy.lose(is_of_lease)
    lease = msgspec.convert(scene.client.get("Lease", scene.name), Lease)
    assert lease.term is not None
    spec = LeaseSpec("", RELEASED_SECONDS, LONG_AGO, LONG_AGO, 0)
    term = msgspec.structs.replace(lease.term, renew_time=LONG_AGO, lease_transitions=0, settled=True)
    released = lease.released(spec, term)
    assert released.term == term
    annotations = {"metadata": {"annotations": released.metadata["annotations"]}}
    scene.client.patch("Lease", scene.name, {**annotations, "spec": msgspec.to_builtins(spec)})
    duel.bind("b", duel.second)
    scene.release_late()


def settled(duel: Duel) -> None:
    """A control: nothing is lost."""
    duel.bind("a", duel.first)
    assert wait_until(duel.scene.bound)
    duel.bind("b", duel.second)


Way = Callable[[Duel], None]
FIRST_TIMES: Mapping[Way, Mapping[str, Any]] = {
    other_numbers: {
        "seconds": 5.0,
        "first": {"EXTENDER_LEASE_DURATION_SECONDS": "9"},
    }
}
WAYS = (repeated, dialled, stopped, stopped_before, other_numbers, restored, settled)
CASES = [(verb, (way,)) for verb, way in product(VERBS, WAYS)]
PART = [("serve", (repeated,))]
SLOW_PART = [("serve", (restored, dialled, other_numbers))]


@contextmanager
def duelling(verb: str, way: Way, control_plane: ControlPlane, directory: Path) -> Iterator[Duel]:
    """The first goes to the API server by way of a gate and the proxy."""
    name, times = way.__name__.replace("_", "-"), FIRST_TIMES.get(way, {})
    with ExitStack() as stack:
        proxy = stack.enter_context(proxy_before(control_plane, Injector(0, Severity({}, (0.0, 0.0)))))
        gate = stack.enter_context(Gate(proxy.port))
        through = kubeconfig_through(gate, control_plane, directory)

        def replica(kubeconfig: Path, settings: Mapping[str, str]) -> Lives:
            flags = ("--kubeconfig", str(kubeconfig), *election(name))
            return Lives(verb, directory, *flags, settings={**TIMES, **settings})

        scene = Scene(control_plane.client, proxy, name)
        scene.create_node()
        leader = stack.enter_context(replica(through, times.get("first", {})))
        assert wait_until(lambda: holder(scene.client, name), END_SECONDS), leader.log()
        standby = stack.enter_context(replica(control_plane.kubeconfig, {}))
        assert wait_until(lambda: leads(leader, name), END_SECONDS), leader.log()
        assert wait_until(standby.said, END_SECONDS)
        yield Duel(verb, scene, leader, standby, gate)


def params(cases: Iterable[tuple[str, tuple[Way, ...]]], *marks: pytest.MarkDecorator) -> list[Any]:
    named = ((f"{verb}, {', '.join(way.__name__ for way in ways)}", verb, ways) for verb, ways in cases)
    return [pytest.param(verb, ways, id=name, marks=marks) for name, verb, ways in named]


@pytest.mark.parametrize(
    ("verb", "ways"), params(CASES) if WHOLE else [*params(PART), *params(SLOW_PART, pytest.mark.slow)]
)
def test_no_write_outlives_the_term_of_its_sender(
    verb: str, ways: tuple[Way, ...], control_plane: ControlPlane, tmp_path: Path
) -> None:
    def fight(way: Way) -> None:
        directory = tmp_path / way.__name__
        directory.mkdir()
        with duelling(verb, way, control_plane, directory) as duel:
            way(duel)
            duel.scene.check(settled=duel.second_leads if way is not settled else lambda: True)

    with ThreadPoolExecutor(len(ways)) as threads:
        list(threads.map(fight, ways))


def elected(name: str, **fields: object) -> dict[str, Any]:
    """A KubeSchedulerConfiguration with an election."""
    lease = {"leaderElect": True, "resourceNamespace": "default", "resourceName": name, **SHORT_LEASE}
    return {"leaderElection": lease, **fields}


@pytest.mark.slow
def test_a_lease_that_kube_scheduler_releases_vouches_for_nothing(control_plane: ControlPlane, tmp_path: Path) -> None:
    """kube-scheduler and `extender schedule` share a Lease; the former releases it while its Binding is under way."""
    with proxy_before(control_plane, Injector(0, Severity({}, (0.0, 0.0)))) as proxy:
        through = kubeconfig_through(proxy, control_plane, tmp_path)
        scene = Scene(control_plane.client, proxy)
        scene.create_node()
        scene.hold()
        with control_plane.scheduler(elected("extender"), kubeconfig=through) as scheduler:
            assert wait_until(lambda: holder(scene.client))
            flags = ("--kubeconfig", str(control_plane.kubeconfig), *ELECTION)
            with Lives("schedule", tmp_path, *flags, settings=TIMES) as extender:
                assert wait_until(extender.ready)
                scene.create("a")
                assert wait_until(lambda: proxy.held)
                scene.create("b")
                scheduler.stop()
                scene.release_late()
                scene.check(settled=lambda: leads(extender))


@dataclass(frozen=True)
class Beside:
    """A kube-scheduler with an extender beside it."""

    scheduler: Process
    extender: Lives


@contextmanager
def beside(control_plane: ControlPlane, extender: Lives) -> Iterator[Beside]:
    assert wait_until(extender.ready, END_SECONDS), extender.log()
    entry = extender_entry(f"http://127.0.0.1:{extender.port}/scheduler", httpTimeout="15s")
    profile = {"schedulerName": "default-scheduler", "plugins": ONLY_EXTENDER}
    configuration = elected("kube-scheduler", extenders=[entry], profiles=[profile])
    with control_plane.scheduler(configuration) as scheduler:
        yield Beside(scheduler, extender)


def end_scheduler(pod: Beside) -> None:
    """SIGTERM to kube-scheduler."""
    pod.scheduler.terminate()


def end_both(pod: Beside) -> None:
    """SIGTERM to both."""
    end_scheduler(pod)
    pod.extender.terminate()


def kill_both(pod: Beside) -> None:
    """SIGKILL to both."""
    pod.scheduler.kill()
    pod.extender.kill()


@pytest.mark.slow
@pytest.mark.parametrize("end", (end_scheduler, end_both, kill_both) if WHOLE else (end_scheduler,))
def test_two_kube_schedulers_with_an_extender_beside_each_fill_no_node_over(
    end: Callable[[Beside], None], control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The kube-scheduler that leads ends, while its extender has a Binding under way."""
    with ExitStack() as stack:
        proxy = stack.enter_context(proxy_before(control_plane, Injector(0, Severity({}, (0.0, 0.0)))))
        through = kubeconfig_through(proxy, control_plane, tmp_path)
        scene = Scene(control_plane.client, proxy)
        scene.create_node()
        extenders = [
            stack.enter_context(
                Lives("serve", tmp_path, "--kubeconfig", str(path), *ELECTION, "--lease-follows-calls", settings=TIMES)
            )
            for path in (through, control_plane.kubeconfig)
        ]
        first, second = (stack.enter_context(beside(control_plane, extender)) for extender in extenders)
        scene.hold()
        scene.create("a")
        assert wait_until(lambda: proxy.held, END_SECONDS)
        scene.create("b")
        end(first)
        scene.release_late()
        scene.check(settled=lambda: leads(second.extender))


if WHOLE:  # it restarts the API server twice, and so takes two minutes

    @pytest.fixture
    def plane(stock_binaries: Binaries, tmp_path: Path) -> Iterator[RestorablePlane]:
        with RestorablePlane(stock_binaries, tmp_path / "plane") as plane:
            yield plane

    @pytest.mark.parametrize("verb", VERBS)
    def test_a_lease_from_a_backup_vouches_for_nothing(verb: str, plane: RestorablePlane, tmp_path: Path) -> None:
        """The Lease in the backup names a process that leads no more, and the leader has a Binding under way."""
        with ExitStack() as stack:
            proxy = stack.enter_context(proxy_before(plane, Injector(0, Severity({}, (0.0, 0.0)))))
            scene = Scene(plane.client, proxy)
            through = kubeconfig_through(proxy, plane, tmp_path)
            earlier, leader = (
                Lives(verb, tmp_path, "--kubeconfig", str(path), *ELECTION, settings=LONG_TIMES)
                for path in (plane.kubeconfig, through)
            )
            stack.enter_context(earlier)
            assert wait_until(lambda: leads(earlier), 2 * END_SECONDS), earlier.said()
            stack.enter_context(leader)
            assert wait_until(leader.said, END_SECONDS)
            assert leads(earlier)
            scene.create("a")
            plane.copy()
            earlier.terminate()
            scene.client = plane.client
            assert wait_until(lambda: leads(leader), 2 * END_SECONDS), leader.log()
            earlier.start()
            assert wait_until(earlier.said, END_SECONDS)
            scene.hold()
            duel = Duel(verb, scene, leader, earlier)
            scene.create_node()
            duel.ask("a", leader)
            assert wait_until(lambda: proxy.held, END_SECONDS), leader.log()
            sent_at = time.monotonic()
            plane.restore()
            scene.client = plane.client
            scene.create_node()
            duel.bind("b", earlier)
            time.sleep(max(0.0, sent_at + 14.0 - time.monotonic()))
            proxy.let_pass()
            proxy.release()
            scene.check(settled=lambda: leads(earlier) or leads(leader))
