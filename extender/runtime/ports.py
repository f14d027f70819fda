"""The protocols through which rooms use each other without an import."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol, TypeVar

LONG_AGO = float("-inf")
Object = TypeVar("Object", contravariant=True)
Listed = TypeVar("Listed", covariant=True)


class Telemetry:
    """Receives the events of the rooms below `web`, and ignores them; `web.telemetry` turns them into metrics."""

    def lock_waited(self, caller: str, seconds: float) -> None:
        """`caller` waited for the cache's lock this long."""

    def refused(self, plugin: str, nodes: int) -> None:
        """`plugin` rejected `nodes` nodes for one pod."""

    def bound(self, result: str) -> None:
        """A bind ended with this result: bound, already_bound, unfit, refused or unknown."""

    def watch_event(self, kind: str, event: str) -> None:
        """A watch delivered an ADDED, MODIFIED, DELETED, BOOKMARK or ERROR event, or one that is MALFORMED."""

    def synced(self, kind: str, as_of: float) -> None:
        """The cache has everything of `kind` that the API server had at `as_of`, in monotonic seconds.

        An event, a bookmark, a list and a confirmed survey show this; a watch that was merely opened does not.
        """

    def relisted(self, kind: str) -> None:
        """A reflector had to list `kind` again."""

    def withdrawn(self, kind: str) -> None:
        """The API server no longer serves `kind`, so its age means nothing."""

    def unreadable(self, kind: str, key: str, why: str) -> None:
        """The cache ignores an object because a value in it is invalid."""

    def cache_differed(self, kind: str, key: str, how: str) -> None:
        """The comparer found and corrected a difference. `kind` Table is a value in a table."""

    def incoming(self, queue: str, event: str) -> None:
        """A pod entered `queue` because of `event`."""

    def rule_failed(self, rule: str) -> None:
        """A user's rule raised an error or returned an invalid value for one pod."""

    def policy_reloaded(self, *, succeeded: bool) -> None:
        """The policy was read again. If that failed, the earlier one remains in force."""


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
    """A change of a nomination that names no node (upstream framework.NominatingInfo)."""

    KEEP = auto()
    CLEAR = auto()


NominatedNode = str | Nominating
"""The node to nominate a pod to, or the change of its present nomination."""


class Binder(Protocol):
    """Binds pods at the API server, or in a cluster in memory."""

    def bind(self, binding: Binding) -> None:
        """Binds the pod. It is no error if the pod is bound to this node already.

        Raises:
            Refused: the bind was refused (with Conflict and NotFound), and nothing was changed.
            OutcomeUnknown: no response arrived, so the pod may be bound or not.
        """


class Sink(Protocol[Object]):
    """Receives the objects of the cluster, as the cache does."""

    def replaced(self, kind: str, objects: Sequence[Object], asked_at: float = LONG_AGO) -> None:
        """Takes in a whole list of `kind`; objects that are not in it are gone.

        Args:
            asked_at: the list has everything that was written by then, in monotonic seconds.
        """

    def changed(self, kind: str, obj: Object) -> None:
        """Takes in an object that was added or modified."""

    def deleted(self, kind: str, obj: Object) -> None:
        """Takes in that an object was deleted."""


class Lister(Protocol[Listed]):
    """Lists the cluster as it is now, and says how far the watches are."""

    def kinds(self) -> Sequence[str]:
        """Returns the kinds that the cache has in full, and that can be compared."""

    def list(self, kind: str) -> tuple[str, Sequence[Listed]]:
        """Returns the version of the list and every object of the kind.

        Raises:
            ClusterError: the API server does not answer with the list.
        """

    def relist(self, kind: str, why: str) -> None:
        """Makes the watch list the kind again, because what it delivered cannot be trusted."""

    def has_delivered(self, kind: str, version: str) -> bool:
        """Returns True if the watch has delivered everything up to this version."""
