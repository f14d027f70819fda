"""Can two leaders fill a node over? What a leader can do that stands still in the midst of a bind, and what not."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from extender.cluster.election.leader_binder import LeaderBinder
from extender.cluster.writers.binder import ApiBinder
from tests.builders import make_node, make_pod
from tests.simulation.api_server import NODES, PODS
from tests.simulation.broken import OpenDoor
from tests.simulation.network import CALM
from tests.simulation.replica import Replica
from tests.simulation.tasks import Simulation
from tests.simulation.world import Plan, World

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
    """Who is ready, as far as probes can tell: one that stands still does not answer them."""
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
        def bind(self, namespace: str, name: str, uid: str, node: str, annotations: object = None) -> None:
            stopped()
            super().bind(namespace, name, uid, node)

    return PausingDoor


def pausing_binder(stopped: Stopped) -> type[ApiBinder]:
    class PausingBinder(ApiBinder):
        def bind(self, namespace: str, name: str, uid: str, node: str, annotations: object = None) -> None:
            stopped()
            super().bind(namespace, name, uid, node)

    return PausingBinder


def test_a_leader_that_stood_still_before_it_asked_whether_it_leads_binds_nothing() -> None:
    stopped = Stopped()
    world = lives(stopped, LONG_SECONDS, {"extender.app.feed.LeaderBinder": pausing_door(stopped)})
    assert world.judge.overfilled == []
    assert world.judge.bound == {"y": "n0"}


def test_without_that_question_it_would_fill_the_node_over() -> None:
    stopped = Stopped()

    class PausingOpenDoor(OpenDoor):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]  # as OpenDoor
            post = self.bind

            def bind(*where: object) -> None:
                stopped()
                post(*where)  # type: ignore[arg-type]  # as ports.Binder

            self.bind = bind  # type: ignore[assignment]  # as ports.Binder

    world = lives(stopped, LONG_SECONDS, {"extender.app.feed.LeaderBinder": PausingOpenDoor})
    assert len(world.judge.overfilled) == 1
    assert world.judge.bound == {"x": "n0", "y": "n0"}


@pytest.mark.parametrize(
    ("seconds", "overfilled"),
    [
        # Lease duration less renew deadline, 5 s, is what a leader may lose between the question and the API server.
        pytest.param(SHORT_SECONDS, 0, id="shorter than the lease outlives its leader: safe"),
        # No API call names the lease that it is made under, so nothing stops it. The kubelet turns the pod away then.
        pytest.param(LONG_SECONDS, 1, id="longer: nothing can stop the Binding"),
    ],
)
def test_a_leader_that_stands_still_between_question_and_binding(seconds: float, overfilled: int) -> None:
    stopped = Stopped()
    world = lives(stopped, seconds, {"extender.app.feed.ApiBinder": pausing_binder(stopped)})
    assert len(world.judge.overfilled) == overfilled
    assert "x" in world.judge.bound
