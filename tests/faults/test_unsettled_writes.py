"""A write is held back on its way to the real API server; the process that sent it ends, in every way.

Then another pod wants the same place or device. Whatever becomes of the write, nothing is given away twice, and nothing
waits for ever. `make test-faults` runs the whole matrix, `make test` one case of it, and `make test-all` nine more.

Left out, by rule: `serve` writes no claims, and evicts and nominates only for users' rules, through the same client as
`schedule`; only a process that elects can stand back; only `serve` has a worker that can be killed alone.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from itertools import product
from pathlib import Path

import pytest

from tests.builders import (
    Object,
    PodBuilder,
    make_claim,
    make_device_class,
    make_priority_class,
    make_request,
    make_resource_slice,
)
from tests.end_to_end.controllers import release_claims
from tests.end_to_end.scheduling import asking, sized
from tests.faults.client import Request
from tests.faults.elections import ELECTION, holder, leads, short_terms
from tests.faults.injection import Injector, Severity
from tests.faults.lives import Lives
from tests.faults.proxy import FaultyProxy, kubeconfig_through, proxy_before
from tests.stock.api_client import ApiClient
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.timeout(600)]

WHOLE = bool(os.environ.get("FAULTS"))
SETTLE_SECONDS = 12.0
LATE_SECONDS = 9.0  # after the write was sent: within the time for which it may be in flight
END_SECONDS = 120.0
STALE_SECONDS = 40.0
TIMES = short_terms(SETTLE_SECONDS)
GPU = "gpu.example.com"
PRIORITIES = (
    make_priority_class("urgent", 1000),
    make_priority_class("polite", 1000, preemptionPolicy="Never"),
    make_priority_class("low", 2),
    make_priority_class("lowest", 1),
)


class Fate(Enum):
    """What becomes of the write."""

    LATE = "arrives late"
    NEVER = "never arrives"
    ANSWERED = "is answered, as a control"


class Exit(Enum):
    """How its sender ends."""

    NONE = "lives on"
    SIGTERM = "SIGTERM"
    STAND_BACK = "stands back"
    WORKER = "worker killed"
    WORKER_TWICE = "worker killed twice"
    WHOLE = "killed whole"
    WHILE_SETTLING = "killed whole, the next one killed while it settles"


class Scene:
    """The API server and what is asked of it."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client

    def create(self, *objects: Object) -> None:
        self.client.create(*objects)

    def pods(self) -> dict[str, str]:
        """Returns the pods that are there and stay, with their nodes."""
        pods = (pod for pod in self.client.list("Pod") if "deletionTimestamp" not in pod["metadata"])
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}

    def uid(self, name: str) -> str:
        uid: str = self.client.get("Pod", name)["metadata"]["uid"]
        return uid

    def devices(self) -> list[str]:
        """Returns the devices that claims have, once for each claim."""
        claims = (claim.get("status", {}) for claim in self.client.list("ResourceClaim"))
        allocations = (status.get("allocation", {}).get("devices", {}) for status in claims)
        return [result["device"] for devices in allocations for result in devices.get("results", ())]


class Kind:
    """A kind of write: what leads to it, who wants the same afterwards, and what must hold in the end."""

    name = ""

    def prepare(self, scene: Scene) -> None:
        """Creates the cluster."""

    def provoke(self, scene: Scene) -> None:
        """Creates what the write is made for."""

    def is_held(self, request: Request, held: int) -> bool:
        raise NotImplementedError

    def compete(self, scene: Scene) -> None:
        """Creates what wants the same place."""

    def given_away(self, scene: Scene) -> int:
        """Returns how often the place, or the device, was given away, or how many victims went."""
        raise NotImplementedError

    def is_over(self, scene: Scene) -> bool:
        """Returns whether everything has its place that can have one."""
        return self.given_away(scene) >= 1


class Bind(Kind):
    """Two pods, and a node for one."""

    name = "bind"

    def prepare(self, scene: Scene) -> None:
        scene.create(sized("n1", "1").obj())

    def provoke(self, scene: Scene) -> None:
        scene.create(asking("a", "1").obj())

    def is_held(self, request: Request, held: int) -> bool:
        return request.name.endswith("/pods/a/binding")

    def compete(self, scene: Scene) -> None:
        scene.create(asking("b", "1").priority_class("polite").obj())

    def given_away(self, scene: Scene) -> int:
        return sum(node == "n1" for node in scene.pods().values())


