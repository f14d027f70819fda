"""One line for each attempt of the loop: where the pod was bound and in how many milliseconds, or why it was not."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from extender.runtime.clock import Clock
from extender.scheduler.ports import Attempt
from extender.web.telemetry.batched_notifier import BatchedNotifier
from extender.web.telemetry.log import inform
from extender.web.telemetry.tracing import Traces, Work

_log = logging.getLogger(__name__)
_LONGEST_REASON = 1024


class AttemptLog:
    """Logs attempts, a moment later and many at once where it is started: the loop does not wait for its log."""

    def __init__(self, clock: Clock, traces: Traces) -> None:
        self._clock, self._traces = clock, traces
        self._notifier = BatchedNotifier[tuple[float, Attempt]](self._write)
        self.start = self._notifier.start

    def note(self, attempt: Attempt) -> None:
        """Has the attempt logged, unless the level is above info, and sent as a span if spans are sent."""
        if self._traces.sends_spans or _log.isEnabledFor(logging.INFO):
            self._notifier.note((self._clock.now(), attempt))

    def stop(self) -> None:
        """Writes and sends the rest."""
        self._notifier.stop()
        self._traces.stop()

    def _write(self, attempts: Sequence[tuple[float, Attempt]]) -> None:
        work = [Work("schedule", _fields(attempt), ended_at, attempt.seconds) for ended_at, attempt in attempts]
        inform(_log, "attempt", [self._traces.trace(each) for each in work])


def _fields(attempt: Attempt) -> dict[str, object]:
    pod = attempt.pod
    fields: dict[str, object] = {"pod": pod.key, "uid": pod.uid, "profile": pod.spec.scheduler_name}
    fields |= {"attempt": attempt.number, "result": attempt.result, "ms": round(attempt.seconds * 1e3, 3)}
    if attempt.node_name:
        fields["node"] = attempt.node_name
    if attempt.message:
        fields["error"] = attempt.message[:_LONGEST_REASON]
    return fields
