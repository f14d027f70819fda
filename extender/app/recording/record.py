"""The composition root of `extender record`: the watches of a cluster into a file, and nothing else."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from importlib.metadata import version

from extender.app.feed import feed_factory_of
from extender.app.recording.observation import Observation
from extender.cache.cache import Cache
from extender.cache.view import CacheSize
from extender.config.settings import Settings
from extender.errors import ClusterError
from extender.runtime.clock import SystemClock
from extender.web.telemetry import log
from extender.web.telemetry.metrics import Metrics

SYNC_SECONDS, _LOOK_SECONDS, _POLL_SECONDS = 60.0, 1.0, 0.05


def record(settings: Settings, seconds: float | None, progress: Callable[[CacheSize], object]) -> CacheSize:
    """Records for so long (None: until SIGTERM or SIGINT); returns what the cluster held in the end.

    Args:
        progress: is told what it holds, once a second.

    Raises:
        ConfigurationError, OSError: before anything is recorded.
        ClusterError: the cluster cannot be listed.
    """
    log.configure(settings.log_format, settings.log_level)
    clock, ending = SystemClock(), threading.Event()
    metrics = Metrics(clock, version("extender"))
    observed = Observation(settings, "record", metrics, clock)
    cache = Cache(clock, metrics, changes=observed.changes)
    feed = feed_factory_of(settings)(cache, metrics, clock)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    observed.start()
    feed.start()
    try:
        deadline = clock.monotonic() + SYNC_SECONDS
        while (missing := feed.missing()) and not ending.wait(_POLL_SECONDS):
            if clock.monotonic() > deadline:
                raise ClusterError(f"no list of {', '.join(missing)} came in {SYNC_SECONDS:g} s")
        end = float("inf") if seconds is None else clock.monotonic() + seconds
        while (left := end - clock.monotonic()) > 0 and not ending.wait(min(left, _LOOK_SECONDS)):
            progress(cache.size())
        return cache.size()
    finally:
        feed.stop()
        observed.stop()
