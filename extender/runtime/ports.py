"""The small protocols through which layers use each other without an import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

LONG_AGO = float("-inf")
Object = TypeVar("Object", contravariant=True)
Listed = TypeVar("Listed", covariant=True)


class Telemetry:
    """Takes the news of the layers below the web, and does nothing; `web.telemetry` makes Prometheus series of it."""

    def lock_waited(self, caller: str, seconds: float) -> None:
        """`caller` waited this long for the cache's lock."""

    def refused(self, plugin: str, nodes: int) -> None:
        """`plugin` turned down `nodes` nodes for one pod."""

    def bound(self, result: str) -> None:
        """A bind ended: bound, already_bound, unfit, refused, unknown."""

    def watch_event(self, kind: str, event: str) -> None:
        """A watch of `kind` delivered `event`: ADDED, MODIFIED, DELETED, BOOKMARK, ERROR; MALFORMED: it broke off."""

    def synced(self, kind: str, as_of: float) -> None:
        """The cache has everything of `kind` that the API server had at `as_of`, in monotonic seconds.

        An event, a bookmark, a list and a confirmed survey show this; a watch that was merely opened does not.
        """

    def relisted(self, kind: str) -> None:
        """A reflector had to list `kind` anew."""

    def withdrawn(self, kind: str) -> None:
        """The API server serves `kind` no more: there is nothing that the cache could be equal to."""

    def unreadable(self, kind: str, key: str, why: str) -> None:
        """An object was left out of the cache, for it makes no sense."""

    def cache_differed(self, kind: str, key: str, how: str) -> None:
        """The comparer has found, and put right, what no event accounts for; `kind` Table: a count in a table."""

    def incoming(self, queue: str, event: str) -> None:
        """A pod entered `queue` because of `event`."""

    def rule_failed(self, rule: str) -> None:
        """A user's rule raised, or answered what makes no sense, for one pod."""

    def policy_reloaded(self, *, succeeded: bool) -> None:
        """The policy was read again; unless it succeeded, the one before is still in force."""


class Binding(NamedTuple):
    """The place of a pod (v1.Binding); the UID keeps it from a pod that was made anew under the name."""

    namespace: str
    name: str
    uid: str
    node: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Binder(Protocol):
    """Writes a pod's place to where the truth is: the API server, or the in-memory cluster."""

    def bind(self, binding: Binding) -> None:
        """Binds the pod; one that is there already is as good as bound.

        Raises:
            Refused: turned down (Conflict, NotFound among them); nothing was changed.
            OutcomeUnknown: the answer never came; it may have happened.
        """


class Sink(Protocol[Object]):
    """Is told what the cluster holds: the cache."""

    def replaced(self, kind: str, objects: Sequence[Object], asked_at: float = LONG_AGO) -> None:
        """A full list of `kind`: what is not in it is gone.

        `asked_at`: in monotonic seconds; the list has everything that the API server had accepted by then.
        """

    def changed(self, kind: str, obj: Object) -> None:
        """An object was added or modified."""

    def deleted(self, kind: str, obj: Object) -> None:
        """An object is gone."""


class Lister(Protocol[Listed]):
    """Tells what the cluster holds at this moment, past all watches, and how far these are."""

    def kinds(self) -> Sequence[str]:
        """Returns the kinds that the cache has had in full, and so can be compared."""

    def list(self, kind: str) -> tuple[str, Sequence[Listed]]:
        """Returns every object of the kind as it is now, and the version of the list.

        Raises:
            ClusterError: it cannot be had.
        """

    def relist(self, kind: str, why: str) -> None:
        """Has the kind listed anew for the cache: what it was told cannot be trusted."""

    def has_told(self, kind: str, version: str) -> bool:
        """Returns whether the cache has been told of everything up to that version of the list or of an object."""
