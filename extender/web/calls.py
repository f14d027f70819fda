"""Turns the body of a verb's request into an answer, and times, counts and logs the call."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from extender.errors import DeadlineExceeded, MalformedInput
from extender.extender_v1.messages import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
)
from extender.model.meta import NO_LABELS
from extender.verbs import verb as verbs
from extender.verbs.verb import CallObserver, Summary, Verb, decide_call
from extender.web.answers import CLOSE, Answer, error_answer
from extender.web.log import LONGEST_KEY, LONGEST_TEXT, Traces, Work, cut, inform
from extender.web.metrics import Metrics

WaitingFor = Callable[[], Mapping[str, str | None]]
_WITH_POD = (ExtenderArgs, ExtenderPreemptionArgs)
_WITH_ERROR = (ExtenderFilterResult, ExtenderBindingResult)
_log = logging.getLogger(__name__)


class PodReference(NamedTuple):
    """Identifies the pod of a request. `Exemptions` reads its fields, too."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str]

    @classmethod
    def of(cls, request: object) -> PodReference | None:
        """Returns a reference to the pod of a decoded request; None if the request is not about a pod.

        For a bind request the reference has no labels, because the request does not contain them.
        """
        if isinstance(request, _WITH_POD):
            pod = request.pod
            return cls(pod.uid, pod.namespace, pod.name, pod.labels)
        if isinstance(request, ExtenderBindingArgs):
            return cls(request.pod_uid, request.pod_namespace, request.pod_name, NO_LABELS)
        return None


@dataclass(frozen=True, slots=True)
class Exemptions:
    """The pods for which every node is accepted without a decision.

    They include the extender's own pods. Otherwise the extender could prevent its own restart.

    Attributes:
        namespaces: all pods in these namespaces are exempt.
        own_namespace: the namespace of the extender's own pods.
        own_labels: the labels of the replicas' pods. A pod in `own_namespace` with all these labels is exempt. If there
            are no labels, they exempt no pod.
    """

    namespaces: frozenset[str] = frozenset()
    own_namespace: str = ""
    own_labels: Mapping[str, str] = field(default_factory=dict)

    def cover(self, pod: PodReference | None) -> bool:
        if pod is None:
            return False
        return pod.namespace in self.namespaces or self._own(pod)

    def _own(self, pod: PodReference) -> bool:
        is_labelled = bool(self.own_labels) and self.own_labels.items() <= pod.labels.items()
        return is_labelled and pod.namespace == self.own_namespace


class Outcome(StrEnum):
    """The ways in which a call of a verb can end. Observers receive only DECIDED, PASSED and FAILED."""

    DECIDED = verbs.DECIDED  # the verb has answered by the rules of the policy
    PASSED = verbs.PASSED  # the pod is exempt, so every node was accepted
    FAILED = verbs.FAILED  # an unexpected exception was raised
    ERROR = "error"  # the verb's answer contains an error, or the decision took too long
    UNREADY = "unready"
    MALFORMED = "malformed"


_STATUSES = {Outcome.FAILED: 500, Outcome.ERROR: 503, Outcome.UNREADY: 503, Outcome.MALFORMED: 400}
"""The HTTP status for each outcome, used if the verb's answer has no field for an error."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call, before it becomes an HTTP answer.

    Attributes:
        request: the decoded body; None if it could not be decoded.
        result: the verb's answer; None if there is only an `error`.
    """

    outcome: Outcome
    request: Any = None
    result: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """An answered call of a verb, as log and metrics report it.

    Attributes:
        seconds: the time from the arrival of the body to the encoded answer.
        ended_at: when the call ended, in seconds since the epoch.
        traceparent: the value of the caller's `traceparent` header.
        left_out: the rules that failed and were ignored, separated by commas.
    """

    verb: str
    outcome: Outcome
    subject: PodReference | None
    summary: Summary | None
    status: int
    error: str
    seconds: float
    ended_at: float
    traceparent: str
    left_out: str = ""


