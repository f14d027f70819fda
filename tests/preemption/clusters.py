"""Builds clusters full of less important pods, and preempts in them."""

from __future__ import annotations

from typing import Any

from extender.framework.find_fit import find_fit
from extender.framework.profile import ALL_NODES, CandidateLimits, Profile
from extender.framework.rules import Predicate
from extender.plugins.inter_pod_affinity import InterPodAffinityFilter
from extender.plugins.node_affinity import NodeAffinityFilter
from extender.plugins.node_ports import NodePorts
from extender.plugins.node_resources_fit import NodeResourcesFitFilter
from extender.plugins.pod_topology_spread import PodTopologySpreadFilter
from extender.plugins.taint_toleration import TaintTolerationFilter
from extender.preemption.evaluator import Preemption, preempt
from extender.table.features import VERSIONS, FeatureGates
from tests.builders import NodeBuilder, Object, PodBuilder, make_node, make_pdb, make_pod
from tests.framework.cluster import pod_info, table_of

RULES: tuple[Predicate, ...] = (
    TaintTolerationFilter(),
    NodeAffinityFilter(),
    NodePorts(),
    NodeResourcesFitFilter(),
    PodTopologySpreadFilter(),
    InterPodAffinityFilter(),
)


def node(name: str, cpu: str = "4", pods: str = "110") -> NodeBuilder:
    return make_node(name).allocatable(cpu=cpu, memory="16Gi", pods=pods)


def victim(name: str, on: str, cpu: str = "1", priority: int = 0, minute: int | None = 0, **labels: str) -> PodBuilder:
    """Builds a pod on a node; `minute` is when it started, None: it has not started."""
    pod = make_pod(name).node(on).req(cpu=cpu).priority(priority).label(labels)
    return pod if minute is None else pod.start_time(f"2026-11-21T09:{minute:02}:00Z")


def preemptor(cpu: str = "4", priority: int = 100) -> PodBuilder:
    return make_pod("preemptor").req(cpu=cpu).priority(priority)


def budget(name: str, allowed: int, labels: dict[str, str], **status: Any) -> Object:
    return {**make_pdb(name, labels), "status": {"disruptionsAllowed": allowed, **status}}


def preempted(
    pod: PodBuilder,
    *objects: Object,
    rules: tuple[Predicate, ...] = RULES,
    limits: CandidateLimits = ALL_NODES,
    offset: int = 0,
    features: FeatureGates = VERSIONS["1.37"].features,
) -> Preemption:
    """Runs preemption for a pod that fits on no node."""
    table, info, profile = table_of(*objects, features=features), pod_info(pod.obj()), Profile("test", rules, ())
    fit = find_fit(profile, info, table, table.nodes.rows)
    assert not len(fit.feasible)
    return preempt(profile, info, table, fit, limits, offset)


def chosen(preemption: Preemption) -> dict[str, tuple[list[str], int]]:
    """Returns node -> (names of the victims in order, number of PDB violations)."""
    return {
        name: ([info.pod.name for info in candidate.victims], candidate.num_pdb_violations)
        for name, candidate in preemption.candidates.items()
    }
