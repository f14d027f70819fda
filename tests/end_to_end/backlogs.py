"""Backlogs of which it is certain which pods find a place, with any scheduler and wherever each pod goes.

Pods of a group are alike but for their priority, so that they are tried in that order; a group has room for so many.
What limits one group is of no use to another: each has a resource of its own on the nodes, unless cpu is what counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.builders import HOSTNAME, ZONE, NodeBuilder, Object, PodBuilder, make_node, make_pod, make_priority_class

ZONES = ("z0", "z1", "z2")
_FIRST_PRIORITY = 1_000_000


@dataclass(frozen=True)
class Group:
    """Pods that are alike: `asked` of them, of which the first `room` find a place."""

    name: str
    shape: Callable[[PodBuilder], PodBuilder]
    asked: int
    room: int


@dataclass(frozen=True)
class Backlog:
    """Pods in the order of their priority, and what they are to be placed on.

    Attributes:
        standing: pods that stand on nodes already.
        fits: the names of those of `pods` that find a place.
        victims: the names of those of `standing` that have to go for them.
    """

    nodes: Sequence[Object]
    pods: Sequence[Object]
    fits: frozenset[str]
    standing: Sequence[Object] = ()
    victims: frozenset[str] = field(default=frozenset())

    @property
    def objects(self) -> list[Object]:
        """All of it, in an order in which it can be created."""
        named = {pod["spec"]["priorityClassName"] for pod in [*self.pods, *self.standing]}
        classes = [make_priority_class(name, _FIRST_PRIORITY - int(name.split("-")[1])) for name in sorted(named)]
        return [*classes, *self.nodes, *self.standing, *self.pods]


def backlog(
    nodes: Sequence[NodeBuilder], groups: Sequence[Group], order: Sequence[str], standing: Sequence[PodBuilder] = ()
) -> Backlog:
    """`order`: the group of each pod, the highest priority first."""
    pods: list[Object] = []
    count = dict.fromkeys(order, 0)
    named = {group.name: group for group in groups}
    fits = set()
    for rank, name in enumerate(order):
        pod = named[name].shape(make_pod(f"{name}-{count[name]:03d}")).priority_class(ranked(rank)).obj()
        if count[name] < named[name].room:
            fits.add(pod["metadata"]["name"])
        count[name] += 1
        pods.append(pod)
    return Backlog([node.obj() for node in nodes], pods, frozenset(fits), [pod.obj() for pod in standing])


def ranked(rank: int) -> str:
    """The priority class of that rank; 0 is the highest."""
    return f"rank-{rank:03d}"


def resources(random: Random) -> Backlog:
    """Large pods go first, and each size divides the next: so every remainder is filled."""
    nodes = random.randint(10, 16)
    fours, twos = random.randint(2, 4), random.randint(4, 8)
    ones = 4 * nodes - 4 * fours - 2 * twos
    groups = [
        Group("four", lambda pod: pod.req(cpu="4", memory="2Gi"), fours, fours),
        Group("two", lambda pod: pod.req(cpu="1").init_container(cpu="2"), twos, twos),
        Group("one", lambda pod: pod.req(cpu="600m", memory="1Gi").container(cpu="400m"), ones + 5, ones),
    ]
    return backlog([_node(i).capacity(cpu="4") for i in range(nodes)], groups, _one_after_another(groups))


def spread(random: Random) -> Backlog:
    """One zone has little room, and the others may not be ahead of it by more than the skew."""
    groups, limits = [], {}
    for name in ("web", "db"):
        little, skew = random.randint(2, 4), random.randint(1, 3)
        limits[name] = [little, 0, 0, 0, *8 * [20]]
        room = little + 2 * (little + skew)
        groups.append(Group(name, _all(_using(name), _spreading(name, skew)), room + 4, room))
    nodes = [_node(i, ZONES[i // 4]).capacity(_units(limits, i)) for i in range(12)]
    return backlog(nodes, groups, _mixed(groups, random))


def affinity(random: Random) -> Backlog:
    """The first pod chooses the zone, and all others must follow it there."""
    groups, limits = [Group("lonely", lambda pod: pod.affinity(ZONE, labels={"group": "absent"}), 3, 0)], {}
    for name in ("web", "db"):
        each = random.randint(1, 3)
        limits[name] = 12 * [each]
        groups.append(Group(name, _all(_using(name), _near(name)), 4 * each + 4, 4 * each))
    nodes = [_node(i, ZONES[i // 4]).capacity(_units(limits, i)) for i in range(12)]
    return backlog(nodes, groups, _mixed(groups, random))


def anti_affinity(random: Random) -> Backlog:
    """One of each group on a node."""
    nodes, tainted = random.randint(8, 12), random.randint(1, 3)
    groups = [Group(name, _apart(name), nodes + 2, nodes - tainted) for name in ("web", "db", "queue")]
    built = [_node(i).taint("closed") if i < tainted else _node(i) for i in range(nodes)]
    return backlog(built, groups, _mixed(groups, random))


def taints(random: Random) -> Backlog:
    """Each team's resource is on tainted nodes only; one team tolerates nothing."""
    teams = {"a": random.randint(2, 4), "b": random.randint(2, 4), "c": 2}
    owners = [team for team, count in teams.items() for _ in range(count)]
    limits = {team: [2 if owner == team else 0 for owner in owners] for team in teams}
    groups = [
        Group(team, _all(_using(team), _tolerating(team)), 2 * teams[team] + 3, 2 * teams[team]) for team in ("a", "b")
    ]
    groups.append(Group("c", _using("c"), 4, 0))
    nodes = [_node(i).taint("team", owner).capacity(_units(limits, i)) for i, owner in enumerate(owners)]
    return backlog([*nodes, _node(len(owners))], groups, _mixed(groups, random))


