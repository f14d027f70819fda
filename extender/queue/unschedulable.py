"""The pods that wait for something to happen in the cluster, and which of them an event may help.

They are filed under each rule that refused them, alike ones together. So an event costs what the rules that hear of it
have to look at: one hint for each kind of pod, and nothing for the pods of rules that do not hear of it, however many.
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


class Kind(NamedTuple):
    """What pods have in common that get the same answers from the hints of a rule.

    `unresolvable`: other pods' leaving changes nothing for them, the rule has said.
    """

    unresolvable: bool
    alike: Hashable


class Filing(NamedTuple):
    """Where a pod is filed under one rule; `names`: the keys of the objects it uses."""

    kind: Kind
    names: tuple[str, ...]


@dataclass(slots=True)
class File:
    """The pods that one rule refused."""

    by_kind: dict[Kind, Pods] = field(default_factory=dict)
    by_name: dict[str, Pods] = field(default_factory=dict)


class UnschedulablePods:
    """Pods by UID, and under the rules that refused them."""

    def __init__(self, hints: QueueingHints) -> None:
        self._hints = hints
        self._pods: Pods = {}
        self._filings: dict[str, dict[str, Filing]] = {}
        self._files: dict[str, File] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._pods.values())

    def get(self, uid: str) -> QueuedPod | None:
        return self._pods.get(uid)

    def add(self, pod: QueuedPod) -> None:
        """Adds the pod, or files it anew."""
        self.remove(pod.uid)
        self._pods[pod.uid] = pod
        filings = self._filings[pod.uid] = {rule: self._filing(rule, pod) for rule in pod.rejection.rules}
        for rule, filing in filings.items():
            file = self._files.setdefault(rule, File())
            file.by_kind.setdefault(filing.kind, {})[pod.uid] = pod
            for name in filing.names:
                file.by_name.setdefault(name, {})[pod.uid] = pod

    def remove(self, uid: str) -> QueuedPod | None:
        """Takes the pod out, if it is in."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return None
        for rule, filing in self._filings.pop(uid).items():
            file = self._files[rule]
            _unfile(file.by_kind, filing.kind, uid)
            for name in filing.names:
                _unfile(file.by_name, name, uid)
            if not file.by_kind:
                del self._files[rule]
        return pod

    def helped_by(self, change: Change) -> list[tuple[QueuedPod, frozenset[str]]]:
        """The pods that rules which refused them may let pass after the change, with those rules; each pod once."""
        helped: dict[str, frozenset[str]] = {}
        for rule in self._files:
            for uid in self._helped(rule, change):
                helped[uid] = helped.get(uid, frozenset()) | {rule}
        return [(self._pods[uid], rules) for uid, rules in helped.items()]

    def _helped(self, rule: str, change: Change) -> Iterator[str]:
        file = self._files[rule]
        for interest in self._hints.interests(rule, change.event):
            names = interest.about(change)
            if names is None:
                yield from self._helped_kinds(rule, file, interest, change)
            else:
                yield from self._helped_users(rule, file, names, interest, change)

    def _helped_kinds(self, rule: str, file: File, interest: Interest, change: Change) -> Iterator[str]:
        frees_room = change.event.frees_room
        for kind, pods in file.by_kind.items():
            if kind.unresolvable and frees_room:
                continue
            any_of_them = next(iter(pods.values()))
            if self._hints.helps(rule, interest, any_of_them.info, change):
                yield from pods

    def _helped_users(
        self, rule: str, file: File, names: Iterable[str], interest: Interest, change: Change
    ) -> Iterator[str]:
        frees_room = change.event.frees_room
        for pod in chain.from_iterable(file.by_name.get(name, {}).values() for name in names):
            unresolvable = rule in pod.rejection.unresolvable
            if not (unresolvable and frees_room) and self._hints.helps(rule, interest, pod.info, change):
                yield pod.uid

    def _filing(self, rule: str, pod: QueuedPod) -> Filing:
        kind = Kind(rule in pod.rejection.unresolvable, self._hints.alike(rule, pod.info))
        return Filing(kind, tuple(dict.fromkeys(self._hints.names(rule, pod.info))))


def _unfile(filed: dict[K, Pods], under: K, uid: str) -> None:
    pods = filed[under]
    del pods[uid]
    if not pods:
        del filed[under]
