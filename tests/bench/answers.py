"""Answers about a cluster in a file: simulate, capacity and explain, and the loop over stock's plugins in Go.

The loop places pods one after another, as the stock scheduler does without an API server. It is given the first pods of
the same backlog on the same cluster, and its rate over them stands for the rest.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import TypeVar

from extender import Cluster
from extender.offline.explain.explanation import Explanation
from extender.offline.what_if.scenario import Scenario
from tests.bench.workloads import large_cluster
from tests.builders import HOSTNAME, ZONE, Object, PodBuilder, expression, make_pod, node_term
from tests.stock.oracle import TimedOracle

T = TypeVar("T")
TEMPLATES = 50
PENDING = 1000
_SEED = 11
_IN_GO, _IN_GO_OF_CAPACITY = 300, 100


@dataclass(frozen=True)
class Sizes:
    """The number of nodes, and of the pods to place: of many templates, and of one."""

    nodes: int = 5000
    pods: int = 10_000
    replicas: int = 100_000
    pending: int = PENDING


@dataclass(frozen=True)
class Answered:
    """A question and its cost. `cpu_seconds`: of this process; `stock_seconds`: what the loop in Go would need.

    `target`: the time that it may take on a machine that does nothing else.
    """

    question: str
    target: str
    seconds: float
    cpu_seconds: float
    pods: int = 0
    stock_seconds: float = 0.0

    @property
    def times_faster(self) -> float:
        return self.stock_seconds / self.seconds


def measured(sizes: Sizes, oracle: Path) -> Iterator[Answered]:
    """Yields every question, on one cluster with four pods a node."""
    objects = large_cluster(sizes.nodes).objects
    cluster = Cluster.from_objects(objects)
    backlog = backlog_of_templates(sizes.pods)
    one = make_pod("one").label(app="one").req(cpu="300m", memory="512Mi").scheduler("default-scheduler").priority(0)
    with TimedOracle(oracle, objects, loop=True) as stock:
        in_go = stock.place(backlog[:_IN_GO])
        a_pod = in_go["ns"] / 1e9 / len(backlog[:_IN_GO])
        waiting = Cluster.from_objects([*objects, *backlog])
        yield _answered(
            f"simulate {sizes.pods} pods of {TEMPLATES} templates",
            "10 times faster",
            waiting.simulate,
            sizes.pods,
            a_pod * sizes.pods,
        )
    with TimedOracle(oracle, objects, loop=True) as stock:
        copies = [make_pod(f"one-{number}") for number in range(_IN_GO_OF_CAPACITY)]
        in_go = stock.place([_like(one, each) for each in copies])
        a_pod = in_go["ns"] / 1e9 / len(copies)
        answered, found = _timed(lambda: cluster.capacity([one.obj()]))
        yield Answered("capacity for a pod", "1 s, 20 times faster", *answered, found.total, a_pod * found.total)
    yield from _of_replicas(cluster, sizes.replicas)
    yield from _explained(objects, sizes.pending)


def backlog_of_templates(count: int) -> list[Object]:
    """Pods that wait, of TEMPLATES templates in turn; a third of these spread, have affinity or prefer nodes."""
    return [_of_template(number % TEMPLATES, number).obj() for number in range(count)]


def _of_template(template: int, number: int) -> PodBuilder:
    random, app = Random(template * _SEED), {"app": f"t{template}"}
    pod = make_pod(f"t{template}-{number:05}").label(app).scheduler("default-scheduler").priority(0)
    pod.req(cpu=f"{random.randrange(20, 400)}m", memory=f"{random.randrange(32, 900)}Mi")
    pod.created(f"2026-11-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z")
    match template % 15:
        case 0:
            pod.spread(ZONE, max_skew=5, labels=app)
        case 3:
            pod.spread(HOSTNAME, max_skew=3, soft=True, labels=app)
        case 6:
            pod.anti_affinity(HOSTNAME, weight=50, labels=app)
        case 9:
            pod.affinity(ZONE, weight=30, labels=app)
        case 12:
            pod.prefer_node(10, node_term(expression("disktype", "In", "ssd")))
    return pod


def _like(template: PodBuilder, named: PodBuilder) -> Object:
    metadata = {**template.obj()["metadata"], **{key: named.obj()["metadata"][key] for key in ("name", "uid")}}
    return {**template.obj(), "metadata": metadata}


def _of_replicas(cluster: Cluster, count: int) -> Iterator[Answered]:
    app = {"app": "replica"}
    plain = make_pod("replica").label(app).req(cpu="10m", memory="16Mi")
    spread = make_pod("replica").label(app).req(cpu="10m", memory="16Mi").spread(ZONE, max_skew=5, labels=app)
    for question, target, pod in (
        ("plain replicas", "10 s", plain),
        ("replicas with a spread constraint", "60 s", spread),
    ):
        simulate = partial(cluster.simulate, Scenario(create=[(pod.obj(), count)]))
        yield _answered(f"simulate {count} {question}", target, simulate, count)


def _explained(objects: list[Object], pending: int) -> Iterator[Answered]:
    """A snapshot in a file is loaded, and asked about its pending pods: each has requests of its own, none fits."""
    pods = [_too_large(number) for number in range(pending)]
    with TemporaryDirectory() as directory:
        path = Path(directory) / "cluster.json.gz"
        path.write_bytes(gzip.compress(json.dumps({"kind": "List", "items": [*objects, *pods]}).encode(), 1))
        answered, cluster = _timed(lambda: Cluster.load(path))
    yield Answered("load a snapshot, compressed", "5 s", *answered)
    key = f"default/{pods[0]['metadata']['name']}"
    yield _answered("explain a pending pod, with the smallest changes", "0.1 s", lambda: _changes(cluster.explain(key)))
    yield _answered(f"explain {pending} pending pods", "10 s", cluster.explain_pending, pending)


def _too_large(number: int) -> Object:
    pod = make_pod(f"large-{number}").label(app=f"large-{number % TEMPLATES}").priority(0)
    pod.req(cpu=f"{17_000 + number}m", memory=f"{100 + number}Mi")
    return pod.spread(ZONE, max_skew=1, labels={"app": f"large-{number % TEMPLATES}"}).obj()


def _changes(found: Explanation) -> object:
    return found.to_dict()


def _answered(
    question: str, target: str, ask: Callable[[], object], pods: int = 0, stock_seconds: float = 0.0
) -> Answered:
    return Answered(question, target, *_timed(ask)[0], pods, stock_seconds)


def _timed(ask: Callable[[], T]) -> tuple[tuple[float, float], T]:
    cpu, wall = process_time(), perf_counter()
    answer = ask()
    return (perf_counter() - wall, process_time() - cpu), answer
