"""Describes each step of a recording in one line of text: when it happened, what happened, and to which object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from extender.cache.changes import POD
from extender.errors import MalformedCluster, MalformedInput
from extender.extender_v1.messages import NULL
from extender.model.meta import Object
from extender.recording.lines import (
    AttemptLine,
    CallLine,
    CheckpointLine,
    DroppedLine,
    EventLine,
    GroupLine,
    NodeNumbers,
    ObjectLine,
    PlanLine,
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
        number: the position of the step, from 0.
        at: seconds since the epoch.
        kind: change, call, attempt, group, plan, event, checkpoint or dropped.
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
    seen = _Seen(numbers)
    for number, line in enumerate(lines):
        with naming_step(number):
            kind, subject, text = _described(line, seen)
        yield RecordedStep(number, line.at, kind, subject, text, line)


@contextmanager
def naming_step(number: int) -> Iterator[None]:
    """Adds the step's number to the message of a MalformedInput that the `with` block raises."""
    try:
        yield
    except MalformedInput as error:
        raise MalformedCluster(f"step {number}: {error}") from None


@dataclass(frozen=True, slots=True)
class _Seen:
    """The parts of earlier lines that later lines refer to.

    Attributes:
        numbers: the numbers of the nodes.
        pod_keys: UID -> NAMESPACE/NAME.
        plans: number of a plan -> its line.
    """

    numbers: NodeNumbers
    pod_keys: dict[str, str] = field(default_factory=dict)
    plans: dict[int, PlanLine] = field(default_factory=dict)


def _described(line: StepLine, seen: _Seen) -> tuple[str, str, str]:
    """Returns the kind, subject and text of the line's step."""
    match line:
        case ObjectLine():
            return "change", *_change(line, seen.pod_keys)
        case CallLine():
            return "call", *_call(line, seen)
        case AttemptLine():
            return "attempt", _key(line.pod), f"chose {line.node}" if line.node else line.message
        case GroupLine():
            return "group", line.group, line.message or f"places {counted(len(line.placed), 'member')}"
        case PlanLine():
            seen.plans[line.number] = line
            return "plan", line.group, line.message or f"plans nodes for {counted(len(line.placed), 'member')}"
        case EventLine():
            return "event", line.pod, f"{line.reason}: {line.note}"
        case CheckpointLine():
            return "checkpoint", "", f"the whole cluster: {line.objects} objects"
        case DroppedLine():
            return "dropped", "", f"{line.entries} calls, attempts and events are missing"


def _key(raw: msgspec.Raw) -> str:
    """Returns `namespace/name` of an object that is given as JSON; "" for null."""
    return decoded(raw, _METADATA, "object").key if raw != NULL else ""


def _change(line: ObjectLine, pod_keys: dict[str, str]) -> tuple[str, str]:
    """Returns the name of the changed object, and what happened to it."""
    if line.kind != POD:
        return f"{line.kind} {line.key}", "was deleted" if line.object == NULL else "was created or changed"
    if line.object == NULL:
        return pod_keys.get(line.key, line.key), "was deleted"
    key = pod_keys[line.key] = _key(line.object)
    if not line.node:
        return key, "is waiting"
    return key, f"is assumed on {line.node}" if line.assumed else f"is on {line.node}"


def _call(line: CallLine, seen: _Seen) -> tuple[str, str]:
    """Returns the name of the pod that the call was about, and the verb's answer in words."""
    if line.verb == "bind":
        binding, error = line.binding(), line.error or line.binding_error()
        text = f"bind to {binding.node}{f': {error}' if error else ''}"
        return f"{binding.pod_namespace}/{binding.pod_name}", text
    return _key(line.pod), f"{line.verb}: {_outcome(line, seen)}"


def _outcome(line: CallLine, seen: _Seen) -> str:
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
        return f"{seen.numbers.names[best]} is the best of {len(nodes)} nodes"
    refused = sum(len(from_ranges(ranges)) for ranges in (*line.refused.values(), *line.unresolvable.values()))
    plan = seen.plans.get(line.plan) if line.plan else None
    planned = plan.placed.get(_key(line.pod), "") if plan is not None else ""
    if planned and not refused:
        return f"{planned} remains, as planned for the pod group"
    return f"{len(nodes) - refused} of {len(nodes)} nodes remain"
