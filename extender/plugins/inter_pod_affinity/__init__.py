"""InterPodAffinity: pods attract and repel one another within topology domains. Source: upstream interpodaffinity."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Literal

from extender.framework.events.cluster_events import Action, Change, Resource
from extender.framework.events.names import names_of_labels, names_of_selector
from extender.framework.events.queueing_hints import ANY, Interest, Interests, Reads, has_place
from extender.framework.plugin import FILTER, PRE_FILTER, PRE_SCORE, SCORE, Arguments, Plugin
from extender.framework.schema import Percentage
from extender.model.node import Node
from extender.model.selectors import NOTHING
from extender.plugins.inter_pod_affinity.predicate import NAME, InterPodAffinityFilter
from extender.plugins.inter_pod_affinity.priority import InterPodAffinityScore
from extender.table import PodInfo
from extender.table.podinfo import AffinityTerm


def terms_are_met(pod: PodInfo, change: Change) -> bool:
    """Returns True if a placed pod came to match the affinity, or ceased to stand against the pod.

    It stands against the pod by anti-affinity on either side, or as the one that the pod must be near.
    """
    old, new = change.old, change.new
    if not has_place(old) or not has_place(new):
        return False
    wanted, unwanted = pod.required_affinity, pod.required_anti_affinity
    if old is None:
        return _matches_all(wanted, new)
    if new is None:
        minded = _matches_any(unwanted, old) or _matches_any(old.required_anti_affinity, pod)
        return minded or _may_be_first_after(pod, old)
    if _matches_all(wanted, new):
        if not _matches_all(wanted, old):
            return True
    elif _may_be_first_after(pod, old):
        return True
    return _matches_any(unwanted, old) and not _matches_any(unwanted, new)


def _may_be_first_after(pod: PodInfo, gone: PodInfo) -> bool:
    """Returns True if the pod needs nobody to be near once the last such pod is gone, for it is one itself.

    Upstream has such a pod wait until all pods are tried again.
    """
    return _matches_all(pod.required_affinity, gone) and _matches_all(pod.required_affinity, pod)


def node_changes_domain(pod: PodInfo, change: Change) -> bool:
    """Returns True if a node joined a topology domain of one of the pod's terms, or left any.

    A pod without terms is one that placed pods stand against, by theirs: they are on no new node, and on one that
    leaves a domain they stand elsewhere. Upstream looks at the terms of the pod alone.
    """
    old, new = change.old, change.new
    wanted = {term.topology_key for term in pod.required_affinity}
    if old is None:
        return not wanted or not wanted.isdisjoint(new.labels)
    if new is None or any(new.labels.get(key) != value for key, value in old.labels.items()):
        return True
    return any(_joins(old, new, key) for key in wanted)


def namespace_is_selected_otherwise(pod: PodInfo, change: Change) -> bool:
    """Returns True if the labels of a namespace changed which terms of the pod, or others' about the pod, may select.

    Upstream registers for no namespaces: such a pod waits there until all pods are tried again.
    """
    old, new = change.old, change.new
    if old is not None and new is not None and old.labels == new.labels:
        return False
    own = (*pod.required_affinity, *pod.required_anti_affinity)
    return (new or old).name == pod.group.namespace or any(term.namespace_selector != NOTHING for term in own)


def _joins(old: Node, new: Node, topology_key: str) -> bool:
    domain = new.labels.get(topology_key)
    return domain is not None and domain != old.labels.get(topology_key)


def _matches_all(terms: Sequence[AffinityTerm], pod: PodInfo) -> bool:
    return bool(terms) and all(_matches(term, pod) for term in terms)


def _matches_any(terms: Iterable[AffinityTerm], pod: PodInfo) -> bool:
    return any(_matches(term, pod) for term in terms)


def _matches(term: AffinityTerm, pod: PodInfo) -> bool:
    # The labels of namespaces are not at hand, so a term that selects namespaces may mean any.
    reaches = pod.group.namespace in term.namespaces or term.namespace_selector != NOTHING
    return reaches and term.selector.matches(pod.pod.labels)


def terms_about(change: Change) -> list[str] | None:
    """Returns the names of the terms that a placed pod may match now, or did; None where it objects to any pod."""
    names: list[str] = []
    if change.new is not None:
        names += map(_WANTED.format, names_of_labels(change.new.pod.labels))
    if change.old is not None:
        for named in (_WANTED, _UNWANTED):
            names += map(named.format, names_of_labels(change.old.pod.labels))
    if change.new is None:
        refused = [name for term in change.old.required_anti_affinity for name in names_of_selector(term.selector)]
        if ANY in refused:
            return None
        names += map(_OWN.format, refused)
    return names


_WANTED, _UNWANTED, _OWN = "affinity {}", "anti-affinity {}", "label {}"


def _names_of_terms(pod: PodInfo) -> Iterator[str]:
    """Yields names of one term of the affinity, as all must be met, of each of the anti-affinity, and of own labels."""
    for term in pod.required_affinity[:1]:
        yield from _prefixed(_WANTED, names_of_selector(term.selector))
    for term in pod.required_anti_affinity:
        yield from _prefixed(_UNWANTED, names_of_selector(term.selector))
    yield from _prefixed(_OWN, names_of_labels(pod.pod.labels))


def _prefixed(prefix: str, names: Iterable[str]) -> Iterator[str]:
    return (prefix.format(name) if name else ANY for name in names)


def _topology_keys(pod: PodInfo) -> Hashable:
    wanted, unwanted = pod.required_affinity, pod.required_anti_affinity
    return frozenset(term.topology_key for term in wanted), frozenset(term.topology_key for term in unwanted)


def _namespaces(pod: PodInfo) -> Hashable:
    own = (*pod.required_affinity, *pod.required_anti_affinity)
    return pod.group.namespace, any(term.namespace_selector != NOTHING for term in own)


INTERESTS = Interests(
    (
        Interest(
            Resource.ASSIGNED_POD,
            Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE,
            terms_are_met,
            Reads(lambda pod: (pod.group, pod.required_affinity, pod.required_anti_affinity), _names_of_terms),
            terms_about,
        ),
        Interest(Resource.TARGET_POD, Action.UPDATE_POD_LABEL),
        Interest(
            Resource.NODE,
            Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL,
            node_changes_domain,
            Reads(_topology_keys),
        ),
        Interest(Resource.NAMESPACE, Action.ALL, namespace_is_selected_otherwise, Reads(_namespaces)),
    )
)


class InterPodAffinityArgs(Arguments):
    kind: Literal["InterPodAffinityArgs"] = "InterPodAffinityArgs"
    hard_pod_affinity_weight: Percentage = 1
    """The weight of required affinity of other pods when nodes are scored."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Counts what placed pods prefer only for pods that prefer something themselves."""


PLUGIN = Plugin(
    NAME,
    InterPodAffinityArgs,
    lambda _: InterPodAffinityFilter(),
    lambda args: InterPodAffinityScore(args.hard_pod_affinity_weight, args.ignore_preferred_terms_of_existing_pods),
    weight=2,
    points=frozenset((PRE_SCORE,)),
    needs=((FILTER, PRE_FILTER), (SCORE, PRE_SCORE)),
    interests=INTERESTS,
)
