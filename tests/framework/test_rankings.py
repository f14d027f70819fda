"""A ranking follows every change between two replicas of a template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest
from msgspec import structs

from extender.framework.find_fit import find_fit, score
from extender.framework.profile import Profile, WeightedPriority
from extender.framework.rankings import Rankings
from extender.framework.rules import PerNode, RowScorer, Scorer
from extender.framework.status import Refusal, unschedulable
from extender.model.kinds import KINDS
from extender.model.node import Taint
from extender.plugins.registry import default_profile
from extender.table import PodInfo, Table, journal
from extender.table.labels import Rows
from tests.builders import Object, make_namespace, make_node, make_pod, make_pv, make_service
from tests.framework.cluster import pod_info, table_of

BEST, OTHER = "best", "other"
PROFILE = default_profile()
TOPICS = {value for name, value in vars(journal).items() if name.isupper() and isinstance(value, str)}


def cluster() -> Table:
    """Returns two nodes; the one with more room has a pod like the replicas, the other one a pod that attracts them."""
    return table_of(
        make_node(BEST).capacity(cpu="8", memory="64Gi", pods="100").obj(),
        make_node(OTHER).capacity(cpu="4", memory="32Gi", pods="100").obj(),
        make_pod("web-0").label(app="web").node(BEST).obj(),
        make_pod("near", "shop").label(app="near").node(OTHER).obj(),
        make_namespace("shop"),
    )


def replicas(owner_kind: str) -> list[PodInfo]:
    api_version = "v1" if owner_kind == "ReplicationController" else "apps/v1"
    pod = make_pod("web").label(app="web").req(cpu="1", memory="1Gi").owner(owner_kind, "web", api_version=api_version)
    pod.affinity(
        "kubernetes.io/hostname", weight=100, labels={"app": "near"}, namespaceSelector={"matchLabels": {"team": "a"}}
    )
    template = pod_info(pod.obj()).pod
    names = (f"web-{number}" for number in range(1, 4))
    return [
        PodInfo(structs.replace(template, metadata=structs.replace(template.metadata, name=name, uid=name)))
        for name in names
    ]


def from_scratch(pod: PodInfo, table: Table) -> list[str]:
    feasible = find_fit(PROFILE, pod, table, table.nodes.rows).feasible
    total = score(PROFILE, pod, table, feasible).total
    return table.nodes.names_of(feasible[total == total.max()])


def placed_elsewhere(table: Table) -> None:
    table.place(pod_info(make_pod("large").req(cpu="8").obj()), BEST)


def taint(table: Table, effect: str) -> None:
    node = table.nodes.node(table.nodes.row_of[BEST])
    table.set_node(structs.replace(node, spec=structs.replace(node.spec, taints=[Taint("gpu", "", effect)])))


def tainted(table: Table) -> None:
    taint(table, "NoSchedule")


def removed(table: Table) -> None:
    table.remove_node(BEST)


def written(obj: Object) -> Callable[[Table], None]:
    kind = obj["kind"]
    return lambda table: table.set_object(kind, msgspec.convert(obj, KINDS[kind].type))


def controller(kind: str, selector: Object) -> Object:
    return {"kind": kind, "metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": selector}}


CONTROLLERS = ("ReplicaSet", "StatefulSet", "ReplicationController")
BY_LABEL = {"matchLabels": {"app": "web"}}
MOVING = {
    journal.RESOURCES: placed_elsewhere,
    journal.NODES: tainted,
    journal.TOPOLOGY: removed,
    "Namespace": written(make_namespace("shop", team="a")),
    "Service": written(make_service("web", {"app": "web"})),
    "ReplicaSet": written(controller("ReplicaSet", BY_LABEL)),
    "StatefulSet": written(controller("StatefulSet", BY_LABEL)),
    "ReplicationController": written(controller("ReplicationController", {"app": "web"})),
}
"""Changes that move the next replica to the other node, by their topic in the journal."""
LEAVING = {
    journal.FREE_VOLUMES: written(make_pv("disk")),
} | {
    kind: written({"kind": kind, "metadata": {"name": "any", "namespace": "default"}, "spec": {}})
    for kind in sorted(KINDS.keys() - MOVING.keys() - {"Node", "Pod"})
}
"""Topics that do not matter to pods without volumes, claims and nominated nodes."""
FOLLOWED = {
    *("resources", "free volumes", "CSINode", "Namespace", "PersistentVolume", "PersistentVolumeClaim"),
    *("PodDisruptionBudget", "ReplicaSet", "ReplicationController", "Service", "StatefulSet", "StorageClass"),
}
"""What is common and changes nothing that rules per node read, or is followed row by row."""


@pytest.mark.parametrize("topic", MOVING)
def test_the_next_replica_goes_elsewhere_after_a_change_of(topic: str) -> None:
    table, rankings = cluster(), Rankings(PROFILE)
    first, second, third = replicas(topic if topic in CONTROLLERS else "ReplicaSet")
    assert rankings.best(first, table) is None, "only a second replica shows that there are several"
    best = rankings.best(second, table)
    assert best is not None
    assert table.nodes.names_of(best.rows) == [BEST]
    cursor = table.journal.now
    MOVING[topic](table)
    assert topic in table.journal.changed_topics(cursor)
    best = rankings.best(third, table)
    assert from_scratch(third, table) == [OTHER]
    assert best is not None
    assert table.nodes.names_of(best.rows) == [OTHER]


@pytest.mark.parametrize("topic", LEAVING)
def test_the_next_replica_goes_to_the_same_node_after_a_change_of(topic: str) -> None:
    table, rankings = cluster(), Rankings(PROFILE)
    first, second, third = replicas("ReplicaSet")
    rankings.best(first, table)
    rankings.best(second, table)
    LEAVING[topic](table)
    best = rankings.best(third, table)
    assert from_scratch(third, table) == [BEST]
    assert best is not None
    assert table.nodes.names_of(best.rows) == [BEST]


def test_the_best_node_is_the_only_one_if_no_other_takes_the_pod() -> None:
    table, rankings = cluster(), Rankings(PROFILE)
    first, second, third = replicas("ReplicaSet")
    rankings.best(first, table)
    several = rankings.best(second, table)
    placed_elsewhere(table)
    alone = rankings.best(third, table)
    assert several is not None
    assert alone is not None
    assert (several.only, alone.only) == (False, True)
    assert table.nodes.names_of(alone.rows) == [OTHER]


def test_there_is_no_best_node_once_the_replicas_fill_all_nodes() -> None:
    table, rankings = cluster(), Rankings(PROFILE)
    node = table.nodes.node(table.nodes.row_of[BEST])
    table.set_node(
        structs.replace(node, spec=structs.replace(node.spec, taints=[Taint("old", "", "PreferNoSchedule")]))
    )
    first, second, third = replicas("ReplicaSet")
    rankings.best(first, table)
    assert rankings.best(second, table) is not None
    for name in (BEST, OTHER):
        table.place(pod_info(make_pod(f"large-{name}").req(cpu="8").obj()), name)
    assert rankings.best(third, table) is None


@dataclass(frozen=True)
class RefusingAll:
    """A rule that refuses every node before any is checked."""

    name: str = "RefusingAll"

    def prepare(self, pod: PodInfo, table: Table) -> Refusal:
        return unschedulable(self.name, "not now")


def test_there_is_no_best_node_if_a_rule_refuses_all_nodes_at_once() -> None:
    table, rankings = cluster(), Rankings(Profile("test", [*PROFILE.predicates, RefusingAll()], PROFILE.priorities))
    first, second, _ = replicas("ReplicaSet")
    assert (rankings.best(first, table), rankings.best(second, table)) == (None, None)


@dataclass(frozen=True)
class Preferring:
    """Prefers the other node, but only for the last replica."""

    name: str = "Preferring"

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        return RowScorer(lambda rows: 100 * (rows == table.nodes.row_of[OTHER])) if pod.uid == "web-3" else None


def test_a_priority_that_did_not_apply_to_one_replica_counts_for_the_next() -> None:
    priorities = [*PROFILE.priorities, WeightedPriority(Preferring(), 100)]
    table, rankings = cluster(), Rankings(Profile("test", PROFILE.predicates, priorities))
    first, second, third = replicas("ReplicaSet")
    rankings.best(first, table)
    nodes = [table.nodes.names_of(best.rows) for pod in (second, third) if (best := rankings.best(pod, table))]
    assert nodes == [[BEST], [OTHER]]


@dataclass
class Counting(PerNode):
    """A rule per node that refuses none, and counts for how many rankings it is prepared."""

    name: str = "Counting"
    rankings: int = 0

    def prepare(self, pod: PodInfo, table: Table) -> None:
        self.rankings += 1


@pytest.mark.parametrize("topic", [*MOVING, *LEAVING])
def test_a_ranking_is_made_again_only_after_a_change_of_what_rules_per_node_read(topic: str) -> None:
    counting = Counting()
    table, rankings = cluster(), Rankings(Profile("test", [*PROFILE.predicates, counting], PROFILE.priorities))
    first, second, third = replicas("ReplicaSet")
    rankings.best(first, table)
    rankings.best(second, table)
    (MOVING | LEAVING)[topic](table)
    rankings.best(third, table)
    assert counting.rankings == (1 if topic in FOLLOWED else 2)


def test_every_topic_of_the_journal_has_its_change_here() -> None:
    assert MOVING.keys() | LEAVING.keys() == TOPICS | KINDS.keys() - {"Node", "Pod"}
