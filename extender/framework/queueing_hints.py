"""Defines queueing hints: the events that may help the pods that a rule refused (upstream EventsToRegister).

A rule registers interests. Each names an event and a hint: a function that looks at one pod and one change and returns
True if the rule may accept the pod now. Calling every hint for every waiting pod would be slow, so an interest also
says what its hint reads of a pod (`Reads`). This allows the queue to call the hint only once for all replicas of a
template, and only for pods that name the changed object (such as a claim) and fit into the freed resources.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, TypeVar

import msgspec

from extender.framework.cluster_events import Action, Change, ClusterEvent, Resource
from extender.model.selectors import Requirement, Selector
from extender.table import PodInfo

T = TypeVar("T")
D = TypeVar("D")
Hint = Callable[[PodInfo, Change], bool]
"""(refused pod, change) -> True if the rule may accept the pod now. A hint that cannot decide returns True."""


def always(_pod: PodInfo, _change: Change) -> bool:
    """Returns True. This is the hint of an event that may help any pod."""
    return True


def never(_pod: PodInfo, _change: Change) -> bool:
    """Returns False. This is the hint of an event that never helps; another rule's hint may still wake the pod."""
    return False


def changes(value_of: Callable[[Any], object]) -> Hint:
    """Returns the hint of an event that helps if the object is new, or if this value of it has changed."""
    return lambda _pod, change: change.old is None or value_of(change.old) != value_of(change.new)


def about_any_object(_change: Change) -> None:
    """Returns None, which means that the change may help any pod. This is the default of `Interest.about`."""
    return


def has_place(pod: PodInfo | None) -> bool:
    """Returns True if this version of a pod is bound or nominated to a node, or if the version is None.

    A change of a pod has an old and a new version. If the pod was created or deleted, one version is None. None counts
    as True, so that only the other version decides.
    """
    return pod is None or bool(pod.pod.node_name or pod.pod.status.nominated_node_name)


ANY = ""
"""The name under which a pod is indexed if every change may help it."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Says what a hint reads of a pod, so that the queue can index waiting pods for the hint.

    Attributes:
        value: returns everything that the hint reads, as a hashable value. The hint is called once for all pods with
            equal values.
        names: returns the names under which the pod is indexed, see `Interest.about`. Pods with equal values must have
            equal names.
        amounts: returns the requests of the pod, see `Interest.limits`. Pods with equal values must have equal requests
            and priorities.
    """

    value: Callable[[PodInfo], Hashable] = lambda _pod: None
    names: Callable[[PodInfo], Iterable[str]] | None = None
    amounts: Callable[[PodInfo], Mapping[str, int]] | None = None


NOTHING_OF_THE_POD = Reads()


def reads_names(names: Callable[[PodInfo], Iterable[str]]) -> Reads:
    """Returns the `Reads` of a hint that reads only certain names in a pod, such as the names of its claims."""
    return Reads(lambda pod: tuple(names(pod)), names)


class AmountLimits(NamedTuple):
    """The limits on the requests of the pods that a change may help.

    Attributes:
        at_most: resource -> the most that a pod may request of this resource; infinity means no limit.
        any_of: resource -> True if the change may help pods that request this resource. A pod must request at least one
            such resource. None means that this is not required.
    """

    at_most: Callable[[str], float] = lambda _resource: inf
    any_of: Callable[[str], bool] | None = None

    def admit(self, requests: Mapping[str, int]) -> bool:
        """Returns True if the change may help a pod with these requests, none of which may be 0."""
        within = all(amount <= self.at_most(resource) for resource, amount in requests.items())
        return within and (self.any_of is None or any(map(self.any_of, requests)))


Limits = Callable[[Change, int], AmountLimits | None]


