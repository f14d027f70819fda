"""What `extender plan` finds and proves in Priority Matters (arXiv 2511.08373), rebuilt, and in larger clusters.

The paper's generator creates ReplicaSets with one to four replicas until the cluster has its number of pods. It draws
CPU evenly from 100 m to 1,000 m, and memory from 100 MB to 1,000 MB. The nodes are equal, and so large that the load is
reached. Cases in which the scheduler places everything do not count. As in the paper, a plan improves a case if more
pods of the highest priority run than after kube-scheduler, or as many and more of the next. But no pod loses its node
for that, while the paper may leave a pod without one if it places others instead. As in the paper, the time is that of
the search, after the scheduler has done its part.

A search is limited in CPU time, so that other processes of the machine do not matter. The solver counts real time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count, islice, product
from math import ceil
from random import Random

from extender import Cluster, MovePlan
from extender.offline.plan.plan import plan
from extender.offline.plan.trial import settle
from extender.offline.state import ClusterState
from extender.runtime.clock import SystemClock
from tests.builders import ZONE, Object, make_node, make_pod
from tests.builders.pod import PodBuilder

NODES, PODS_PER_NODE, PRIORITIES, LOADS = (4, 8, 16, 32), (4, 8), (1, 2, 4), (0.90, 0.95, 1.00, 1.05)
_MOST_MOVES = 200
_NOW = datetime(2026, 11, 30, tzinfo=UTC)

Situation = tuple[int, int, int, float]
"""Nodes, pods per node, priorities, and what is requested divided by what the nodes have."""


@dataclass(frozen=True)
class Outcomes:
    """How many cases of a kind ended how.

    Attributes:
        improved: a plan places more by priority than the scheduler does.
        certified: it is proved that no plan with so many moves places more.
        proved: the answer is proved to be the best, whether it is a plan or not.
    """

    cases: int
    improved: int
    certified: int
    proved: int


class _CpuClock(SystemClock):
    """A clock that advances by the CPU time of the process."""

    def monotonic(self) -> float:
        return time.process_time()


def rebuilt(cases: int, seconds: float) -> Outcomes:
    """Returns how plans for the pending pods of the paper's clusters end, in cases spread over its situations."""
    return _counted([_planned(state, seconds, _MOST_MOVES) for state in islice(unfinished(), cases)])


def unfinished() -> Iterator[ClusterState]:
    """Yields clusters in which the scheduler has placed all pods that it can, and has left some pending."""
    chosen = list(situations())
    Random(0).shuffle(chosen)
    for situation in chosen:
        for seed in count():
            state = Cluster.from_objects(paper_cluster(situation, seed))._state
            settle(state, 0, _NOW)
            if state.pending:
                yield state
                break


def large(nodes: int, cases: int, seconds: float) -> Outcomes:
    """Returns how plans for the waiting pods of clusters with ten pods a node end."""
    states = (Cluster.from_objects(large_cluster(nodes, seed))._state for seed in range(cases))
    return _counted([_planned(state, seconds) for state in states])


def _planned(state: ClusterState, seconds: float, most_moves: int | None = None) -> MovePlan:
    pods = [info.pod.key for info in state.pending]
    return plan(state, pods, most_moves=most_moves, seconds=seconds, clock=_CpuClock())


def _counted(plans: list[MovePlan]) -> Outcomes:
    improved = sum(each.outcome in ("moves", "partial") for each in plans)
    certified = sum(not each.moves and _is_proved(each) for each in plans)
    return Outcomes(len(plans), improved, certified, sum(map(_is_proved, plans)))


def _is_proved(answer: MovePlan) -> bool:
    is_best = all(each.placed == each.at_most for each in answer.priorities)
    return answer.smallest or answer.outcome in ("fits", "impossible") or (is_best and not answer.moves)


def situations() -> Iterator[Situation]:
    return product(NODES, PODS_PER_NODE, PRIORITIES, LOADS)


