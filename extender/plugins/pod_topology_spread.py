"""PodTopologySpread: spreads pods evenly over topology domains.

Source: upstream podtopologyspread, common.go, plugin.go, filtering.go and scoring.go.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Annotated, Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator

from extender.framework.cluster_events import Action, Change, Resource
from extender.framework.node_selectors import is_required_node, nodes_required_by, required_node_selector
from extender.framework.plugin import FILTER, PRE_FILTER, PRE_SCORE, SCORE, Arguments, Plugin
from extender.framework.policy_fields import LabelKey, Positive, Strict
from extender.framework.queueing_hints import (
    ANY,
    Interest,
    Interests,
    Reads,
    encoded,
    has_place,
    names_of_labels,
    names_of_selector,
)
from extender.framework.rules import MAX_SCORE, Check, PerTemplate, PodsCheck, Scorer, Scores, Verdict
from extender.framework.status import unresolvable, unschedulable
from extender.framework.topology import HOSTNAME, ZONE, DomainCounts, default_selector, domains_in, summed_by_domain
from extender.model.node import NO_EXECUTE, NO_SCHEDULE, Node, untolerated
from extender.model.pod import Pod, TopologySpreadConstraint
from extender.model.selectors import EVERYTHING, NOTHING, Requirement, Selector, compile_selector
from extender.table import HypotheticalRemovals, PodCountQuery, PodInfo, Table
from extender.table.labels import ABSENT, BoolColumn, IntColumn, LabelColumn, Rows

NAME = "PodTopologySpread"
DO_NOT_SCHEDULE, SCHEDULE_ANYWAY = "DoNotSchedule", "ScheduleAnyway"

# Pods without constraints get these constraints if defaultingType is System.
SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY),
)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A topology spread constraint, prepared for one pod.

    Attributes:
        counted_selector: matches the placed pods to count; NOTHING for an empty selector before Kubernetes 1.38.
        policies: a pair: True if nodeAffinityPolicy is Honor, and True if nodeTaintsPolicy is Honor. Honor means that
            placed pods count only on nodes that the pod's node affinity, or the pod's tolerations, allow.
    """

    max_skew: int
    topology_key: str
    selector: Selector
    counted_selector: Selector
    min_domains: int
    policies: tuple[bool, bool]

    def counted(self, namespace: str) -> PodCountQuery:
        """Returns the query for the pods to count (upstream countPodsMatchSelector)."""
        return PodCountQuery(frozenset((namespace,)), self.counted_selector, terminating=False)

    def leaving(self, namespace: str) -> PodCountQuery:
        """Returns the query for the pods to subtract from the count when they are preempted.

        Unlike `counted`, it also counts terminating pods, as in upstream's updateWithPod.
        """
        return PodCountQuery(frozenset((namespace,)), self.selector)


def constraints_of(
    pod: PodInfo, table: Table, when_unsatisfiable: str, defaults: Sequence[TopologySpreadConstraint]
) -> list[Constraint]:
    """Returns the pod's constraints that have this value of whenUnsatisfiable.

    A pod without any constraints gets the defaults if a service or controller selects it.
    """
    own = pod.pod.spec.topology_spread_constraints
    chosen = [constraint for constraint in own or defaults if constraint.when_unsatisfiable == when_unsatisfiable]
    if own or not chosen:
        return [_prepared(constraint, selector_of(constraint, pod.pod.labels), table) for constraint in chosen]
    selector = default_selector(pod, table)
    return [] if selector == EVERYTHING else [_prepared(constraint, selector, table) for constraint in chosen]


def nodes_with_all_keys(constraints: Sequence[Constraint], table: Table) -> BoolColumn:
    """Returns bool[capacity]: True for nodes that have the topology key of every constraint."""
    has_all = np.ones(table.nodes.capacity, np.bool_)
    for constraint in constraints:
        has_all &= table.nodes.labels[constraint.topology_key].ids != ABSENT
    return has_all


