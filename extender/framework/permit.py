"""Runs users' Reserve and Permit rules, after a node was chosen for a pod and before the pod is bound.

    run: Reserve of each rule, then Permit of each rule ----> bound: finish
           |                               '-- waits --'
           |                                     |
           '-- rejected --> unreserve <----------'  rejected, timed out, or not bound

`Permits` runs the rules and stores the pods that wait. A rule uses `Permits` through its `handle.Handle`.

If a rule misses its deadline, the pod is rejected, although the rule still runs in another thread. Once the rule
returns, its `unreserve` is called. Until then, no Reserve or Permit rule runs for the pod.

Source: upstream RunReservePluginsReserve, RunPermitPlugins, WaitOnPermit, waiting_pods_map.go, fwk.Handle.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, Protocol

from extender.errors import BindingFailed, RuleUnanswered
from extender.framework.plugin import PERMIT, RESERVE, error_prefix
from extender.model.node import Node
from extender.model.pod import Pod
from extender.runtime.clock import NO_LIMIT, Deadline, TimeLimit
from extender.runtime.text import go_duration
from extender.table import Table

MAX_WAIT_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Wait:
    """The answer of a Permit rule that makes the pod wait.

    The waiting pod keeps its node. The pod is bound once the rule allows it, and is rejected after `timeout_seconds`,
    at most 900.
    """

    timeout_seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.timeout_seconds <= MAX_WAIT_SECONDS:
            raise ValueError(f"timeout_seconds must be more than 0 and at most {MAX_WAIT_SECONDS:g}")


@dataclass(slots=True, eq=False)
class WaitingPod:
    """A pod that waits because the rule answered `Wait`."""

    _rule: str
    _permit: Permit

    @property
    def pod(self) -> Pod:
        return self._permit.pod

    @property
    def node_name(self) -> str:
        """The node on which the pod is assumed while it waits."""
        return self._permit.node_name

    def allow(self) -> None:
        """Allows the pod for this rule. The pod is bound once every rule that made it wait has allowed it."""
        self._permit.allow(self._rule)

    def reject(self, reason: str) -> None:
        """Rejects the pod. It loses its node and is tried again later, as after any refusal by this rule."""
        self._permit.reject(self._rule, reason)


_READER = "permit"
Timed = Callable[[str, str], AbstractContextManager[None]]


class BindRule(Protocol):
    """A user's PreBind or PostBind rule."""

    @property
    def name(self) -> str: ...

    def run(self, pod: Pod, node: Node, permits: Permits) -> None:
        """Runs the rule for a pod that is about to be bound, or that was bound.

        Raises:
            BindingFailed: a PreBind rule rejected the pod, raised an exception or did not answer in time.
        """


class ReserveRule(Protocol):
    """A user's Reserve or Permit rule."""

    @property
    def name(self) -> str: ...

    @property
    def may_wait(self) -> bool:
        """True for a Permit rule, False for a Reserve rule."""

    def run(self, pod: Pod, node: Node, permits: Permits, deadline: Deadline) -> float:
        """Runs the rule; returns how many seconds the pod may wait until the rule allows it, or 0 for no wait.

        Raises:
            BindingFailed: the rule rejected the pod or raised an exception.
            RuleUnanswered: the rule did not answer by the deadline.
        """

    def unreserve(self, pod: Pod, node: Node, permits: Permits, deadline: Deadline) -> None:
        """Undoes what `run` did for the pod; does nothing if `run` did nothing. Raises only RuleUnanswered."""


