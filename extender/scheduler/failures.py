"""What follows when a pod could not be placed. Source: upstream handleSchedulingFailure."""

from __future__ import annotations

from extender.queue.priority_queue import PriorityQueue
from extender.queue.queued_pod import QueuedPod
from extender.scheduler.nominations import Nominations
from extender.scheduler.ports import Events, Statuses
from extender.scheduler.scheduling_cycle import Unfit

_NOTE_LIMIT = 1024  # bytes of an event's note that the API server takes
_ELLIPSIS = " ..."


class Failures:
    """Puts pods back, and lets people know why."""

    def __init__(self, queue: PriorityQueue, nominations: Nominations, statuses: Statuses, events: Events) -> None:
        self._queue, self._nominations, self._statuses, self._events = queue, nominations, statuses, events

    def handle(self, pod: QueuedPod, unfit: Unfit) -> bool:
        """The pod goes back into the queue; its nomination, its condition and an event tell of it.

        Returns:
            False where there was nothing to do: the pod was deleted meanwhile, or bound by another.
        """
        if self._queue.add_unschedulable(pod, unfit.rejection) is None:
            return False
        if unfit.nominated_node is not None:
            self._nominations.note(pod.info, unfit.nominated_node)
        described = pod.info.pod
        self._events.record(described, "Warning", "FailedScheduling", "Scheduling", shortened(unfit.message))
        self._statuses.failed(described, unfit.reason, unfit.message, unfit.nominated_node)
        return True


def shortened(text: str) -> str:
    """The text, cut to what an event can hold."""
    data = text.encode()
    if len(data) <= _NOTE_LIMIT:
        return text
    return data[: _NOTE_LIMIT - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS
