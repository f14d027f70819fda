"""Reads a recording: its steps, each described in one line of text, and the cluster at each step."""

from __future__ import annotations

import gzip
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from extender.cache.changes import POD, Current
from extender.cache.pod_states import PodPlacement, PodState
from extender.errors import MalformedCluster, MalformedInput, MalformedQuantity
from extender.extender_v1.messages import NULL
from extender.model.devices import PendingClaim
from extender.model.kinds import ADMISSION_KINDS, DECODERS, KINDS
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.offline.answers import Documented
from extender.offline.cluster import Cluster
from extender.policy.loading import AnyPolicy
from extender.recording.lines import (
    FORMAT_VERSION,
    MOST_LINE_BYTES,
    AttemptLine,
    CallLine,
    CheckpointLine,
    DroppedLine,
    EventLine,
    GroupLine,
    HeaderLine,
    Line,
    NodeNumbers,
    NodesLine,
    ObjectLine,
    PlanLine,
    StepLine,
    decode_line,
    decoded,
    decoded_pod,
    elements,
    from_digits,
    from_ranges,
)
from extender.runtime.text import counted
from extender.snapshots.files import MOST_JSON_BYTES, naming_file
from extender.table import PodInfo
from extender.verbs.verb import DECIDED

_METADATA = msgspec.json.Decoder(Object)
_GZIP = b"\x1f\x8b"
_DECODERS: Mapping[str, msgspec.json.Decoder[Any]] = {
    **{name: DECODERS[kind.type] for name, kind in (*KINDS.items(), *ADMISSION_KINDS.items())},
    # A PendingClaim is not an API kind: it represents a claim that the loop is about to allocate for a pod.
    PendingClaim.__name__: msgspec.json.Decoder(PendingClaim),
}
MOST_BYTES = MOST_JSON_BYTES
_LINE_BYTES, _ELEMENT_BYTES = 512, 64
"""The approximate memory that a line, and each list or dict entry in it, takes beyond its text."""
_STATE_STEPS = 2000
_HEAD_BYTES = 4096

State = Mapping[tuple[str, str], ObjectLine]
"""(kind, key) -> the last recorded line of the object, for all objects of a cluster."""


class RecordedStep(Documented, frozen=True):
    """One step of a recording.

    Attributes:
        number: the position of the step, from 0.
        at: seconds since the epoch.
        kind: change, call, attempt, group, plan, event, checkpoint or dropped.
        subject: the pod (namespace/name), or the object ("Node worker-1", "PodGroup ml/train").
        text: what happened, in one line.
    """

    number: int = msgspec.field(name="step")
    at: float
    kind: str
    subject: str
    text: str


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