class Interest(NamedTuple):
    """An event that a rule registers for.

    Attributes:
        reads: the part of the pod that the hint reads. If the hint reads more, the queue may fail to wake a pod.
        about: returns the names that the change is about. The change may help only pods indexed under one of these
            names (`Reads.names`); None means any pod (upstream PreQueueingHintFn).
        limits: (change, priority) -> limits. The change may help only pods whose requests (`Reads.amounts`) are within
            the limits; None means no pod. Called instead of the hint, once for all pods of the priority.
    """

    resource: Resource
    actions: Action
    hint: Hint = always
    reads: Reads = NOTHING_OF_THE_POD
    about: Callable[[Change], Iterable[str] | None] = about_any_object
    limits: Limits | None = None

    def is_met_by(self, event: ClusterEvent) -> bool:
        return ClusterEvent(self.resource, self.actions).is_met_by(event)


@dataclass(frozen=True, slots=True)
class Interests:
    """The interests that one rule registers: the events that may help the pods that the rule has refused."""

    of: tuple[Interest, ...] = ()

    @property
    def reads(self) -> Iterable[Reads]:
        """The different `Reads` by which the queue must index the pods that the rule refused.

        Events about the waiting pod itself need no index, because they name the pod.
        """
        by_objects = (interest.reads for interest in self.of if interest.resource is not Resource.TARGET_POD)
        return dict.fromkeys((NOTHING_OF_THE_POD, *by_objects))


EVERYTHING = Interests((Interest(Resource.WILDCARD, Action.ALL),))
"""The interests of a rule that has registered no interests: any event may help."""


class IndexKeys(NamedTuple):
    """The keys under which the queue indexes a pod: the results of the three functions of a `Reads`."""

    value: Hashable
    names: Sequence[str]
    amounts: Mapping[str, int] | None


class QueueingHints:
    """Stores the interests of each rule: the events that may help a pod that the rule refused.

    If a hint raises an exception, it counts as True, so that no pod waits forever.

    Args:
        on_failure: a function that is called with the name of a rule whose hint raised an exception.
    """

    def __init__(self, interests: Mapping[str, Interests], on_failure: Callable[[str], None]) -> None:
        self._by_rule = interests
        self._on_failure = on_failure
        self._cache: dict[tuple[str, ClusterEvent], tuple[Interest, ...]] = {}

    def replace(self, interests: Mapping[str, Interests]) -> None:
        """Replaces all interests; the caller must index waiting pods again."""
        self._by_rule = interests
        self._cache = {}

    def interests(self, rule: str, event: ClusterEvent) -> tuple[Interest, ...]:
        """Returns the interests of `rule` that match `event`."""
        interests = self._cache.get((rule, event))
        if interests is None:
            interests = tuple(interest for interest in self._of(rule).of if interest.is_met_by(event))
            self._cache[rule, event] = interests
        return interests

    def reads(self, rule: str) -> Iterable[Reads]:
        """Returns the different `Reads` by which the queue must index the pods that `rule` refused."""
        return self._of(rule).reads

    def index_keys(self, rule: str, reads: Reads, pod: PodInfo) -> IndexKeys:
        """Returns the keys under which the queue indexes the pod: the results of the three functions of `reads`.

        If one of the functions raises, returns keys under which every change finds the pod.
        """

        def keys() -> IndexKeys:
            names = tuple(dict.fromkeys(reads.names(pod))) if reads.names else ()
            return IndexKeys(reads.value(pod), names, reads.amounts(pod) if reads.amounts else None)

        return self._called(rule, IndexKeys(pod.uid, (ANY,), {} if reads.amounts else None), keys)

    def helps(self, rule: str, interest: Interest, pod: PodInfo, change: Change) -> bool:
        """Returns True if the interest's hint returns True for the pod, or raises."""
        # Written out, without `_called`, because an event may ask this about thousands of pods.
        try:
            return interest.hint(pod, change)
        except Exception:
            self._on_failure(rule)
            return True

    def names(self, rule: str, interest: Interest, change: Change) -> Iterable[str] | None:
        """Returns the names that the change is about; None if the change may help any pod, or `interest.about` raises.

        The change may help only pods that are indexed under one of these names.
        """
        return self._called(rule, None, lambda: interest.about(change))

    def limits(self, rule: str, limits: Limits, change: Change, priority: int) -> AmountLimits | None:
        """Returns limits for pods of this priority. The change may help only pods whose requests are within the limits.

        Returns None if the change helps none of these pods. If calling `limits` raises, the result limits nothing.
        """
        return self._called(rule, AmountLimits(), lambda: limits(change, priority))

    def _called(self, rule: str, otherwise: D, call: Callable[[], T]) -> T | D:
        try:
            return call()
        except Exception:
            self._on_failure(rule)
            return otherwise

    def help_from(self, rule: str, pod: PodInfo, change: Change) -> bool:
        """Returns True if any hint of `rule` says that the change may help the pod."""
        return any(self.helps(rule, interest, pod, change) for interest in self.interests(rule, change.event))

    def _of(self, rule: str) -> Interests:
        return self._by_rule.get(rule, EVERYTHING)


