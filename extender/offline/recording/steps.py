"""Describes each step of a recording in one line of text: when it happened, what happened, and to which object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from extender.cache.changes import POD
from extender.errors import MalformedCluster, MalformedInput
from extender.extender_v1.messages import NULL
from extender.model.meta import Object
from extender.offline.recording.lines import (
    AttemptLine,
    CallLine,
    CheckpointLine,
    DroppedLine,
    EventLine,
    GroupLine,
    NodeNumbers,
    ObjectLine,
    StepLine,
    decoded,
    from_digits,
    from_ranges,
)
from extender.runtime.text import counted
from extender.verbs.verb import DECIDED

_METADATA = msgspec.json.Decoder(Object)


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step of a recording.

    Attributes:
        number: its position, from 0.
        at: seconds since the epoch.
        kind: change, call, attempt, group, event, checkpoint or dropped.
        subject: the pod (namespace/name), or the object ("Node worker-1", "PodGroup ml/train").
        text: what happened, in one line.
        line: the line of the recording.
    """

    number: int
    at: float
    kind: str
    subject: str
    text: str
    line: StepLine

    def to_dict(self) -> dict[str, Any]:
        """Returns {"step", "at", "kind", "subject", "text"}, ready for JSON."""
        return {"step": self.number, "at": self.at, "kind": self.kind, "subject": self.subject, "text": self.text}


def steps_of(lines: Sequence[StepLine], numbers: NodeNumbers) -> Iterator[RecordedStep]:
    """Yields the step of each line. Raises MalformedCluster, with the step's number, if a line makes no sense."""
    pod_keys: dict[str, str] = {}  # by UID
    for number, line in enumerate(lines):
        with naming_step(number):
            kind, subject, text = _described(line, numbers, pod_keys)
        yield RecordedStep(number, line.at, kind, subject, text, line)


@contextmanager
def naming_step(number: int) -> Iterator[None]:
    """Adds the step's number to the message of a MalformedInput raised in the block."""
    try:
        yield
    except MalformedInput as error:
        raise MalformedCluster(f"step {number}: {error}") from None


def _described(line: StepLine, numbers: NodeNumbers, pod_keys: dict[str, str]) -> tuple[str, str, str]:
    """Returns the kind, subject and text of the line's step."""
    match line:
        case ObjectLine():
            return "change", *_change(line, pod_keys)
        case CallLine():
            return "call", *_call(line, numbers)
        case AttemptLine():
            return "attempt", _key(line.pod), f"chose {line.node}" if line.node else line.message
        case GroupLine():
            return "group", line.group, line.message or f"places {counted(len(line.placed), 'member')}"
        case EventLine():
            return "event", line.pod, f"{line.reason}: {line.note}"
        case CheckpointLine():
            return "checkpoint", "", f"the whole cluster: {line.objects} objects"
        case DroppedLine():
            return "dropped", "", f"{line.entries} calls, attempts and events are missing"


def _key(raw: msgspec.Raw) -> str:
    """Returns `namespace/name` of an object that is given as JSON; "" if there is none."""
    return decoded(raw, _METADATA, "object").key if raw != NULL else ""


def _change(line: ObjectLine, pod_keys: dict[str, str]) -> tuple[str, str]:
    """Returns subject and text."""
    if line.kind != POD:
        return f"{line.kind} {line.key}", "was deleted" if line.object == NULL else "was created or changed"
    if line.object == NULL:
        return pod_keys.get(line.key, line.key), "was deleted"
    key = pod_keys[line.key] = _key(line.object)
    if not line.node:
        return key, "is waiting"
    return key, f"is assumed on {line.node}" if line.assumed else f"is on {line.node}"


def _call(line: CallLine, numbers: NodeNumbers) -> tuple[str, str]:
    """Returns subject and text."""
    if line.verb == "bind":
        binding, error = line.binding(), line.error or line.binding_error()
        text = f"bind to {binding.node}{f': {error}' if error else ''}"
        return f"{binding.pod_namespace}/{binding.pod_name}", text
    return _key(line.pod), f"{line.verb}: {_outcome(line, numbers)}"


def _outcome(line: CallLine, numbers: NodeNumbers) -> str:
    if line.error or line.result != DECIDED:
        return line.error or f"{line.result}, not judged"
    if line.verb == "preempt":
        return f"{len(line.kept_victims())} candidates remain"
    nodes = from_ranges(line.nodes)
    if line.verb == "prioritize":
        scores = from_digits(line.scores)
        if not scores:
            return "no nodes"
        best = nodes[scores.index(max(scores))]
        return f"{numbers.names[best]} is the best of {len(nodes)} nodes"
    refused = sum(len(from_ranges(ranges)) for ranges in (*line.refused.values(), *line.unresolvable.values()))
    return f"{len(nodes) - refused} of {len(nodes)} nodes remain"
