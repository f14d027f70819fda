"""A pod's topology spread constraints, its own or the default ones, and the nodes that they count.

Source: upstream podtopologyspread, common.go and plugin.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from extender.framework.default_selector import default_selector
from extender.framework.node_affinity import nodes_required_by, required_node_selector
from extender.framework.topology import HOSTNAME, ZONE
from extender.model.node import NO_EXECUTE, NO_SCHEDULE, untolerated
from extender.model.pod import Pod, TopologySpreadConstraint
from extender.model.selectors import EVERYTHING, NOTHING, Requirement, Selector, compile_selector
from extender.table import PodCountQuery, PodInfo, Table
from extender.table.labels import ABSENT, BoolColumn

NAME = "PodTopologySpread"
DO_NOT_SCHEDULE, SCHEDULE_ANYWAY = "DoNotSchedule", "ScheduleAnyway"

# What the scheduler spreads by if the pod says nothing (argument defaultingType: System).
SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY),
)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint made ready.

    `policies`: whether only the nodes count that the pod's node affinity leaves to it, and those whose taints do.
    """

    max_skew: int
    topology_key: str
    selector: Selector
    min_domains: int
    policies: tuple[bool, bool]

    def counted(self, namespace: str) -> PodCountQuery:
        """The pods that count; a selector without conditions counts none (upstream countPodsMatchSelector)."""
        selector = NOTHING if self.selector == EVERYTHING else self.selector
        return PodCountQuery(frozenset((namespace,)), selector, terminating=False)

    def leaving(self, namespace: str) -> PodCountQuery:
        """The pods that are subtracted when they are preempted; upstream's updateWithPod looks less closely."""
        return PodCountQuery(frozenset((namespace,)), self.selector)


def constraints_of(
    pod: PodInfo, table: Table, when_unsatisfiable: str, defaults: Sequence[TopologySpreadConstraint]
) -> list[Constraint]:
    """The pod's constraints of one kind; the defaults if it has none of any kind and something tells its replicas."""
    own = pod.pod.spec.topology_spread_constraints
    chosen = [each for each in own or defaults if each.when_unsatisfiable == when_unsatisfiable]
    if own or not chosen:
        return [_ready(constraint, selector_of(constraint, pod.pod.labels)) for constraint in chosen]
    selector = default_selector(pod, table)
    return [] if selector == EVERYTHING else [_ready(constraint, selector) for constraint in chosen]


def nodes_with_all_keys(constraints: Sequence[Constraint], table: Table) -> BoolColumn:
    """The nodes that have the topology key of every constraint: bool[capacity]."""
    having = np.ones(table.nodes.capacity, np.bool_)
    for constraint in constraints:
        having &= table.nodes.labels[constraint.topology_key].ids != ABSENT
    return having


def nodes_counted(
    constraints: Sequence[Constraint], pod: Pod, table: Table, among: BoolColumn
) -> dict[tuple[bool, bool], BoolColumn]:
    """The nodes `among` those given whose pods count, by the policies of the constraints: bool[capacity]."""
    return {
        policies: _nodes_left_to(pod, table, among, *policies)
        for policies in {constraint.policies for constraint in constraints}
    }


def _nodes_left_to(pod: Pod, table: Table, among: BoolColumn, by_affinity: bool, by_taints: bool) -> BoolColumn:
    if by_affinity and (pod.spec.node_selector or required_node_selector(pod)):
        required = np.zeros_like(among)
        required[table.nodes.rows] = nodes_required_by(pod, table, table.nodes.rows)
        among = among & required
    if by_taints:
        tolerations = pod.spec.tolerations or ()
        refused = [
            bool(untolerated(taints, tolerations, (NO_SCHEDULE, NO_EXECUTE))) for taints in table.nodes.taint_sets
        ]
        among = among & ~np.array(refused)[table.nodes.taint_set]
    return among


def selector_of(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> Selector:
    """Returns the constraint's selector, with the values that the pod's labels have for matchLabelKeys."""
    selector = compile_selector(constraint.label_selector)
    alike = [key for key in constraint.match_label_keys or () if key in labels]
    return selector.with_requirements(*(Requirement(key, "In", frozenset((labels[key],))) for key in alike))


def _ready(constraint: TopologySpreadConstraint, selector: Selector) -> Constraint:
    return Constraint(
        constraint.max_skew,
        constraint.topology_key,
        selector,
        constraint.min_domains or 1,
        (constraint.node_affinity_policy in (None, "Honor"), constraint.node_taints_policy == "Honor"),
    )
