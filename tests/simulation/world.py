"""One life of the cluster from a seed: trouble first, then peace, and in the end everything must be in order."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from random import Random

from extender.app import upkeep
from extender.model.kinds import KINDS
from extender.runtime.threads import WorkerPool
from tests.simulation.api_server import FINISHED, NODES, ApiServer, Json
from tests.simulation.devices import Devices
from tests.simulation.judge import Judge
from tests.simulation.network import Network, SimulatedKubeClient, Weather
from tests.simulation.own_scheduler import OwnScheduler, Pages, WitnessedPreemptions, WitnessedQueue
from tests.simulation.people import Misfortune, People
from tests.simulation.primitives import Primitives
from tests.simulation.replica import DEVICES, FOLLOWED, STORAGE, Replica
from tests.simulation.stock_scheduler import StockScheduler
from tests.simulation.storage import Storage
from tests.simulation.tasks import Killed, Process, Simulation, Violation
from tests.simulation.witness import Alarm, AlarmingMetrics, AlarmingSchedulerMetrics, WitnessedCache, WitnessedElector

# Sooner than a binding that a dead process has sent may arrive.
SHORTEST_RESTART_SECONDS = 0.5
# Longer than a reflector pauses after many failures, for the watch and again for the list, and than a bind of unknown
# outcome may hold its place after that.
GRACE_SECONDS = 8.0
PEACE_SECONDS, SETTLED_SECONDS = 130.0, 60.0
TROUBLE_SECONDS = (45.0, 90.0, 90.0, 180.0)
RESTORED_SHARE, WORKER_SHARE = 0.2, 0.5
_SLOWEST, _FASTEST = 0.95, 1.05


@dataclass(frozen=True)
class Plan:
    """The kind of a life; a field that is None is drawn by lot.

    Attributes:
        own_scheduler: it is the project's own that schedules, without extenders.
        filter_answer: of extenders, as in their settings.
        replicas: 1 is a sidecar without a lease.
        people: there are users; else nothing happens but what a test does, and no scheduler runs.
        stand_ins: put in place of real parts, to see the simulation fail.
    """

    trouble_seconds: float | None = None
    own_scheduler: bool = False
    filter_answer: str = "feasible"
    replicas: int | None = None
    nodes: int | None = None
    disturbs: bool | None = None
    weather: Weather = field(default_factory=Weather)
    misfortune: bool = True
    crashes: bool = True
    people: bool = True
    stand_ins: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a life. `digest` is equal where everything has happened alike."""

    bound: int
    crashes: int
    steps: int
    digest: str
    left: int = 0


