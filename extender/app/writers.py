"""Everything of `extender schedule`, and for preemption of `serve`, that writes to the API server, and its threads."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Mapping

from extender.app.loop import LoopPorts
from extender.cache.cache import Cache
from extender.cluster.election.lease import Fence, LeaderClient
from extender.cluster.http.kube_client import Caller, KubeClient
from extender.cluster.writers.claims import ApiClaims
from extender.cluster.writers.events import ApiEvents
from extender.cluster.writers.pacing import TokenBucket, YieldingBucket
from extender.cluster.writers.statuses import ApiEvictor, ApiStatuses
from extender.cluster.writers.volumes import ApiVolumes
from extender.framework.profile import Profiles
from extender.runtime.clock import Clock, TimeLimit
from extender.runtime.fibers import FiberPool
from extender.runtime.ports import Binder
from extender.runtime.threads import OnError, WorkerPool
from extender.scheduler.ports import Events
from extender.scheduler.preemption import VictimEvictor
from extender.scheduler.rule_preemption import RulePreemption
from extender.web.telemetry.metrics import Metrics

# Bindings on their way at once: the API server, too, spends less on each where more come together. Their answers take
# no thread; more of the other threads would only take turns with the loop.
BINDINGS, PRE_BINDERS, PREEMPTORS = 64, 16, 8
_PREEMPTION_RATE = 100.0  # statuses, and events, a second


class Writers:
    """The writers and their threads; rates are calls a second. `on_error` is called with what a task raises."""

    def __init__(
        self,
        client: Caller,
        status_rate: float,
        event_rate: float,
        clock: Clock,
        dropped: Callable[[str], None],
        on_error: OnError,
    ) -> None:
        self.statuses = ApiStatuses(client, TokenBucket(status_rate), clock, dropped)
        self._event_bucket = YieldingBucket(event_rate)
        self.events = ApiEvents(client, self._event_bucket, clock, _instance(), dropped)
        self.evictor, self.volumes = ApiEvictor(client, clock), ApiVolumes(client)
        self.claims = ApiClaims(client, clock)
        self.binders = FiberPool("binder", BINDINGS, on_error)
        self.pre_binders = WorkerPool("pre-binder", PRE_BINDERS, on_error)
        self.preemptors = WorkerPool("preemptor", PREEMPTORS, on_error)

    def ports(self, binder: Binder, events: Callable[[Events], Events]) -> LoopPorts:
        """Returns them as the loop uses them, with the chain that a bind passes, and what `events` makes of events."""
        return LoopPorts(
            binder, self.statuses, events(self.events), self.evictor, self.volumes, self.claims,
            self.binders, self.pre_binders, self.preemptors,
        )  # fmt: skip

    def waiting(self) -> Mapping[str, int]:
        """Returns how many writes wait for their turn."""
        return {"statuses": self.statuses.waiting(), "events": self.events.waiting()}

    def start(self, has_backlog: Callable[[], bool]) -> None:
        """Starts the threads; there are fewer events in a backlog, for they cost as much as binds."""
        self._event_bucket.is_urgent = has_backlog
        for part in (self.statuses, self.events, self.binders, self.pre_binders, self.preemptors):
            part.start()

    def stop(self, ends_at: float) -> None:
        """Ends what is under way, till `ends_at` (monotonic); what is told on the way is written after it."""
        for part in (self.binders, self.pre_binders, self.preemptors, self.statuses, self.events):
            part.stop(max(0.0, ends_at - time.monotonic()))


class PreemptionWriters:
    """The writers of preemption in `extender serve`, and their threads; `fence` lets the leader's writes pass only."""

    def __init__(
        self,
        cache: Cache,
        profiles: Profiles,
        client: KubeClient,
        fence: Fence,
        metrics: Metrics,
        clock: Clock,
        limit: TimeLimit,
    ) -> None:
        self._client, fenced, dropped = client, LeaderClient(client, fence), metrics.write_dropped
        self._statuses = ApiStatuses(fenced, TokenBucket(_PREEMPTION_RATE), clock, dropped)
        self._events = ApiEvents(fenced, TokenBucket(_PREEMPTION_RATE), clock, _instance(), dropped)
        evictor = VictimEvictor(cache, ApiEvictor(fenced, clock), self._events)
        self.preemption = RulePreemption(cache, profiles, self._statuses, evictor, metrics.preempted_for_rules, limit)

    def start(self) -> None:
        self._statuses.start()
        self._events.start()

    def stop(self, timeout_seconds: float) -> None:
        """Ends what is under way."""
        self._statuses.stop(timeout_seconds)
        self._events.stop(timeout_seconds)
        self._client.close()


def _instance() -> str:
    return f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