def paper_cluster(situation: Situation, seed: int) -> list[Object]:
    """Returns equal nodes, and pods of ReplicaSets in the order of their creation; no pod has a node yet."""
    nodes, per_node, priorities, load = situation
    random = Random(f"{situation} {seed}")
    pods: list[Object] = []
    cpu_total = memory_total = cpu_most = memory_most = 0
    number = 0
    while len(pods) < nodes * per_node:
        replicas = min(random.randint(1, 4), nodes * per_node - len(pods))
        cpu, memory, priority = random.randint(100, 1000), random.randint(100, 1000), random.randint(1, priorities)
        cpu_total, memory_total = cpu_total + cpu * replicas, memory_total + memory * replicas
        cpu_most, memory_most = max(cpu_most, cpu), max(memory_most, memory)
        for replica in range(replicas):
            pod = make_pod(f"rs{number:03}-{replica}").label(app=f"rs{number:03}").priority(priority)
            pods.append(pod.req(cpu=f"{cpu}m", memory=f"{memory}M").owner("ReplicaSet", f"rs{number:03}").obj())
        number += 1
    cpu = max(cpu_most, ceil(cpu_total / load / nodes))
    memory = max(memory_most, ceil(memory_total / load / nodes))
    capacity = {"cpu": f"{cpu}m", "memory": f"{memory}M", "pods": "110"}
    return [*(make_node(f"n{place:02}").capacity(**capacity).obj() for place in range(nodes)), *pods]


def large_cluster(nodes: int, seed: int) -> list[Object]:
    """Returns a cluster with ten pods a node, and one to three pods that wait for more room than any node has.

    A tenth of the pods belongs to a DaemonSet. Between 60 and 95 % of the CPU and of the memory is requested.
    """
    random = Random(f"{nodes} {seed}")
    pods = list(_workloads(random, nodes * 9, nodes))
    units = [random.choice((1, 2, 2, 4)) for _ in range(nodes)]
    zones = [random.choice("abc") for _ in range(nodes)]
    objects: list[Object] = []
    free: list[list[int]] = []
    loads = random.uniform(0.6, 0.95), random.uniform(0.6, 0.95)
    totals = sum(cpu for cpu, _, _, _ in pods), sum(memory for _, memory, _, _ in pods)
    shares = [total / load / sum(units) for total, load in zip(totals, loads, strict=True)]
    for place, (unit, zone) in enumerate(zip(units, zones, strict=True)):
        name, cpu, memory = f"n{place:04}", round(unit * shares[0]), round(unit * shares[1])
        free.append([cpu, memory])
        node = make_node(name).capacity(cpu=f"{cpu + 100}m", memory=f"{memory + 256}Mi", pods="110").label({ZONE: zone})
        daemon = make_pod(f"agent-{place:04}").label(app="agent").req(cpu="100m", memory="256Mi").node(name)
        objects += [node.obj(), daemon.owner("DaemonSet", "agent").obj()]
    for cpu, memory, needed, pod in pods:
        places = [place for place in random.sample(range(nodes), 12) if needed in (None, zones[place])]
        places = [place for place in places if free[place][0] >= cpu and free[place][1] >= memory]
        if places:
            place = max(places, key=lambda each: free[each])
            free[place] = [free[place][0] - cpu, free[place][1] - memory]
            objects.append(pod.node(f"n{place:04}").obj())
    cpu = round(max(each[0] for each in free) * random.uniform(1.05, 2))
    memory = random.choice((0, round(max(each[1] for each in free) * random.uniform(0.2, 1.2))))
    for replica in range(random.choice((1, 1, 1, 2, 3))):
        target = (
            make_pod(f"target-{replica}").label(app="target").req(cpu=f"{cpu}m", memory=f"{memory}Mi").priority(100)
        )
        objects.append(target.owner("ReplicaSet", "target").preemption_policy("Never").obj())
    return objects


def _workloads(random: Random, count: int, nodes: int) -> Iterator[tuple[int, int, str | None, PodBuilder]]:
    """Yields CPU, memory, zone and the pod, the replicas of one workload after another."""
    left = count
    for number in range(count):
        name, zone = f"app{number:04}", random.choice("abc") if random.random() < 0.1 else None
        cpu, priority = random.choice((250, 500, 1000, 1500, 2000, 3000, 4000)), random.choice((0, 0, 0, 100, 1000))
        memory = cpu * random.choice((1, 2, 4, 8)) * 1024 // 1000
        for replica in range(min(random.randint(1, nodes // 10), left)):
            pod = make_pod(f"{name}-{replica}").label(app=name).priority(priority).owner("ReplicaSet", name)
            pod.req(cpu=f"{cpu}m", memory=f"{memory}Mi")
            yield cpu, memory, zone, pod.node_selector({ZONE: zone}) if zone else pod
            left -= 1
        if not left:
            return
