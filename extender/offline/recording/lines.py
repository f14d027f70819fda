"""The format of a recording: JSON lines, with gzip if asked. docs/record-and-replay.md describes it for users.

A file begins with a header; each line after it is one of the structs below, told apart by its field `line`. Nodes are
numbered as they are first named, so that the names of 5,000 nodes take ten bytes; a set of them is written in ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from extender.extender_v1.types import NULL
from extender.verbs.verb import DECIDED

FORMAT_VERSION = 1
_DIGITS = np.frombuffer(b"0123456789a", np.uint8)

Numbers = NDArray[np.intp]


class _Line(msgspec.Struct, tag_field="line", rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """Attributes: at: seconds since the epoch."""

    at: float


class RecordedSettings(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The settings that decisions depend on.

    Attributes:
        mode: serve, schedule or record (a cluster's changes, with no decisions).
        policy: the text of the policy; None: the provider's rules.
    """

    mode: str
    policy: str | None = None
    provider: str = "DefaultProvider"
    feature_gates: str = ""
    score_scale: str = "relative"


class HeaderLine(_Line, tag="header"):
    """The first line. `extender` is the version of the program that wrote it."""

    version: int
    extender: str
    settings: RecordedSettings


class CheckpointLine(_Line, tag="checkpoint"):
    """All that was there at this moment: the next `objects` lines; what stood before is void.

    `dropped`: so many changes were not written before, for they came faster than they could be.
    """

    moment: int
    objects: int
    dropped: int = 0


class NodesLine(_Line, tag="nodes"):
    """Nodes that the lines to come name, in the order of their numbers, which go on from the lines before."""

    names: list[str]


class ObjectLine(_Line, tag="object"):
    """An object came or has changed; without `object` it is gone.

    Attributes:
        moment: the number of the change.
        kind, key: its key is namespace/name, or the UID of a pod.
        object: its JSON, with the fields that something reads.
        node: where a pod counts, "" for one that waits.
        assumed: it counts there by a decision that no watch has confirmed yet.
    """

    moment: int
    kind: str
    key: str
    object: msgspec.Raw = NULL
    node: str = ""
    assumed: bool = False


class CallLine(_Line, tag="call"):
    """A call of a verb and its answer; lists of nodes are sets of numbers.

    Attributes:
        moment: the last change that the decision has seen.
        verb: filter, prioritize, preempt or bind.
        result: decided; passed (unjudged); failed (no answer but `error`).
        pod: of filter, prioritize and preempt.
        nodes: the nodes asked about by filter and prioritize.
        whole: they came whole, and `outside` are those that the cache did not know.
        refused, unresolvable: of filter: reason -> nodes.
        scores: of prioritize: a digit for each of the nodes by number, `a` is ten.
        request, answer: of preempt the victims by node, of bind the bodies.
    """

    moment: int
    verb: str
    result: str = DECIDED
    pod: msgspec.Raw = NULL
    nodes: str = ""
    whole: bool = False
    outside: list[msgspec.Raw] = []
    refused: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    scores: str = ""
    request: msgspec.Raw = NULL
    answer: msgspec.Raw = NULL
    error: str = ""


class AttemptLine(_Line, tag="attempt"):
    """An attempt of the loop to place a pod, up to its choice; what became of it later is an EventLine.

    Attributes:
        moment: the last change that the decision has seen.
        order: the rows of the table, as numbers of nodes; "" where they are as for the attempt before.
        draws: the random numbers that were drawn, [bits, number] each, those of up to 64 bits.
        node: the node chosen; "": none, for the reasons in `message`.
        plugins: those that refused it; none after an error.
        nominated_node, victims: where preemption makes room, and the keys of the pods that leave.
    """

    moment: int
    pod: msgspec.Raw
    order: str = ""
    draws: list[tuple[int, int]] = []
    node: str = ""
    message: str = ""
    plugins: list[str] = []
    nominated_node: str = ""
    victims: list[str] = []


class EventLine(_Line, tag="event"):
    """An outcome that the loop told of a pod: bound, failed, preempted; as the Events that the API server has."""

    pod: str
    type: str
    reason: str
    note: str


class DroppedLine(_Line, tag="dropped"):
    """So many calls, attempts and events are missing here."""

    entries: int


StepLine = CheckpointLine | ObjectLine | CallLine | AttemptLine | EventLine | DroppedLine
"""Something that happened."""
Line = HeaderLine | NodesLine | StepLine
decode_line = msgspec.json.Decoder(Line).decode
encode_line = msgspec.json.Encoder().encode


class NodeNumbers:
    """The numbers of the nodes that a file names."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._number_of: dict[str, int] = {}

    def add(self, names: Iterable[str]) -> None:
        for name in names:
            self._number_of[name] = len(self.names)
            self.names.append(name)

    def unknown(self, names: Sequence[str]) -> list[str]:
        """Returns the names without a number, each once."""
        if all(map(self._number_of.__contains__, names)):
            return []
        return [name for name in dict.fromkeys(names) if name not in self._number_of]

    def of(self, names: Sequence[str]) -> Numbers:
        """Returns the numbers of known names: intp[n]."""
        return np.fromiter(map(self._number_of.__getitem__, names), np.intp, len(names))

    def named(self, numbers: Numbers) -> list[str]:
        return [self.names[number] for number in numbers.tolist()]


def as_ranges(numbers: Numbers) -> str:
    """Returns "0-2,7" for 0, 1, 2, 7; an order that is not ascending is kept."""
    if not len(numbers):
        return ""
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    begins, ends = numbers[np.append(0, breaks + 1)], numbers[np.append(breaks, len(numbers) - 1)]
    pairs = zip(begins.tolist(), ends.tolist(), strict=True)
    return ",".join(str(begin) if begin == end else f"{begin}-{end}" for begin, end in pairs)


def from_ranges(text: str) -> Numbers:
    """Returns the numbers that `as_ranges` has written. Raises ValueError."""
    parts = [part.partition("-") for part in text.split(",")] if text else []
    ranges = [np.arange(int(begin), int(end or begin) + 1, dtype=np.intp) for begin, _, end in parts]
    return np.concatenate(ranges) if ranges else np.zeros(0, np.intp)


def as_digits(scores: NDArray[np.int64]) -> str:
    """Returns a digit for each score of 0..10."""
    return bytes(_DIGITS[scores.clip(0, 10)]).decode()


def from_digits(text: str) -> list[int]:
    return [int(digit, 11) for digit in text]