class Claim(Kind):
    """Two claims, and one device; the pod of the first claim is deleted."""

    name = "claim"

    def prepare(self, scene: Scene) -> None:
        devices = make_device_class("gpu", f'device.driver == "{GPU}"'), make_resource_slice("n1", GPU, "gpu-0")
        scene.create(sized("n1", "4").obj(), *devices)

    def provoke(self, scene: Scene) -> None:
        scene.create(make_claim("ca", make_request("device", "gpu")), using("a", "ca").obj())

    def is_held(self, request: Request, held: int) -> bool:
        """The allocation, and then all that would take it back."""
        of_claim = request.name.startswith("PATCH ") and "/resourceclaims/ca" in request.name
        return of_claim and (bool(held) or b'"allocation":{' in request.data)

    def compete(self, scene: Scene) -> None:
        scene.client.delete("Pod", "a")
        claim = make_claim("cb", make_request("device", "gpu"))
        scene.create(claim, using("b", "cb").priority_class("polite").obj())

    def given_away(self, scene: Scene) -> int:
        return scene.devices().count("gpu-0")


class Eviction(Kind):
    """An urgent pod, a victim, and later a victim that would be a smaller loss."""

    name = "eviction"
    grace_seconds = 0

    def prepare(self, scene: Scene) -> None:
        scene.create(sized("n1", "4").obj(), self._victim("v1", "n1", "low"))

    def provoke(self, scene: Scene) -> None:
        scene.create(asking("a", "4").priority_class("urgent").obj())

    def is_held(self, request: Request, held: int) -> bool:
        return request.name.startswith("DELETE ") and request.name.endswith("/pods/v1")

    def compete(self, scene: Scene) -> None:
        scene.create(sized("n2", "4").obj(), self._victim("v2", "n2", "lowest"))

    def given_away(self, scene: Scene) -> int:
        return len({"v1", "v2"} - scene.pods().keys())

    def is_over(self, scene: Scene) -> bool:
        return bool(scene.pods()["a"])

    def _victim(self, name: str, node: str, priority: str) -> Object:
        victim = asking(name, "4").priority_class(priority).node(node)
        return (victim.grace(self.grace_seconds) if self.grace_seconds else victim).obj()


class Nomination(Eviction):
    """The same; the victim takes long to go, and the nomination says for whom it goes."""

    name = "nomination"
    grace_seconds = 60

    def is_held(self, request: Request, held: int) -> bool:
        return request.name.endswith("/pods/a/status") and b'"nominatedNodeName":"n1"' in request.data

    def is_over(self, scene: Scene) -> bool:
        leaving = [pod for pod in scene.client.list("Pod") if "deletionTimestamp" in pod["metadata"]]
        if len(leaving) and self.given_away(scene):
            time.sleep(SETTLE_SECONDS + 2 * LATE_SECONDS - 5)  # another victim would be evicted by now
            for pod in leaving:
                scene.client.delete("Pod", pod["metadata"]["name"])
        return super().is_over(scene)


KINDS = (Bind(), Claim(), Eviction(), Nomination())


def using(name: str, claim: str) -> PodBuilder:
    return asking(name, "1").resource_claim(claim)


@dataclass(frozen=True)
class Case:
    """One field of the matrix."""

    kind: Kind
    verb: str
    elects: bool
    exit: Exit
    fate: Fate
    lag_seconds: float = 0.0
    recreates: bool = False

    @property
    def id(self) -> str:
        shape = f"{self.verb}{' with an election' if self.elects else ''}"
        lag = f", watches {self.lag_seconds:g} s late" if self.lag_seconds else ""
        recreated = ", the node is created again" if self.recreates else ""
        return f"{self.kind.name}, {shape}: {self.exit.value}, {self.fate.value}{lag}{recreated}"

    @property
    def makes_sense(self) -> bool:
        """See the rules at the head of this file."""
        workers = self.exit in (Exit.WORKER, Exit.WORKER_TWICE)
        if self.verb == "serve":
            return isinstance(self.kind, Bind) and (self.elects or self.exit is not Exit.STAND_BACK)
        return not workers and (self.elects or self.exit is not Exit.STAND_BACK)

    @property
    def most_victims(self) -> int:
        """Returns how often something may be given away; a nomination that never arrives cannot keep a second back."""
        return 2 if isinstance(self.kind, Nomination) and self.fate is Fate.NEVER else 1


