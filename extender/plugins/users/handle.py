"""Gives users' rules access to the cluster and to the process that runs them (upstream framework.Handle).

`Handle` is what the rule gets. `ObjectLister` is the part of it that reads other objects. A `RuleHost` gives the rule
the time and receives its failures, messages and metrics. A `RunningProcess` lets the rule use the queue and the waiting
pods of `extender serve` or `extender schedule`; offline, no pod waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar, overload

import numpy as np

from extender.framework.permit import Permits, WaitingPod
from extender.framework.plugin import PRE_ENQUEUE, QUEUE_SORT
from extender.framework.status import Refusal
from extender.model.meta import NO_LABELS, CustomObject, Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.pod_volumes import ClaimUse
from extender.model.selectors import selector_from_labels
from extender.plugins.volume_binding import claim_refusals
from extender.runtime.clock import Deadline
from extender.table import PodCountQuery, Table

T = TypeVar("T", bound=Object)
Tables = Callable[[], AbstractContextManager[Table]]
"""Returns a context manager that gives the `with` block a table of the cluster."""


class RuleHost(Protocol):
    """Provides the time to a user's rule, and receives its failures, log messages and metrics."""

    @property
    def ignores_failures(self) -> bool:
        """True if a decision goes on without a rule that fails, as if the rule had accepted the pod."""

    def leaves_out(self, rule: str) -> bool:
        """Returns True if the rule must not be called now, because it did not answer a short while ago."""

    def failed(self, rule: str, error: BaseException) -> None:
        """Handles an exception of the rule or a missed deadline. Called once for a pod, and not for each node."""

    def now(self) -> float:
        """Returns the seconds since the epoch."""

    def begin(self) -> Deadline:
        """Returns the deadline of a call that starts now and belongs to no decision."""

    def limited(self, deadline: Deadline) -> Deadline:
        """Returns the deadline of a call that starts now in a decision with this deadline."""

    def log(self, rule: str, pod: str, message: str) -> None:
        """Logs a message of the rule about the pod, `namespace/name`."""

    def count(self, rule: str, name: str, amount: float) -> None:
        """Adds the amount to a counter of the rule."""

    def observe(self, rule: str, name: str, value: float) -> None:
        """Adds the value to a histogram of the rule."""

    def watch(self, rule: str, pod: str, node: str) -> AbstractContextManager[None]:
        """Returns a context manager for a call of the rule. If the call hangs, the pod and the node are logged."""


class Wake(Protocol):
    def __call__(self, rule: str, namespace: str | None = None, labels: Mapping[str, str] = NO_LABELS, /) -> object:
        """Retries pods that the rule refused, if they have all these labels. `namespace`: None means all namespaces."""


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """The process in which a user's rule runs, as far as the rule can use it.

    Attributes:
        wake: retries pods that the rule refused.
        permits: gives access to the pods that wait at Permit, the queue, and the tables of the cache.
    """

    wake: Wake
    permits: Permits


_thread = threading.local()


@contextmanager
def in_queue_rule() -> Iterator[None]:
    """Marks the `with` block as part of a rule that the queue calls while the queue is locked.

    In the block, `wake` and `activate` raise RuntimeError.
    """
    _thread.holds_queue = True
    try:
        yield
    finally:
        _thread.holds_queue = False


def refuse_in_queue_rule(method: str) -> None:
    """Raises RuntimeError if the queue is calling a rule in this thread, because `method` would deadlock."""
    if getattr(_thread, "holds_queue", False):
        raise RuntimeError(
            f"a rule of {PRE_ENQUEUE} or {QUEUE_SORT} must not call {method}, because the queue is locked while it runs"
        )


def nothing_waits(_rule: str, _namespace: str | None = None, _labels: Mapping[str, str] = NO_LABELS, /) -> None:
    """Does nothing: the `RunningProcess.wake` of rules outside a running process, as in `extender explain`."""


