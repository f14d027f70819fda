"""The format of a recording: JSON lines, as plain text or gzip. docs/record-and-replay.md describes it for users.

A file begins with a header. Every later line is one of the structs below; the field `line` names the struct. Nodes are
numbered in the order in which a file first names them. A set of nodes is written as ranges of numbers, such as
"0-4999", so that even 5,000 nodes take few bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from extender.errors import MalformedCluster
from extender.extender_v1.messages import (
    NULL,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderPreemptionResult,
    MetaVictims,
    NodeVictims,
)
from extender.model.pod import Pod
from extender.verbs.verb import DECIDED

FORMAT_VERSION = 1
MOST_LINE_BYTES = 16 * 1024 * 1024
"""The longest line that the recorder writes and readers accept; it has room for the names of 100,000 nodes."""
_DIGITS = np.frombuffer(b"0123456789a", np.uint8)
_LAST_SECOND = 253_402_300_799  # 9999-12-31, the last day that `datetime` knows

T = TypeVar("T")
Numbers = NDArray[np.intp]
Seconds = Annotated[float, Meta(ge=0, le=_LAST_SECOND)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Draw = Annotated[int, Meta(ge=0)]
Verb = Literal["filter", "prioritize", "preempt", "bind"]
Outcome = Literal["decided", "passed", "failed"]


class _Line(msgspec.Struct, tag_field="line", rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """The base class of the lines of a recording; `at` is the time in seconds since the epoch."""

    at: Seconds


class RecordedSettings(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The settings that decisions depend on.

    Attributes:
        mode: serve, schedule, or record (the file has changes of a cluster, but no decisions).
        policy: the text of the policy; None if the process had no policy.
        kubernetes_version: the version of kube-scheduler to decide like; "" for that of the policy, or the newest.
        provider: the built-in set of rules that applies if there is no policy.
    """

    mode: str
    policy: str | None = None
    provider: Literal["DefaultProvider", "ClusterAutoscalerProvider"] = "DefaultProvider"
    feature_gates: str = ""
    kubernetes_version: str = ""
    score_scale: Literal["relative", "absolute"] = "relative"
    scheduler_filters: bool = True
    coscheduling: bool = False


class HeaderLine(_Line, tag="header"):
    """The first line of a file. `extender` is the version of the program that wrote the file."""

    version: int
    extender: str
    settings: RecordedSettings


class CheckpointLine(_Line, tag="checkpoint"):
    """Begins a copy of the whole cluster: the next `objects` lines replace all objects recorded before.

    `dropped` is the number of changes before this line that came too fast to be recorded.
    """

    moment: Count
    objects: Count
    dropped: Count = 0


class NodesLine(_Line, tag="nodes"):
    """The names of nodes that later lines refer to by number; numbers continue from the previous NodesLine."""

    names: list[str]


class ObjectLine(_Line, tag="object"):
    """An object was created or changed; without `object` it was deleted.

    Attributes:
        moment: the number of the change in the cache's journal.
        kind, key: identify the object; the key is namespace/name, but for a pod its UID.
        object: the fields that a rule can read, as JSON.
        node: the node that a pod is on, "" for a waiting pod.
        assumed: the pod is on the node because of a decision that no watch has confirmed yet.
    """

    moment: Count
    kind: str
    key: str
    object: msgspec.Raw = NULL
    node: str = ""
    assumed: bool = False


class CallLine(_Line, tag="call"):
    """A call of a verb and its answer; sets of nodes are written as ranges of numbers.

    Attributes:
        moment: the last change that the decision could see.
        result: "decided"; "passed" if no rule judged the request; "failed" if the answer is only an `error`.
        pod: the pod of filter, prioritize and preempt.
        nodes: the nodes that filter and prioritize were asked about.
        whole: True if the request had Node objects instead of names.
        outside: the Node objects of the request that the cache did not have.
        plan: the number of the PlanLine from which filter answered; 0 if filter used no plan for a member of a group;
            None if the pod is in no group.
        refused, unresolvable: filter's answer, as nodes by reason. No eviction helps on the `unresolvable` nodes.
        scores: prioritize's answer: a character for each node in the order of their numbers, 0 to 9, or a for 10.
        request, answer: for preempt, the victims by node; for bind, the bodies of the request and the answer.
    """

    moment: Count
    verb: Verb
    result: Outcome = "decided"
    pod: msgspec.Raw = NULL
    nodes: str = ""
    whole: bool = False
    outside: list[msgspec.Raw] = []
    plan: Count | None = None
    refused: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    scores: str = ""
    request: msgspec.Raw = NULL
    answer: msgspec.Raw = NULL
    error: str = ""

    def offered_victims(self) -> dict[str, NodeVictims]:
        """Returns the victims in a preempt request, by node. Raises MalformedCluster if the request is not valid."""
        return decoded(self.request, _VICTIMS, "request")

    def kept_victims(self) -> dict[str, MetaVictims]:
        """Returns the victims in a preempt answer, by node. Raises MalformedCluster if the answer is not valid."""
        return {} if self.answer == NULL else decoded(self.answer, _PREEMPTION, "answer").node_name_to_meta_victims

    def binding(self) -> ExtenderBindingArgs:
        """Returns the request of a bind. Raises MalformedCluster if the request is not valid."""
        return decoded(self.request, _BINDING, "request")

    def binding_error(self) -> str:
        """Returns the error in the answer of a bind, or "". Raises MalformedCluster if the answer is not valid."""
        return "" if self.answer == NULL else decoded(self.answer, _BOUND, "answer").error


