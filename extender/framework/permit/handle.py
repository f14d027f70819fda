"""The cluster as rules of Reserve and Permit see it, and change it. Source: upstream fwk.Handle, fwk.WaitingPod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from extender.model.pod import Pod

MAX_WAIT_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Wait:
    """An answer of a Permit rule: the pod keeps its node, and is bound once the rule allows it.

    Where the rule has not done so in `timeout_seconds`, 900 at most, the pod is rejected.
    """

    timeout_seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.timeout_seconds <= MAX_WAIT_SECONDS:
            raise ValueError(f"a pod waits more than 0 and at most {MAX_WAIT_SECONDS:g} seconds")


class PendingPermit(Protocol):
    """A pod's permit, as far as one rule may decide on it."""

    @property
    def pod(self) -> Pod: ...

    @property
    def node_name(self) -> str: ...

    def allow(self, rule: str) -> None: ...

    def reject(self, rule: str, reason: str) -> None: ...


class PendingPermits(Protocol):
    """All permits, as far as rules may ask about them."""

    def pending(self, rule: str) -> list[PendingPermit]: ...

    def count_placed(self, namespace: str, labels: Mapping[str, str]) -> int: ...

    def activate(self, namespace: str, labels: Mapping[str, str]) -> None: ...


class WaitingPod:
    """A pod that the rule has told to wait."""

    def __init__(self, rule: str, pending: PendingPermit) -> None:
        self._rule, self._pending = rule, pending

    @property
    def pod(self) -> Pod:
        return self._pending.pod

    @property
    def node_name(self) -> str:
        """The node that it keeps meanwhile."""
        return self._pending.node_name

    def allow(self) -> None:
        """Lets the pod be bound, as far as this rule goes."""
        self._pending.allow(self._rule)

    def reject(self, reason: str) -> None:
        """Has the pod give up its node; it is tried again as one that the rule has refused."""
        self._pending.reject(self._rule, reason)


class Handle:
    """The means of a rule of Reserve or Permit besides its pod and node; it may be kept, and used by any thread."""

    def __init__(self, rule: str, waiting: PendingPermits) -> None:
        self._rule, self._waiting = rule, waiting

    @property
    def waiting(self) -> list[WaitingPod]:
        """The pods that wait for this rule now; the pod that it is asked about is none of them yet."""
        return [WaitingPod(self._rule, each) for each in self._waiting.pending(self._rule)]

    def count_placed(self, namespace: str, labels: Mapping[str, str]) -> int:
        """Returns the number of pods with these labels that have a node, bound or not, the one asked about included."""
        return self._waiting.count_placed(namespace, labels)

    def activate(self, namespace: str, labels: Mapping[str, str]) -> None:
        """Has the pods with these labels that have no node tried at once, and not when an event may help them.

        Does nothing in `extender serve`: kube-scheduler tries a pod again after its backoff.
        """
        self._waiting.activate(namespace, labels)