@dataclass(slots=True, eq=False)
class Permit:
    """The state of one pod between `Permits.run` and the outcome of its Binding.

    Attributes:
        pending: the rules that have not allowed the pod yet, each with the number of seconds after which it times out.
        rejection: the first rejection by a rule, or None.
        is_uncertain: True if the outcome of the Binding is unknown.
        decided: an event that is set once a pod that had to wait is allowed or rejected.
    """

    pod: Pod
    node: Node
    rules: Sequence[ReserveRule]
    lock: threading.Lock
    pending: dict[str, float] = field(default_factory=dict)
    rejection: BindingFailed | None = None
    is_uncertain: bool = False
    decided: threading.Event = field(default_factory=threading.Event)

    @property
    def node_name(self) -> str:
        return self.node.name

    def allow(self, rule: str) -> None:
        """Records that the rule allows the pod."""
        with self.lock:
            self.pending.pop(rule, None)
            if not self.pending:
                self.decided.set()

    def reject(self, rule: str, reason: str) -> None:
        """Rejects the pod if it waits for this rule."""
        with self.lock:
            if rule in self.pending and self.rejection is None:
                self.rejection = BindingFailed(reason or f"rejected by {rule}", rule)
                self.decided.set()

    def cancel(self, reason: str) -> bool:
        """Rejects a pod that was deleted or preempted; returns False if it no longer waits."""
        with self.lock:
            if self.rejection is None and self.pending:
                self.rejection = BindingFailed(reason)
                self.decided.set()
            return self.rejection is not None

    @property
    def timeout_seconds(self) -> float:
        """The shortest timeout of the rules that the pod waits for; 0 if it waits for no rule."""
        with self.lock:
            return min(self.pending.values(), default=0.0)

    def ready(self) -> bool:
        """Returns True if every rule allows the pod. Raises BindingFailed if a rule has rejected it."""
        with self.lock:
            if self.rejection is not None:
                raise self.rejection
            return not self.pending

    def overdue(self) -> BindingFailed:
        """Returns the error for a pod that has waited too long (upstream newWaitingPod)."""
        return self._overdue_after(self.timeout_seconds)

    def wait(self, most_seconds: float) -> None:
        """Blocks until the pod is allowed, for at most `most_seconds`.

        Raises:
            BindingFailed: the pod was rejected or waited too long.
        """
        seconds = min(self.timeout_seconds, most_seconds)
        self.decided.wait(seconds)
        if not self.ready():
            raise self._overdue_after(seconds)

    def _overdue_after(self, seconds: float) -> BindingFailed:
        with self.lock:
            rule = min(self.pending, key=self.pending.__getitem__, default="")
        return BindingFailed(f"rejected due to timeout after waiting {go_duration(seconds)} at plugin {rule}", rule)


def _failed(rule: ReserveRule, message: str) -> BindingFailed:
    return BindingFailed(error_prefix(PERMIT if rule.may_wait else RESERVE, rule.name) + message)


class _UnfinishedCall(NamedTuple):
    """A call to a rule that missed its deadline; its pod was therefore rejected.

    Attributes:
        has_returned: returns True once the rule has returned; None if the call could not start.
        needs_unreserve: True if the rule's `unreserve` must still be called, as soon as this call has ended.
    """

    permit: Permit
    rule: ReserveRule
    has_returned: Callable[[], bool] | None
    needs_unreserve: bool


