"""Faults that the simulation has found, each alone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from extender.cache.cache import Cache
from extender.cache.debugger import Comparer
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from tests.builders import make_node, make_pod
from tests.scheduler.world import NAME, World
from tests.simulation.api_server import LONGEST_GRACE_SECONDS, PODS, ApiServer
from tests.simulation.judge import Judge
from tests.simulation.network import Network, Stream, Weather
from tests.simulation.tasks import Process, Simulation


class LateWatch:
    """A Lister whose list is out of date as it arrives: the pod is gone, and the reflector has listed again since."""

    def __init__(self, cache: Cache, pod: Pod) -> None:
        self._cache, self._pod = cache, pod

    def kinds(self) -> Sequence[str]:
        return ["Pod"]

    def list(self, kind: str) -> tuple[str, Sequence[Object]]:
        self._cache.replaced("Pod", [])
        return "10", [self._pod]

    def relist(self, kind: str, why: str) -> None:
        pass

    def has_delivered(self, kind: str, version: str) -> bool:
        return True


def test_the_comparer_does_not_bring_back_what_a_relist_has_left_out() -> None:
    cache = Cache(ManualClock(), Telemetry())
    pod = msgspec.convert(make_pod("p").node("n").resource_version(5).obj(), Pod)
    report = Comparer(cache, LateWatch(cache, pod), Telemetry(), lambda _: False).compare()
    assert cache.pods() == {}
    assert report.differences == []


def test_a_preemptor_knows_its_nomination_before_the_watch_does() -> None:
    dear, cheap = (make_pod(f"p{n}").uid(f"p{n}").node(f"n{n}").req(cpu="1").priority(n) for n in (2, 1))
    high = make_pod("high").uid("high").scheduler(NAME).req(cpu="1").priority(9)
    world = World(make_node("n2").capacity(cpu="1", memory="16Gi", pods="10"), dear, high)
    world.attempt()
    world.untold.clear()  # the watch does not tell of the nomination yet ...
    world.preemptors.work()
    world.put(make_node("n1").capacity(cpu="1", memory="16Gi", pods="10"))
    world.put(cheap)
    world.watch()  # ... but of the victim, which is leaving, and of one that would have been less of a loss
    world.queue.activate(["high"])
    world.attempt()
    world.preemptors.work()
    assert world.pod("p2").terminating
    assert not world.pod("p1").terminating


def test_a_server_that_is_restored_serves_watches_again_and_ends_the_pods_that_were_to_end() -> None:
    simulation = Simulation(0)
    server = ApiServer(simulation, Judge(simulation), [PODS])
    server.put(PODS, make_pod("p").uid("p").node("n").obj())
    server.delete_pod("default/p")
    copy = server.snapshot()
    simulation.run(LONGEST_GRACE_SECONDS)
    server.compact()
    assert server.pods() == []
    server.restore(copy)
    stream = Stream(Network(simulation, server, Weather()), Process("extender"), PODS, 60.0)
    assert server.watch(f"{PODS}?resourceVersion={server.version}&timeoutSeconds=60", stream) is None
    simulation.run(LONGEST_GRACE_SECONDS)
    assert server.pods() == []
