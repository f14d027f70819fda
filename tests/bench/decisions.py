"""Decisions over all nodes: this engine against the stock plugins in Go, where no pod and no cluster comes twice.

Both decide on the same pods one after another, and after each decision both put the same pod on the same node.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter_ns, process_time_ns

from extender import Cluster, Decision
from tests.bench.workloads import DECISIONS, large_cluster, pods_to_decide
from tests.builders import Object, make_pod, stored
from tests.stock.oracle import TimedOracle

PODS = 50
_MILLISECOND_NS = 1_000_000


@dataclass(frozen=True)
class Measured:
    """Medians over PODS decisions: filter and score over all nodes or, where none is feasible, filter and all victims.

    Attributes:
        ours_cpu_ms: CPU time of the same decisions, which other processes of a busy machine do not lengthen.
        differing: the pods for which the two gave other nodes, other scores or other victims.
    """

    workload: str
    nodes: int
    stock_ms: float
    ours_ms: float
    ours_cpu_ms: float
    differing: list[str]

    @property
    def ratio(self) -> float:
        return self.ours_ms / self.stock_ms


@dataclass(frozen=True)
class _Asked:
    """A pod, what was decided for it and in which time, and the pod that was bound afterwards."""

    pod: Object
    decision: Decision
    wall_ns: int
    cpu_ns: int
    bound: Object

    def agrees(self, stock: Object) -> bool:
        """Compares nodes with their total scores and, where no node is feasible, candidates with their victims."""
        ours = dict(zip(self.decision.feasible, self.decision.total.tolist(), strict=True))
        return bool(ours == stock.get("total", {}) and _victims(self.decision) == stock.get("candidates", {}))


def measured(nodes: int, oracle: Path) -> Iterator[Measured]:
    """Yields each workload on one cluster of that many nodes; stock runs with all its goroutines."""
    objects = large_cluster(nodes).objects
    cluster = Cluster.from_objects(objects)
    gc.collect()
    gc.freeze()  # as a server does once it has listed everything
    with TimedOracle(oracle, objects) as stock:
        for workload in DECISIONS:
            asked = [_ask(cluster, stored(pod.obj())) for pod in pods_to_decide(workload, PODS)]
            timings = [stock.step(each.pod, each.bound) for each in asked]
            pairs = list(zip(asked, timings, strict=True))
            yield Measured(
                workload,
                nodes,
                median(timing["ns"] for timing in timings) / _MILLISECOND_NS,
                median(each.wall_ns for each in asked) / _MILLISECOND_NS,
                median(each.cpu_ns for each in asked) / _MILLISECOND_NS,
                [each.pod["metadata"]["name"] for each, timing in pairs if not each.agrees(timing)],
            )


def _ask(cluster: Cluster, pod: Object) -> _Asked:
    cpu, wall = process_time_ns(), perf_counter_ns()
    decision = cluster.decide(pod)
    wall, cpu = perf_counter_ns() - wall, process_time_ns() - cpu
    bound = _to_bind(pod, decision)
    cluster.bind(bound, bound["spec"]["nodeName"])
    return _Asked(pod, decision, wall, cpu, bound)


def _to_bind(pod: Object, decision: Decision) -> Object:
    """Returns the pod on its best node; where it has none, a small pod on the node that it would preempt on."""
    if decision.preemption is None:
        bound = copy.deepcopy(pod)
        bound["spec"]["nodeName"] = decision.best[0]
        return bound
    node = decision.preemption.nominated_node
    assert node is not None, f"{decision} has no candidates"
    small = make_pod(f"beside-{pod['metadata']['name']}").req(cpu="1m").priority(0).node(node)
    return small.start_time(pod["status"]["startTime"]).obj()


def _victims(decision: Decision) -> Object:
    if decision.preemption is None:
        return {}
    return {
        node: {
            "pods": [victim.pod.key for victim in candidate.victims],
            "numPDBViolations": candidate.num_pdb_violations,
        }
        for node, candidate in decision.preemption.candidates.items()
    }
