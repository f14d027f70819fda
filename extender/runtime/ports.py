"""Defines the protocols through which packages of this project use each other without importing each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol, TypeVar

LONG_AGO = float("-inf")
Check = Callable[[], object]
"""Called just before bytes of a request are sent; raises Refused if they must not be sent any more."""
Object = TypeVar("Object", contravariant=True)
Listed = TypeVar("Listed", covariant=True)


def always() -> None:
    """The Check of a request that may be sent at any time."""


class Telemetry:
    """Receives reports of what happens, and ignores them. A subclass in `web.metrics` counts them in metrics."""

    def lock_waited(self, caller: str, seconds: float) -> None:
        """Called after `caller` has waited for the cache's lock for `seconds`."""

    def refused(self, plugin: str, nodes: int) -> None:
        """Called after `plugin` has rejected `nodes` nodes for one pod."""

    def bound(self, result: str) -> None:
        """Called after a bind, with its result: bound, already_bound, unfit, refused or unknown."""

    def group_planned(self, result: str) -> None:
        """Called after filter has planned a pod group, with the result: placed or refused."""

    def plan_dropped(self, reason: str) -> None:
        """Called when filter's plan for a pod group was dropped; see group_plans.Dropped for the reasons."""

    def quorum_refused(self, reason: str, members: int) -> None:
        """Called when bind refuses members of a gang because too few of them can be bound together."""

    def watch_event(self, kind: str, event: str) -> None:
        """Called for each event of a watch: ADDED, MODIFIED, DELETED, BOOKMARK, ERROR, or MALFORMED (not readable)."""

    def synced(self, kind: str, as_of: float) -> None:
        """Called when the cache has all that the API server had of `kind` at `as_of`, in monotonic seconds.

        An event, a bookmark, a list or a confirmed survey (see cluster.watch.survey) proves that. An opened watch alone
        proves nothing.
        """

    def relisted(self, kind: str) -> None:
        """Called after `kind` had to be listed again."""

    def withdrawn(self, kind: str) -> None:
        """Called when the API server no longer serves `kind`. The age of the kind is then no longer reported."""

    def unreadable(self, kind: str, key: str, why: str) -> None:
        """Called when the cache ignores an object because a value in it is invalid."""

    def set_aside(self, task: str, item: str, error: Exception) -> None:
        """Called when `task` goes on without the object `item`, because work about it raised an unexpected error."""

    def cache_differed(self, kind: str, key: str, how: str) -> None:
        """Called after a comparison has corrected a cached object or, if `kind` is "Table", has found a wrong table."""

    def incoming(self, queue: str, event: str) -> None:
        """Called when a pod enters `queue` because of `event`."""

    def entity_incoming(self, queue: str, event: str, entity: str) -> None:
        """Called when `entity` enters `queue`: pod (without a group), podgroup or compositepodgroup."""

    def moved(self, pod_key: str, origin: str, tier: str, event: str) -> None:
        """Called when a pod enters the part `tier` of the queue, for example "backoff", and leaves the part `origin`.

        `origin` is "" if the pod is new or its attempt has failed.
        """

    def rule_failed(self, rule: str) -> None:
        """Called after a user's rule has raised an error, returned an invalid value or hung for one pod."""

    def rule_calls_stuck(self, calls: int) -> None:
        """Called regularly with the number of calls of users' rules that cannot be ended."""

    def rule_counted(self, rule: str, name: str, amount: float) -> None:
        """Called when a user's rule adds `amount` to its own counter `name`."""

    def rule_observed(self, rule: str, name: str, value: float) -> None:
        """Called when a user's rule adds `value` to its own histogram `name`."""

    def policy_reloaded(self, *, succeeded: bool) -> None:
        """Called after the policy was read again. If that failed, the earlier policy is still used."""


Annotations = tuple[tuple[str, str], ...]
"""Pairs of a key and a value."""


class Binding(NamedTuple):
    """A pod and the node that it gets (v1.Binding). The UID keeps a recreated pod of the same name from being bound.

    Attributes:
        annotations: what users' Bind rules chose. The API server adds it to the pod's annotations in the same write.
    """

    namespace: str
    name: str
    uid: str
    node: str
    annotations: Annotations = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Nominating(Enum):
    """The choices for a pod's nomination if there is no new node: keep it or clear it (upstream NominatingInfo)."""

    KEEP = auto()
    CLEAR = auto()


NominatedNode = str | Nominating
"""The node to nominate for a pod; without a node, the choice to keep or clear the pod's nomination."""


class Binder(Protocol):
    """Binds pods at the API server, or in a cluster in memory."""

    def bind(self, binding: Binding, check: Check = always) -> None:
        """Binds the pod to the node. It is no error if the pod is already bound to this node.

        Raises:
            Refused: `check` or the API server refused the bind, and nothing was changed; also as Conflict or NotFound.
            OutcomeUnknown: no response arrived, so it is unknown if the pod is bound.
        """


class Sink(Protocol[Object]):
    """Receives the objects of the cluster and their changes. The cache is a Sink."""

    def replaced(self, kind: str, objects: Sequence[Object], asked_at: float = LONG_AGO) -> None:
        """Replaces all objects of `kind` in the cache with `objects`, which is a complete list.

        Args:
            asked_at: when the list was requested, in monotonic seconds. The list shows everything written before then.
        """

    def changed(self, kind: str, obj: Object) -> None:
        """Stores an object that was added or modified."""

    def deleted(self, kind: str, obj: Object) -> None:
        """Removes an object that was deleted."""


class Lister(Protocol[Listed]):
    """Lists what the API server has now, and says up to which version the watches have delivered."""

    def kinds(self) -> Sequence[str]:
        """Returns the kinds whose objects are all in the cache, so that the cache can be compared with a list."""

    def list(self, kind: str) -> tuple[str, Sequence[Listed]]:
        """Returns the version of the list and every object of the kind.

        Raises:
            ClusterError: the API server does not answer with the list.
        """

    def relist(self, kind: str, why: str) -> None:
        """Makes the reflector list the kind again, because the watch's events cannot be trusted."""

    def has_delivered(self, kind: str, version: str) -> bool:
        """Returns True if the watch has delivered everything up to `version`."""