def nodes_counted(
    constraints: Sequence[Constraint], pod: Pod, table: Table, among: BoolColumn
) -> dict[tuple[bool, bool], BoolColumn]:
    """Returns the nodes whose pods count, for each value of `Constraint.policies`: bool[capacity].

    `among`, bool[capacity]: the nodes to choose from.
    """
    return {
        policies: _nodes_allowed(pod, table, among, *policies)
        for policies in {constraint.policies for constraint in constraints}
    }


def _nodes_allowed(pod: Pod, table: Table, among: BoolColumn, by_affinity: bool, by_taints: bool) -> BoolColumn:
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
    """Returns the constraint's selector, with a requirement added for each of its matchLabelKeys that the pod has."""
    selector = compile_selector(constraint.label_selector)
    keys = [key for key in constraint.match_label_keys or () if key in labels]
    return selector.with_requirements(*(Requirement(key, "In", frozenset((labels[key],))) for key in keys))


def _prepared(constraint: TopologySpreadConstraint, selector: Selector, table: Table) -> Constraint:
    counts = selector != EVERYTHING or table.features.behaviours.empty_spread_selector_counts
    return Constraint(
        constraint.max_skew,
        constraint.topology_key,
        selector,
        selector if counts else NOTHING,
        max(constraint.min_domains or 1, 1),
        (constraint.node_affinity_policy in (None, "Honor"), constraint.node_taints_policy == "Honor"),
    )


_REASON = "node(s) didn't match pod topology spread constraints"
TOO_SKEWED = unschedulable(NAME, _REASON)
NO_DOMAIN = unresolvable(NAME, f"{_REASON} (missing required label)")


@dataclass(frozen=True, slots=True)
class PodTopologySpreadFilter(PerTemplate):
    """Refuses domains with too many matching pods. `defaults` apply to pods without constraints."""

    defaults: Sequence[TopologySpreadConstraint] = SYSTEM_DEFAULTS
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        constraints = constraints_of(pod, table, DO_NOT_SCHEDULE, self.defaults)
        if not constraints:
            return None
        counted = nodes_counted(constraints, pod.pod, table, nodes_with_all_keys(constraints, table))
        return _SpreadCheck(
            [_ConstraintSpread(constraint, pod, table, counted[constraint.policies]) for constraint in constraints]
        )


class _ConstraintSpread:
    """Counts the matching pods in each domain of one constraint.

    A domain refuses the pod if it has more matching pods than `_limit`.
    """

    def __init__(self, constraint: Constraint, pod: PodInfo, table: Table, counted: BoolColumn) -> None:
        namespace = pod.pod.namespace
        column = table.nodes.labels[constraint.topology_key]
        domain = np.where(counted, column.ids, ABSENT)
        pods = summed_by_domain(column, _counted(constraint, namespace, table), domain)
        domains = domains_in(column, domain)
        domains[ABSENT] = False
        leaving = constraint.leaving(namespace)
        self._pods = DomainCounts(column.ids, pods, lambda gone: gone.matching(leaving) * counted)
        too_few = np.count_nonzero(domains) < constraint.min_domains
        fewest = 0 if too_few else int(pods[domains].min())
        self._limit = fewest + constraint.max_skew - leaving.selector.matches(pod.pod.labels)

    def refuse(self, rows: Rows, gone: HypotheticalRemovals | None) -> tuple[BoolColumn, BoolColumn]:
        """Returns two bool[len(rows)]: True if the node is in no domain, and True if its domain has too many pods.

        Each node is judged after its own pods in `gone` have left. The limit is not computed again. It could change
        only if the node's domain became the one with the fewest pods, and such a domain accepts the pod under the old
        limit, too.
        """
        domain = self._pods.domain[rows]
        if gone is None:
            return domain == ABSENT, (self._pods.pods > self._limit)[domain]
        absent = domain == ABSENT
        return absent, ~absent & (self._pods.around(rows) - self._pods.removed(rows, gone) > self._limit)


