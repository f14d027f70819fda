"""Queueing hints."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import msgspec

from extender.framework.events.cluster_events import Action, Change, ClusterEvent, Resource
from extender.model.selectors import Requirement, Selector
from extender.table import PodInfo

Hint = Callable[[PodInfo, Change], bool]
"""(refused pod, what happened) -> whether the rule may let the pod pass now. In doubt: yes."""


def always(_pod: PodInfo, _change: Change) -> bool:
    """Says that every such event may help every pod."""
    return True


def never(_pod: PodInfo, _change: Change) -> bool:
    """Leaves the decision to the other rules that refused the pod."""
    return False


def about_any_object(_change: Change) -> None:
    """Says that the change may help any pod."""
    return


def has_place(pod: PodInfo | None) -> bool:
    """Returns True if the pod is bound or nominated; so does an absent one."""
    return pod is None or bool(pod.pod.node_name or pod.pod.status.nominated_node_name)


def _nothing(_pod: PodInfo) -> Hashable:
    return None


ANY = ""
"""A name by which a pod is found whatever the change is about."""


@dataclass(frozen=True, slots=True)
class Reads:
    """The part of a pod that a hint reads, by which the queue finds the pods to ask about.

    Attributes:
        value: that part as a value: pods with equal ones get the same answer, and are asked about once.
        names: the names by which a pod is found, see `Interest.about`; equal for equal values.
        amounts: the resources that a pod asks for, see `Interest.limits`; they and the priority are equal for equal
            values.
    """

    value: Callable[[PodInfo], Hashable] = _nothing
    names: Callable[[PodInfo], Iterable[str]] | None = None
    amounts: Callable[[PodInfo], Mapping[str, int]] | None = None


NOTHING_OF_THE_POD = Reads()


def reads_names(names: Callable[[PodInfo], Iterable[str]]) -> Reads:
    """Returns what a hint reads that looks at nothing but these names."""
    return Reads(lambda pod: tuple(names(pod)), names)


class AmountLimits(NamedTuple):
    """The amounts that a change leaves room for.

    Attributes:
        at_most: resource -> the most that a pod may ask for to be helped; infinity: any amount.
        any_of: resource -> a pod that asks for it may be helped; one such resource is enough. None: any pod.
    """

    at_most: Callable[[str], float] = lambda _resource: inf
    any_of: Callable[[str], bool] | None = None

    def admit(self, wanted: Mapping[str, int]) -> bool:
        """Returns True if a pod may be helped that asks for these amounts, none of them 0."""
        within = all(amount <= self.at_most(resource) for resource, amount in wanted.items())
        return within and (self.any_of is None or any(map(self.any_of, wanted)))


class Interest(NamedTuple):
    """An event that a rule registers for.

    Attributes:
        reads: what the hint reads of a pod. One that reads more is asked about the wrong pods.
        about: the names of what the change is about, if only pods with one of these names (`Reads.names`) may be
            helped; None: any pod (upstream PreQueueingHintFn).
        limits: (change, priority) -> the amounts that pods of this priority may ask for (`Reads.amounts`), None: no pod
            may be helped. They say the same as the hint, which is not asked then.
    """

    resource: Resource
    actions: Action
    hint: Hint = always
    reads: Reads = NOTHING_OF_THE_POD
    about: Callable[[Change], Iterable[str] | None] = about_any_object
    limits: Callable[[Change, int], AmountLimits | None] | None = None

    def is_met_by(self, event: ClusterEvent) -> bool:
        return ClusterEvent(self.resource, self.actions).is_met_by(event)


@dataclass(frozen=True, slots=True)
class Interests:
    """All that a rule registers."""

    of: tuple[Interest, ...] = ()

    @property
    def reads(self) -> Iterable[Reads]:
        """The ways in which the queue files the pods that the rule refused; those of the pod's own events need none."""
        others = (interest.reads for interest in self.of if interest.resource is not Resource.TARGET_POD)
        return dict.fromkeys((NOTHING_OF_THE_POD, *others))


EVERYTHING = Interests((Interest(Resource.WILDCARD, Action.ALL),))
"""The interests of a rule that has registered none."""


class FiledAs(NamedTuple):
    """The part of one pod that `Reads` names."""

    value: Hashable
    names: Sequence[str]
    amounts: Mapping[str, int] | None


