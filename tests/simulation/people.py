"""Everybody else: users, kubelets, administrators, and what goes wrong around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tests.builders import HOSTNAME, make_node, make_pod
from tests.simulation.api_server import FINISHED, NODES, PODS, ApiServer, Json
from tests.simulation.devices import Devices
from tests.simulation.network import Network
from tests.simulation.storage import Storage
from tests.simulation.tasks import Process, Simulation

CPUS, MEMORIES = ("250m", "500m", "1000m", "2000m"), ("64Mi", "256Mi", "1024Mi")
PORTS = (80, 443)
APPS = ("web", "db", "cache")
PRIORITIES = (0, 0, 0, 10, 100)
SECONDS_BETWEEN = 0.7
MOST_PODS = 30


class People:
    """Change the cluster every now and then, until they are stopped.

    Args:
        disturbs: they also do what no extender can foresee: shrink, cordon and delete nodes, place pods themselves.
    """

    def __init__(
        self,
        simulation: Simulation,
        api: ApiServer,
        nodes: int,
        storage: Storage | None = None,
        devices: Devices | None = None,
        *,
        disturbs: bool = True,
        scheduler_name: str = "",
    ) -> None:
        self._simulation, self._api, self._storage, self._devices = simulation, api, storage, devices
        self._random = Random(simulation.random.random())
        self._scheduler_name = scheduler_name or "default-scheduler"
        self._made, self.busy = 0, True
        for number in range(nodes):
            api.put(NODES, self._node(f"n{number}"))
        deeds = [self._create] * 8 + [self._delete] * 3 + [self._finish, self._finish, self._touch, self._recreate]
        self._deeds = (
            deeds + [self._resize, self._cordon, self._delete_node, self._recreate_node, self._place] * disturbs
        )
        simulation.after(0.0, self._act)

    def settle(self) -> None:
        """No more changes, and every node can be used."""
        self.busy = False
        for node in list(self._api.collections[NODES].values()):
            if node["spec"].get("unschedulable"):
                self._api.put(NODES, {**node, "spec": {}})

    def poke(self) -> None:
        """A pod that is of no matter changes: the watches have something to tell."""
        self._api.put(PODS, make_pod("heartbeat").uid("heartbeat").node("nowhere").obj())

    def _act(self) -> None:
        if self.busy:
            self._random.choice(self._deeds)()
            self._simulation.after(self._random.expovariate(1 / SECONDS_BETWEEN), self._act)

    # ---- pods

    def _create(self) -> None:
        if len(self._api.pods()) < MOST_PODS:
            self._made += 1
            self._put_pod(f"p{self._made}")

    def _put_pod(self, name: str, node: str = "") -> None:
        random = self._random
        self._made += 1
        pod = make_pod(name).uid(f"uid-{self._made}").scheduler(self._scheduler_name)
        pod.req(cpu=random.choice(CPUS), memory=random.choice(MEMORIES)).priority(random.choice(PRIORITIES))
        if random.random() < 0.2:
            pod.host_port(random.choice(PORTS))
        if random.random() < 0.3:
            app = {"app": random.choice(APPS)}
            apart = pod.label(app).anti_affinity if random.random() < 0.5 else pod.label(app).spread
            apart(HOSTNAME, labels=app)
        if self._storage is not None and not node and random.random() < 0.2:
            pod.pvc(self._storage.claim_for(f"uid-{self._made}"))
        if self._devices is not None and not node and random.random() < 0.2:
            pod.resource_claim(self._devices.claim_for(f"uid-{self._made}"))
        made = (pod.node(node) if node else pod).obj()
        self._simulation.tell(f"people: {name} ({made['metadata']['uid']}) is made{f' on {node}' if node else ''}")
        self._api.put(PODS, made)

    def _place(self) -> None:
        self._made += 1
        self._put_pod(f"d{self._made}", self._random.choice(self._node_names()))

    def _delete(self) -> None:
        if pod := self._some():
            self._simulation.tell(f"people: {pod['metadata']['name']} is deleted")
            self._api.delete_pod(_key(pod))

    def _recreate(self) -> None:
        """HypotheticalRemovals at once, and recreated under the same name."""
        if pod := self._some():
            self._api.remove(PODS, _key(pod))
            self._put_pod(pod["metadata"]["name"])

    def _finish(self) -> None:
        pod = self._some(bound=True)
        if pod and pod.get("status", {}).get("phase") not in FINISHED:
            self._api.put(PODS, {**pod, "status": {**pod.get("status", {}), "phase": "Succeeded"}})

    def _touch(self) -> None:
        if pod := self._some():
            labels = {**pod["metadata"].get("labels", {}), "touched": str(self._api.version)}
            self._api.put(PODS, {**pod, "metadata": {**pod["metadata"], "labels": labels}})

    def _some(self, *, bound: bool = False) -> Json | None:
        pods = [pod for pod in self._api.pods() if pod["spec"].get("nodeName") or not bound]
        return self._random.choice(pods) if pods else None

    # ---- nodes

    def _node(self, name: str) -> Json:
        cpu, pods = self._random.choice(("2000m", "4000m")), self._random.choice(("4", "8"))
        return make_node(name).label({HOSTNAME: name}).capacity(cpu=cpu, memory="4096Mi", pods=pods).obj()

    def _node_names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self._api.collections[NODES].values()]

    def _resize(self) -> None:
        name = self._random.choice(self._node_names())
        self._api.put(NODES, self._node(name))
        self._simulation.tell(f"people: {name} is resized")

    def _cordon(self) -> None:
        name = self._random.choice(self._node_names())
        node = self._api.collections[NODES][name]
        spec = {} if node["spec"].get("unschedulable") else {"unschedulable": True}
        self._api.put(NODES, {**node, "spec": spec})

    def _delete_node(self) -> None:
        names = self._node_names()
        if len(names) > 2 and self._random.random() < 0.5:
            self._api.remove(NODES, self._random.choice(names))
        else:
            self._api.put(NODES, self._node(f"n{self._random.randrange(8)}"))

    def _recreate_node(self) -> None:
        """A node is deleted, and a moment later there is another of its name."""
        name = self._random.choice(self._node_names())
        self._simulation.tell(f"people: {name} is created again")
        self._api.remove(NODES, name)
        self._api.put(NODES, self._node(name))


class Misfortune:
    """Cuts watches, forgets history, stops the API server, stops, deposes and skews processes; until it is ended."""

    def __init__(self, simulation: Simulation, network: Network, processes: Callable[[], Sequence[Process]]) -> None:
        self._simulation, self._network, self._processes = simulation, network, processes
        self._random = Random(simulation.random.random())
        self.busy = True
        simulation.after(self._random.expovariate(0.3), self._act)

    def _act(self) -> None:
        if self.busy:
            deeds = (
                [self._cut] * 4
                + [self._compact] * 2
                + [self._hang, self._mute, self._lose_next, self._silence, self._lag]
                + [self._outage, self._pause, self._suspend, self._skew, self._depose]
            )
            self._random.choice(deeds)()
            self._simulation.after(self._random.expovariate(0.3), self._act)

    def _cut(self) -> None:
        if self._network.streams:
            self._random.choice(self._network.streams).cut()

    def _compact(self) -> None:
        self._simulation.tell("misfortune: history is compacted")
        self._network.api.compact()
        self._cut()

    def _hang(self) -> None:
        if self._network.streams and self._random.random() < 0.5:
            self._random.choice(self._network.streams).hang()

    def _mute(self) -> None:
        if self._network.streams and self._random.random() < 0.5:
            self._simulation.tell("misfortune: a watch delivers no events any more")
            self._random.choice(self._network.streams).mute()

    def _lose_next(self) -> None:
        if self._network.streams:
            stream = self._random.choice(self._network.streams)
            self._simulation.tell(f"misfortune: {stream.process.name} loses the next event of {stream.path}")
            stream.lose_next()

    def _silence(self) -> None:
        """A watch stays open and delivers nothing, and so do those that are opened in its place."""
        if self._network.streams and self._random.random() < 0.5:
            stream = self._random.choice(self._network.streams)
            silent = stream.process, stream.path
            self._simulation.tell(f"misfortune: {stream.process.name} has a silent watch of {stream.path}")
            self._network.silent.add(silent)
            self._simulation.after(self._random.uniform(20, 200), lambda: self._network.silent.discard(silent))

    def _lag(self) -> None:
        """All events of a kind reach a process late, for a while."""
        if self._network.streams:
            stream = self._random.choice(self._network.streams)
            seconds = self._random.uniform(5, 30)
            self._simulation.tell(f"misfortune: {stream.process.name} watches {stream.path} {seconds:.0f} s late")
            self._network.lags[stream.process, stream.path] = seconds
            late = stream.process, stream.path
            self._simulation.after(self._random.uniform(20, 200), lambda: self._network.lags.pop(late, None))

    def _outage(self) -> None:
        self._simulation.tell("misfortune: the API server is down")
        self._network.api.down = True
        for stream in tuple(self._network.streams):
            stream.cut()
        self._simulation.after(self._random.uniform(0, 6), self._back)

    def _back(self) -> None:
        self._network.api.down = False

    def _pause(self) -> None:
        process = self._random.choice(self._processes())
        seconds = self._random.choice((0.5, 3.0, 12.0, 25.0)) * self._random.random()
        process.paused_until = self._simulation.now + seconds
        self._simulation.tell(f"misfortune: {process.name} stands still for {seconds:.1f} s")

    def _suspend(self) -> None:
        process = self._random.choice(self._processes())
        seconds = self._random.choice((3.0, 12.0, 25.0)) * self._random.random()
        self._simulation.suspend(process, seconds, boot_clock_stops=self._random.random() < 0.5)
        self._simulation.tell(f"misfortune: the machine of {process.name} is suspended for {seconds:.1f} s")

    def _depose(self) -> None:
        """Somebody's renewals do not arrive for so long that another may lead; all else that it does, does."""
        process = self._random.choice(self._processes())
        self._simulation.tell(f"misfortune: {process.name} cannot renew its lease")
        self._network.without_leases = process
        self._simulation.after(self._random.uniform(8, 30), self._undo_depose)

    def _undo_depose(self) -> None:
        self._network.without_leases = None

    def _skew(self) -> None:
        """Sets a machine's wall clock; not that of a machine that is suspended, because nothing runs there."""
        process, skew = self._random.choice(self._processes()), self._random.uniform(-3600, 3600)
        if process.suspended_until <= self._simulation.now:
            process.skew = skew


def _key(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
