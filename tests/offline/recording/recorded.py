"""A process of `extender serve` in one thread that is recorded: led through a timeline of a real cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from extender.cache.cache import Cache
from extender.recording.lines import RecordedSettings
from extender.recording.recorder import LIMIT_BYTES, RecordedChanges, Recorder, RecordingObserver, RotatingFiles
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.verbs.bind import Bind
from extender.verbs.filter import Filter
from extender.verbs.preempt import Preempt
from extender.verbs.prioritize import Prioritize
from extender.verbs.verb import CallObserver
from extender.web.app import Calls
from tests.recordings import Call, Mode, WatchEvent
from tests.verbs.cluster import PROFILES, FakeBinder
from tests.verbs.test_recordings import KIND_OF, in_order_of_cause


class RecordedServer:
    """The cache and verbs of a webhook, and its recorder, which writes when a test calls it."""

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES, file_bytes: int = 1 << 30) -> None:
        self.clock = ManualClock()
        self.dropped: list[tuple[str, int]] = []
        self.recorder = Recorder(
            RotatingFiles(path, file_bytes), RecordedSettings(mode="serve"), "0.1.0", self.clock,
            lambda kind, count: self.dropped.append((kind, count)), limit_bytes,
        )  # fmt: skip
        changes = RecordedChanges(self.recorder)
        self.cache = Cache(self.clock, Telemetry(), changes=changes)
        self.observers: list[CallObserver] = [RecordingObserver(self.recorder, changes)]
        self.calls = Calls(dict, lambda _: None, observers=self.observers)
        verbs: list[Any] = [
            Filter(self.cache, PROFILES, Telemetry()),
            Prioritize(self.cache, PROFILES),
            Preempt(self.cache, PROFILES),
            Bind(self.cache, PROFILES, FakeBinder(), Telemetry()),
        ]
        self.verbs: dict[str, Any] = {verb.name: verb for verb in verbs}

    def take(self, entry: WatchEvent | Call) -> None:
        self.clock.advance(0.5)
        if isinstance(entry, Call):
            self.ask(entry.verb, entry.request)
            return
        kind = KIND_OF[entry.resource]
        obj = msgspec.convert(entry.object, kind.type)
        self.cache.deleted(kind.name, obj) if entry.type == "DELETED" else self.cache.changed(kind.name, obj)

    def ask(self, verb: str, request: dict[str, Any]) -> None:
        assert self.calls.answer(self.verbs[verb], json.dumps(request).encode()).status == 200


def record_timeline(path: Path, mode: Mode, write_every: int = 1000, **limits: int) -> RecordedServer:
    """Records the whole timeline; the recorder writes after so many entries, and at the end."""
    server = RecordedServer(path, **limits)
    for number, entry in enumerate(in_order_of_cause(mode)):
        server.take(entry)
        if number % write_every == 0:
            server.recorder.write()
    server.recorder.stop()
    return server
