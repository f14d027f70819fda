"""Defines the protocols through which packages of this project use each other without an import."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol, TypeVar

LONG_AGO = float("-inf")
Object = TypeVar("Object", contravariant=True)
Listed = TypeVar("Listed", covariant=True)


class Telemetry:
    """Is informed of what happens, and ignores it. Its subclass in `web.telemetry` counts the events in metrics."""

    def lock_waited(self, caller: str, seconds: float) -> None:
        """Called after `caller` has waited this long for the cache's lock."""

    def refused(self, plugin: str, nodes: int) -> None:
        """Called after `plugin` has rejected this number of nodes for one pod."""

    def bound(self, result: str) -> None:
        """Called after a bind, with its result: bound, already_bound, unfit, refused or unknown."""

    def group_planned(self, result: str) -> None:
        """Called after filter has planned a pod group, with the result: placed or refused."""

    def plan_dropped(self, reason: str) -> None:
        """Called when the plan of a pod group was dropped."""

    def quorum_refused(self, reason: str, members: int) -> None:
        """Called when bind refuses members of a gang because too few of them can be bound together."""

    def watch_event(self, kind: str, event: str) -> None:
        """Called for each event of a watch: ADDED, MODIFIED, DELETED, BOOKMARK, ERROR, or MALFORMED if unreadable."""

    def synced(self, kind: str, as_of: float) -> None:
        """Called when the cache has everything of `kind` that the API server had at `as_of`, in monotonic seconds.

        An event, a bookmark, a list and a confirmed survey (see cluster.watch.survey) show this. A watch that was
        merely opened does not.
        """

    def relisted(self, kind: str) -> None:
        """Called after `kind` had to be listed again."""

    def withdrawn(self, kind: str) -> None:
        """Called when the API server no longer serves `kind`, so the age of its objects no longer matters."""

    def unreadable(self, kind: str, key: str, why: str) -> None:
        """Called when the cache ignores an object because a value in it is invalid."""

    def cache_differed(self, kind: str, key: str, how: str) -> None:
        """Called after the comparer has corrected a wrong object in the cache, or (kind "Table") a value in a table."""

    def incoming(self, queue: str, event: str) -> None:
        """Called when a pod enters `queue` because of `event`."""

    def entity_incoming(self, queue: str, event: str, entity: str) -> None:
        """Called when a pod without a group ("pod") or a root group ("podgroup") enters `queue`."""

    def moved(self, pod_key: str, origin: str, tier: str, event: str) -> None:
        """Called for each move of a waiting pod. `origin` is "" if it was added, or if its attempt has failed."""

    def rule_failed(self, rule: str) -> None:
        """Called after a user's rule has raised an error or returned an invalid value for one pod."""

    def rule_counted(self, rule: str, name: str, amount: float) -> None:
        """Called when a user's rule adds the amount to a counter of its own."""

    def rule_observed(self, rule: str, name: str, value: float) -> None:
        """Called when a user's rule adds the value to a histogram of its own."""

    def policy_reloaded(self, *, succeeded: bool) -> None:
        """Called after the policy was read again. If that failed, the earlier policy stays in force."""


class Binding(NamedTuple):
    """Binds a pod to a node (v1.Binding). The UID protects a recreated pod of the same name."""

    namespace: str
    name: str
    uid: str
    node: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Nominating(Enum):
    """Says whether a pod's nomination is kept or cleared if no new node is named (upstream NominatingInfo)."""

    KEEP = auto()
    CLEAR = auto()


NominatedNode = str | Nominating
"""The node to nominate a pod to, or whether to keep or clear its present nomination."""


class Binder(Protocol):
    """Binds pods at the API server, or in a cluster in memory."""

    def bind(self, binding: Binding) -> None:
        """Binds the pod to the node. If the pod is bound to this node already, that is not an error.

        Raises:
            Refused: the bind was refused (with Conflict and NotFound), and nothing was changed.
            OutcomeUnknown: no response arrived, so the pod may be bound or not.
        """


class Sink(Protocol[Object]):
    """Receives the objects of the cluster and their changes; the cache is one."""

    def replaced(self, kind: str, objects: Sequence[Object], asked_at: float = LONG_AGO) -> None:
        """Replaces all objects of `kind` by those of a whole list.

        Args:
            asked_at: when the list was requested, in monotonic seconds; it has everything written before that time.
        """

    def changed(self, kind: str, obj: Object) -> None:
        """Stores an object that was added or modified."""

    def deleted(self, kind: str, obj: Object) -> None:
        """Removes an object that was deleted."""


class Lister(Protocol[Listed]):
    """Lists the cluster as it is now, and says up to which version the watches have delivered."""

    def kinds(self) -> Sequence[str]:
        """Returns the kinds that the cache has in full, so that they can be compared with a list."""

    def list(self, kind: str) -> tuple[str, Sequence[Listed]]:
        """Returns the version of the list and every object of the kind.

        Raises:
            ClusterError: the API server does not answer with the list.
        """

    def relist(self, kind: str, why: str) -> None:
        """Makes the watch list the kind again, because what it delivered cannot be trusted."""

    def has_delivered(self, kind: str, version: str) -> bool:
        """Returns True if the watch has delivered everything up to this version."""
