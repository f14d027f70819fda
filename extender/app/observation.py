"""Creates the observers of decisions, connects them to cache, loop and verbs, and runs `extender record`."""

from __future__ import annotations

import signal
import threading
from base64 import b64encode
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from extender.app.evidence import CacheEvidence
from extender.app.feed import feed_factory_of
from extender.app.past_decisions import DECISIONS, PastDecisions
from extender.app.policies import policy_text
from extender.cache.cache import Cache
from extender.cache.changes import Changes
from extender.cache.contents import CacheSize
from extender.config.settings import Settings
from extender.errors import ClusterError, ConfigurationError, MalformedInput
from extender.model.pod import Pod
from extender.model.redaction import Redaction
from extender.policy.policy import parsed
from extender.recording.lines import RecordedSettings
from extender.recording.recorder import (
    IN_THE_WAY,
    RecordedChanges,
    RecordedRandom,
    Recorder,
    RecordingObserver,
    RotatingFiles,
)
from extender.runtime import strict_yaml
from extender.runtime.clock import Clock, SystemClock
from extender.runtime.product_version import product_version
from extender.runtime.unsettled import UnsettledWrites
from extender.scheduler.scheduler_ports import AttemptObserver, Events, EventType
from extender.web import log
from extender.web.answers import Page
from extender.web.metrics import Metrics

# The last decisions are kept for so long, in about so much memory.
_DECISIONS_SECONDS, _DECISIONS_BYTES = 3600.0, 16 * 1024 * 1024
_KEY = "keyData"
_NO_KEY = b64encode(b"not recorded").decode()
SYNC_SECONDS, _LOOK_SECONDS, _POLL_SECONDS = 60.0, 1.0, 0.05


class ObservedEvents:
    """A writer of events (scheduler_ports.Events) that first passes each event to the observers."""

    def __init__(self, events: Events, observers: Sequence[AttemptObserver]) -> None:
        self._events = events
        self._observers = observers

    def record(
        self, pod: Pod, kind: EventType, reason: str, action: str, note: str, related: Pod | None = None
    ) -> None:
        for observer in self._observers:
            observer.event_recorded(pod, kind, reason, note)
        self._events.record(pod, kind, reason, action, note, related)


class Observation:
    """The observers of one process: its memory of decisions, and its recorder if decisions are recorded.

    Attributes:
        changes: the journal that the cache must use, so that changes are recorded; None without a recording.
        observers: each is a CallObserver and an AttemptObserver.
        recording: passes decisions to the recorder; None if the settings name no recording. It is one of the observers.
        pages: path -> page, for the pages that show the remembered decisions.
    """

    def __init__(
        self, settings: Settings, mode: str, metrics: Metrics, clock: Clock, redaction: Redaction | None = None
    ) -> None:
        """Creates the observers that the settings require.

        Args:
            mode: serve, schedule or record.
            redaction: see Recorder.
        """
        self.changes: Changes | None = None
        self.observers: list[Any] = []
        self.recording: RecordingObserver | None = None
        self.pages: dict[str, Page] = {}
        past = PastDecisions(clock, _DECISIONS_BYTES, _DECISIONS_SECONDS)
        self.observers.append(past)
        self.pages[DECISIONS] = past.page
        self._recorder: Recorder | None = None
        self._random: RecordedRandom | None = None
        if settings.record is not None:
            self._recorder = recorder_of(settings, mode, metrics, clock, redaction)
            self.changes = RecordedChanges(self._recorder)
            self._random = RecordedRandom()
            self.recording = RecordingObserver(self._recorder, self.changes, self._random)
            self.observers.append(self.recording)

    def random(self, seed: int | None) -> Random:
        """Returns the random number generator for scheduling cycles. A recording contains the numbers that it draws."""
        if self._random is None:
            return Random(seed)  # noqa: S311  it breaks ties
        self._random.seed(seed)
        return self._random

    def events(self, events: Events) -> Events:
        """Returns a writer of events that also passes them to the observers."""
        return ObservedEvents(events, self.observers) if self.observers else events

    def policy_changed(self, text: str) -> None:
        """Begins a new file of the recording, because decisions now follow another policy."""
        if self._recorder is not None:
            self._recorder.settings_changed(policy=without_keys(text))

    def version_changed(self, version: str) -> None:
        """Begins a new file of the recording, because decisions now follow another version of Kubernetes."""
        if self._recorder is not None:
            self._recorder.settings_changed(kubernetes_version=version)

    def start(self) -> None:
        """Starts to write the recording. Call it in the worker process, after the fork."""
        if self._recorder is not None:
            self._recorder.start()

    def revive(self) -> list[str]:
        """Restarts the recorder's thread if it has ended; returns its name."""
        return ["recorder"] if self._recorder is not None and self._recorder.revive() else []

    def stop(self) -> None:
        """Writes the rest of the recording and closes its file."""
        if self._recorder is not None:
            self._recorder.stop()


