"""Reserve and Permit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple, Protocol

from extender.errors import BindingFailed, RuleUnanswered
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.selectors import selector_from_labels
from extender.runtime.clock import NO_LIMIT, Deadline, TimeLimit
from extender.table import Table
from extender.table.pods.matches import PodCountQuery

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


_READER = "permit"
Timed = Callable[[str, str], AbstractContextManager[None]]


class ReserveRule(Protocol):
    """A rule of Reserve or Permit."""

    @property
    def name(self) -> str: ...

    @property
    def may_wait(self) -> bool:
        """True of a rule of Permit."""

    def run(self, pod: Pod, node: Node, handle: Handle, deadline: Deadline) -> float:
        """Returns the seconds that the pod has to wait at most, 0: it need not.

        Raises:
            BindingFailed: it is rejected, or the rule has failed.
            RuleUnanswered: it has not answered by the deadline.
        """

    def unreserve(self, pod: Pod, node: Node, handle: Handle, deadline: Deadline) -> None:
        """Takes back what `run` has done, if it has. Raises RuleUnanswered, and nothing else."""


@dataclass(slots=True, eq=False)
class Permit:
    """One pod's permit to be bound.

    Attributes:
        pending: the rules that have yet to allow it, and for how many seconds each may keep it.
        rejection: the first rule's that rejected it.
        is_uncertain: nobody knows what became of its Binding.
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
        """Has the pod wait for this rule no more."""
        with self.lock:
            self.pending.pop(rule, None)
            if not self.pending:
                self.decided.set()

    def reject(self, rule: str, reason: str) -> None:
        """Rejects the pod, if it waits for this rule."""
        with self.lock:
            if rule in self.pending and self.rejection is None:
                self.rejection = BindingFailed(reason or f"rejected by {rule}", rule)
                self.decided.set()

    @property
    def timeout_seconds(self) -> float:
        """The longest time that the pod may wait as it stands."""
        with self.lock:
            return min(self.pending.values(), default=0.0)

    def ready(self) -> bool:
        """Returns whether every rule allows the pod. Raises BindingFailed where one has rejected it."""
        with self.lock:
            if self.rejection is not None:
                raise self.rejection
            return not self.pending

    def overdue(self) -> BindingFailed:
        """Returns the error for a pod that has waited for too long (upstream newWaitingPod)."""
        return self._overdue_after(self.timeout_seconds)

    def wait(self, most_seconds: float) -> None:
        """Waits in this thread until the pod is allowed, for so long at most.

        Raises:
            BindingFailed: it is rejected, or its time is over.
        """
        seconds = min(self.timeout_seconds, most_seconds)
        self.decided.wait(seconds)
        if not self.ready():
            raise self._overdue_after(seconds)

    def _overdue_after(self, seconds: float) -> BindingFailed:
        with self.lock:
            rule = min(self.pending, key=self.pending.__getitem__, default="")
        return BindingFailed(f"rejected due to timeout after waiting {seconds:g}s at plugin {rule}", rule)


class _Late(NamedTuple):
    """A rule that is at work on a pod that was given up.

    Attributes:
        call: ends when the rule is through; None: it could not even be asked.
        unreserves: it is to be asked to take back what it has done by then; False: it does so already.
    """

    permit: Permit
    rule: ReserveRule
    call: Future[Any] | None
    unreserves: bool


