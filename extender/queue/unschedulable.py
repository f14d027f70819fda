"""The pods that wait for an event in the cluster, and the index by which an event finds those that it may help.

The index has the pods under each rule that refused them, equivalent ones together. So an event costs one hint for each
equivalence class of the rules that registered for it, and nothing for the pods of all other rules, however many.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeVar

from extender.framework.events.cluster_events import Change
from extender.framework.events.queueing_hints import Interest, QueueingHints
from extender.queue.queued_pod import QueuedPod

Pods = dict[str, QueuedPod]
K = TypeVar("K")


class EquivalenceClass(NamedTuple):
    """The key of pods that get the same answers from the hints of a rule.

    Attributes:
        unresolvable: the rule has said that pods which leave change nothing for these.
    """

    unresolvable: bool
    alike: Hashable


class IndexKeys(NamedTuple):
    """The keys of one pod in the index of one rule; `names`: the keys of the objects it uses."""

    equivalence: EquivalenceClass
    names: tuple[str, ...]


@dataclass(slots=True)
class RuleIndex:
    """The pods that one rule refused."""

    by_class: dict[EquivalenceClass, Pods] = field(default_factory=dict)
    by_name: dict[str, Pods] = field(default_factory=dict)


class UnschedulablePods:
    """Pods by UID, and under the rules that refused them."""

    def __init__(self, hints: QueueingHints) -> None:
        self._hints = hints
        self._pods: Pods = {}
        self._keys_of: dict[str, dict[str, IndexKeys]] = {}
        self._indexes: dict[str, RuleIndex] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._pods.values())

    def get(self, uid: str) -> QueuedPod | None:
        return self._pods.get(uid)

    def add(self, pod: QueuedPod) -> None:
        """Adds the pod, or indexes it anew."""
        self.remove(pod.uid)
        self._pods[pod.uid] = pod
        keys_of = self._keys_of[pod.uid] = {rule: self._index_keys(rule, pod) for rule in pod.rejection.rules}
        for rule, keys in keys_of.items():
            index = self._indexes.setdefault(rule, RuleIndex())
            index.by_class.setdefault(keys.equivalence, {})[pod.uid] = pod
            for name in keys.names:
                index.by_name.setdefault(name, {})[pod.uid] = pod

    def remove(self, uid: str) -> QueuedPod | None:
        """Takes the pod out, if it is in."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return None
        for rule, keys in self._keys_of.pop(uid).items():
            index = self._indexes[rule]
            _remove(index.by_class, keys.equivalence, uid)
            for name in keys.names:
                _remove(index.by_name, name, uid)
            if not index.by_class:
                del self._indexes[rule]
        return pod

    def refused_by(self, rule: str) -> list[QueuedPod]:
        """Returns the pods that the rule refused."""
        index = self._indexes.get(rule)
        return [] if index is None else [pod for pods in index.by_class.values() for pod in pods.values()]

    def helped_by(self, change: Change) -> list[tuple[QueuedPod, frozenset[str]]]:
        """Returns each pod that the change may help, with the rules that may let it pass now."""
        helped: dict[str, frozenset[str]] = {}
        for rule in self._indexes:
            for uid in self._helped(rule, change):
                helped[uid] = helped.get(uid, frozenset()) | {rule}
        return [(self._pods[uid], rules) for uid, rules in helped.items()]

    def _helped(self, rule: str, change: Change) -> Iterator[str]:
        index = self._indexes[rule]
        for interest in self._hints.interests(rule, change.event):
            names = interest.about(change)
            if names is None:
                yield from self._helped_classes(rule, index, interest, change)
            else:
                yield from self._helped_by_name(rule, index, names, interest, change)

    def _helped_classes(self, rule: str, index: RuleIndex, interest: Interest, change: Change) -> Iterator[str]:
        frees_room = change.event.frees_room
        for equivalence, pods in index.by_class.items():
            if equivalence.unresolvable and frees_room:
                continue
            representative = next(iter(pods.values()))
            if self._hints.helps(rule, interest, representative.info, change):
                yield from pods

    def _helped_by_name(
        self, rule: str, index: RuleIndex, names: Iterable[str], interest: Interest, change: Change
    ) -> Iterator[str]:
        frees_room = change.event.frees_room
        for pod in chain.from_iterable(index.by_name.get(name, {}).values() for name in names):
            unresolvable = rule in pod.rejection.unresolvable
            if not (unresolvable and frees_room) and self._hints.helps(rule, interest, pod.info, change):
                yield pod.uid

    def _index_keys(self, rule: str, pod: QueuedPod) -> IndexKeys:
        equivalence = EquivalenceClass(rule in pod.rejection.unresolvable, self._hints.alike(rule, pod.info))
        return IndexKeys(equivalence, tuple(dict.fromkeys(self._hints.names(rule, pod.info))))


def _remove(indexed: dict[K, Pods], key: K, uid: str) -> None:
    pods = indexed[key]
    del pods[uid]
    if not pods:
        del indexed[key]
