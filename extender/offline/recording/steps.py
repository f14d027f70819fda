"""The lines of a recording for people: when, what, about whom, in one line of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from extender.cache.changes import POD
from extender.extender_v1.types import NULL
from extender.model.meta import Object
from extender.offline.recording.lines import (
    AttemptLine,
    CallLine,
    CheckpointLine,
    DroppedLine,
    EventLine,
    NodeNumbers,
    ObjectLine,
    StepLine,
    from_digits,
    from_ranges,
)
from extender.verbs.verb import DECIDED

_DECODE_METADATA = msgspec.json.Decoder(Object).decode
_DECODE_ANY = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step of a recording.

    Attributes:
        number: its place, from 0.
        at: seconds since the epoch.
        kind: change, call, attempt, event, checkpoint or dropped.
        subject: the pod (namespace/name) that it is about, or the object ("Node worker-1").
        text: what happened, in one line.
        line: all that was written of it.
    """

    number: int
    at: float
    kind: str
    subject: str
    text: str
    line: StepLine

    def to_dict(self) -> dict[str, Any]:
        """{"step", "at", "kind", "subject", "text"}."""
        return {"step": self.number, "at": self.at, "kind": self.kind, "subject": self.subject, "text": self.text}


def steps_of(lines: Sequence[StepLine], numbers: NodeNumbers) -> Iterator[RecordedStep]:
    keys: dict[str, str] = {}  # of pods, by UID
    for number, line in enumerate(lines):
        kind, subject, text = _told(line, numbers, keys)
        yield RecordedStep(number, line.at, kind, subject, text, line)


def key_of(raw: msgspec.Raw) -> str:
    """Returns `namespace/name` of an object's JSON; "" for none."""
    return _DECODE_METADATA(raw).key if raw != NULL else ""


def _told(line: StepLine, numbers: NodeNumbers, keys: dict[str, str]) -> tuple[str, str, str]:
    match line:
        case ObjectLine():
            return "change", *_change(line, keys)
        case CallLine():
            return "call", *_call(line, numbers)
        case AttemptLine():
            return "attempt", key_of(line.pod), f"chose {line.node}" if line.node else line.message
        case EventLine():
            return "event", line.pod, f"{line.reason}: {line.note}"
        case CheckpointLine():
            return "checkpoint", "", f"all that there is: {line.objects} objects"
        case DroppedLine():
            return "dropped", "", f"{line.entries} calls, attempts and events are missing"


def _change(line: ObjectLine, keys: dict[str, str]) -> tuple[str, str]:
    if line.kind != POD:
        return f"{line.kind} {line.key}", "is gone" if line.object == NULL else "came or has changed"
    if line.object == NULL:
        return keys.get(line.key, line.key), "is gone"
    key = keys[line.key] = key_of(line.object)
    if not line.node:
        return key, "waits"
    return key, f"is assumed on {line.node}" if line.assumed else f"is on {line.node}"


def _call(line: CallLine, numbers: NodeNumbers) -> tuple[str, str]:
    if line.verb == "bind":
        body = _DECODE_ANY(line.request) if line.request != NULL else {}
        error = line.error or (_DECODE_ANY(line.answer) if line.answer != NULL else {}).get("Error", "")
        told = f"bind to {body.get('Node')}{f': {error}' if error else ''}"
        return f"{body.get('PodNamespace')}/{body.get('PodName')}", told
    return key_of(line.pod), f"{line.verb}: {_outcome(line, numbers)}"


def _outcome(line: CallLine, numbers: NodeNumbers) -> str:
    if line.error or line.result != DECIDED:
        return line.error or f"{line.result}, unjudged"
    if line.verb == "preempt":
        kept = _DECODE_ANY(line.answer)["NodeNameToMetaVictims"] if line.answer != NULL else {}
        return f"{len(kept)} candidates are left"
    asked = from_ranges(line.nodes)
    if line.verb == "prioritize":
        scores = from_digits(line.scores)
        best = [number for number, score in zip(asked.tolist(), scores, strict=True) if score == max(scores)]
        return f"{numbers.names[best[0]]} is best of {len(asked)} nodes" if best else "no nodes"
    refused = sum(len(from_ranges(each)) for each in (*line.refused.values(), *line.unresolvable.values()))
    return f"{len(asked) - refused} of {len(asked)} nodes are left"
