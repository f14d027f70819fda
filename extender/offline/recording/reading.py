"""A recording read back: its steps, and the cluster as it was at each of them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from extender.cache.changes import Present
from extender.cache.placements import PodPlacement
from extender.cache.pod_states import PodState
from extender.errors import MalformedCluster, MalformedQuantity
from extender.extender_v1.types import NULL
from extender.framework.profile import Profiles
from extender.model.devices.claims import PendingClaim
from extender.model.kinds import DECODERS
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.offline.cluster import Cluster
from extender.offline.recording.lines import (
    FORMAT_VERSION,
    AttemptLine,
    CallLine,
    CheckpointLine,
    HeaderLine,
    NodeNumbers,
    NodesLine,
    ObjectLine,
    StepLine,
    decode_line,
)
from extender.offline.recording.steps import RecordedStep, steps_of
from extender.table import PodInfo

T = TypeVar("T", bound=Object)
_GZIP = b"\x1f\x8b"
# The last is of no API: what the loop is about to allocate for a pod.
_DECODERS: Mapping[str, msgspec.json.Decoder[Any]] = {
    **DECODERS,
    PendingClaim.__name__: msgspec.json.Decoder(PendingClaim),
}
_POD = msgspec.json.Decoder(Pod)
_KEY_STEPS = 2000  # what is there is kept as of every so many steps

State = Mapping[tuple[str, str], ObjectLine]
"""The objects that are there, by kind and key."""


class Recording:
    """The steps of a recording, in their order, and the cluster at each of them.

        recording = Recording.load("recording.jsonl.gz")
        for step in recording.steps:
            print(step.number, step.at, step.kind, step.subject, step.text)
        cluster = recording.cluster(step.number)  # as the step found it: explain, decide, simulate ...
        cluster.explain(recording.pod(step.number)).to_dict()

    `steps` are made when they are first asked for; `cluster` goes back to the last of the states that it keeps, so that
    any step can be asked for, in any order.

    Attributes:
        header: the version, and the settings that decisions depend on.
        lines: as they stand in the files.
        numbers: the nodes' names by the numbers of the lines.
        truncated: the end is missing, as of a process that was killed.
    """

    def __init__(self, header: HeaderLine, lines: Sequence[StepLine], numbers: NodeNumbers, truncated: bool) -> None:
        self.header, self.lines, self.numbers, self.truncated = header, lines, numbers, truncated
        self._key_states: list[State] = []

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Reads one file; each file of a recording that was rotated stands for itself.

        Raises:
            MalformedCluster: it is no recording, of a version to come, or broken in the middle.
            OSError: it cannot be read.
        """
        path = Path(path)
        lines: list[StepLine] = []
        numbers, truncated = NodeNumbers(), False
        with path.open("rb") as file:
            texts = _texts(file)
            header = _header(path, next(texts, b""))
            for number, text in enumerate(texts, 2):
                try:
                    line = decode_line(text)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    truncated = next(texts, None) is None
                    if truncated:  # the end of a file that nobody has ended
                        break
                    raise MalformedCluster(f"{path}: line {number}: {error}") from None
                if isinstance(line, NodesLine):
                    numbers.add(line.names)
                elif not isinstance(line, HeaderLine):
                    lines.append(line)
        return cls(header, lines, numbers, truncated)

    @cached_property
    def steps(self) -> Sequence[RecordedStep]:
        return list(steps_of(self.lines, self.numbers))

    def state(self, number: int) -> State:
        """Returns what was there before the step, each object as its last line had it."""
        if not self._key_states:
            state: dict[tuple[str, str], ObjectLine] = {}
            for index, line in enumerate(self.lines):
                if index % _KEY_STEPS == 0:
                    self._key_states.append(state.copy())
                _take(state, line)
        begin = min(number // _KEY_STEPS, len(self._key_states) - 1)
        state = dict(self._key_states[begin])
        for line in self.lines[begin * _KEY_STEPS : number]:
            _take(state, line)
        return state

    def objects(self, number: int) -> Iterator[Object]:
        """Yields the objects before the step; pods stand where they count, assumed ones too."""
        for line in self.state(number).values():
            present = present_of(line)
            if isinstance(present, PodPlacement):
                yield present.info.pod.placed_on(present.node_name)
            elif isinstance(present, PodInfo):
                yield present.pod
            elif present is not None:
                yield present

    def cluster(self, number: int, profiles: Profiles | None = None) -> Cluster:
        """Returns the cluster before the step, under these profiles or kube-scheduler's defaults."""
        return Cluster(self.objects(number), profiles)

    def pod(self, number: int) -> Pod | None:
        """Returns the pod that the step, a call or an attempt, is about; None where its line holds none."""
        line = self.lines[number]
        if not isinstance(line, CallLine | AttemptLine) or line.pod == NULL:
            return None
        return _decoded(line.pod, _POD)


def present_of(line: ObjectLine) -> Present:
    """Returns the object as the journal of a cache has it. Raises MalformedCluster: it is no object of its kind."""
    if line.object == NULL:
        return None
    if line.kind not in _DECODERS:
        raise MalformedCluster(f"objects of kind {line.kind} are not known here")
    obj: Object = _decoded(line.object, _DECODERS[line.kind])
    if not isinstance(obj, Pod):
        return obj
    try:
        info = PodInfo(obj)
    except MalformedQuantity as error:
        raise MalformedCluster(f"{line.kind} {obj.key}: {error}") from None
    if not line.node:
        return info
    return PodPlacement(info, line.node, PodState.ASSUMED if line.assumed else PodState.ADDED)


def _decoded(raw: msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise MalformedCluster(f"{decoder.type.__name__}: {error}") from None


def _take(state: dict[tuple[str, str], ObjectLine], line: StepLine) -> None:
    if isinstance(line, ObjectLine):
        if line.object == NULL:
            state.pop((line.kind, line.key), None)
        else:
            state[line.kind, line.key] = line
    elif isinstance(line, CheckpointLine):
        state.clear()


def _texts(file: BinaryIO) -> Iterator[bytes]:
    """Yields the lines as far as there are any: a process that was killed leaves a file without its end."""
    is_gzip = file.peek(2)[:2] == _GZIP  # type: ignore[attr-defined]  # a BufferedReader
    try:
        yield from gzip.GzipFile(fileobj=file) if is_gzip else file
    except (EOFError, zlib.error, gzip.BadGzipFile):
        yield b""


def _header(path: Path, text: bytes) -> HeaderLine:
    try:
        header = decode_line(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        header = None
    if not isinstance(header, HeaderLine):
        raise MalformedCluster(f"{path}: this is no recording: `extender serve --record FILE` makes one")
    if header.version > FORMAT_VERSION:
        raise MalformedCluster(f"{path}: it has version {header.version}, and this program reads {FORMAT_VERSION}")
    return header