def encoded(*values: object) -> bytes:
    """Encodes the values as one hashable value, because most structs of the model contain lists and have no hash."""
    return msgspec.msgpack.encode(values)


_ON_MANY_NODES = ("os", "arch", "region", "zone")


def names_of_labels(labels: Mapping[str, str]) -> Iterator[str]:
    """Yields two names for each label, `key` and `key=value`, to find requirements that the label may satisfy.

    See `names_of_requirement`.
    """
    for key, value in labels.items():
        yield key
        yield f"{key}={value}"


def names_of_requirement(requirement: Requirement) -> list[str]:
    """Returns the names under which the queue indexes a requirement: `key=value` for In, otherwise the key.

    An object can start to satisfy the requirement only if a label with one of these names is added or changes.
    """
    if requirement.operator == "In":
        return [f"{requirement.key}={value}" for value in sorted(requirement.values)]
    return [requirement.key]


def names_of_requirements(requirements: Iterable[Requirement]) -> list[str]:
    """Returns the names under which the queue indexes a list of requirements; [ANY] if no label is required.

    An object must satisfy all requirements of the list, so the names of one requirement are enough. The requirement
    that probably the fewest objects satisfy is chosen.
    """
    positive = [requirement for requirement in requirements if requirement.operator in ("In", "Exists", "Gt", "Lt")]
    return names_of_requirement(min(positive, key=_commonness)) if positive else [ANY]


def names_of_selector(selector: Selector) -> list[str]:
    """Returns `names_of_requirements` of the selector's requirements; [] if the selector matches nothing."""
    return [] if selector.nothing else names_of_requirements(selector.requirements)


def _commonness(requirement: Requirement) -> tuple[bool, bool, int]:
    on_many_nodes = requirement.key.rpartition("/")[2] in _ON_MANY_NODES
    return requirement.operator != "In", on_many_nodes, len(requirement.values)


def claim_of(change: Change) -> tuple[str, ...]:
    """Returns the key of the changed claim."""
    return (change.new.key,)


def uses_claim(pod: PodInfo, change: Change) -> bool:
    """Returns True if the pod uses the changed claim; claims of ephemeral volumes count too."""
    return change.new.key in used_claims(pod)


def names_claim(pod: PodInfo, change: Change) -> bool:
    """Returns True if the pod's spec names the changed claim; claims of ephemeral volumes do not count."""
    return change.new.key in named_claims(pod)


def used_claims(pod: PodInfo) -> Iterator[str]:
    """Yields the keys of all claims that the pod uses, including claims of ephemeral volumes."""
    return (use.key for use in pod.claims)


def named_claims(pod: PodInfo) -> Iterator[str]:
    """Yields the keys of the claims that the pod's spec names. Leaves out claims of ephemeral volumes."""
    return (use.key for use in pod.claims if use.owner is None)


USED_CLAIMS = reads_names(used_claims)
NAMED_CLAIMS = reads_names(named_claims)
