"""A sink and telemetry that remember: what a cache would hold, and which calls led there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from extender.model.meta import Object
from extender.runtime.ports import LONG_AGO, Telemetry


class Recorder(Telemetry):
    """A ports.Sink and a ports.Telemetry."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {}
        self.recorded: list[str] = []
        self.events: Counter[str] = Counter()
        self.relists = 0
        self.gone: list[str] = []
        self.asked_at = LONG_AGO
        self.unreadable_keys: list[str] = []

    def unreadable(self, kind: str, key: str, why: str) -> None:
        self.unreadable_keys.append(key)

    def replaced(self, kind: str, objects: Sequence[Object], asked_at: float = LONG_AGO) -> None:
        self.objects[kind] = {obj.key: obj for obj in objects}
        self.recorded.append(f"replaced {kind} {len(objects)}")
        self.asked_at = asked_at

    def changed(self, kind: str, obj: Object) -> None:
        self.objects[kind][obj.key] = obj
        self.recorded.append(f"changed {obj.key}")

    def deleted(self, kind: str, obj: Object) -> None:
        self.objects[kind].pop(obj.key, None)
        self.recorded.append(f"deleted {obj.key}")

    def watch_event(self, kind: str, event: str) -> None:
        self.events[event] += 1

    def relisted(self, kind: str) -> None:
        self.relists += 1

    def withdrawn(self, kind: str) -> None:
        self.gone.append(kind)

    def keys(self, kind: str) -> list[str]:
        return sorted(self.objects.get(kind, {}))
