"""From a chosen node to a bound pod; every path ends in finish or forget. Source: upstream bindingCycle."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from extender.clock import Clock
from extender.errors import IllegalTransition, OutcomeUnknown, Refused
from extender.ports import Binder
from extender.scheduler.outward import Events, SchedulerTelemetry
from extender.scheduler.scheduling_cycle import Unfit
from extender.state.cache import Cache
from extender.state.queued_pod import QueuedPod
from extender.state.scheduling_queue import SchedulingQueue

SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BindingCycle:
    """Runs in a worker's thread, for one assumed pod at a time.

    `failed` takes a pod whose place was given back.
    """

    cache: Cache
    queue: SchedulingQueue
    binder: Binder
    events: Events
    telemetry: SchedulerTelemetry
    clock: Clock
    failed: Callable[[QueuedPod, Unfit], object]

    def run(self, pod: QueuedPod, node_name: str, began_at: float) -> None:
        """Binds the pod; `began_at`: when the attempt began, in monotonic seconds."""
        bound = pod.info.pod
        try:
            self.binder.bind(bound.namespace, bound.name, bound.uid, node_name)
        except OutcomeUnknown as error:
            # The watch will tell of the pod or, by telling nothing, let it expire; then it is tried again.
            _log.warning("bind of %s to %s: %s", bound.key, node_name, error)
            self._finish(pod, certain=False)
            self._told(pod, "unknown", ERROR, began_at)
        except Exception as error:  # whatever it was, the place must not stay taken
            if not isinstance(error, Refused):
                _log.exception("bind of %s to %s", bound.key, node_name)
            self._forget(pod, f"binding rejected: {error}")
            self._told(pod, "refused", ERROR, began_at)
        else:
            self._finish(pod, certain=True)
            note = f"Successfully assigned {bound.namespace}/{bound.name} to {node_name}"
            self.events.record(bound, "Normal", "Scheduled", "Binding", note)
            self._told(pod, "bound", SCHEDULED, began_at)

    def _finish(self, pod: QueuedPod, *, certain: bool) -> None:
        with suppress(IllegalTransition):  # the pod was deleted meanwhile
            self.cache.finish_binding(pod.uid, certain=certain)
        self.queue.done(pod.uid)

    def _forget(self, pod: QueuedPod, message: str) -> None:
        with suppress(IllegalTransition):  # the watch knows better: the pod stands on a node, or is gone
            self.cache.forget(pod.uid)
        self.failed(pod, Unfit(message))

    def _told(self, pod: QueuedPod, bind_result: str, result: str, began_at: float) -> None:
        now = self.clock.monotonic()
        self.telemetry.bound(bind_result)
        self.telemetry.attempted(result, pod.info.pod.spec.scheduler_name, now - began_at)
        if result == SCHEDULED and pod.first_attempt_at is not None:
            self.telemetry.scheduled(pod.attempts, now - pod.first_attempt_at)
