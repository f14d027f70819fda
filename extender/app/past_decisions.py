"""Remembers the last decisions about each pod, up to a number of bytes and an age."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping

import msgspec
import numpy as np

from extender.engine.decision import Chosen, Failure
from extender.errors import UnknownPod
from extender.extender_v1.messages import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriorityList,
)
from extender.groups import GroupDecision, Tree, member_failure
from extender.groups.decision import UNSCHEDULABLE_GROUP, leaf_decisions
from extender.groups.group_preemption import GroupPreemption
from extender.groups.group_tree import waiting_members
from extender.model.pod import Pod
from extender.runtime.clock import Clock
from extender.scheduler.scheduler_ports import EventType
from extender.table import PodInfo, Table
from extender.verbs.verb import FAILED, PASSED
from extender.web.answers import Answer, error_answer, json_answer
from extender.web.log import LONGEST_KEY, LONGEST_TEXT, cut

DECISIONS = "/debug/decisions"
_MOST_OF_A_POD, _MOST_VICTIMS = 32, 20
_DECISION_BYTES, _POD_BYTES = 80, 400  # about how much memory a decision and a pod take without their texts


class PastDecision(msgspec.Struct, frozen=True, omit_defaults=True):
    """One remembered decision about a pod.

    Attributes:
        at: when it was made, in seconds since the epoch.
        what: the extender verb that decided, such as "filter"; for the scheduling loop, "attempt" or "event".
        outcome: the outcome in words.
        node: the chosen node; "" if no node was chosen.
        reasons: reason -> the number of nodes refused for it.
        victims: the pods to evict. An attempt lists them as namespace/name, the preempt verb by UID.
    """

    at: float
    what: str
    outcome: str
    node: str = ""
    reasons: dict[str, int] = {}
    victims: list[str] = []


_ENCODE, _DECODE = msgspec.json.Encoder().encode, msgspec.json.Decoder(PastDecision).decode


class PastDecisions:
    """Remembers the last decisions about each pod. It is a CallObserver and an AttemptObserver.

    If the decisions take too much memory, the pods whose last decisions are the oldest are dropped.

    Each decision is stored as JSON. JSON takes a third of the memory of Python objects, and is one object instead of
    six or more. Few objects are better, because a decision lives for an hour among the short-lived objects of large
    requests. The C library cannot return a page of memory while an object on the page is in use.

    Args:
        limit_bytes: about how much memory the decisions may take.
        age_seconds: the age at which a decision is dropped.
    """

    def __init__(self, clock: Clock, limit_bytes: int, age_seconds: float) -> None:
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._age_seconds = age_seconds
        self._lock = threading.Lock()
        self._pods: OrderedDict[str, list[bytes]] = OrderedDict()
        self._bytes = 0

    def called(self, verb: str, outcome: str, request: object, result: object, error: str = "") -> None:
        if isinstance(request, ExtenderArgs | ExtenderPreemptionArgs):
            key = request.pod.key
        elif isinstance(request, ExtenderBindingArgs):
            key = f"{request.pod_namespace}/{request.pod_name}"
        else:
            return
        at = self._clock.now()
        if outcome == FAILED:
            self._add(key, PastDecision(at, verb, f"failed: {error}"))
        elif outcome == PASSED:
            self._add(key, PastDecision(at, verb, "passed without being judged"))
        else:
            self._add(key, _decided(at, verb, request, result))

    def attempted(self, info: PodInfo, table: Table, decided: Chosen | Failure) -> None:  # noqa: ARG002  an observer's
        at = self._clock.now()
        if isinstance(decided, Chosen):
            self._add(info.pod.key, PastDecision(at, "attempt", f"chose {decided.node_name}", decided.node_name))
            return
        plan = decided.preemption
        victims = [victim.pod.key for victim in plan.victims[:_MOST_VICTIMS]] if plan else []
        nominated = f" nominated to {plan.node_name}" if plan else ""
        self._add(info.pod.key, PastDecision(at, "attempt", f"{decided.message}{nominated}", victims=victims))

    def group_attempted(self, table: Table, decision: GroupDecision, preemption: GroupPreemption) -> None:  # noqa: ARG002  an observer's
        """Remembers the outcome of a group's attempt for each of its members."""
        at = self._clock.now()
        for leaf in leaf_decisions(decision):
            for info in waiting_members(leaf.tree):
                member = leaf.members[info.uid]
                reason = member_failure(leaf, member, waits_for_victims=preemption.helps)
                node = "" if reason is not None else member.node_name or ""
                self._add(info.pod.key, PastDecision(at, "attempt", reason or f"chose {node}", node))

    def group_failed(self, table: Table, tree: Tree, message: str) -> None:  # noqa: ARG002  an observer's
        at = self._clock.now()
        for info in waiting_members(tree):
            self._add(info.pod.key, PastDecision(at, "attempt", message))

    def event_recorded(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:  # noqa: ARG002  an observer's
        """Remembers an event of the loop, except an event that only repeats the message of a failed attempt."""
        if reason != "FailedScheduling" or not note.startswith(("0/", UNSCHEDULABLE_GROUP)):
            self._add(pod.key, PastDecision(self._clock.now(), "event", f"{reason}: {note}"))

    def about(self, key: str) -> list[PastDecision]:
        """Returns the decisions about the pod, the oldest first. Raises UnknownPod if there are none."""
        with self._lock:
            self._drop_old()
            decisions = [_DECODE(encoded) for encoded in self._pods.get(key, ())]
        if not decisions:
            raise UnknownPod(f"no decision about pod {key} is remembered: none was made, or it is too old")
        return decisions

    def last(self) -> Mapping[str, PastDecision]:
        """Returns the last decision about each pod, by NAMESPACE/NAME; the most recent decision comes last."""
        with self._lock:
            self._drop_old()
            return {key: _DECODE(decisions[-1]) for key, decisions in self._pods.items()}

    def page(self, query: Mapping[str, list[str]], _accept: str) -> Answer:
        """Answers `?pod=NAMESPACE/NAME` with all decisions about that pod.

        Without `pod`, answers with the last decision about each pod.
        """
        if not (pods := query.get("pod")):
            last = [{"pod": key, **msgspec.to_builtins(decision)} for key, decision in self.last().items()]
            return json_answer({"pods": last})
        try:
            return json_answer({"pod": pods[0], "decisions": self.about(pods[0])})
        except UnknownPod as error:
            return error_answer(404, str(error))

    def _add(self, key: str, decision: PastDecision) -> None:
        if len(key) > LONGEST_KEY:
            return
        if len(decision.outcome) > LONGEST_TEXT:
            decision = msgspec.structs.replace(decision, outcome=cut(decision.outcome, LONGEST_TEXT))
        encoded = _ENCODE(decision)
        with self._lock:
            decisions = self._pods.get(key)
            if decisions is None:
                decisions = self._pods[key] = []
                self._bytes += _POD_BYTES + len(key)
            self._pods.move_to_end(key)
            decisions.append(encoded)
            self._bytes += _DECISION_BYTES + len(encoded)
            if len(decisions) > _MOST_OF_A_POD:
                self._drop_oldest(decisions)
            while self._bytes > self._limit_bytes and self._pods:
                self._drop_pod(next(iter(self._pods)))

    def _drop_old(self) -> None:
        begin = self._clock.now() - self._age_seconds
        for key, decisions in list(self._pods.items()):
            while decisions and _DECODE(decisions[0]).at < begin:
                self._drop_oldest(decisions)
            if not decisions:
                self._drop_pod(key)

    def _drop_oldest(self, decisions: list[bytes]) -> None:
        self._bytes -= _DECISION_BYTES + len(decisions.pop(0))

    def _drop_pod(self, key: str) -> None:
        decisions = self._pods.pop(key)
        self._bytes -= _POD_BYTES + len(key) + _DECISION_BYTES * len(decisions) + sum(map(len, decisions))


def _decided(at: float, verb: str, request: object, result: object) -> PastDecision:
    match result:
        case ExtenderFilterResult():
            refused, final = result.failed_nodes, result.failed_and_unresolvable_nodes
            nodes = len(request.names) if isinstance(request, ExtenderArgs) else 0
            reasons = Counter(refused.values()) + Counter(final.values())
            outcome = result.error or f"{nodes - len(refused) - len(final)} of {nodes} nodes remain"
            if result.best:
                outcome = f"{outcome}, {result.best} is best"
            return PastDecision(at, verb, outcome, result.best, reasons=dict(reasons.most_common()))
        case HostPriorityList() if result.hosts:
            best = int(np.argmax(result.scores))
            outcome = f"{result.hosts[best]} is the best of {len(result.hosts)} nodes, with score {result.scores[best]}"
            return PastDecision(at, verb, outcome, result.hosts[best])
        case ExtenderPreemptionResult(by_node):
            uids = [pod.uid for victims in by_node.values() for pod in victims.pods]
            return PastDecision(at, verb, f"{len(by_node)} candidates remain", victims=uids[:_MOST_VICTIMS])
        case ExtenderBindingResult() if isinstance(request, ExtenderBindingArgs):
            outcome = f"to {request.node}: {result.error}" if result.error else f"to {request.node}"
            return PastDecision(at, verb, outcome, "" if result.error else request.node)
        case _:
            return PastDecision(at, verb, "no nodes")
