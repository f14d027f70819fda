"""PodTopologySpread: pods are spread evenly over topology domains. Source: upstream podtopologyspread."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Annotated, Literal, Self

import msgspec
from pydantic import AfterValidator, model_validator

from extender.framework.events.cluster_events import Action, Change, Resource
from extender.framework.events.queueing_hints import (
    ANY,
    Interest,
    Interests,
    Reads,
    encoded,
    has_place,
    names_of_labels,
    names_of_selector,
)
from extender.framework.node_affinity import is_required_node, required_node_selector
from extender.framework.plugin import FILTER, PRE_FILTER, PRE_SCORE, SCORE, Arguments, Plugin
from extender.framework.schema import LabelKey, Positive, Strict
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
    min_domains: Positive | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    match_label_keys: tuple[str, ...] | None = None


Constraints = tuple[TopologySpreadConstraintSpec, ...]


def _each_once(constraints: Constraints) -> Constraints:
    if len({(each.topology_key, each.when_unsatisfiable) for each in constraints}) < len(constraints):
        raise ValueError("want every pair of topologyKey and whenUnsatisfiable once")
    return constraints


class PodTopologySpreadArgs(Arguments):
    kind: Literal["PodTopologySpreadArgs"] = "PodTopologySpreadArgs"
    default_constraints: Annotated[Constraints, AfterValidator(_each_once)] = ()
    """The constraints of pods that have none of their own, with defaultingType List."""
    defaulting_type: Literal["System", "List"] = "System"
    """System: by hostname and zone, softly; List: by defaultConstraints."""

    @model_validator(mode="after")
    def _list_for_constraints(self) -> Self:
        if self.defaulting_type == "System" and self.default_constraints:
            raise ValueError("defaultConstraints need defaultingType List")
        return self

    @property
    def defaults(self) -> Sequence[TopologySpreadConstraint]:
        """Returns the default constraints as the model has them."""
        if self.defaulting_type == "System":
            return SYSTEM_DEFAULTS
        given = [each.model_dump(by_alias=True, exclude_none=True) for each in self.default_constraints]
        return tuple(msgspec.convert(each, TopologySpreadConstraint) for each in given)


def counts_change(pod: PodInfo, change: Change) -> bool:
    """Returns True if a placed pod that the pod's constraints count came, went or changed its labels."""
    parties = [party for party in (change.old, change.new) if party is not None]
    if not all(has_place(party) and party.pod.namespace == pod.pod.namespace for party in parties):
        return False
    return _counted_otherwise(pod, change)


def pod_counts_otherwise(pod: PodInfo, change: Change) -> bool:
    """Returns True if the pod's new tolerations matter to a constraint, or its new labels are counted otherwise."""
    before, after = change.old.pod.spec.tolerations or [], change.new.pod.spec.tolerations or []
    honoured = any(each.node_taints_policy == "Honor" for each in _own_hard_constraints(pod))
    return (honoured and before != after) or _counted_otherwise(pod, change)


def node_changes_spread(pod: PodInfo, change: Change) -> bool:
    """Returns True if the set of domains of the pod's constraints may have changed.

    A node with all topology keys came, went, changed domains or taints, or is none any more that the pod may go to; or
    a node got or lost a key. That the pod may go to it no more is unknown upstream.
    """
    if not pod.pod.spec.topology_spread_constraints:
        return True  # refused by default constraints, which are not known here
    keys = [constraint.topology_key for constraint in _own_hard_constraints(pod)]
    old, new = change.old, change.new
    had, has = _has_keys(old, keys), _has_keys(new, keys)
    if old is None or new is None:
        return had or has
    if had != has:
        return True
    if not has or any(old.labels[key] != new.labels[key] for key in keys) or old.taints != new.taints:
        return has
    return is_required_node(pod.pod, old) and not is_required_node(pod.pod, new)


def default_selector_changes(pod: PodInfo, change: Change) -> bool:
    """Returns True if the selector of the pod's default constraints may have changed with a service or controller.

    Upstream registers for none of these: such a pod waits there until all pods are tried again.
    """
    old, new = change.old, change.new
    if pod.pod.spec.topology_spread_constraints or (new or old).namespace != pod.pod.namespace:
        return False
    return old is None or new is None or old.spec.selector != new.spec.selector


def _counted_otherwise(pod: PodInfo, change: Change) -> bool:
    if not pod.pod.spec.topology_spread_constraints:
        return True  # refused by default constraints, whose selector comes from services and controllers
    selectors = [selector_of(constraint, pod.pod.labels) for constraint in _own_hard_constraints(pod)]
    old, new = change.old, change.new
    if old is None or new is None:
        return any(selector.matches((old or new).pod.labels) for selector in selectors)
    return any(selector.matches(old.pod.labels) != selector.matches(new.pod.labels) for selector in selectors)


def _own_hard_constraints(pod: PodInfo) -> list[TopologySpreadConstraint]:
    own = pod.pod.spec.topology_spread_constraints
    return [each for each in own or () if each.when_unsatisfiable == DO_NOT_SCHEDULE]


def _has_keys(node: Node | None, keys: Iterable[str]) -> bool:
    return node is not None and all(key in node.labels for key in keys)


def labels_counted(change: Change) -> Iterator[str]:
    """Yields the names of the selectors that may count a placed pod that came, went or changed its labels."""
    for party in (change.old, change.new):
        if party is not None:
            namespace = party.pod.namespace
            yield namespace
            yield from (f"{namespace}/{name}" for name in names_of_labels(party.pod.labels))


def _names_of_selectors(pod: PodInfo) -> Iterator[str]:
    """Yields names in the pod's namespace; the namespace itself for selectors without any and default constraints."""
    namespace = pod.pod.namespace
    if not pod.pod.spec.topology_spread_constraints:
        yield namespace
    for constraint in _own_hard_constraints(pod):
        names = names_of_selector(selector_of(constraint, pod.pod.labels))
        yield from (f"{namespace}/{name}" if name != ANY else namespace for name in names)


def _topology_keys_and_nodes(pod: PodInfo) -> Hashable:
    spec, keys = pod.pod.spec, frozenset(each.topology_key for each in _own_hard_constraints(pod))
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
