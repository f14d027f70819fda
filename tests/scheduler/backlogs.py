"""Backlogs for the loop: what it decides with all that it keeps is compared with deciding each pod alone.

Each pod is decided on once more, on a table made of the objects there are, by a cycle that has met no other pod; ties
are broken by the same choice. Between attempts binds end in any order, pods are deleted, and nodes change.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from extender.engine.decide import SchedulingCycle
from extender.engine.decision import Chosen, Failure
from extender.framework.profile import Profile
from extender.framework.rankings import Best, Rankings
from extender.model.node import Node
from extender.model.pod import Pod
from extender.plugins.registry import default_profile
from extender.table import PodInfo, Table
from tests.builders import (
    HOSTNAME,
    ZONE,
    NodeBuilder,
    Object,
    PodBuilder,
    expression,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    node_term,
)
from tests.scheduler.world import NAME, World

_APPS = ("web", "db", "cache")
_ZONES = ("z0", "z1", "z2")
_DISK = "disktype"


class Placement(NamedTuple):
    """A pod, the node that it got, and all objects at that moment: the pods on their nodes."""

    pod: Object
    node: str
    items: list[Object]


class CountedRankings(Rankings):
    """Counts the pods that the ranking of a template places."""

    used = 0

    def best(self, pod: PodInfo, table: Table) -> Best | None:
        best = super().best(pod, table)
        self.used += best is not None
        return best


class Compared(SchedulingCycle):
    """Decides with all that it keeps, and alone.

    Attributes:
        differing: what was decided otherwise.
        rankings: counts the pods that the ranking of a template placed.
    """

    def __init__(self, profile: Profile, seed: int, world: World) -> None:
        super().__init__(profile, Random(seed))
        self._alone, self._world = Random(seed), world
        self.placed: dict[str, str] = {}
        self.differing: list[str] = []
        self.rankings: CountedRankings = CountedRankings(profile)

    def schedule_pod(self, pod: PodInfo, table: Table) -> Chosen | Failure:
        """See SchedulingCycle."""
        decided = super().schedule_pod(pod, table)
        alone = SchedulingCycle(self.profile, self._alone).schedule_pod(PodInfo(pod.pod), self._fresh(table))
        if _told(decided) != _told(alone):
            self.differing.append(f"{pod.pod.name}: {_told(decided)}, and alone {_told(alone)}")
        if isinstance(decided, Chosen):
            self.placed[pod.pod.key] = decided.node_name
        return decided

    def _fresh(self, table: Table) -> Table:
        """Returns a table of the objects that there are; its rows are in the same order, for that decides ties."""
        fresh, objects = Table(), self._world.objects
        for name in filter(None, table.nodes.names):
            node = objects.get(("Node", name))
            assert isinstance(node, Node)
            fresh.set_node(node)
        for (kind, key), obj in objects.items():
            if isinstance(obj, Pod):
                if node_name := obj.node_name or self.placed.get(key, ""):
                    fresh.place(PodInfo(obj.placed_on(node_name)), node_name)
            elif not isinstance(obj, Node):
                fresh.set_object(kind, obj)
        return fresh


class Backlog:
    """One seed's cluster and pods."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(seed)
        nodes = [_node(f"n{number}", random) for number in range(random.randint(3, 12))]
        volumes = [obj for zone in _ZONES for obj in _volume(zone)]
        self.world = World(*nodes, *volumes)
        self.cycle = Compared(default_profile(), seed, self.world)
        cycles = self.world.cycles
        assert isinstance(cycles, dict)
        cycles[NAME] = self.cycle
        self.items = {_key(obj): obj for obj in (*(node.obj() for node in nodes), *volumes)}
        self.placements: list[Placement] = []
        for number in range(random.randint(0, 10)):
            self._put(_shaped(make_pod(f"standing-{number}"), random).node(f"n{random.randrange(len(nodes))}"))
        self._waiting = self._pods()

    def run(self) -> None:
        """Schedules all pods, while binds end and the cluster changes."""
        random = self._random
        while self._waiting:
            for pod in self._waiting[: random.randint(1, 12)]:
                self._put(pod)
                self._waiting.remove(pod)
            for _ in range(random.randint(1, 10)):
                self._attempt()
                if random.random() < 0.2:
                    self.world.binders.work()
            if random.random() < 0.3:
                self._disturb()
        while self._attempt():
            pass
        self.world.settle()

    def _attempt(self) -> bool:
        self.world.watch()
        known = len(self.cycle.placed)
        tried = self.world.attempt()
        if len(self.cycle.placed) > known:
            (key, node) = list(self.cycle.placed.items())[-1]
            self._place(("Pod", key.rpartition("/")[2]), node)
        return tried

    def _place(self, key: tuple[str, str], node: str) -> None:
        pod = self.items.pop(key)
        placed = [obj for obj in self.items.values() if obj["kind"] != "Pod" or obj["spec"].get("nodeName")]
        self.placements.append(Placement(pod, node, placed))
        self.items[key] = {**pod, "spec": {**pod["spec"], "nodeName": node}}

    def _put(self, built: PodBuilder | NodeBuilder) -> None:
        obj = built.obj()
        self.items[_key(obj)] = obj
        self.world.put(obj)
        self.world.watch()

    def _disturb(self) -> None:
        random, world = self._random, self.world
        standing = [key for kind, key in world.objects if kind == "Pod" and key.startswith("default/standing-")]
        if standing and random.random() < 0.5:
            gone = random.choice(standing)
            world.delete("Pod", gone)
            del self.items["Pod", gone.rpartition("/")[2]]
            world.watch()
        else:
            self._put(_node(random.choice([key for kind, key in world.objects if kind == "Node"]), random))

    def _pods(self) -> list[PodBuilder]:
        """Returns replicas of some templates and pods that are like no other, in some order."""
        random, pods = self._random, []
        for number in range(random.randint(1, 4)):
            seed = random.random()
            replicas = [make_pod(f"replica-{number}-{replica}") for replica in range(random.randint(1, 8))]
            pods += [_shaped(pod, Random(seed)) for pod in replicas]
        pods += [_shaped(make_pod(f"varied-{number}"), random) for number in range(random.randint(0, 8))]
        if random.random() < 0.5:
            random.shuffle(pods)
        return pods