class ObjectLister:
    """Reads the objects of the cluster, as the decision sees them. A rule must not change what it gets."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    @overload
    def get(self, kind: type[T], key: str) -> T | None: ...
    @overload
    def get(self, kind: str, key: str) -> CustomObject | None: ...
    def get(self, kind: type[Object] | str, key: str) -> Any:
        """Returns the object with this key; None if there is no such object.

        The key is `namespace/name`, or `name` for a kind without namespaces. `kind` is a class such as `Service`, or
        the name of a kind that the policy watches.
        """
        with self._tables() as table:
            if kind is Node:
                return table.nodes.node(table.nodes.row_of[key]) if table.nodes.has(key) else None
            if kind is Pod:
                return info.pod if (info := table.pods.named(key)) is not None else None
            return table.objects.of_kind(_name(kind)).get(key)

    @overload
    def list(self, kind: type[T], namespace: str | None = None, labels: Mapping[str, str] = NO_LABELS) -> list[T]: ...
    @overload
    def list(
        self, kind: str, namespace: str | None = None, labels: Mapping[str, str] = NO_LABELS
    ) -> list[CustomObject]: ...
    def list(
        self, kind: type[Object] | str, namespace: str | None = None, labels: Mapping[str, str] = NO_LABELS
    ) -> list[Any]:
        """Returns the objects of a kind that have all these labels. `namespace`: None means all namespaces.

        For Pod, only pods that have a node are returned.
        """
        wanted = labels.items()
        with self._tables() as table:
            return [
                obj
                for obj in _all(table, kind)
                if (namespace is None or obj.namespace == namespace) and wanted <= obj.labels.items()
            ]

    def controller_of(self, obj: Object) -> Object | None:
        """Returns the controller of the object, like a ReplicaSet; None if the controller is not in the cache."""
        owner = obj.controller
        if owner is None:
            return None
        key = f"{obj.namespace}/{owner.name}" if obj.namespace else owner.name
        with self._tables() as table:
            controller = table.objects.of_kind(owner.kind).get(key)
        return controller if controller is not None and controller.uid == owner.uid else None


def _name(kind: type[Object] | str) -> str:
    return kind if isinstance(kind, str) else kind.__name__


def _all(table: Table, kind: type[Object] | str) -> list[Object]:
    if kind is Node:
        return [table.nodes.node(row) for row in table.nodes.rows.tolist()]
    if kind is Pod:
        return [info.pod for info in table.pods]
    return list(table.objects.of_kind(_name(kind)).values())


class Handle:
    """The access that a rule has to the cluster and to the process that runs it.

    A rule of Reserve, Permit, PreBind or PostBind may keep its handle and use it in any thread. Another rule may use
    its handle only until the rule returns.
    """

    def __init__(
        self, rule: str, pod: Pod, host: RuleHost, process: RunningProcess, table: Table | None = None
    ) -> None:
        """Stores `table`, the table of the decision. If it is None, the handle reads the tables of the cache."""
        self._rule = rule
        self._pod = pod
        self._host = host
        self._process = process
        self._tables: Tables = process.permits.tables if table is None else lambda: nullcontext(table)
        self._is_for_decision = table is not None
        self._claim_refusals: dict[Sequence[str], Mapping[int, Refusal]] = {}  # of the decision's table, by row

    @property
    def objects(self) -> ObjectLister:
        """An `ObjectLister`, which reads other objects of the cluster as the decision sees them."""
        return ObjectLister(self._tables)

    @property
    def now(self) -> datetime:
        """The present time, in UTC."""
        return datetime.fromtimestamp(self._host.now(), UTC)

    @property
    def waiting(self) -> list[WaitingPod]:
        """The pods that wait at Permit for this rule, except the pod that the rule is deciding about."""
        return [WaitingPod(self._rule, permit) for permit in self._process.permits.pending(self._rule)]

    def count_placed(self, namespace: str | None, labels: Mapping[str, str]) -> int:
        """Returns the number of pods that have a node and all these labels. `namespace`: None means all namespaces.

        Bound and assumed pods count. Pods that are being deleted do not count. From Reserve on, the pod that the rule
        is deciding about counts too.
        """
        namespaces = None if namespace is None else frozenset((namespace,))
        query = PodCountQuery(namespaces, selector_from_labels(labels), terminating=False)
        with self._tables() as table:
            return table.matching(query).total

    def claim_refusal(self, node_name: str, *claims: str) -> str | None:
        """Returns why a pod with these PersistentVolumeClaims cannot get its volumes on the node; None if it can.

        This is the answer of the plugin VolumeBinding: each claim is bound to a volume that the node can access, or
        would be bound to a free one, or a volume would be provisioned for it. Nothing is reserved. Several claims are
        judged together, because they cannot share a free volume. Each is named `namespace/name`.
        """
        uses = [ClaimUse(*claim.rpartition("/")[::2]) for claim in claims]
        with self._tables() as table:
            if not table.nodes.has(node_name):
                return f'node "{node_name}" not found'
            row = table.nodes.row_of[node_name]
            if not self._is_for_decision:
                refusals = claim_refusals(uses, table, np.array([row], np.intp))
            elif (known := self._claim_refusals.get(claims)) is not None:
                refusals = known
            else:  # the rule probably asks about the other nodes too, and all of them cost hardly more than one
                refusals = self._claim_refusals[claims] = claim_refusals(uses, table, table.nodes.rows)
        return ", ".join(refusals[row].reasons) if row in refusals else None

    def wake(self, namespace: str | None = None, labels: Mapping[str, str] = NO_LABELS) -> None:
        """Retries pods that this rule refused, if they have all these labels. `namespace`: None means all namespaces.

        Raises RuntimeError in a rule of PreEnqueue or QueueSort.
        """
        refuse_in_queue_rule("wake")
        self._process.wake(self._rule, namespace, labels)

    def activate(self, namespace: str, labels: Mapping[str, str]) -> None:
        """Moves waiting pods with these labels to the active queue now, without an event (upstream Handle.Activate).

        Does nothing in `extender serve`, because kube-scheduler keeps the queue there. Raises RuntimeError in a rule of
        PreEnqueue or QueueSort.
        """
        refuse_in_queue_rule("activate")
        self._process.permits.activate(namespace, labels)

    def log(self, message: str) -> None:
        """Logs the message, with the names of the rule and of the pod."""
        self._host.log(self._rule, self._pod.key, message)

    def count(self, name: str, amount: float = 1) -> None:
        """Adds the amount to the counter `extender_rule_events_total`, with the labels `rule` and `name`."""
        self._host.count(self._rule, name, amount)

    def observe(self, name: str, value: float) -> None:
        """Adds the value to the histogram `extender_rule_values`, with the labels `rule` and `name`."""
        self._host.observe(self._rule, name, value)