def ports(random: Random) -> Backlog:
    """A host port is there once on each node, for each protocol."""
    nodes = random.randint(6, 10)
    asked = {"http": (80, "TCP"), "dns-tcp": (53, "TCP"), "dns-udp": (53, "UDP")}
    groups = [Group(name, _on_port(*port), nodes + random.randint(1, 4), nodes) for name, port in asked.items()]
    return backlog([_node(i) for i in range(nodes)], groups, _mixed(groups, random))


def preemption(random: Random) -> Backlog:
    """On each node stands one pod of a low priority of its own: the lowest have to go."""
    nodes, asked = random.randint(8, 12), random.randint(3, 6)
    groups = [
        Group("urgent", lambda pod: pod.req(cpu="3"), asked, asked),
        Group("large", lambda pod: pod.req(cpu="5"), 2, 0),
    ]
    ranks = random.sample(range(100, 200), nodes)
    standing = [
        make_pod(f"low-{rank}").req(cpu="3").priority_class(ranked(rank)).node(f"node-{i:02d}")
        for i, rank in enumerate(ranks)
    ]
    lowest = sorted(ranks)[-asked:]
    made = backlog([_node(i).capacity(cpu="4") for i in range(nodes)], groups, _mixed(groups, random), standing)
    return Backlog(made.nodes, made.pods, made.fits, made.standing, frozenset(f"low-{rank}" for rank in lowest))


SHAPES: Mapping[str, Callable[[Random], Backlog]] = {
    shape.__name__: shape for shape in (resources, spread, affinity, anti_affinity, taints, ports, preemption)
}


def _node(number: int, zone: str = "z0") -> NodeBuilder:
    return make_node(f"node-{number:02d}").zone(zone).capacity(cpu="32", memory="64Gi")


def _units(limits: Mapping[str, Sequence[int]], number: int) -> dict[str, str]:
    return {f"example.com/{name}": str(of_nodes[number]) for name, of_nodes in limits.items()}


def _using(name: str) -> Callable[[PodBuilder], PodBuilder]:
    amount = {f"example.com/{name}": "1"}
    return lambda pod: pod.label(group=name).req(amount).limit(amount)


def _spreading(name: str, skew: int) -> Callable[[PodBuilder], PodBuilder]:
    return lambda pod: pod.spread(ZONE, max_skew=skew, labels={"group": name})


def _near(name: str) -> Callable[[PodBuilder], PodBuilder]:
    return lambda pod: pod.affinity(ZONE, labels={"group": name})


def _apart(name: str) -> Callable[[PodBuilder], PodBuilder]:
    return lambda pod: pod.label(group=name).anti_affinity(HOSTNAME, labels={"group": name})


def _tolerating(team: str) -> Callable[[PodBuilder], PodBuilder]:
    return lambda pod: pod.toleration("team", team)


def _on_port(port: int, protocol: str) -> Callable[[PodBuilder], PodBuilder]:
    return lambda pod: pod.host_port(port, protocol)


def _all(*shapes: Callable[[PodBuilder], PodBuilder]) -> Callable[[PodBuilder], PodBuilder]:
    def shaped(pod: PodBuilder) -> PodBuilder:
        for shape in shapes:
            pod = shape(pod)
        return pod

    return shaped


def _one_after_another(groups: Sequence[Group]) -> list[str]:
    return [group.name for group in groups for _ in range(group.asked)]


def _mixed(groups: Sequence[Group], random: Random) -> list[str]:
    order = _one_after_another(groups)
    random.shuffle(order)
    return order