class QueueingHints:
    """The interests of all rules, looked up by rule and event.

    Args:
        on_failure: told the name of a rule whose hint raised. The pod is then taken to be helped: it must not be stuck.
    """

    def __init__(self, interests: Mapping[str, Interests], on_failure: Callable[[str], None]) -> None:
        self._by_rule = interests
        self._on_failure = on_failure
        self._known: dict[tuple[str, ClusterEvent], tuple[Interest, ...]] = {}

    def replace(self, interests: Mapping[str, Interests]) -> None:
        """Goes by these from now on. What was indexed by those before must be indexed anew."""
        self._by_rule, self._known = interests, {}

    def interests(self, rule: str, event: ClusterEvent) -> tuple[Interest, ...]:
        """Returns the interests of `rule` that `event` meets."""
        found = self._known.get((rule, event))
        if found is None:
            found = tuple(interest for interest in self._of(rule).of if interest.is_met_by(event))
            self._known[rule, event] = found
        return found

    def reads(self, rule: str) -> Iterable[Reads]:
        """Returns the ways in which the pods that `rule` refused are filed."""
        return self._of(rule).reads

    def filed_as(self, rule: str, reads: Reads, pod: PodInfo) -> FiledAs:
        """Returns where the pod is filed; one that raises is like no other, and asked about each time."""
        try:
            names = tuple(dict.fromkeys(reads.names(pod))) if reads.names else ()
            return FiledAs(reads.value(pod), names, reads.amounts(pod) if reads.amounts else None)
        except Exception:
            self._on_failure(rule)
            return FiledAs(pod.uid, (ANY,), {} if reads.amounts else None)

    def helps(self, rule: str, interest: Interest, pod: PodInfo, change: Change) -> bool:
        """Returns the hint's answer; True if it raises."""
        try:
            return interest.hint(pod, change)
        except Exception:
            self._on_failure(rule)
            return True

    def names(self, rule: str, interest: Interest, change: Change) -> Iterable[str] | None:
        """Returns the names that the change is about, None: any; so too if that raises."""
        try:
            return interest.about(change)
        except Exception:
            self._on_failure(rule)
            return None

    def limits(self, rule: str, interest: Interest, change: Change, priority: int) -> AmountLimits | None:
        """Returns the amounts that the change leaves room for, None: for no pod; without limits if that raises."""
        try:
            return interest.limits(change, priority) if interest.limits else AmountLimits()
        except Exception:
            self._on_failure(rule)
            return AmountLimits()

    def help_from(self, rule: str, pod: PodInfo, change: Change) -> bool:
        """Returns True if any hint of `rule` says that the change may help the pod."""
        return any(self.helps(rule, interest, pod, change) for interest in self.interests(rule, change.event))

    def _of(self, rule: str) -> Interests:
        return self._by_rule.get(rule, EVERYTHING)


def encoded(*values: object) -> bytes:
    """Returns parts of an object as one comparable value: most of the model's types hold lists and have no hash."""
    return msgspec.msgpack.encode(values)


_ON_MANY_NODES = ("os", "arch", "region", "zone")


def names_of_labels(labels: Mapping[str, str]) -> Iterator[str]:
    """Yields the names of the requirements that the labels may satisfy."""
    for key, value in labels.items():
        yield key
        yield f"{key}={value}"


def names_of_requirement(requirement: Requirement) -> list[str]:
    """Returns names one of which labels have that come to satisfy the requirement, or a changed key of theirs."""
    if requirement.operator == "In":
        return [f"{requirement.key}={value}" for value in sorted(requirement.values)]
    return [requirement.key]


def names_of_requirements(requirements: Iterable[Requirement]) -> list[str]:
    """Returns names one of which all labels have that satisfy all requirements; ANY where there is no such name.

    Those of one requirement do, so the one is taken that fewest labels may satisfy.
    """
    positive = [each for each in requirements if each.operator in ("In", "Exists", "Gt", "Lt")]
    return names_of_requirement(min(positive, key=_commonness)) if positive else [ANY]


def names_of_selector(selector: Selector) -> list[str]:
    """Returns the names of the selector's requirements; none if it matches nothing."""
    return [] if selector.nothing else names_of_requirements(selector.requirements)


def _commonness(requirement: Requirement) -> tuple[bool, bool, int]:
    on_many_nodes = requirement.key.rpartition("/")[2] in _ON_MANY_NODES
    return requirement.operator != "In", on_many_nodes, len(requirement.values)


def claim_of(change: Change) -> tuple[str, ...]:
    """Returns the key of the claim that the change is about."""
    return (change.new.key,)


def uses_claim(pod: PodInfo, change: Change) -> bool:
    """Returns True if the pod uses the claim, be it that of an ephemeral volume."""
    return change.new.key in used_claims(pod)


def names_claim(pod: PodInfo, change: Change) -> bool:
    """Returns True if the pod's spec names the claim."""
    return change.new.key in named_claims(pod)


def used_claims(pod: PodInfo) -> Iterator[str]:
    """Yields the keys of the claims that the pod uses."""
    return (use.key for use in pod.claims)


def named_claims(pod: PodInfo) -> Iterator[str]:
    """Yields the keys of the claims that the pod's spec names; those of ephemeral volumes are left out."""
    return (use.key for use in pod.claims if use.owner is None)


USED_CLAIMS, NAMED_CLAIMS = reads_names(used_claims), reads_names(named_claims)