class Permits:
    """Runs the rules for one pod at a time, and stores each pod's permit until `finish` or `unreserve`.

    Args:
        snapshot: takes the name of a reader; returns a context manager that lends a table which is up to date.
        activate: takes a namespace and labels; moves the pods with these labels to the active queue. May be omitted.
        limit: the time for all rules of one pod together, and for each `unreserve`.
    """

    def __init__(
        self,
        snapshot: Callable[[str], AbstractContextManager[Table]],
        activate: Callable[[str, Mapping[str, str]], object] = lambda _namespace, _labels: None,
        limit: TimeLimit = NO_LIMIT,
    ) -> None:
        self._snapshot = snapshot
        self._activate = activate
        self._limit = limit
        # Rules run for one pod at a time. Otherwise, each of a gang's last two members could wait for the other.
        self._one_at_a_time = threading.RLock()
        self._lock = threading.Lock()  # guards the permits, because handles change them in other threads
        self._permits: dict[str, Permit] = {}
        self._unfinished: list[_UnfinishedCall] = []

    def run(
        self,
        rules: Sequence[ReserveRule],
        pod: Pod,
        node_name: str,
        timed: Timed = lambda _point, _rule: nullcontext(),
        deadline: Deadline | None = None,
    ) -> Permit | None:
        """Runs the rules for a pod that is assumed on the node; returns its permit, or None if there are no rules.

        The caller must wait until the permit is ready.

        Args:
            timed: takes the extension point and name of a rule; returns the context manager in which it runs.
            deadline: the deadline of all rules together; None starts the time `limit` now.

        Raises:
            BindingFailed: a rule rejected the pod, raised an exception or missed the deadline. `unreserve` of all rules
                was called. If a rule is still running, `settle` calls its `unreserve` after the rule has returned.
        """
        if not rules:
            return None
        deadline = deadline or self._limit.begin()
        with self._exclusively(deadline):
            # If the outcome of an earlier Binding is unknown, the pod still has the permit of that attempt.
            self._unreserve(pod.uid)
            for unfinished in self._unfinished:
                if unfinished.permit.pod.uid == pod.uid:
                    raise _failed(unfinished.rule, "still busy with an earlier attempt")
            permit = Permit(pod, self.node(node_name), rules, self._lock)
            pending: dict[str, float] = {}
            with self._lock:
                self._permits[pod.uid] = permit
            try:
                for rule in rules:
                    with timed("Permit" if rule.may_wait else "Reserve", rule.name):
                        seconds = rule.run(pod, permit.node, self, deadline)
                    if seconds:
                        pending[rule.name] = seconds
            except RuleUnanswered as error:
                self._unfinished.append(_UnfinishedCall(permit, rule, error.has_returned, needs_unreserve=True))
                self._unreserve(pod.uid, skip=rule)
                raise _failed(rule, str(error)) from None
            except BaseException:
                self._unreserve(pod.uid)
                raise
            with self._lock:  # from here on, handles may allow or reject the pod
                permit.pending = pending
            return permit

    def run_bind_rules(
        self,
        rules: Sequence[BindRule],
        pod: Pod,
        node_name: str,
        timed: Callable[[str], AbstractContextManager[None]] = lambda _rule: nullcontext(),
    ) -> None:
        """Runs PreBind or PostBind rules. `timed` takes the name of a rule, and returns the context in which it runs.

        Raises:
            BindingFailed: a PreBind rule rejected the pod, or the node no longer exists.
        """
        if rules:
            node = self.node(node_name)
            for rule in rules:
                with timed(rule.name):
                    rule.run(pod, node, self)

    @contextmanager
    def _exclusively(self, deadline: Deadline) -> Iterator[None]:
        seconds = deadline.left_seconds
        if not self._one_at_a_time.acquire(timeout=-1 if seconds == inf else max(seconds, 0.0)):
            raise BindingFailed(deadline.message("the Reserve and Permit rules are busy with other pods"))
        try:
            yield
        finally:
            self._one_at_a_time.release()

    def unreserve(self, uid: str) -> None:
        """Calls `unreserve` of every rule, the last rule first. Does nothing if the pod has no permit."""
        if uid in self._permits:  # checked first, so that a pod without rules does not wait for the lock
            with self._one_at_a_time:
                self._unreserve(uid)

    def _unreserve(self, uid: str, skip: ReserveRule | None = None) -> None:
        with self._lock:
            permit = self._permits.pop(uid, None)
        if permit is not None:
            for rule in reversed(permit.rules):
                if rule is not skip:
                    self._unreserve_rule(permit, rule)

    def _unreserve_rule(self, permit: Permit, rule: ReserveRule) -> None:
        try:
            rule.unreserve(permit.pod, permit.node, self, self._limit.begin())
        except RuleUnanswered as error:
            could_not_start = error.has_returned is None
            self._unfinished.append(_UnfinishedCall(permit, rule, error.has_returned, needs_unreserve=could_not_start))

    def finish(self, uid: str, *, certain: bool) -> None:
        """Drops the permit of a bound pod. If not `certain` that the pod is bound, keeps the permit for `settle`."""
        if uid not in self._permits:
            return
        with self._lock:
            if certain:
                self._permits.pop(uid, None)
            elif uid in self._permits:
                self._permits[uid].is_uncertain = True

    def settle(self, is_bound: Callable[[str, str], bool | None]) -> None:
        """Ends the permits of pods whose Binding had an unknown outcome, if `is_bound` knows the outcome by now.

        If the pod was not bound, calls `unreserve` of its rules. Also calls `unreserve` of rules that missed their
        deadline and have returned by now.

        Args:
            is_bound: takes a UID and a node name; returns True if the pod is bound, False if the pod is not bound, None
                while the outcome is unknown.
        """
        self._settle_unfinished()
        with self._lock:
            uncertain = {uid: permit for uid, permit in self._permits.items() if permit.is_uncertain}
        for uid, permit in uncertain.items():
            bound = is_bound(uid, permit.node_name)
            if bound is not None:
                with self._one_at_a_time:
                    if self._permits.get(uid) is permit:
                        self.finish(uid, certain=True) if bound else self._unreserve(uid)

    def _settle_unfinished(self) -> None:
        with self._one_at_a_time:
            ended = [call for call in self._unfinished if call.has_returned is None or call.has_returned()]
            self._unfinished = [call for call in self._unfinished if call not in ended]
            for call in ended:
                if call.needs_unreserve:
                    self._unreserve_rule(call.permit, call.rule)

    # ---- methods that rules call through `Handle`

    def pending(self, rule: str) -> list[Permit]:
        """Returns the permits of the pods that wait until the rule allows them."""
        with self._lock:
            waiting = [permit for permit in self._permits.values() if rule in permit.pending]
            return [permit for permit in waiting if permit.rejection is None]

    def tables(self) -> AbstractContextManager[Table]:
        """Returns a context manager that lends a table which is up to date."""
        return self._snapshot(_READER)

    def activate(self, namespace: str, labels: Mapping[str, str]) -> None:
        """Moves the namespace's waiting pods with these labels to the active queue now."""
        self._activate(namespace, labels)

    def node(self, name: str) -> Node:
        """Returns the node of this name. Raises BindingFailed if it no longer exists."""
        with self._snapshot(_READER) as table:
            if not table.nodes.has(name):
                raise BindingFailed(f'node "{name}" no longer exists')
            return table.nodes.node(table.nodes.row_of[name])


def offline_permits(table: Table) -> Permits:
    """Returns the permits of offline commands, where no pod waits. `table` contains the cluster."""
    return Permits(lambda _reader: nullcontext(table))


NO_PERMITS = offline_permits(Table())