class AttemptLine(_Line, tag="attempt"):
    """An attempt of the scheduling loop to choose a node for a pod; an EventLine has the final outcome.

    Attributes:
        moment: the last change that the decision could see.
        order: the nodes' numbers, in the order of the table's rows; "" if the order is unchanged since the last
            attempt.
        draws: the random numbers that were drawn, each as (number of bits, random number). Numbers of more than 64
            bits are left out.
        node: the chosen node. If it is "", `message` says why no node was chosen.
        plugins: the plugins that refused the pod; empty if an error ended the attempt.
        nominated_node, victims: the node on which preemption evicts pods, and the keys of those pods.
    """

    moment: Count
    pod: msgspec.Raw
    order: str = ""
    draws: list[tuple[Draw, Draw]] = []
    node: str = ""
    message: str = ""
    plugins: list[str] = []
    nominated_node: str = ""
    victims: list[str] = []


def decoded_pod(line: CallLine | AttemptLine) -> Pod:
    """Decodes the pod that the line is about. Raises MalformedCluster if the JSON is not a valid pod."""
    return decoded(line.pod, _POD, "pod")


class GroupTree(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A group in a recorded attempt: its waiting members, the UIDs of its placed members, and the groups below it."""

    kind: str
    key: str
    waiting: list[Pod] = []
    scheduled: list[str] = []
    children: list[GroupTree] = []


class _TreeLine(_Line, kw_only=True):
    """A decision about a pod group.

    Attributes:
        moment, order, draws: as in an AttemptLine.
        group: the group, as KIND NAMESPACE/NAME.
        tree: the group and its members at the time of the decision, as a GroupTree in JSON.
        message: why the group is refused; "" if the group is placed.
        placed: pod -> node, for the members that are placed.
    """

    moment: Count
    group: str
    tree: msgspec.Raw
    order: str = ""
    draws: list[tuple[Draw, Draw]] = []
    message: str = ""
    placed: dict[str, str] = {}

    def decoded_tree(self) -> GroupTree:
        """Decodes the group with its members. Raises MalformedCluster if the JSON is not a valid GroupTree."""
        return decoded(self.tree, _TREE, "tree")


class GroupLine(_TreeLine, tag="group"):
    """An attempt of the scheduling loop to place a root group; EventLines have the final outcome for its members.

    Attributes:
        failed: True if an error ended the attempt, so that there is no decision.
        victims: the keys of the pods that preemption evicts.
    """

    failed: bool = False
    victims: list[str] = []


class PlanLine(_TreeLine, tag="plan"):
    """A plan that filter made: a node for each waiting member of a pod group, or of a tree of groups.

    Filter makes the plan in a call about one member. It answers from the plan both this call and later calls about
    other members. The lines of these calls have the number of the plan.

    Attributes:
        number: identifies the plan in the recorded process.
        member: the UID of the member of the first call; "", in older recordings, means the first member in `tree`.
        nodes: the nodes in the request of the first call.
        before: the number of the plan that this plan replaces; 0 for a new plan. Members of the replaced plan that are
            not waiting in `tree` keep their nodes.
        emptied: True if the group fits only once all pods of lower priority have left.
    """

    number: Count
    member: str = ""
    nodes: str = ""
    before: Count = 0
    emptied: bool = False


class EventLine(_Line, tag="event"):
    """The outcome for a pod (bound, failed or preempted), as in the event sent to the API server."""

    pod: str
    type: str
    reason: str
    note: str


class DroppedLine(_Line, tag="dropped"):
    """Says that `entries` calls, attempts and events are missing here, because the recorder had to drop them."""

    entries: Count


DecisionLine = CallLine | AttemptLine | GroupLine | PlanLine
StepLine = CheckpointLine | ObjectLine | DecisionLine | EventLine | DroppedLine
"""The lines that count as a step of the recording: each records one event."""
Line = HeaderLine | NodesLine | StepLine
decode_line = msgspec.json.Decoder(Line).decode
encode_line = msgspec.json.Encoder().encode

_POD = msgspec.json.Decoder(Pod)
_TREE = msgspec.json.Decoder(GroupTree)
_VICTIMS = msgspec.json.Decoder(dict[str, NodeVictims])
_PREEMPTION = msgspec.json.Decoder(ExtenderPreemptionResult)
_BINDING = msgspec.json.Decoder(ExtenderBindingArgs)
_BOUND = msgspec.json.Decoder(ExtenderBindingResult)


def decoded(raw: msgspec.Raw, decoder: msgspec.json.Decoder[T], field: str) -> T:
    """Decodes the JSON in a line's field. Raises MalformedCluster, with the field's name, if the JSON is not valid."""
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedCluster(f"{field}: {error}") from None


class NodeNumbers:
    """Maps the names of nodes to their numbers in a file, and back."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._number_of: dict[str, int] = {}

    def add(self, names: Iterable[str]) -> None:
        """Gives each name the next number. Raises ValueError if a name has a number already."""
        for name in names:
            if self._number_of.setdefault(name, len(self.names)) != len(self.names):
                raise ValueError(f"node {name} is named twice")
            self.names.append(name)

    def unknown(self, names: Sequence[str]) -> list[str]:
        """Returns the names of nodes that have no number yet, without duplicates."""
        if all(map(self._number_of.__contains__, names)):
            return []
        return [name for name in dict.fromkeys(names) if name not in self._number_of]

    def numbers_of(self, names: Sequence[str]) -> Numbers:
        """Returns the numbers of these nodes: intp[len(names)]. Raises KeyError if a node has no number."""
        return np.fromiter(map(self._number_of.__getitem__, names), np.intp, len(names))

    def named(self, numbers: Numbers) -> list[str]:
        """Returns the names of the nodes with these numbers."""
        return [self.names[number] for number in numbers.tolist()]

    def check(self, line: Line) -> None:
        """Checks the numbers by which a line of the recording refers to nodes.

        Raises ValueError if a number is not the number of a node, if there are more numbers than nodes, or if the line
        has more or fewer scores than nodes.
        """
        if isinstance(line, CallLine):
            asked = self._check_ranges(line.nodes)
            for ranges in (*line.refused.values(), *line.unresolvable.values()):
                self._check_ranges(ranges)
            is_scored = line.verb == "prioritize" and line.result == DECIDED and not line.error
            if len(line.scores) != asked and (line.scores or is_scored):
                raise ValueError(f"got {len(line.scores)} scores for {asked} nodes")
            from_digits(line.scores)
        elif isinstance(line, AttemptLine | GroupLine | PlanLine):
            self._check_ranges(line.order)
        if isinstance(line, PlanLine):
            self._check_ranges(line.nodes)

    def _check_ranges(self, text: str) -> int:
        """Returns the number of nodes in the ranges. Raises ValueError if a range is not valid."""
        count = 0
        for begin, end in _ranges(text):
            count += end - begin + 1
            if not begin <= end < len(self.names) or count > len(self.names):
                raise ValueError(f"nodes {text[:100]}: only {len(self.names)} nodes are named before this line")
        return count


def as_ranges(numbers: Numbers) -> str:
    """Returns the numbers as text, such as "0-2,7" for 0, 1, 2, 7. Keeps their order, ascending or not."""
    if not len(numbers):
        return ""
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    begins, ends = numbers[np.append(0, breaks + 1)], numbers[np.append(breaks, len(numbers) - 1)]
    pairs = zip(begins.tolist(), ends.tolist(), strict=True)
    return ",".join(str(begin) if begin == end else f"{begin}-{end}" for begin, end in pairs)


def from_ranges(text: str) -> Numbers:
    """Returns the numbers in a text that `as_ranges` wrote. Raises ValueError if it is malformed."""
    ranges = [np.arange(begin, end + 1, dtype=np.intp) for begin, end in _ranges(text)]
    return np.concatenate(ranges) if ranges else np.zeros(0, np.intp)


def _ranges(text: str) -> list[tuple[int, int]]:
    """Returns the first and the last number of each range. Raises ValueError if the text is malformed."""
    parts = [part.partition("-") for part in text.split(",")] if text else []
    return [(int(begin), int(end or begin)) for begin, _, end in parts]


def as_digits(scores: NDArray[np.int64]) -> str:
    """Returns one character for each score from 0 to 10; `a` is ten."""
    return bytes(_DIGITS[scores.clip(0, 10)]).decode()


def from_digits(text: str) -> list[int]:
    """Returns the scores in a text that `as_digits` wrote. Raises ValueError if it is malformed."""
    return [int(digit, 11) for digit in text]


def elements(line: Line) -> int:
    """Returns the number of list and dict entries in a line, because each takes memory beyond its text."""
    match line:
        case NodesLine():
            return len(line.names)
        case CallLine():
            return len(line.outside) + len(line.refused) + len(line.unresolvable)
        case AttemptLine():
            return len(line.draws) + len(line.plugins) + len(line.victims)
        case GroupLine():
            return len(line.draws) + len(line.placed) + len(line.victims)
        case PlanLine():
            return len(line.draws) + len(line.placed)
        case _:
            return 0
