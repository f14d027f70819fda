"""The last decisions about each pod, as they were made: bounded in bytes and in age."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping

import msgspec
import numpy as np

from extender.errors import UnknownPod
from extender.extender_v1.types import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriorityList,
)
from extender.model.pod import Pod
from extender.runtime.clock import Clock
from extender.scheduler.ports import EventType
from extender.scheduler.scheduling_cycle import Chosen, Unfit
from extender.table import PodInfo, Table
from extender.verbs.verb import FAILED, PASSED
from extender.web.answers import Answer, error_answer

DECISIONS = "/debug/decisions"
_MOST_OF_A_POD, _MOST_VICTIMS = 32, 20
_LONGEST_KEY, _LONGEST_OUTCOME = 63 + 1 + 253, 1024  # of names that the API server takes; as kube-scheduler's events
_DECISION_BYTES, _POD_BYTES = 80, 400  # in memory, about, beside texts


class PastDecision(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decision.

    Attributes:
        at: seconds since the epoch.
        what: a verb, attempt, or event.
        outcome: in words.
        node: the node that came of it, if one did.
        reasons: why nodes were refused -> how many.
        victims: who was to leave: keys of pods, or the UIDs that a scheduler was answered.
    """

    at: float
    what: str
    outcome: str
    node: str = ""
    reasons: dict[str, int] = {}
    victims: list[str] = []


_ENCODE, _DECODE = msgspec.json.Encoder().encode, msgspec.json.Decoder(PastDecision).decode


class PastDecisions:
    """Decisions by pod, a CallObserver and an AttemptObserver; those that were touched longest ago make way.

    Each is kept as JSON: a third of the memory, and one object in place of six or more. These stand for an hour among
    the 100,000 of a large request, and none of the C library's pages that holds one can be given back.

    Args:
        limit_bytes: about what they may take in memory.
        age_seconds: how long they are kept.
    """

    def __init__(self, clock: Clock, limit_bytes: int, age_seconds: float) -> None:
        self._clock, self._limit_bytes, self._age_seconds = clock, limit_bytes, age_seconds
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
            self._keep(key, PastDecision(at, verb, f"failed: {error}"))
        elif outcome == PASSED:
            self._keep(key, PastDecision(at, verb, "let through unjudged"))
        else:
            self._keep(key, _decided(at, verb, request, result))

    def attempted(self, info: PodInfo, table: Table, decided: Chosen | Unfit) -> None:  # noqa: ARG002  an observer's
        at = self._clock.now()
        if isinstance(decided, Chosen):
            self._keep(info.pod.key, PastDecision(at, "attempt", f"chose {decided.node_name}", decided.node_name))
            return
        plan = decided.preemption
        victims = [victim.pod.key for victim in plan.victims[:_MOST_VICTIMS]] if plan else []
        nominated = f" nominated to {plan.node_name}" if plan else ""
        self._keep(info.pod.key, PastDecision(at, "attempt", f"{decided.message}{nominated}", victims=victims))

    def told(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:  # noqa: ARG002  an observer's
        """See app.recording.observation; a failed attempt has told its reasons already."""
        if reason != "FailedScheduling" or not note.startswith("0/"):
            self._keep(pod.key, PastDecision(self._clock.now(), "event", f"{reason}: {note}"))

    def of(self, key: str) -> list[PastDecision]:
        """Returns the decisions about the pod, the oldest first. Raises UnknownPod where none is kept."""
        with self._lock:
            self._forget_old()
            found = [_DECODE(each) for each in self._pods.get(key, ())]
        if not found:
            raise UnknownPod(f"no decision about a pod {key} is kept: none was made, or it was long ago")
        return found

    def last(self) -> Mapping[str, PastDecision]:
        """Returns the last decision about each pod, the latest last."""
        with self._lock:
            self._forget_old()
            return {key: _DECODE(kept[-1]) for key, kept in self._pods.items()}

    def page(self, query: Mapping[str, list[str]], _accept: str) -> Answer:
        """Answers `?pod=NAMESPACE/NAME` with its decisions, and nothing asked for with the last of each pod."""
        if not (pods := query.get("pod")):
            last = [{"pod": key, **msgspec.to_builtins(each)} for key, each in self.last().items()]
            return _answer({"pods": last})
        try:
            return _answer({"pod": pods[0], "decisions": self.of(pods[0])})
        except UnknownPod as error:
            return error_answer(404, str(error))

    def _keep(self, key: str, decision: PastDecision) -> None:
        if len(key) > _LONGEST_KEY:
            return
        if len(decision.outcome) > _LONGEST_OUTCOME:
            decision = msgspec.structs.replace(decision, outcome=f"{decision.outcome[: _LONGEST_OUTCOME - 3]}...")
        encoded = _ENCODE(decision)
        with self._lock:
            kept = self._pods.get(key)
            if kept is None:
                kept = self._pods[key] = []
                self._bytes += _POD_BYTES + len(key)
            self._pods.move_to_end(key)
            kept.append(encoded)
            self._bytes += _DECISION_BYTES + len(encoded)
            if len(kept) > _MOST_OF_A_POD:
                self._drop_oldest(kept)
            while self._bytes > self._limit_bytes and self._pods:
                self._forget(next(iter(self._pods)))

    def _forget_old(self) -> None:
        begin = self._clock.now() - self._age_seconds
        for key, kept in list(self._pods.items()):
            while kept and _DECODE(kept[0]).at < begin:
                self._drop_oldest(kept)
            if not kept:
                self._forget(key)

    def _drop_oldest(self, kept: list[bytes]) -> None:
        self._bytes -= _DECISION_BYTES + len(kept.pop(0))

    def _forget(self, key: str) -> None:
        kept = self._pods.pop(key)
        self._bytes -= _POD_BYTES + len(key) + _DECISION_BYTES * len(kept) + sum(map(len, kept))


def _decided(at: float, verb: str, request: object, result: object) -> PastDecision:
    match result:
        case ExtenderFilterResult():
            refused, final = result.failed_nodes, result.failed_and_unresolvable_nodes
            asked = len(request.names) if isinstance(request, ExtenderArgs) else 0
            reasons = Counter(refused.values()) + Counter(final.values())
            told = result.error or f"{asked - len(refused) - len(final)} of {asked} nodes are left"
            if result.best:
                told = f"{told}, {result.best} is best"
            return PastDecision(at, verb, told, result.best, reasons=dict(reasons.most_common()))
        case HostPriorityList() if result.hosts:
            best = int(np.argmax(result.scores))
            told = f"{result.hosts[best]} is best of {len(result.hosts)} nodes, with {result.scores[best]}"
            return PastDecision(at, verb, told, result.hosts[best])
        case ExtenderPreemptionResult(by_node):
            uids = [pod.uid for victims in by_node.values() for pod in victims.pods]
            return PastDecision(at, verb, f"{len(by_node)} candidates are left", victims=uids[:_MOST_VICTIMS])
        case ExtenderBindingResult() if isinstance(request, ExtenderBindingArgs):
            told = f"to {request.node}: {result.error}" if result.error else f"to {request.node}"
            return PastDecision(at, verb, told, "" if result.error else request.node)
        case _:
            return PastDecision(at, verb, "no nodes")


def _answer(document: Mapping[str, object]) -> Answer:
    return Answer(200, msgspec.json.encode(document) + b"\n")
