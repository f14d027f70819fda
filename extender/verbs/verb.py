"""Defines the interface of a verb and of the observers of its calls, and what verbs wait for. `web` handles HTTP.

A verb waits briefly for the watch to deliver something that it needs.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from threading import Lock
from typing import NamedTuple, Protocol, TypeVar

from extender.cache.cache import Cache
from extender.cache.pod_states import PodState
from extender.errors import RuleUnanswered
from extender.plugins.users.rule_calls import collect_left_out
from extender.runtime.clock import Clock

Request = TypeVar("Request")
Result = TypeVar("Result")
MOST_PODS = 1024
PAUSES = 50
PAUSE_SECONDS = 0.02
SECONDS = PAUSES * PAUSE_SECONDS


def repeated_without_late_rule(decide: Callable[[], Result]) -> Result:
    """Calls `decide`; calls it again if a rule did not answer, and the next decisions go on without that rule.

    The first decision cannot go on, because the rule may still be reading its table. Raises the errors of `decide`.
    """
    try:
        return decide()
    except RuleUnanswered as error:
        if not error.is_left_out:
            raise
    return decide()


class Summary(NamedTuple):
    """The part of a call that is logged: the number of nodes in the request, and the number in the answer."""

    nodes_in: int
    nodes_out: int


class Verb(Protocol[Request, Result]):
    """One of the calls that kube-scheduler makes: filter, prioritize, preempt or bind."""

    @property
    def name(self) -> str: ...

    def decode(self, body: bytes) -> Request:
        """Returns the request. Raises MalformedRequest if the body is not this verb's payload."""

    def decide(self, request: Request) -> Result:
        """Returns the answer. Errors about the pod are part of the answer; an exception is a defect of the extender."""

    def allow_all(self, request: Request) -> Result:
        """Returns the answer that accepts every node without a check."""

    def failed(self, request: Request, message: str) -> Result | None:
        """Returns an answer with the error message; None if this verb's answers have no field for one."""

    def encode(self, request: Request, result: Result) -> bytes:
        """Checks the answer against the request, and returns it as bytes.

        Raises:
            InvalidAnswer: the answer would cause errors in the scheduler.
        """

    def summary(self, request: Request, result: Result) -> Summary:
        """Returns what the log shows about the call."""


def decide_call(verb: Verb[Request, Result], request: Request, left_out: dict[str, str]) -> Result:
    """Returns the verb's answer. Adds each rule without which it was decided to `left_out`: rule -> the reason."""
    collect_left_out(left_out)
    return repeated_without_late_rule(lambda: verb.decide(request))


DECIDED, PASSED, FAILED = "decided", "passed", "failed"
"""The outcomes of a call: the rules decided it; it was passed without a check; it ended in an error."""


class CallObserver(Protocol):
    """Observes every call, in the call's thread, before the answer is sent. It must be quick and must not raise."""

    def called(self, verb: str, outcome: str, request: object, result: object, error: str = "") -> None:
        """Records the call. If the call failed, `result` is None and `error` is the message."""


class Confirmation:
    """Waits at most `SECONDS` for the watch to show the outcome of a bind that got no answer.

    Args:
        pause: sleeps for some seconds; None means time.sleep, looked up here because simulations replace it.
    """

    def __init__(self, cache: Cache, pause: Callable[[float], object] | None = None) -> None:
        self._cache = cache
        self._pause = pause or time.sleep

    def wait(self, uid: str, node: str) -> bool:
        """Waits until the watch shows the pod; returns True if it is bound to the node."""
        for _ in range(PAUSES):
            placement = self._cache.placement(uid)
            if placement is None or placement.state is PodState.ADDED:
                return placement is not None and placement.node_name == node
            self._pause(PAUSE_SECONDS)
        return False


class RecentPreemptors:
    """Records the pods for which preempt named victims, and makes filter wait until the victims are gone.

    kube-scheduler may know that the victims are gone before this cache does, and then calls filter at once. If filter
    refused the pod, kube-scheduler would evict more pods on other nodes. So filter waits, but only within `SECONDS`
    after preempt. `pause` is described in Confirmation.
    """

    def __init__(self, clock: Clock, pause: Callable[[float], object] | None = None) -> None:
        self._clock = clock
        self._pause = pause or time.sleep
        self._lock = Lock()
        self._pods: OrderedDict[str, tuple[float, Collection[str]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pods)

    def note(self, uid: str, nodes: Collection[str]) -> None:
        """Records that preempt named victims for the pod on these nodes."""
        now = self._clock.monotonic()
        with self._lock:
            self._pods[uid] = (now + SECONDS, frozenset(nodes))
            self._pods.move_to_end(uid)
            while len(self._pods) > MOST_PODS or next(iter(self._pods.values()))[0] < now:
                self._pods.popitem(last=False)

    def wait(self, uid: str, nodes: Collection[str]) -> bool:
        """Waits a moment if preempt recently named victims for the pod on one of these nodes.

        Returns True if it waited; the caller then checks the pod again.
        """
        with self._lock:
            until, named = self._pods.get(uid, (0.0, ()))
        if self._clock.monotonic() >= until or not any(node in named for node in nodes):
            return False
        self._pause(PAUSE_SECONDS)
        return True
