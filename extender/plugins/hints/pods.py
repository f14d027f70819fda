"""Events and hints of the rules that look at other pods.

Sources: upstream plugins nodeports, interpodaffinity, podtopologyspread, defaultpreemption, schedulinggates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from extender.framework.events.cluster_events import Action, Change, Resource
from extender.framework.events.queueing_hints import Interest, Interests, encoded, never
from extender.model.node import Node
from extender.model.pod import TopologySpreadConstraint
from extender.model.selectors import NOTHING, Requirement, Selector, compile_selector
from extender.table import PodInfo
from extender.table.podinfo import AffinityTerm
from extender.table.pods.ports import conflicts_between

_PODS_COME_GO_OR_CHANGE_LABELS = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE


def _has_place(pod: PodInfo | None) -> bool:
    return pod is None or bool(pod.pod.node_name or pod.pod.status.nominated_node_name)


# ---- NodePorts


def ports_are_freed(pod: PodInfo, change: Change) -> bool:
    """A pod left a node whose ports this one wants too."""
    return _has_place(change.old) and conflicts_between(pod.host_ports, change.old.host_ports) > 0


NODE_PORTS = Interests(
    (
        Interest(Resource.ASSIGNED_POD, Action.DELETE, ports_are_freed),
        Interest(Resource.NODE, Action.ADD),
    ),
    lambda pod: pod.host_ports,
)


# ---- InterPodAffinity


def terms_are_met(pod: PodInfo, change: Change) -> bool:
    """A placed pod came to match the affinity, or ceased to stand against the pod by anti-affinity on either side."""
    old, new = change.old, change.new
    if not _has_place(old) or not _has_place(new):
        return False
    wanted, unwanted = pod.required_affinity, pod.required_anti_affinity
    if old is None:
        return _matches_all(wanted, new)
    if new is None:
        return _matches_any(unwanted, old) or _matches_any(old.required_anti_affinity, pod)
    if _matches_all(wanted, new) and not _matches_all(wanted, old):
        return True
    return _matches_any(unwanted, old) and not _matches_any(unwanted, new)


def node_changes_domain(pod: PodInfo, change: Change) -> bool:
    """A node came to a topology domain that a term of the pod speaks of, left one, or went from one to another."""
    old, new = change.old, change.new
    if old is None:
        return bool(pod.required_anti_affinity) or any(
            term.topology_key in new.labels for term in pod.required_affinity
        )
    return any(_joins(old, new, term.topology_key) for term in pod.required_affinity) or any(
        _joins(new, old, term.topology_key) for term in pod.required_anti_affinity
    )


def _joins(old: Node, new: Node, topology_key: str) -> bool:
    domain = new.labels.get(topology_key)
    return domain is not None and domain != old.labels.get(topology_key)


def _matches_all(terms: Sequence[AffinityTerm], pod: PodInfo) -> bool:
    return bool(terms) and all(_means(term, pod) for term in terms)


def _matches_any(terms: Iterable[AffinityTerm], pod: PodInfo) -> bool:
    return any(_means(term, pod) for term in terms)


def _means(term: AffinityTerm, pod: PodInfo) -> bool:
    # The labels of namespaces are not at hand, so a term that goes by them may mean any namespace.
    reaches = pod.group.namespace in term.namespaces or term.namespace_selector != NOTHING
    return reaches and term.selector.matches(pod.pod.labels)


INTER_POD_AFFINITY = Interests(
    (
        Interest(Resource.ASSIGNED_POD, _PODS_COME_GO_OR_CHANGE_LABELS, terms_are_met),
        Interest(Resource.TARGET_POD, Action.UPDATE_POD_LABEL),
        Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, node_changes_domain),
    ),
    lambda pod: (pod.group, pod.required_affinity, pod.required_anti_affinity),
)


# ---- PodTopologySpread


def counts_change(pod: PodInfo, change: Change) -> bool:
    """A placed pod that the pod's constraints count came, went or changed its labels."""
    parties = [party for party in (change.old, change.new) if party is not None]
    if not all(_has_place(party) and party.pod.namespace == pod.pod.namespace for party in parties):
        return False
    return _counted_otherwise(pod, change)


def pod_counts_otherwise(pod: PodInfo, change: Change) -> bool:
    """The pod's own tolerations matter to a constraint and were added to, or its labels count otherwise."""
    before, after = change.old.pod.spec.tolerations or [], change.new.pod.spec.tolerations or []
    honoured = any(each.node_taints_policy == "Honor" for each in _own_hard_constraints(pod))
    return (honoured and before != after) or _counted_otherwise(pod, change)


def node_changes_spread(pod: PodInfo, change: Change) -> bool:
    """A node with the topology keys of all constraints came, went, changed domains or taints; or got or lost a key."""
    if not pod.pod.spec.topology_spread_constraints:
        return True  # refused by default constraints, which are not known here
    keys = [constraint.topology_key for constraint in _own_hard_constraints(pod)]
    old, new = change.old, change.new
    had, has = _has_keys(old, keys), _has_keys(new, keys)
    if old is None or new is None:
        return had or has
    if had != has:
        return True
    return has and (any(old.labels[key] != new.labels[key] for key in keys) or old.taints != new.taints)


def _counted_otherwise(pod: PodInfo, change: Change) -> bool:
    if not pod.pod.spec.topology_spread_constraints:
        return True  # refused by default constraints, whose selector comes from services and controllers
    selectors = [_selector(constraint, pod) for constraint in _own_hard_constraints(pod)]
    old, new = change.old, change.new
    if old is None or new is None:
        return any(selector.matches((old or new).pod.labels) for selector in selectors)
    return any(selector.matches(old.pod.labels) != selector.matches(new.pod.labels) for selector in selectors)


def _own_hard_constraints(pod: PodInfo) -> list[TopologySpreadConstraint]:
    return [
        each for each in pod.pod.spec.topology_spread_constraints or () if each.when_unsatisfiable == "DoNotSchedule"
    ]


def _selector(constraint: TopologySpreadConstraint, pod: PodInfo) -> Selector:
    labels: Mapping[str, str] = pod.pod.labels
    alike = (
        Requirement(key, "In", frozenset((labels[key],))) for key in constraint.match_label_keys or () if key in labels
    )
    return compile_selector(constraint.label_selector).with_requirements(*alike)


def _has_keys(node: Node | None, keys: Iterable[str]) -> bool:
    return node is not None and all(key in node.labels for key in keys)


POD_TOPOLOGY_SPREAD = Interests(
    (
        Interest(Resource.ASSIGNED_POD, _PODS_COME_GO_OR_CHANGE_LABELS, counts_change),
        Interest(Resource.TARGET_POD, Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION, pod_counts_otherwise),
        Interest(
            Resource.NODE,
            Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT,
            node_changes_spread,
        ),
    ),
    lambda pod: (pod.group, encoded(pod.pod.spec.topology_spread_constraints)),
)


# ---- what keeps pods out of the active queue

SCHEDULING_GATES = Interests((Interest(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),))

DEFAULT_PREEMPTION = Interests((Interest(Resource.ASSIGNED_POD, Action.DELETE, never),))