def _told(decided: Chosen | Failure) -> str:
    return decided.node_name if isinstance(decided, Chosen) else decided.message


def _key(obj: Object) -> tuple[str, str]:
    return obj["kind"], obj["metadata"]["name"]


def _node(name: str, random: Random) -> NodeBuilder:
    room = {"cpu": random.choice(("1", "2", "4", "8")), "memory": random.choice(("2Gi", "8Gi")), "pods": "12"}
    node = make_node(name).zone(random.choice(_ZONES), "r1").label({_DISK: random.choice(("ssd", "hdd"))})
    node.capacity(room).allocatable(room)
    if random.random() < 0.2:
        node.taint("dedicated", "infra", random.choice(("NoSchedule", "PreferNoSchedule")))
    return node.unschedulable() if random.random() < 0.05 else node


def _volume(zone: str) -> list[Object]:
    """Returns a claim with a volume that one zone has."""
    here = [node_term(expression(ZONE, "In", zone))]
    claim, volume = f"claim-{zone}", f"volume-{zone}"
    return [make_pv(volume, claim=f"default/{claim}", node_terms=here), make_pvc(claim, volume=volume)]


def _shaped(pod: PodBuilder, random: Random) -> PodBuilder:
    app = {"app": random.choice(_APPS)}
    pod.label(app).scheduler(NAME).priority(random.choice((0, 0, 5))).preemption_policy("Never")
    pod.req(cpu=f"{random.choice((0, 50, 100, 300, 900))}m", memory=f"{random.choice((0, 64, 500))}Mi")
    for shape in random.sample(_SHAPES, random.choice((0, 1, 1, 2, 3))):
        shape(pod, {"app": random.choice((app["app"], *_APPS))}, random)
    return pod


_SHAPES: tuple[Callable[[PodBuilder, dict[str, str], Random], PodBuilder], ...] = (
    lambda pod, app, random: pod.spread(ZONE, max_skew=random.randint(1, 3), labels=app),
    lambda pod, app, random: pod.spread(HOSTNAME, max_skew=random.randint(1, 3), soft=True, labels=app),
    lambda pod, app, _: pod.affinity(ZONE, labels=app),
    lambda pod, app, _: pod.anti_affinity(HOSTNAME, labels=app),
    lambda pod, app, random: pod.affinity(ZONE, weight=random.randint(1, 100), labels=app),
    lambda pod, app, random: pod.anti_affinity(HOSTNAME, weight=random.randint(1, 100), labels=app),
    lambda pod, _, random: pod.require_node(node_term(expression(_DISK, "In", random.choice(("ssd", "hdd"))))),
    lambda pod, _, random: pod.prefer_node(random.randint(1, 100), node_term(expression(_DISK, "In", "ssd"))),
    lambda pod, _, random: pod.toleration("dedicated", "infra"),
    lambda pod, _, random: pod.host_port(random.choice((80, 443))),
    lambda pod, _, random: pod.pvc(f"claim-{random.choice(_ZONES)}"),
)