def recorder_of(
    settings: Settings, mode: str, metrics: Metrics, clock: Clock, redaction: Redaction | None = None
) -> Recorder:
    """Returns the recorder that writes to the file in the setting `record`. A redacted recording has no policy.

    Raises:
        ConfigurationError: the recording would overwrite a file that is not a recording; or the policy has private keys
            and is not YAML, is a damaged or too large gzip file, or is a ConfigMap whose name has the wrong form.
        ClusterError, OSError: the policy, or a file that the recording would overwrite, cannot be read.
    """
    assert settings.record is not None
    check_places(settings)
    text = None
    if settings.policy is not None and redaction is None:
        text = without_keys(policy_text(settings.policy, settings.access).decode("utf-8", "replace"))
    recorded = RecordedSettings(
        mode=mode, policy=text, feature_gates=settings.feature_gates,
        kubernetes_version=settings.chosen_version or "",
        score_scale=settings.score_scale, scheduler_filters=settings.scheduler_filters,
        coscheduling=settings.coscheduling,
    )  # fmt: skip
    files = RotatingFiles(settings.record, settings.record_bytes)
    return Recorder(files, recorded, product_version(), clock, metrics.not_recorded, redaction=redaction)


def without_keys(text: str) -> str:
    """Returns a policy without private keys. A replay does not need them, because it calls no extenders.

    Raises:
        ConfigurationError: the policy has private keys, but is not YAML, so they cannot be found.
    """
    if _KEY not in text:
        return text
    try:
        document = strict_yaml.load(text)
    except MalformedInput as error:
        raise ConfigurationError([f"the policy is not recorded: {error}"]) from None
    return msgspec.json.encode(_without_keys(document)).decode()


def _without_keys(value: object) -> object:
    match value:
        case dict():
            return {field: _NO_KEY if field == _KEY else _without_keys(inner) for field, inner in value.items()}
        case list():
            return [_without_keys(inner) for inner in value]
        case str() if _KEY in value:  # an entry of a ConfigMap: a policy with a private key
            return without_keys(value)
        case _:
            return value


def check_places(settings: Settings) -> None:
    """Checks that a recording would not overwrite another file.

    Raises:
        ConfigurationError: the recording would overwrite a file that is not a recording.
        OSError: a file that the recording would overwrite cannot be read.
    """
    if settings.record is not None:
        others = RotatingFiles(settings.record, settings.record_bytes).others()
        if others:
            raise ConfigurationError([f"record: {path}: {IN_THE_WAY}" for path in others])


def record(
    settings: Settings, seconds: float | None, progress: Callable[[CacheSize], object], *, redact: bool = False
) -> CacheSize:
    """Records a cluster; returns how many nodes and pods the cluster has at the end.

    Args:
        seconds: how long to record; None means until SIGTERM or SIGINT.
        progress: called with the numbers of nodes and pods once a second.
        redact: True to replace names, label values and images with hashes, as in a snapshot.

    Raises:
        ConfigurationError, OSError: the recording cannot start.
        ClusterError: the cluster cannot be listed.
    """
    log.configure(settings.log_format, settings.log_level)
    clock, ending = SystemClock(), threading.Event()
    metrics = Metrics(clock, product_version())
    observed = Observation(settings, "record", metrics, clock, Redaction() if redact else None)
    cache = Cache(clock, metrics, changes=observed.changes)
    never_written = UnsettledWrites(0.0)
    features = parsed(settings.feature_gates, version=settings.chosen_version)
    feed = feed_factory_of(settings)(cache, metrics, clock, never_written, CacheEvidence(cache), features)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    observed.start()
    feed.start()
    try:
        deadline = clock.monotonic() + SYNC_SECONDS
        while (missing := feed.missing()) and not ending.wait(_POLL_SECONDS):
            if clock.monotonic() > deadline:
                raise ClusterError(f"no list of {', '.join(missing)} arrived in {SYNC_SECONDS:g} s")
        end = float("inf") if seconds is None else clock.monotonic() + seconds
        while (remaining := end - clock.monotonic()) > 0 and not ending.wait(min(remaining, _LOOK_SECONDS)):
            progress(cache.size())
        return cache.size()
    finally:
        feed.stop()
        observed.stop()