MATRIX = [
    case
    for kind, verb, elects, way, fate in product(KINDS, ("serve", "schedule"), (False, True), Exit, Fate)
    if (case := Case(kind, verb, elects, way, fate)).makes_sense
]
MATRIX += [
    case
    for verb, way, fate, (lag_seconds, recreates) in product(
        ("serve", "schedule"),
        (Exit.NONE, Exit.WORKER_TWICE, Exit.WHOLE),
        (Fate.LATE, Fate.NEVER),
        ((5.0, False), (17.0, False), (30.0, False), (0.0, True), (17.0, True)),
    )
    if (case := Case(Bind(), verb, False, way, fate, lag_seconds, recreates)).makes_sense
]
MATRIX += [
    Case(Bind(), verb, True, way, fate, 17.0)
    for verb, way, fate in product(("serve", "schedule"), (Exit.SIGTERM, Exit.WHOLE), (Fate.LATE, Fate.NEVER))
]
PART = [Case(Claim(), "schedule", False, Exit.WHOLE, Fate.LATE)]
SLOW_PART = [
    Case(Bind(), "serve", True, Exit.SIGTERM, Fate.LATE),
    Case(Eviction(), "schedule", False, Exit.NONE, Fate.LATE),
    Case(Bind(), "serve", False, Exit.WORKER_TWICE, Fate.LATE),
    Case(Eviction(), "schedule", True, Exit.SIGTERM, Fate.LATE),
    Case(Bind(), "schedule", True, Exit.SIGTERM, Fate.NEVER),
    Case(Bind(), "serve", True, Exit.SIGTERM, Fate.ANSWERED),
    Case(Bind(), "serve", False, Exit.NONE, Fate.LATE, recreates=True),
    Case(Bind(), "serve", False, Exit.WORKER_TWICE, Fate.LATE, recreates=True),
    Case(Bind(), "schedule", False, Exit.WHOLE, Fate.NEVER, lag_seconds=17.0),
]


@dataclass
class Stage:
    """The processes of a case, and what lies between them and the API server."""

    case: Case
    scene: Scene
    proxy: FaultyProxy
    first: Lives
    standby: Lives | None
    next: Lives
    holder: str
    sent_at: float = 0.0

    def hold(self) -> None:
        """Has the first process write, and the write held back: without an answer, or under way if it is killed."""
        kind = self.case.kind
        if self.case.fate is not Fate.ANSWERED:
            resets = self.case.exit in (Exit.NONE, Exit.SIGTERM, Exit.STAND_BACK)
            self.proxy.hold(lambda request: kind.is_held(request, self.proxy.held), resets=resets)
        kind.provoke(self.scene)
        if self.case.verb == "serve":
            threading.Thread(target=self._bind_first, daemon=True).start()
        if self.case.fate is Fate.ANSWERED:
            assert wait_until(lambda: kind.given_away(self.scene))
        else:  # with late watches, the process learns of the pod late
            assert wait_until(lambda: self.proxy.held, END_SECONDS)
        self.sent_at = time.monotonic()

    def end(self) -> None:
        """Ends the first process."""
        time.sleep(0.5)  # an answer that did not come is known by now
        if self.case.recreates:
            self.scene.client.delete("Node", "n1")
            self._ask_for_another_place()
        self._end_first()
        self.proxy.let_pass()
        if self.case.exit is Exit.SIGTERM and self.standby is None:
            assert wait_until(lambda: self.first.ended)
        if self.first.ended and self.standby is None:
            self.next.start()
        if self.case.exit is Exit.WHILE_SETTLING:
            self._end_who_settles()
        if self.case.recreates:
            self.case.kind.prepare(self.scene)

    def _end_first(self) -> None:
        match self.case.exit:
            case Exit.SIGTERM:
                self.first.terminate()
            case Exit.STAND_BACK:
                self.proxy.blind()
                assert wait_until(lambda: not leads(self.first), 3 * STALE_SECONDS)
                self.sent_at = time.monotonic() - LATE_SECONDS / 2  # blind as it was, it could settle nothing until now
            case Exit.WORKER:
                self.first.kill_worker()
            case Exit.WORKER_TWICE:
                self.first.kill_worker()
                self.first.kill_worker()
            case Exit.WHOLE | Exit.WHILE_SETTLING:
                self.first.kill()

    def _ask_for_another_place(self) -> None:
        """The scheduler, which has no answer to its bind, tries another node. The node of the write is deleted."""
        if self.case.verb == "serve":
            self.scene.create(sized("n2", "0").obj())
            time.sleep(1.0)
            self._bind(self.first, "a", "n2")

    def _end_who_settles(self) -> None:
        settling = self.standby or self.next
        if self.standby is None:
            wait_until(lambda: "may still arrive" in settling.said() or settling.ready())
        else:
            wait_until(lambda: holder(self.scene.client) != self.holder)
        if settling.verb == "serve":
            settling.kill_worker()
        else:
            settling.kill()
            settling.start()

    def compete(self) -> None:
        """Has the process that decides now place a pod where the write would have its own."""
        self.case.kind.compete(self.scene)
        if self.case.verb == "serve":
            threading.Thread(target=self._bind_again_and_again, args=("b",), daemon=True).start()

    def decide_fate(self) -> None:
        time.sleep(max(0.0, self.sent_at + LATE_SECONDS - time.monotonic()))
        if self.case.fate is Fate.LATE:
            self.proxy.release()

    def _bind_first(self) -> None:
        """Asks for it until the watch has shown the pod, and so the write begins."""
        while not (self.proxy.held or self.case.kind.given_away(self.scene) or self.first.ended):
            self._bind(self.first, "a")

    def _bind_again_and_again(self, name: str) -> None:
        ends_at = time.monotonic() + END_SECONDS
        while time.monotonic() < ends_at and not self.case.kind.is_over(self.scene):
            for each in (self.standby, self.next, self.first):
                if each is not None and not each.ended:
                    self._bind(each, name)
            time.sleep(0.3)

    def _bind(self, process: Lives, name: str, node: str = "n1") -> None:
        body = {"PodName": name, "PodNamespace": "default", "PodUID": self.scene.uid(name), "Node": node}
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=15)
            connection.request("POST", "/scheduler/bind", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()


@contextmanager
def staged(case: Case, control_plane: ControlPlane, directory: Path) -> Iterator[Stage]:
    """The first process goes through the proxy, and leads. The others do so only if watches are to be late."""
    election = ELECTION if case.elects else ("--no-leader-elect",) * (case.verb == "schedule")

    def process(kubeconfig: str, settings: Mapping[str, str] = TIMES) -> Lives:
        return Lives(case.verb, directory, "--kubeconfig", kubeconfig, *election, settings=settings)

    with ExitStack() as stack:
        proxy = stack.enter_context(proxy_before(control_plane, Injector(0, Severity({}, (0.0, 0.0)))))
        proxy.lag_seconds = case.lag_seconds
        through = str(kubeconfig_through(proxy, control_plane, directory))
        direct = through if case.lag_seconds else str(control_plane.kubeconfig)
        limit = {"EXTENDER_MAX_STALENESS_SECONDS": f"{STALE_SECONDS}"} if case.exit is Exit.STAND_BACK else {}
        first = stack.enter_context(process(through, {**TIMES, **limit}))
        assert wait_until(lambda: leads(first) if case.elects else first.ready()), first.log()
        standby = stack.enter_context(process(direct)) if case.elects else None
        following = process(direct)
        stack.callback(following.kill)
        if standby is not None:
            assert wait_until(standby.said)
        client = control_plane.client
        yield Stage(case, Scene(client), proxy, first, standby, following, holder(client))


CASES = [pytest.param(case, id=case.id) for case in (MATRIX if WHOLE else PART)]
if not WHOLE:
    CASES += [pytest.param(case, id=case.id, marks=pytest.mark.slow) for case in SLOW_PART]


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_given_away_twice_and_nothing_waits_for_ever(
    case: Case, control_plane: ControlPlane, tmp_path: Path
) -> None:
    release_claims(control_plane.client)
    scene = Scene(control_plane.client)
    scene.create(*PRIORITIES)
    case.kind.prepare(scene)
    with staged(case, control_plane, tmp_path) as stage:
        stage.hold()
        stage.end()
        stage.compete()
        stage.decide_fate()
        over = wait_until(lambda: case.kind.is_over(scene), END_SECONDS)
        time.sleep(1.0)
        given_away = case.kind.given_away(scene)
    release_claims(control_plane.client)
    assert over, scene.pods()
    assert 1 <= given_away <= case.most_victims, scene.pods()


def test_the_matrix_has_every_kind_of_write_and_every_way_to_end() -> None:
    assert {case.kind.name for case in MATRIX} == {"bind", "claim", "eviction", "nomination"}
    assert {case.exit for case in MATRIX if case.verb == "serve" and case.elects} == {*Exit}
    assert {case.id for case in PART + SLOW_PART} <= {case.id for case in MATRIX}