class Recording:
    """The steps of a recording in their order, and the cluster at each of them.

        recording = Recording.load("recording.jsonl.gz")
        for step in recording.steps:
            print(step.number, step.at, step.kind, step.subject, step.text)
        cluster = recording.cluster(step.number)  # as it was before the step: explain, decide, simulate ...
        cluster.explain(recording.pod(step.number)).to_dict()

    The methods may be called for steps in any order.

    Attributes:
        header: the version, and the settings that decisions depend on.
        lines: what happened, one line for each step.
        numbers: the nodes' names by the numbers that lines use.
        truncated: True if the end of the file is missing, because the process that wrote it was killed.
    """

    def __init__(self, header: HeaderLine, lines: Sequence[StepLine], numbers: NodeNumbers, truncated: bool) -> None:
        self.header = header
        self.lines = lines
        self.numbers = numbers
        self.truncated = truncated

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Reads one file. Each file of a rotated recording can be read alone.

        Raises:
            MalformedCluster: the file is not a recording, has a later version, is damaged, or is too large.
            OSError: the file cannot be read.
        """
        path = Path(path)
        lines: list[StepLine] = []
        numbers, size_bytes, truncated = NodeNumbers(), 0, False
        with naming_file(path), path.open("rb") as file:
            texts = _texts(file)
            header = _header(path, next(texts, b""))
            for number, text in enumerate(texts, 2):
                try:
                    line = _line(text, numbers)
                except ValueError as error:
                    truncated = len(text) <= MOST_LINE_BYTES and next(texts, None) is None
                    if truncated:
                        break
                    raise MalformedCluster(f"{path}: line {number}: {error}") from None
                size_bytes += len(text) + _LINE_BYTES + _ELEMENT_BYTES * elements(line)
                if size_bytes > MOST_BYTES:
                    raise MalformedCluster(
                        f"{path}: line {number}: the lines up to here take more than {MOST_BYTES} bytes"
                    )
                if not isinstance(line, NodesLine | HeaderLine):
                    lines.append(line)
        return cls(header, lines, numbers, truncated)

    @cached_property
    def steps(self) -> Sequence[RecordedStep]:
        """The steps, each with its description. Raises MalformedCluster if a line makes no sense."""
        seen, steps = _Seen(self.numbers), []
        for number, line in enumerate(self.lines):
            with naming_step(number):
                steps.append(RecordedStep(number, line.at, *_described(line, seen)))
        return steps

    @cached_property
    def _states(self) -> Sequence[tuple[int, State]]:
        """Copies of the state before some of the steps, as (step, copy). They save `state` from starting at step 0.

        A state of N objects is copied only if at least N lines have passed since the last copy. So all copies together
        have at most as many objects as the recording has lines.
        """
        state: dict[tuple[str, str], ObjectLine] = {}
        states: list[tuple[int, State]] = [(0, {})]
        for index, line in enumerate(self.lines):
            if index - states[-1][0] >= max(_STATE_STEPS, len(state)):
                states.append((index, state.copy()))
            _apply(state, line)
        return states

    def state(self, number: int) -> State:
        """Returns the cluster before the step: for each object that existed then, the line that last recorded it."""
        index = bisect_right(self._states, number, key=lambda pair: pair[0]) - 1
        begin, before = self._states[max(index, 0)]
        state = dict(before)
        for line in self.lines[begin:number]:
            _apply(state, line)
        return state

    def objects(self, number: int) -> Iterator[Object]:
        """Yields the objects before the step; assumed pods are on their nodes.

        Raises MalformedCluster if a recorded object is not valid.
        """
        for line in self.state(number).values():
            present = decoded_object(line)
            if isinstance(present, PodPlacement):
                yield present.info.pod.placed_on(present.node_name)
            elif isinstance(present, PodInfo):
                yield present.pod
            elif present is not None:
                yield present

    def cluster(self, number: int, policy: AnyPolicy | None = None) -> Cluster:
        """Returns the cluster before the step, with the rules of `policy` or kube-scheduler's defaults.

        Raises:
            MalformedCluster: an object in the recording makes no sense.
        """
        return Cluster(self.objects(number), policy)

    def pod(self, number: int) -> Pod | None:
        """Returns the pod of a call or an attempt; None if the step has no pod.

        Raises MalformedCluster if the recorded pod is not valid.
        """
        line = self.lines[number]
        if not isinstance(line, CallLine | AttemptLine) or line.pod == NULL:
            return None
        return decoded_pod(line)


def decoded_object(line: ObjectLine) -> Current:
    """Decodes the object of a line; a pod becomes a PodPlacement or PodInfo, as in the cache.

    Returns None if the object was deleted. Raises MalformedCluster if the recorded object is not valid.
    """
    if line.object == NULL:
        return None
    if line.kind not in _DECODERS:
        raise MalformedCluster(f"unknown kind {line.kind}")
    obj: Object = decoded(line.object, _DECODERS[line.kind], line.kind)
    if not isinstance(obj, Pod):
        if line.key != obj.key:
            raise MalformedCluster(f"{line.kind} {obj.key}: is recorded under another key, {line.key}")
        return obj
    try:
        info = PodInfo(obj)
    except MalformedQuantity as error:
        raise MalformedCluster(f"{line.kind} {obj.key}: {error}") from None
    if line.key != info.uid:
        raise MalformedCluster(f"{line.kind} {obj.key}: is recorded under another UID, {line.key}")
    if not line.node:
        return info
    return PodPlacement(info, line.node, PodState.ASSUMED if line.assumed else PodState.ADDED)


def _apply(state: dict[tuple[str, str], ObjectLine], line: StepLine) -> None:
    if isinstance(line, ObjectLine):
        if line.object == NULL:
            state.pop((line.kind, line.key), None)
        else:
            state[line.kind, line.key] = line
    elif isinstance(line, CheckpointLine):
        state.clear()


def _line(text: bytes, numbers: NodeNumbers) -> Line:
    """Decodes a line, and numbers the nodes in a NodesLine. Raises ValueError if the line is not valid."""
    if len(text) > MOST_LINE_BYTES:
        raise ValueError(f"it has more than {MOST_LINE_BYTES} bytes")
    try:
        line: Line = decode_line(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if isinstance(line, NodesLine):
        numbers.add(line.names)
    numbers.check(line)
    return line


def is_recording(path: Path) -> bool:
    """Returns True if the file begins as a recording of any version does. Raises OSError if it cannot be read."""
    with naming_file(path), path.open("rb") as file:
        return b'"line":"header"' in next(_texts(file), b"")[:_HEAD_BYTES].replace(b" ", b"")


def _texts(file: BinaryIO) -> Iterator[bytes]:
    """Yields the lines. If gzip data ends too early, because the process was killed, the last line is b""."""
    is_gzip = file.peek(2)[:2] == _GZIP  # type: ignore[attr-defined]  # the file is a BufferedReader
    stream = gzip.GzipFile(fileobj=file) if is_gzip else file
    try:
        while text := stream.readline(MOST_LINE_BYTES + 1):
            yield text
    except (EOFError, zlib.error, gzip.BadGzipFile):
        yield b""


def _header(path: Path, text: bytes) -> HeaderLine:
    try:
        header = decode_line(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        header = None
    if not isinstance(header, HeaderLine):
        raise MalformedCluster(f"{path}: this is not a recording: `extender record FILE` makes one")
    if header.version > FORMAT_VERSION:
        raise MalformedCluster(
            f"{path}: it has version {header.version}, and this program reads {FORMAT_VERSION}: use the version of "
            f"extender that wrote it ({header.extender}), or a later one"
        )
    return header
