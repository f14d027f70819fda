"""Measures what users' rules cost per decision, as ratios to a rule that reads one label of the node.

    .venv/bin/python -m tests.bench.rules

Each decision is about another pod, and a pod is placed in between, so nothing repeats. docs/rules.md has the figures.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from extender import Node, NodeInfo, Pod, PodInfo, Rows, Table, predicate
from extender.framework.find_fit import find_fit
from extender.framework.profile import Profile
from extender.plugins.users.rule_calls import OfflineHost
from tests.builders import Object, make_node, make_pod
from tests.framework.cluster import pod_info, table_of

NODES, PODS_ON_EACH, DECISIONS = 5000, 30, 15


def reads_a_label(pod: Pod, node: Node) -> bool:
    return node.labels.get("zone") != "x"


def counts_by_label(pod: Pod, node: NodeInfo) -> bool:
    return node.pods.count({"app": pod.labels["app"]}) < 2


def counts_by_owner(pod: Pod, node: NodeInfo) -> bool:
    owner = pod.controller
    return owner is None or node.pods.count_owned_by(owner.uid) < 2


def loops_over_the_pods(pod: Pod, node: NodeInfo) -> bool:
    app = pod.labels["app"]
    return sum(other.labels.get("app") == app for other in node.pods) < 2


def counts_on_columns(pod: PodInfo, table: Table, rows: Rows) -> Any:
    return table.pods.count({"app": pod.pod.labels["app"]}, rows) < 2


RULES: tuple[Callable[..., Any], ...] = (
    reads_a_label, counts_by_label, counts_by_owner, loops_over_the_pods, counts_on_columns,
)  # fmt: skip


def pod(number: int, node: str | None = None) -> Object:
    built = make_pod(f"p{number}").uid(f"u{number}").label(app=f"app{number % 700}").req(cpu="1")
    built = built.owner("ReplicaSet", "r", uid=f"o{number % 999}")
    return built.node(node).obj() if node else built.obj()


def measured() -> Mapping[str, float]:
    """Returns the median CPU time in milliseconds of a decision by each rule alone."""
    nodes = [make_node(f"n{number}").label(zone=str(number % 3)).obj() for number in range(NODES)]
    placed = (pod(number, f"n{number % NODES}") for number in range(NODES * PODS_ON_EACH))
    table = table_of(*nodes, *placed)
    number = NODES * PODS_ON_EACH
    medians = {}
    for function in RULES:
        profile = Profile("p", [predicate(sees_pods=True)(function).rule("rule", {}, OfflineHost())], ())
        times = []
        for _ in range(DECISIONS):
            number += 1
            info = pod_info(pod(number))
            began = time.process_time()
            find_fit(profile, info, table, table.nodes.rows)
            times.append(1000 * (time.process_time() - began))
            table.place(info, f"n{number % NODES}")
        medians[function.__name__] = statistics.median(times[1:])  # the first decision builds what later ones use
    return medians


if __name__ == "__main__":
    found = measured()
    for name, millis in found.items():
        print(f"{name:22} {millis:7.2f} ms {millis / found['reads_a_label']:6.2f}")