class World:
    """Everything that lives under one seed."""

    def __init__(self, seed: int, plan: Plan) -> None:
        self.simulation = simulation = Simulation(seed)
        random = simulation.random
        self.plan, self.judge = plan, Judge(simulation)
        self.api = ApiServer(simulation, self.judge, [KINDS[name].path for name in (*FOLLOWED, *STORAGE, *DEVICES)])
        self.judge.collections = lambda: self.api.collections
        self.judge.processes = self._processes
        self.network = Network(simulation, self.api, replace(plan.weather))
        self.replicas: list[Replica | OwnScheduler] = []
        self.scheduler: StockScheduler | None = None
        self.crashes = 0
        count = plan.replicas or random.choice((1, 1, 2, 3))
        disturbs = random.random() < 0.7 if plan.disturbs is None else plan.disturbs
        provisions = plan.own_scheduler and plan.people
        storage = Storage(simulation, self.api) if provisions else None
        devices = Devices(simulation, self.api) if provisions else None
        nodes = plan.nodes or random.randint(2, 5)
        self.people = People(simulation, self.api, nodes, storage, devices, disturbs=disturbs)
        self.people.busy, self.judge.disturbed = plan.people, disturbs
        self._count, self._elects, self._generation = count, count > 1, 0
        self._alarm = _Errors(simulation)

    def live(self) -> Outcome:
        """Raises Violation where something does not hold."""
        simulation, plan = self.simulation, self.plan
        with self.running():
            simulation.run(plan.trouble_seconds or simulation.random.choice(TROUBLE_SECONDS))
            self._make_peace()
            simulation.run(max(PEACE_SECONDS, self.judge.unknowing_seconds))
            self.judge.at_peace = True
            simulation.run(SETTLED_SECONDS)
            left = self._check_at_the_end()
            history = blake2b("\n".join(simulation.history).encode(), digest_size=8).hexdigest()
            return Outcome(len(self.judge.bound), self.crashes, simulation.steps, history, left)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Everything is there and lives, as far as the block lets time pass."""
        with Primitives(self.simulation).installed(self._stand_ins()), self._alarm.listening():
            self._begin()
            try:
                yield
            finally:
                self._end()

    # ---- life

    def _begin(self) -> None:
        for index in range(self._count):
            self._start_replica(index)
        if self.plan.people and not self.plan.own_scheduler:
            self._start_scheduler()
        self.misfortune = Misfortune(self.simulation, self.network, self._processes)
        if self.plan.crashes:
            self.simulation.after(self.simulation.random.expovariate(1 / 20), self._crash)
        self.misfortune.busy = self.plan.misfortune
        if self.plan.misfortune and self.simulation.random.random() < RESTORED_SHARE:
            self.simulation.after(self.simulation.random.uniform(10, 40), self._back_up)

    def _stand_ins(self) -> Mapping[str, object]:
        shared = {"simulation": self.simulation, "judge": self.judge}
        stand_ins: dict[str, object] = {
            "extender.cluster.credentials.ServiceAccount": NoCredentials,
            "extender.app.feed.KubeClient": lambda *_: SimulatedKubeClient(self.network, self._current()),
            "extender.app.feed.LeaderElector": WitnessedElector,
            "extender.app.live_lookups.identify": lambda _: ("simulation", "none"),
            "extender.app.upkeep.Cache": WitnessedCache,
            "extender.verbs.prioritize.Random": lambda: Random(self.simulation.random.random()),
            "extender.app.serve.Metrics": AlarmingMetrics,
            "extender.runtime.process.COLLECT_SECONDS": 0.0,  # five waits a second would be most of what happens
            "extender.app.upkeep.COMPARE_SECONDS": upkeep.COMPARE_SECONDS,  # processes set it; put back at the end
            "extender.app.schedule.KubeClient": lambda *_: SimulatedKubeClient(self.network, self._current()),
            "extender.app.loop.PriorityQueue": WitnessedQueue,
            "extender.app.loop.PreemptionExecutor": WitnessedPreemptions,
            "extender.app.schedule.SchedulerMetrics": AlarmingSchedulerMetrics,
            "extender.app.schedule.PageServer": Pages,
            # A simulated thread may have to wait at any lock: so may fibers in a call, and nowhere else.
            "extender.app.loop.FiberPool": lambda name, _, on_error: NoFibers(name, 16, on_error),
            **self.plan.stand_ins,
        }
        return {path: _introduced(each, shared) for path, each in stand_ins.items()}

    def _current(self) -> Process:
        assert self.simulation.current is not None
        return self.simulation.current.process

    def _processes(self) -> list[Process]:
        scheduler = [self.scheduler.process] if self.scheduler else []
        return [*(replica.process for replica in self.replicas), *scheduler]

    def _process(self, name: str) -> Process:
        self._generation += 1
        rate = self.simulation.random.uniform(_SLOWEST, _FASTEST)
        return Process(f"{name}-{self._generation}", rate, born_at=self.simulation.now)

    def _start_replica(self, index: int) -> None:
        process = self._process(f"extender{index}")
        replica: Replica | OwnScheduler
        if self.plan.own_scheduler:
            replica = OwnScheduler(
                self.simulation, self.judge, process, elects=self._elects, ended=lambda _: self._restart(index)
            )
        else:
            replica = Replica(
                self.simulation, self.judge, process, elects=self._elects, filter_answer=self.plan.filter_answer
            )
        self.replicas[index : index + 1] = [replica]

    def _restart(self, index: int) -> None:
        """It is dead, or dies now; another process takes its place."""
        self.simulation.kill(self.replicas[index].process)
        after = self.simulation.random.uniform(SHORTEST_RESTART_SECONDS, 15)
        self.simulation.after(after, lambda: self._start_replica(index))

    def _restart_worker(self, index: int, deaths: int) -> None:
        """Its worker dies; the next one has its name, its clock and its memory of writes, and may die as well."""
        dead = self.replicas[index]
        if not isinstance(dead, Replica) or dead.writes is None or not dead.process.alive or dead.process.ending:
            return
        self.simulation.tell(f"the worker of {dead.process.name} is killed")
        self.simulation.kill(dead.process)
        random, writes = self.simulation.random, dead.writes

        def start() -> None:
            if self.replicas[index] is not dead:
                return
            old = dead.process
            process = replace(old, alive=True, ending=False, tasks=[], facts={})
            answer = self.plan.filter_answer
            self.replicas[index] = Replica(
                self.simulation, self.judge, process, elects=self._elects, filter_answer=answer, writes=writes
            )
            if deaths > 1:
                self.simulation.after(random.uniform(0, 5), lambda: self._restart_worker(index, deaths - 1))

        self.simulation.after(random.uniform(0.1, 1.0), start)

    def _start_scheduler(self) -> None:
        process = self._process("scheduler")
        one = self.plan.filter_answer == "best"
        self.scheduler = StockScheduler(
            self.simulation, self.network, self.judge, process, self._serving, one_passes=one
        )

    def _serving(self) -> list[Replica]:
        """Those behind the Service: the ready ones, as far as it knows."""
        replicas = [replica for replica in self.replicas if isinstance(replica, Replica)]
        ready = [replica for replica in replicas if replica.ready]
        return ready if ready and self.simulation.random.random() < 0.9 else replicas

    def _crash(self) -> None:
        if not self.people.busy:
            return
        random, self.crashes = self.simulation.random, self.crashes + 1
        if self.scheduler and random.random() < 0.2:
            self.simulation.kill(self.scheduler.process)
            self.simulation.after(random.uniform(1, 15), self._start_scheduler)
        else:
            self._stop_replica(random.randrange(len(self.replicas)))
        self.simulation.after(random.expovariate(1 / 20), self._crash)

    def _stop_replica(self, index: int) -> None:
        """SIGKILL to all or to its worker, or SIGTERM and some time before it; one that is dead already stays so."""
        replica, random = self.replicas[index], self.simulation.random
        if not replica.process.alive or replica.process.ending:
            return
        if random.random() < 0.3 and replica.ready:
            self.simulation.tell(f"{replica.process.name} is asked to end")
            replica.process.ending = True
            self.simulation.spawn(replica.process, "stop", replica.stop)
            self.simulation.after(GRACE_SECONDS, lambda: self._kill(replica, index))
        elif isinstance(replica, Replica) and replica.writes is not None and random.random() < WORKER_SHARE:
            self._restart_worker(index, random.choice((1, 2, 2, 3)))
        else:
            self._kill(replica, index)

    def _kill(self, replica: Replica | OwnScheduler, index: int) -> None:
        if replica.process.alive:
            self.simulation.tell(f"{replica.process.name} is killed")
            self._restart(index)

    def _back_up(self) -> None:
        copy = self.api.snapshot()
        self.simulation.after(self.simulation.random.uniform(1, 20), lambda: self._restore(copy))

    def _restore(self, copy: tuple[int, dict[str, dict[str, Json]]]) -> None:
        """The API server is back with what it held some time ago; the stock scheduler has to be started again."""
        self.simulation.tell(f"misfortune: the API server is restored, from version {self.api.version} to {copy[0]}")
        self.api.restore(copy)
        self.judge.restored(copy[0], self.api.pods())
        for stream in tuple(self.network.streams):
            stream.cut()
        if self.scheduler:
            self.simulation.kill(self.scheduler.process)
            self.simulation.after(1.0, self._start_scheduler)

    def _make_peace(self) -> None:
        self.simulation.tell("peace")
        self.people.settle()
        self.misfortune.busy = False
        self.network.calm_down()
        self.simulation.after(3.0, self._poke)

    def _poke(self) -> None:
        self.people.poke()
        self.simulation.after(10.0, self._poke)

    def _end(self) -> None:
        for process in self._processes():
            self.simulation.kill(process)

    # ---- what must hold

    def _check_at_the_end(self) -> int:
        require = self.judge.require
        for replica in self.replicas:
            self._check_cache(replica)
        leading = [replica.process.name for replica in self.replicas if replica.ready]
        require(len(leading) == 1, f"in peace one leads: {leading}")
        waiting = [pod for pod in self.api.pods() if not pod["spec"].get("nodeName")]
        for pod in waiting:
            for node in self.api.collections[NODES].values():
                require(not self.judge.fits(pod, node), f"{pod['metadata']} fits on {node['metadata']['name']}")
        kept = self.judge.kept_for_nobody(waiting)
        require(not kept, f"claims are reserved for pods that wait: {kept}")
        self.simulation.raise_error()
        return len(waiting)

    def _check_cache(self, replica: Replica | OwnScheduler) -> None:
        """It holds what the API server holds, and nothing that is only assumed."""
        require, cache = self.judge.require, replica.cache
        name = replica.process.name
        require(not cache.overview().assumed, f"{name}: assumed in peace: {cache.overview().assumed}")
        shown = {
            pod["metadata"]["uid"]: (pod["metadata"]["resourceVersion"], pod["spec"].get("nodeName", ""))
            for pod in self.api.pods()
            if pod.get("status", {}).get("phase") not in FINISHED
        }
        held = {
            uid: (pod.pod.metadata.resource_version if pod.pod else "", pod.node_name)
            for uid, pod in cache.pods().items()
        }
        require(held == shown, f"{name}: the pods held are not those of the API server: {_unlike(held, shown)}")
        nodes = {key: node["metadata"]["resourceVersion"] for key, node in self.api.collections[NODES].items()}
        known = {key: node.metadata.resource_version for key, node in cache.objects("Node").items()}
        require(known == nodes, f"{name}: the nodes held are not those of the API server: {_unlike(known, nodes)}")


WITNESSES = (Alarm, Pages, WitnessedCache, WitnessedElector, WitnessedPreemptions, WitnessedQueue)


def _introduced(stand_in: object, to: dict[str, object]) -> object:
    """A witness that knows whom to tell."""
    witness = isinstance(stand_in, type) and issubclass(stand_in, WITNESSES)
    return type(stand_in.__name__, (stand_in,), to) if isinstance(stand_in, type) and witness else stand_in


def _unlike(held: Mapping[str, object], true: Mapping[str, object]) -> Mapping[str, object]:
    keys = sorted(held.keys() | true.keys())
    return {key: (held.get(key), true.get(key)) for key in keys if held.get(key) != true.get(key)}


class NoFibers(WorkerPool):
    """In place of a FiberPool: simulated threads, which do not end."""

    def check(self) -> None:
        pass


class NoCredentials:
    """In place of a service account, with or without a user to impersonate."""

    def __init__(self, *_: object) -> None: ...

    def load(self) -> None:
        pass


class _Errors(logging.Handler):
    """Whatever the real parts log as an error is a violation: they log what they did not expect."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(logging.ERROR)
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, Killed):  # which a thread may catch that no task may end
            self._simulation.fail(f"logged: {record.getMessage()}: {error!r}")

    @contextmanager
    def listening(self) -> Iterator[None]:
        logger = logging.getLogger("extender")
        before = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.level, logger.propagate = before


def simulate(seed: int, plan: Plan = Plan(), *, echo: bool = False) -> Outcome:
    """One life; a Violation carries what happened last."""
    world = World(seed, plan)
    world.simulation.echo = echo
    try:
        return world.live()
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}\n" + "\n".join(world.simulation.history)) from None