def _counted(constraint: Constraint, namespace: str, table: Table) -> IntColumn:
    """Returns the number of matching pods on each node: int64[row].

    A hypothetically placed pod counts even if it is terminating, or, before Kubernetes 1.38, if the selector is empty,
    as in upstream's updateWithPod.
    """
    counted, leaving = constraint.counted(namespace), constraint.leaving(namespace)
    by_node = table.matching(counted).by_node
    if table.hypothetical:
        by_node = by_node.copy()
        for info, row in table.hypothetical.values():
            counts_already = counted.matches(info.group) and not info.pod.terminating
            by_node[row] += int(leaving.matches(info.group)) - counts_already
    return by_node


@dataclass(slots=True, eq=False)
class _SpreadCheck(PodsCheck):
    _spreads: Sequence[_ConstraintSpread]

    def verdict(self, rows: Rows, gone: HypotheticalRemovals | None) -> Verdict:
        return _verdict(spread.refuse(rows, gone) for spread in self._spreads)


def _verdict(refused: Iterable[tuple[BoolColumn, BoolColumn]]) -> Verdict:
    """Merges the results of all constraints into a verdict; the first constraint that a node fails gives the reason."""
    (missing, crowded), *others = refused
    for absent, over in others:
        missing = missing | (absent & ~crowded)
        crowded = crowded | (over & ~missing)
    return [(missing, NO_DOMAIN), (crowded, TOO_SKEWED)]


Floats = NDArray[np.float64]
_IGNORED = -1


@dataclass(frozen=True, slots=True)
class PodTopologySpreadScore(PerTemplate):
    """Prefers domains with fewer matching pods. `defaults` apply to pods without constraints.

    Nodes that lack a topology key are ignored, except with the system defaults.
    """

    defaults: Sequence[TopologySpreadConstraint] = SYSTEM_DEFAULTS
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        constraints = constraints_of(pod, table, SCHEDULE_ANYWAY, self.defaults)
        if not constraints:
            return None
        by_system = not pod.pod.spec.topology_spread_constraints and self.defaults is SYSTEM_DEFAULTS
        among = table.nodes.present if by_system else nodes_with_all_keys(constraints, table)
        counted = nodes_counted(constraints, pod.pod, table, among)
        scored = rows[among[rows]]
        score = sum(_share(constraint, pod, table, scored, counted[constraint.policies]) for constraint in constraints)
        return _SpreadScorer(np.where(among, np.floor(score + 0.5), _IGNORED).astype(np.int64))


