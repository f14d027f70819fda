"""Queueing hints: the events that may help the pods that a rule refused (upstream EventsToRegister).

A rule registers interests: an event, and a hint that looks at one pod and one change and says whether the pod may now
pass. Hints are asked once for all pods that are alike to the rule, so ten thousand replicas cost as much as one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from extender.framework.events.cluster_events import Action, Change, ClusterEvent, Resource
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


def naming_nothing(_pod: PodInfo) -> tuple[str, ...]:
    """Says that the rule does not go by the names of objects."""
    return ()


def has_place(pod: PodInfo | None) -> bool:
    """Returns True if the pod is bound or nominated; so does an absent one."""
    return pod is None or bool(pod.pod.node_name or pod.pod.status.nominated_node_name)


class Interest(NamedTuple):
    """An event that a rule registers for.

    Attributes:
        about: the keys of the objects that the change is about, if only pods that name one of them (see
            `Interests.names`) may be helped; None: any pod (upstream PreQueueingHintFn).
    """

    resource: Resource
    actions: Action
    hint: Hint = always
    about: Callable[[Change], Iterable[str] | None] = about_any_object

    def is_met_by(self, event: ClusterEvent) -> bool:
        return ClusterEvent(self.resource, self.actions).is_met_by(event)


def _all_alike(_pod: PodInfo) -> Hashable:
    return None


@dataclass(frozen=True, slots=True)
class Interests:
    """All that a rule registers.

    Attributes:
        alike: what the hints read of a pod, as a value: pods with equal ones get the same hints.
        names: the keys of the objects that a pod names and that `Interest.about` is compared with.
    """

    of: tuple[Interest, ...] = ()
    alike: Callable[[PodInfo], Hashable] = _all_alike
    names: Callable[[PodInfo], Iterable[str]] = naming_nothing


EVERYTHING = Interests((Interest(Resource.WILDCARD, Action.ALL),))
"""The interests of a rule that has registered none."""


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

    def alike(self, rule: str, pod: PodInfo) -> Hashable:
        """Returns a value that is equal for pods that are alike to `rule`; a pod that raises is like no other."""
        try:
            return self._of(rule).alike(pod)
        except Exception:
            self._on_failure(rule)
            return pod.uid

    def names(self, rule: str, pod: PodInfo) -> Iterable[str]:
        """Returns the keys of the objects that the pod names, as far as they matter to `rule`."""
        return self._of(rule).names(pod)

    def helps(self, rule: str, interest: Interest, pod: PodInfo, change: Change) -> bool:
        """Returns the hint's answer; True if it raises."""
        try:
            return interest.hint(pod, change)
        except Exception:
            self._on_failure(rule)
            return True

    def help_from(self, rule: str, pod: PodInfo, change: Change) -> bool:
        """Returns True if any hint of `rule` says that the change may help the pod."""
        return any(self.helps(rule, interest, pod, change) for interest in self.interests(rule, change.event))

    def _of(self, rule: str) -> Interests:
        return self._by_rule.get(rule, EVERYTHING)


def encoded(*values: object) -> bytes:
    """Returns parts of an object as one comparable value: most of the model's types hold lists and have no hash."""
    return msgspec.msgpack.encode(values)