class Permits:
    """Runs the rules, of all pods one after another, and knows every pod from `run` to `finish` or `unreserve`.

    Args:
        snapshot: lends a table.
        activate: has those of the pods in a namespace that have these labels tried at once; nobody does by default.
        limit: of the rules of one pod together, and of each that takes something back; `settle` asks the late ones.
    """

    def __init__(
        self,
        snapshot: Callable[[str], AbstractContextManager[Table]],
        activate: Callable[[str, Mapping[str, str]], object] = lambda _namespace, _labels: None,
        limit: TimeLimit = NO_LIMIT,
    ) -> None:
        self._snapshot, self._activate, self._limit = snapshot, activate, limit
        self._turn = threading.RLock()  # to ask rules: two pods that are the last of a gang must not both wait
        self._lock = threading.Lock()  # of what rules read and change by their handles, in threads of their own
        self._permits: dict[str, Permit] = {}
        self._late: list[_Late] = []

    def run(
        self,
        rules: Sequence[ReserveRule],
        pod: Pod,
        node_name: str,
        timed: Timed = lambda _point, _rule: nullcontext(),
        deadline: Deadline | None = None,
    ) -> Permit | None:
        """Returns the permit of a pod that is assumed on the node, which may have to be waited for; None: no rules.

        Args:
            timed: each rule is run in the context that this returns for its extension point and name.
            deadline: of them all; None: one that begins now.

        Raises:
            BindingFailed: a rule has rejected it, or failed, or not answered in time, and everything is unreserved, or
                will be once the rule that is late has ended.
        """
        if not rules:
            return None
        deadline = deadline or self._limit.begin()
        with self._turn_by(deadline):
            self._unreserve(pod.uid)  # of an attempt whose outcome nobody knew
            if late := next((each.rule.name for each in self._late if each.permit.pod.uid == pod.uid), ""):
                raise BindingFailed(f"{late} has yet to end its work on an earlier attempt")
            permit, pending = Permit(pod, self._node(node_name), rules, self._lock), dict[str, float]()
            with self._lock:
                self._permits[pod.uid] = permit
            try:
                for rule in rules:
                    with timed("Permit" if rule.may_wait else "Reserve", rule.name):
                        seconds = rule.run(pod, permit.node, Handle(rule.name, self), deadline)
                    if seconds:
                        pending[rule.name] = seconds
            except RuleUnanswered as error:
                self._late.append(_Late(permit, rule, error.call, unreserves=True))
                self._unreserve(pod.uid, but=rule)
                raise BindingFailed(str(error)) from None
            except BaseException:
                self._unreserve(pod.uid)
                raise
            with self._lock:  # others may allow the pod from here on
                permit.pending = pending
                if not pending:
                    permit.decided.set()
            return permit

    @contextmanager
    def _turn_by(self, deadline: Deadline) -> Iterator[None]:
        left = deadline.left_seconds
        if not self._turn.acquire(timeout=-1 if left == inf else max(left, 0.0)):
            raise BindingFailed(deadline.told("rules of Reserve and Permit are at work on other pods"))
        try:
            yield
        finally:
            self._turn.release()

    def unreserve(self, uid: str) -> None:
        """Has all rules take back what they reserved, the last first; a pod that is not known is passed over."""
        if uid in self._permits:  # one without rules waits for no other's
            with self._turn:
                self._unreserve(uid)

    def _unreserve(self, uid: str, but: ReserveRule | None = None) -> None:
        with self._lock:
            permit = self._permits.pop(uid, None)
        if permit is not None:
            for rule in (each for each in reversed(permit.rules) if each is not but):
                self._take_back(permit, rule)

    def _take_back(self, permit: Permit, rule: ReserveRule) -> None:
        try:
            rule.unreserve(permit.pod, permit.node, Handle(rule.name, self), self._limit.begin())
        except RuleUnanswered as error:
            self._late.append(_Late(permit, rule, error.call, unreserves=error.call is None))

    def finish(self, uid: str, *, certain: bool) -> None:
        """Ends the passage of a pod that was bound; if nobody is certain of it, `settle` does."""
        if uid not in self._permits:
            return
        with self._lock:
            if certain:
                self._permits.pop(uid, None)
            elif uid in self._permits:
                self._permits[uid].is_uncertain = True

    def settle(self, is_bound: Callable[[str, str], bool | None]) -> None:
        """Finishes the pods that are bound after all, and unreserves those that are not; None: nobody knows yet.

        Rules that were late and have ended are asked to take back what they did.
        """
        self._settle_late()
        with self._lock:
            uncertain = {uid: permit for uid, permit in self._permits.items() if permit.is_uncertain}
        for uid, permit in uncertain.items():
            bound = is_bound(uid, permit.node_name)
            if bound is not None:
                with self._turn:
                    if self._permits.get(uid) is permit:
                        self.finish(uid, certain=True) if bound else self._unreserve(uid)

    def _settle_late(self) -> None:
        with self._turn:
            ended = [each for each in self._late if each.call is None or each.call.done()]
            self._late = [each for each in self._late if each not in ended]
            for each in ended:
                if each.unreserves:
                    self._take_back(each.permit, each.rule)

    # ---- what a Handle passes on

    def pending(self, rule: str) -> list[PendingPermit]:
        """Returns the permits that wait for the rule."""
        with self._lock:
            return [each for each in self._permits.values() if rule in each.pending and each.rejection is None]

    def count_placed(self, namespace: str, labels: Mapping[str, str]) -> int:
        """Returns the number of pods with these labels that have a node, and do not terminate."""
        query = PodCountQuery(frozenset((namespace,)), selector_from_labels(labels), terminating=False)
        with self._snapshot(_READER) as table:
            return table.matching(query).total

    def activate(self, namespace: str, labels: Mapping[str, str]) -> None:
        """Has the pods with these labels tried at once."""
        self._activate(namespace, labels)

    def _node(self, name: str) -> Node:
        with self._snapshot(_READER) as table:
            row = table.nodes.row_of.get(name, -1)
            if row < 0 or not table.nodes.present[row]:
                raise BindingFailed(f'node "{name}" does not exist any more')
            return table.nodes.node(row)