@dataclass(slots=True, eq=False)
class _SpreadScorer(Scorer):
    """Converts the sums that `PodTopologySpreadScore.prepare` computed to scores; nodes with lower sums score higher.

    A node with the sum _IGNORED (upstream invalidScore) scores 0, and does not influence the scores of other nodes.
    """

    normalises = True

    _score: Scores

    def map(self, rows: Rows) -> Scores:
        return self._score[rows]

    def reduce(self, raw: Scores) -> Scores:
        scored = raw != _IGNORED
        most = int(raw.max(initial=0))
        if most == 0:
            return np.where(scored, MAX_SCORE, 0)
        least = int(raw.min(where=scored, initial=most))
        return np.where(scored, MAX_SCORE * (most + least - raw) // most, 0)


def _share(constraint: Constraint, pod: PodInfo, table: Table, scored: Rows, counted: BoolColumn) -> Floats:
    """Returns what one constraint adds to the score of each node: float64[row]."""
    column = table.nodes.labels[constraint.topology_key]
    pods = table.matching(constraint.counted(pod.pod.namespace)).by_node
    if constraint.topology_key == HOSTNAME:  # with the topology key hostname, each node is a domain
        return np.where(column.ids != ABSENT, _worth(pods, constraint, len(scored)), 0.0)
    domain = _domains(column)
    domains = int(domains_in(column, domain[scored]).sum())
    worth = _worth(summed_by_domain(column, pods, np.where(counted, domain, ABSENT)), constraint, domains)
    worth[ABSENT] = 0
    share: Floats = worth[column.ids]
    return share


def _domains(column: LabelColumn) -> Rows:
    """Returns the domain of each node. As in upstream's scoring, a missing label counts as an empty value."""
    empty = column.find("")
    return column.ids if empty is None else np.where(column.ids == ABSENT, empty, column.ids)


def _worth(pods: IntColumn, constraint: Constraint, domains: int) -> Floats:
    # The more domains, the fewer pods in each. The logarithm makes up for this, so all topologies weigh about the same.
    worth: Floats = np.add(pods * log(domains + 2), constraint.max_skew - 1, dtype=np.float64)
    return worth


class TopologySpreadConstraintSpec(Strict):
    max_skew: Positive
    topology_key: LabelKey
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


Constraints = tuple[TopologySpreadConstraintSpec, ...]


def _unique(constraints: Constraints) -> Constraints:
    if len({(constraint.topology_key, constraint.when_unsatisfiable) for constraint in constraints}) < len(constraints):
        raise ValueError("two constraints have the same topologyKey and whenUnsatisfiable")
    return constraints


class PodTopologySpreadArgs(Arguments):
    kind: Literal["PodTopologySpreadArgs"] = "PodTopologySpreadArgs"
    default_constraints: Annotated[Constraints, AfterValidator(_unique)] = ()
    """The constraints of pods without constraints of their own; needs defaultingType List."""
    defaulting_type: Literal["System", "List"] = "System"
    """System: prefer to spread by hostname and zone. List: use defaultConstraints."""

    @model_validator(mode="after")
    def _list_for_constraints(self) -> Self:
        if self.defaulting_type == "System" and self.default_constraints:
            raise ValueError("defaultConstraints need defaultingType List")
        return self

    @property
    def defaults(self) -> Sequence[TopologySpreadConstraint]:
        """The default constraints, converted to structs of the model."""
        if self.defaulting_type == "System":
            return SYSTEM_DEFAULTS
        specs = [spec.model_dump(by_alias=True) for spec in self.default_constraints]
        return tuple(msgspec.convert(spec, TopologySpreadConstraint) for spec in specs)


def counts_change(pod: PodInfo, change: Change) -> bool:
    """Returns True if a placed pod that the constraints count was added or deleted, or its labels changed."""
    versions = [version for version in (change.old, change.new) if version is not None]
    if not all(has_place(version) and version.pod.namespace == pod.pod.namespace for version in versions):
        return False
    return _count_changes(pod, change)


def pod_counts_otherwise(pod: PodInfo, change: Change) -> bool:
    """Returns True if an update of the waiting pod may change the counts of its own constraints.

    A constraint's selector may start or stop matching the pod's labels. With nodeTaintsPolicy Honor, the pod's
    tolerations decide which nodes count.
    """
    before, after = change.old.pod.spec.tolerations or [], change.new.pod.spec.tolerations or []
    honours_taints = any(constraint.node_taints_policy == "Honor" for constraint in _own_hard_constraints(pod))
    return (honours_taints and before != after) or _count_changes(pod, change)


def node_changes_spread(pod: PodInfo, change: Change) -> bool:
    """Returns True if a change of a node may change the domains of the pod's constraints.

    These changes matter:
    - A node with all topology keys was added or deleted, or its domains or taints changed.
    - A node got the last topology key that it lacked, or lost one after it had all.
    - The pod's node affinity no longer allows a node. Upstream does not wake the pod for this change.
    """
    if not pod.pod.spec.topology_spread_constraints:
        return True  # the pod was refused by default constraints, which are not available here
    keys = [constraint.topology_key for constraint in _own_hard_constraints(pod)]
    old, new = change.old, change.new
    had, has = _has_keys(old, keys), _has_keys(new, keys)
    if had != has:
        return True
    if not has or any(old.labels[key] != new.labels[key] for key in keys) or old.taints != new.taints:
        return has
    return is_required_node(pod.pod, old) and not is_required_node(pod.pod, new)


def default_selector_changes(pod: PodInfo, change: Change) -> bool:
    """Returns True if the change of a service or controller may change the selector of the default constraints.

    Upstream's plugin does not register for these changes, so there the pod waits until all pods are retried.
    """
    old, new = change.old, change.new
    if pod.pod.spec.topology_spread_constraints or (new or old).namespace != pod.pod.namespace:
        return False
    return old is None or new is None or old.spec.selector != new.spec.selector


def _count_changes(pod: PodInfo, change: Change) -> bool:
    if not pod.pod.spec.topology_spread_constraints:
        return True  # default constraints take their selector from services and controllers
    selectors = [selector_of(constraint, pod.pod.labels) for constraint in _own_hard_constraints(pod)]
    old, new = change.old, change.new
    if old is None or new is None:
        return any(selector.matches((old or new).pod.labels) for selector in selectors)
    return any(selector.matches(old.pod.labels) != selector.matches(new.pod.labels) for selector in selectors)


def _own_hard_constraints(pod: PodInfo) -> list[TopologySpreadConstraint]:
    own = pod.pod.spec.topology_spread_constraints
    return [constraint for constraint in own or () if constraint.when_unsatisfiable == DO_NOT_SCHEDULE]


def _has_keys(node: Node | None, keys: Iterable[str]) -> bool:
    return node is not None and all(key in node.labels for key in keys)


def labels_counted(change: Change) -> Iterator[str]:
    """Yields the namespace and the labels of the placed pod, like `shop` and `shop/app=web`.

    The queue looks up the waiting pods whose constraints select one of them.
    """
    for version in (change.old, change.new):
        if version is not None:
            namespace = version.pod.namespace
            yield namespace
            yield from (f"{namespace}/{name}" for name in names_of_labels(version.pod.labels))


def _names_of_selectors(pod: PodInfo) -> Iterator[str]:
    """Yields labels that the pod's constraints select, like `shop/app=web` in the namespace `shop`.

    Under these names the queue indexes the waiting pod. If a selector is empty, or the pod has only default
    constraints, the name is the namespace alone.
    """
    namespace = pod.pod.namespace
    if not pod.pod.spec.topology_spread_constraints:
        yield namespace
    for constraint in _own_hard_constraints(pod):
        names = names_of_selector(selector_of(constraint, pod.pod.labels))
        yield from (f"{namespace}/{name}" if name != ANY else namespace for name in names)


def _topology_keys_and_nodes(pod: PodInfo) -> Hashable:
    spec, keys = pod.pod.spec, frozenset(constraint.topology_key for constraint in _own_hard_constraints(pod))
    return bool(spec.topology_spread_constraints), keys, encoded(spec.node_selector, required_node_selector(pod.pod))


def _namespace_of_default_constraints(pod: PodInfo) -> Hashable:
    return None if pod.pod.spec.topology_spread_constraints else pod.pod.namespace


INTERESTS = Interests(
    (
        Interest(
            Resource.ASSIGNED_POD,
            Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE,
            counts_change,
            Reads(lambda pod: (pod.group, encoded(pod.pod.spec.topology_spread_constraints)), _names_of_selectors),
            labels_counted,
        ),
        Interest(Resource.TARGET_POD, Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION, pod_counts_otherwise),
        Interest(
            Resource.NODE,
            Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT,
            node_changes_spread,
            Reads(_topology_keys_and_nodes),
        ),
        *(
            Interest(selecting, Action.ALL, default_selector_changes, Reads(_namespace_of_default_constraints))
            for selecting in (
                Resource.SERVICE,
                Resource.REPLICATION_CONTROLLER,
                Resource.REPLICA_SET,
                Resource.STATEFUL_SET,
            )
        ),
    )
)


PLUGIN = Plugin(
    NAME,
    PodTopologySpreadArgs,
    lambda args: PodTopologySpreadFilter(args.defaults),
    lambda args: PodTopologySpreadScore(args.defaults),
    weight=2,
    points=frozenset((PRE_SCORE,)),
    needs=((FILTER, PRE_FILTER), (SCORE, PRE_SCORE)),
    interests=INTERESTS,
)
