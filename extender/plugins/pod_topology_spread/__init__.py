"""PodTopologySpread: spreads pods evenly over topology domains. Source: upstream podtopologyspread.

`spread` has the predicate and the priority; this module has the arguments and the queueing hints.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Annotated, Literal, Self

import msgspec
from pydantic import AfterValidator, Field, model_validator

from extender.framework.cluster_events import Action, Change, Resource
from extender.framework.node_selectors import is_required_node, required_node_selector
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
from extender.model.node import Node
from extender.model.pod import TopologySpreadConstraint
from extender.plugins.pod_topology_spread.spread import (
    DO_NOT_SCHEDULE,
    NAME,
    SYSTEM_DEFAULTS,
    PodTopologySpreadFilter,
    PodTopologySpreadScore,
    selector_of,
)
from extender.table import PodInfo


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