@dataclass(frozen=True)
class Calls:
    """Answers calls of verbs, and reports each answered call.

    Attributes:
        waiting_for: returns check -> the reason why the process cannot decide yet, or None if the check passes.
        note: called with each answered call.
        observers: receive each request and its result before the answer is encoded.
    """

    waiting_for: WaitingFor
    note: Callable[[Call], None]
    exemptions: Exemptions = field(default_factory=Exemptions)
    observers: Sequence[CallObserver] = ()

    def answer(self, verb: Verb[Any, Any], body: bytes, traceparent: str = "") -> Answer:
        """Returns the answer to `body` posted to `verb`. Raises nothing."""
        started = time.perf_counter()
        left_out: dict[str, str] = {}
        decision, summary = self._decide(verb, body, left_out), None
        try:
            answer, summary = self._encode(verb, decision)
        except Exception:
            _log.exception("encoding an answer failed verb=%s", verb.name)
            decision = CallResult(Outcome.FAILED, decision.request, error=_internal_error(verb))
            answer = self._encode_failure(verb, decision)
        if left_out:
            answer = answer._replace(headers=(*answer.headers, *map(_warning, left_out.items())))
        subject, seconds = PodReference.of(decision.request), time.perf_counter() - started
        self.note(
            Call(
                verb.name, decision.outcome, subject, summary, answer.status, decision.error, seconds, time.time(),
                traceparent, ",".join(left_out),
            )
        )  # fmt: skip
        return answer

    def _decide(self, verb: Verb[Any, Any], body: bytes, left_out: dict[str, str]) -> CallResult:
        """Returns the result of the call. Adds the rules without which it was decided to `left_out`."""
        request = None
        try:
            request = verb.decode(body)
            missing = "; ".join(obstacle for obstacle in self.waiting_for().values() if obstacle is not None)
            if self.exemptions.cover(PodReference.of(request)):
                # If the answer to a bind has no error, kube-scheduler takes the pod as bound.
                return CallResult(Outcome.PASSED, request, verb.allow_all(request))
            if missing:
                return CallResult(Outcome.UNREADY, request, error=f"the extender is not ready: {missing}")
            result = decide_call(verb, request, left_out)
            error = result.error if isinstance(result, _WITH_ERROR) else ""
            return CallResult(Outcome.ERROR if error else Outcome.DECIDED, request, result, error)
        except MalformedInput as error:
            return CallResult(Outcome.MALFORMED, request, error=str(error))
        except DeadlineExceeded as error:
            return CallResult(Outcome.ERROR, request, error=f"{verb.name}: {error}")
        except Exception:
            _log.exception("call failed verb=%s", verb.name)
            return CallResult(Outcome.FAILED, request, error=_internal_error(verb))

    def _encode(self, verb: Verb[Any, Any], decision: CallResult) -> tuple[Answer, Summary | None]:
        """Returns the HTTP answer, and its summary for the log. Calls the observers first, and raises their errors."""
        request, result = decision.request, decision.result
        if result is None:
            return self._encode_error(verb, decision), None
        judged = Outcome.PASSED if decision.outcome is Outcome.PASSED else Outcome.DECIDED
        for observer in self.observers:
            observer.called(verb.name, judged, request, result)
        return Answer(200, verb.encode(request, result)), verb.summary(request, result)

    def _encode_error(self, verb: Verb[Any, Any], decision: CallResult) -> Answer:
        """Returns the error in a field of the verb's answer (status 200).

        Returns an HTTP error if the answer has no such field, or if the request could not be decoded.
        """
        if decision.request is None:
            return error_answer(_STATUSES[decision.outcome], decision.error)
        for observer in self.observers:
            observer.called(verb.name, Outcome.FAILED, decision.request, None, decision.error)
        # The connection is closed, so that kube-scheduler opens a new one, which may reach a ready replica.
        headers = (CLOSE,) if decision.outcome is Outcome.UNREADY else ()
        result = verb.failed(decision.request, decision.error)
        if result is None:
            return error_answer(_STATUSES[decision.outcome], decision.error, headers)
        return Answer(200, verb.encode(decision.request, result), headers=headers)

    def _encode_failure(self, verb: Verb[Any, Any], decision: CallResult) -> Answer:
        try:
            return self._encode_error(verb, decision)
        except Exception:
            _log.exception("encoding an error failed verb=%s", verb.name)
            return error_answer(500, decision.error)


def report(calls: Sequence[Call], metrics: Metrics, traces: Traces) -> None:
    """Counts the calls in metrics and logs each in a line."""
    for call in calls:
        metrics.called(call.verb, call.outcome, call.seconds)
        if call.status >= 400:
            metrics.rejected(call.status)
    work = [Work(_fields(call), call.ended_at, call.traceparent) for call in calls]
    inform(_log, "call", [traces.trace(each) for each in work])


def _fields(call: Call) -> dict[str, object]:
    """Returns the fields of the call's log line."""
    fields: dict[str, object] = {"verb": call.verb, "result": call.outcome.value, "ms": round(call.seconds * 1e3, 3)}
    if call.subject is not None:
        fields["uid"] = cut(call.subject.uid, LONGEST_KEY)
        fields["pod"] = cut(f"{call.subject.namespace}/{call.subject.name}", LONGEST_KEY)
    if call.summary is not None:
        fields["nodes_in"], fields["nodes_out"] = call.summary.nodes_in, call.summary.nodes_out
    if call.left_out:
        fields["left_out"] = cut(call.left_out, LONGEST_TEXT)
    if call.error:
        fields["error"] = cut(call.error, LONGEST_TEXT)
    return fields


def _warning(left_out: tuple[str, str]) -> tuple[str, str]:
    """Returns the header that says that the answer was made without a rule. kube-scheduler reads no headers."""
    text = f"decided without {': '.join(left_out)}"[:LONGEST_TEXT].encode("ascii", "backslashreplace").decode()
    plain = "".join(each if each.isprintable() else " " for each in text).replace("\\", "\\\\").replace('"', '\\"')
    return "Warning", f'199 extender "{plain}"'


def _internal_error(verb: Verb[Any, Any]) -> str:
    return f"internal error in {verb.name}: the extender's log has the cause"
