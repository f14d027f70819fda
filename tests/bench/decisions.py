"""One decision over all nodes: this engine against the stock plugins in Go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from extender import Cluster
from extender.offline.decision import Decision
from tests.bench.workloads import large_cluster, workloads
from tests.builders import Object
from tests.stock.oracle import bench

STOCK_ROUNDS, ROUNDS = 11, 41
_MILLISECOND_NS = 1_000_000


@dataclass(frozen=True)
class Measured:
    """Medians in milliseconds: filter and score over all nodes or, where none is feasible, filter and every victim."""

    nodes: int
    workload: str
    stock_ms: float
    ours_ms: float
    same: bool

    @property
    def ratio(self) -> float:
        return self.ours_ms / self.stock_ms


def measured(nodes: int, oracle: Path) -> Iterator[Measured]:
    """Each workload on a cluster of that many nodes; stock runs with all its goroutines."""
    objects = large_cluster(nodes).objects
    cluster = Cluster.from_objects(objects)
    for name, pod in workloads().items():
        case = {"name": name, "cluster": {"items": objects}, "pod": pod}
        (stock,) = bench(oracle, [case], STOCK_ROUNDS)
        decision, ours_ms = _timed(cluster, pod)
        same = (stock["feasible"], stock["candidates"]) == (len(decision.feasible), _candidates(decision))
        yield Measured(nodes, name, _stock_ns(stock) / _MILLISECOND_NS, ours_ms, same)


def _timed(cluster: Cluster, pod: Object) -> tuple[Decision, float]:
    times = []
    for _ in range(ROUNDS):
        begin = perf_counter()
        decision = cluster.decide(pod)
        times.append(perf_counter() - begin)
    return decision, median(times) * 1000


def _candidates(decision: Decision) -> int:
    return len(decision.preemption.candidates) if decision.preemption else 0


def _stock_ns(timing: Object) -> int:
    scheduled: int = timing["scheduleNs"] if timing["feasible"] else timing["preemptNs"]
    return scheduled
