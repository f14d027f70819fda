"""Creates the writers to the API server and their threads: all for `schedule`, and a few for `serve`."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Mapping

from extender.app.loop import LoopPorts
from extender.cache.cache import Cache
from extender.cluster.binder import ApiClaims, ApiVolumes
from extender.cluster.election.lease import Fence, LeaderClient
from extender.cluster.events import ApiEvents
from extender.cluster.kube_client import Caller, KubeClient
from extender.cluster.outbox import TokenBucket, YieldingBucket
from extender.cluster.statuses import ApiEvictor, ApiGroupStatuses, ApiStatuses
from extender.framework.profile import Profiles
from extender.model.kinds import Kind
from extender.runtime.clock import Clock, TimeLimit
from extender.runtime.fibers import FiberPool
from extender.runtime.ports import Binder
from extender.runtime.threads import OnError, WorkerPool
from extender.scheduler.preemption import RulePreemption, VictimEvictor
from extender.scheduler.scheduler_ports import Events, WaitingForBind
from extender.web.metrics import Metrics

# The API server spends less time on each Binding if many arrive together. A Binding in flight needs no thread.
BINDINGS = 64
# More of these threads would only compete with the scheduling loop for the GIL.
PRE_BINDERS = 16
PREEMPTORS = 8
# The most writes per second. While pods wait in the active queue, a tenth as many Events are written.
STATUS_RATE = 100.0
EVENT_RATE = 200.0
_PREEMPTION_RATE = 100.0  # of `extender serve`: status writes, and Events


class Writers:
    """All writers of `extender schedule`, and their threads.

    Args:
        served: returns a kind in the API version that the API server serves.
        fence: refuses writes while another process leads.
        dropped: called with "statuses" or "events" for each write that is dropped.
        on_error: receives the errors that tasks raise.
    """

    def __init__(
        self,
        client: Caller,
        served: Callable[[Kind], Kind],
        fence: Fence,
        clock: Clock,
        dropped: Callable[[str], None],
        on_error: OnError,
    ) -> None:
        client = LeaderClient(client, fence)
        self.statuses = ApiStatuses(client, TokenBucket(STATUS_RATE), clock, dropped)
        self.group_statuses = ApiGroupStatuses(client, served, TokenBucket(STATUS_RATE), clock, dropped)
        self._event_bucket = YieldingBucket(EVENT_RATE)
        self.events = ApiEvents(client, self._event_bucket, clock, _instance(), dropped)
        self.evictor = ApiEvictor(client, clock, fence.has_unknown)
        self.volumes = ApiVolumes(client)
        self.claims = ApiClaims(client, clock)
        self.binders = FiberPool("binder", BINDINGS, on_error)
        self.pre_binders = WorkerPool("pre-binder", PRE_BINDERS, on_error)
        self.preemptors = WorkerPool("preemptor", PREEMPTORS, on_error)
        # Threads that hand over writes stop before the writers do, and start after them.
        tasks = (self.binders, self.pre_binders, self.preemptors)
        self._workers = (*tasks, self.statuses, self.group_statuses, self.events)

    def ports(self, binder: Binder, observed: Callable[[Events], Events]) -> LoopPorts:
        """Returns the writers and their threads as the LoopPorts of the scheduling loop.

        Args:
            binder: sends Bindings, after its own checks and at a limited rate.
            observed: wraps the writer of Events, so that observers receive the Events too.
        """
        return LoopPorts(
            binder, self.statuses, self.group_statuses, observed(self.events), self.evictor, self.volumes, self.claims,
            self.binders, self.pre_binders, self.preemptors,
        )  # fmt: skip

    def waiting(self) -> Mapping[str, int]:
        """Returns how many writes and tasks have not begun, by kind."""
        return {
            "statuses": self.statuses.waiting() + self.group_statuses.waiting(),
            "events": self.events.waiting(),
            "binds": self.binders.waiting(),
            "prebinds": self.pre_binders.waiting(),
            "preemptions": self.preemptors.waiting(),
        }

    def start(self, has_backlog: Callable[[], bool]) -> None:
        """Starts the threads. While `has_backlog()` returns True, because pods wait, fewer Events are written.

        The API server spends as much time on an Event as on a Binding.
        """
        self._event_bucket.is_urgent = has_backlog
        for worker in reversed(self._workers):
            worker.start()

    def stop(self, ends_at: float) -> None:
        """Waits for running tasks and then for writes in progress, until `ends_at` in monotonic seconds."""
        for worker in self._workers:
            worker.stop(max(0.0, ends_at - time.monotonic()))


class PreemptionWriters:
    """The writers and threads with which `extender serve` evicts pods to help pods that users' rules refuse.

    Args:
        fence: refuses writes while another process leads.
        waiting: the binds that wait at Permit.
    """

    def __init__(
        self,
        cache: Cache,
        profiles: Profiles,
        client: KubeClient,
        fence: Fence,
        waiting: WaitingForBind,
        metrics: Metrics,
        clock: Clock,
        limit: TimeLimit,
    ) -> None:
        self._client = client
        fenced = LeaderClient(client, fence)
        dropped = metrics.write_dropped
        self.statuses = ApiStatuses(fenced, TokenBucket(_PREEMPTION_RATE), clock, dropped)
        self._events = ApiEvents(fenced, TokenBucket(_PREEMPTION_RATE), clock, _instance(), dropped)

        def evictor() -> VictimEvictor:
            in_this_term = ApiEvictor(LeaderClient(client, fence.of_this_term()), clock, fence.has_unknown)
            return VictimEvictor(cache, in_this_term, self._events, waiting)

        self.preemption = RulePreemption(cache, profiles, self.statuses, evictor, metrics.preempted_for_rules, limit)

    def start(self) -> None:
        self.statuses.start()
        self._events.start()

    def stop(self, timeout_seconds: float) -> None:
        """Waits for writes in progress, at most `timeout_seconds` for each writer, and closes the connections."""
        self.statuses.stop(timeout_seconds)
        self._events.stop(timeout_seconds)
        self._client.close()


def _instance() -> str:
    return f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
