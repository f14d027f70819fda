"""Can two leaders fill a node over? What a leader can do that stands still in the midst of a bind, and what not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import msgspec
import pytest

from extender.cluster.binder import ApiBinder
from extender.cluster.election.lease import LeaderBinder, LeaderClient
from extender.cluster.kube_client import Caller
from extender.cluster.statuses import ApiEvictor
from extender.model.pod import Pod
from extender.runtime.ports import Binding, Check, always
from tests.builders import make_node, make_pod
from tests.simulation.api_server import NODES, PODS
from tests.simulation.broken import OpenClient, OpenDoor
from tests.simulation.network import CALM, SimulatedKubeClient
from tests.simulation.replica import Replica
from tests.simulation.tasks import Simulation, Violation
from tests.simulation.world import Plan, World

pytestmark = pytest.mark.thorough

LONG_SECONDS, SHORT_SECONDS = 60.0, 3.0


class Stopped:
    """The process stands still for so long at a certain point of its first bind, and then goes on."""

    def __init__(self) -> None:
        self.simulation: Simulation | None = None
        self.seconds = 0.0

    def __call__(self) -> None:
        simulation, seconds, self.seconds = self.simulation, self.seconds, 0.0
        if seconds:
            assert simulation is not None and simulation.current is not None
            simulation.current.process.paused_until = simulation.now + seconds
            simulation.sleep(0.0)


def lives(stopped: Stopped, seconds: float, stand_ins: Mapping[str, object]) -> World:
    """One node with room for one pod; the leader stands still as it binds one, and its successor is given another."""
    plan = Plan(
        replicas=2, nodes=1, people=False, misfortune=False, crashes=False, weather=CALM, disturbs=False,
        stand_ins=stand_ins,
    )  # fmt: skip
    world = World(1, plan)
    world.judge.tolerant = True
    stopped.simulation, stopped.seconds = world.simulation, seconds
    world.api.put(NODES, make_node("n0").capacity(cpu="1000m", memory="4096Mi", pods="8").obj())
    for name in ("x", "y"):
        world.api.put(PODS, make_pod(name).uid(name).req(cpu="1000m", memory="64Mi").obj())
    with world.running():
        world.simulation.run(40)
        first = leader(world)
        bind(world, first, "x")
        world.simulation.run(1)
        world.simulation.run(39)
        if (second := leader(world)) is not first:
            bind(world, second, "y")
        world.simulation.run(LONG_SECONDS)
    return world


def leader(world: World) -> Replica:
    """Returns who is ready, as far as probes can tell: one that stands still does not answer them."""
    ready = [each for each in world.replicas if each.ready and each.process.paused_until <= world.simulation.now]
    assert len(ready) == 1
    assert isinstance(ready[0], Replica)
    return ready[0]


def bind(world: World, replica: Replica, name: str) -> None:
    request = {"PodName": name, "PodNamespace": "default", "PodUID": name, "Node": "n0"}
    body = msgspec.json.encode(request)
    world.simulation.spawn(replica.process, f"bind {name}", lambda: replica.answer("bind", body))


def pausing_door(stopped: Stopped) -> type[LeaderBinder]:
    class PausingDoor(LeaderBinder):
        def bind(self, binding: Binding, check: Check = always) -> None:
            stopped()
            super().bind(binding, check)

    return PausingDoor


def pausing_binder(stopped: Stopped) -> type[ApiBinder]:
    class PausingBinder(ApiBinder):
        def bind(self, binding: Binding, check: Check = always) -> None:
            stopped()
            super().bind(binding, check)

    return PausingBinder


def test_a_leader_that_stood_still_before_it_asked_whether_it_leads_binds_nothing() -> None:
    stopped = Stopped()
    world = lives(stopped, LONG_SECONDS, {"extender.app.serve.LeaderBinder": pausing_door(stopped)})
    assert world.judge.overfilled == []
    assert world.judge.bound == {"y": "n0"}


def test_without_that_question_it_would_fill_the_node_over() -> None:
    stopped = Stopped()

    class PausingOpenDoor(OpenDoor):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            post: Any = self.bind

            def bind(*where: object) -> None:
                stopped()
                post(*where)

            self.bind: Any = bind

    world = lives(stopped, LONG_SECONDS, {"extender.app.serve.LeaderBinder": PausingOpenDoor})
    assert len(world.judge.overfilled) == 1
    assert world.judge.bound == {"x": "n0", "y": "n0"}


def test_a_leader_that_stood_still_after_it_asked_sends_nothing_because_the_client_asks_again() -> None:
    stopped = Stopped()
    world = lives(stopped, LONG_SECONDS, {"extender.app.feed.ApiBinder": pausing_binder(stopped)})
    assert world.judge.overfilled == []
    assert world.judge.bound == {"y": "n0"}


@pytest.mark.parametrize(
    ("seconds", "overfilled"),
    [
        # Lease duration less renew deadline, 5 s, is what a leader may lose between the question and the API server.
        pytest.param(SHORT_SECONDS, 0, id="shorter than the lease outlives its leader: safe"),
        # No API call names the lease that it is made under, so nothing stops it. The kubelet turns the pod away then.
        pytest.param(LONG_SECONDS, 1, id="longer: nothing can stop the Binding"),
    ],
)
def test_a_leader_that_freezes_between_its_check_and_its_binding(seconds: float, overfilled: int) -> None:
    stopped = Stopped()

    class FreezingBinder(ApiBinder):
        def bind(self, binding: Binding, check: Check = always) -> None:
            check()
            stopped()
            super().bind(binding)

    world = lives(stopped, seconds, {"extender.app.feed.ApiBinder": FreezingBinder})
    assert len(world.judge.overfilled) == overfilled
    assert "x" in world.judge.bound


def pausing_evictor(stopped: Stopped) -> type[ApiEvictor]:
    class PausingEvictor(ApiEvictor):
        def mark_victim(self, victim: Pod, message: str) -> bool:
            stopped()
            return super().mark_victim(victim, message)

    return PausingEvictor


def preempt(client: type[Caller]) -> World:
    """A leader stands still between the evictions of three victims, until another has led for a while."""
    stopped = Stopped()
    plan = Plan(
        own_scheduler=True, replicas=2, nodes=1, people=False, misfortune=False, crashes=False, weather=CALM,
        disturbs=False,
        stand_ins={
            "extender.app.loop.ApiEvictor": pausing_evictor(stopped),
            "extender.app.loop.LeaderClient": client,
        },
    )  # fmt: skip
    world = World(1, plan)
    stopped.simulation = world.simulation
    world.api.put(NODES, make_node("n0").capacity(cpu="3000m", memory="4096Mi", pods="8").obj())
    for name in ("x", "y", "z"):
        world.api.put(PODS, make_pod(name).uid(name).node("n0").req(cpu="1000m", memory="64Mi").obj())
    with world.running():
        world.simulation.run(40)
        stopped.seconds = LONG_SECONDS
        preemptor = (
            make_pod("high").uid("high").scheduler("default-scheduler").priority(9).req(cpu="3000m", memory="64Mi")
        )
        world.api.put(PODS, preemptor.obj())
        world.simulation.run(3 * LONG_SECONDS)
    return world


def test_a_leader_that_stood_still_evicts_no_pod_once_another_leads() -> None:
    world = preempt(LeaderClient)
    assert world.judge.bound == {"high": "n0"}


def test_without_the_fence_it_would() -> None:
    with pytest.raises(Violation, match=r"(DELETE|PATCH) .* while extender.* leads"):
        preempt(OpenClient)


class SlowLists(SimulatedKubeClient):
    """Each list of pods takes 7 s."""

    @contextmanager
    def get(self, path: str, query: Mapping[str, str], silence_seconds: float, accept: str = "") -> Iterator[Any]:
        if path == PODS and "watch" not in query:
            self._network.simulation.sleep(7.0)
        with super().get(path, query, silence_seconds, accept) as response:
            yield response


def test_a_replica_leads_though_all_watches_are_late_and_lists_are_slow() -> None:
    """Each survey then ends in a list, during which a process that takes over must keep its lease."""
    stand_ins: dict[str, object] = {}
    plan = Plan(
        replicas=2, nodes=1, people=False, misfortune=False, crashes=False, weather=CALM, disturbs=False,
        stand_ins=stand_ins,
    )  # fmt: skip
    world = World(1, plan)
    stand_ins["extender.app.feed.KubeClient"] = lambda *_: SlowLists(world.network, world._current())
    changes = count()

    def change() -> None:
        waiting = make_pod("x").uid("x").label(number=str(next(changes))).req(cpu="1000m", memory="64Mi")
        world.api.put(PODS, waiting.obj())
        world.simulation.after(3.0, change)

    world.api.put(NODES, make_node("n0").capacity(cpu="1000m", memory="4096Mi", pods="8").obj())
    change()
    with world.running():
        world.network.lags = {(replica.process, PODS): 25.0 for replica in world.replicas}
        led = False
        for _ in range(20):
            world.simulation.run(10)
            led = led or any(replica.ready for replica in world.replicas)
    assert led
