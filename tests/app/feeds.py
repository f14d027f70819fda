"""Feeds that fill no cache: they record what they get."""

from __future__ import annotations

from extender.app.feed import CacheEvidence, ClusterFeed, FedProcess, FeedFactory
from extender.cache.cache import Cache
from extender.runtime.clock import SystemClock
from extender.runtime.ports import Telemetry
from extender.runtime.unsettled import UnsettledWrites
from extender.table.features import DEFAULT_FEATURES
from extender.web.metrics import Metrics
from tests.cluster.recorder import Recorder


def recording_feed(factory: FeedFactory) -> ClusterFeed:
    """Returns a feed of a process that has no predecessors to wait for."""
    clock = SystemClock()
    evidence = CacheEvidence(Cache(clock, Telemetry()))
    process = FedProcess(Recorder(), Metrics(clock, "1"), clock, UnsettledWrites(0.0), evidence, DEFAULT_FEATURES)
    return factory(process)
