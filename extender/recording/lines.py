"""The format of a recording: JSON lines, as plain text or gzip. docs/record-and-replay.md describes it for users.

A file begins with a header. Every later line is one of the structs below; the field `line` names the struct. Nodes are
numbered in the order in which a file first names them. A set of nodes is written as ranges of numbers, such as
"0-4999", so that even 5,000 nodes take few bytes. `LineEncoder` turns changes, calls and attempts into lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from extender.cache.changes import NODE, Current, Updates
from extender.cache.pod_states import PodPlacement, PodState
from extender.engine.decision import Chosen, Failure
from extender.errors import MalformedCluster
from extender.extender_v1.messages import (
    NULL,
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    HostPriorityList,
    MetaVictims,
    NodeVictims,
    encode,
)
from extender.groups import GroupDecision, Leaf, Tree
from extender.groups.group_tree import waiting_members
from extender.model.devices import PendingClaim
from extender.model.extender_config import WHOLE
from extender.model.kinds import KINDS
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.model.redaction import ObjectT, Redaction, without_manifests
from extender.table import PodInfo
from extender.verbs.group_planning import Plan, PlanRequest
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
    return sum(len(value) for value in msgspec.structs.astuple(line) if isinstance(value, list | dict))


_WHOLE = tuple(WHOLE.values())


RECORDED_KINDS = frozenset((*KINDS, PendingClaim.__name__))


class DecisionHead(NamedTuple):
    """The values that the lines of attempts, groups and plans share.

    Attributes:
        order: the names of the nodes in the order of the table's rows; None if the order is unchanged since the last
            recorded decision.
    """

    at: float
    moment: int
    order: Sequence[str] | None
    draws: list[tuple[int, int]]


class LineEncoder:
    """Creates the lines of one recording. Keeps a copy of the cluster, and the numbers of the nodes.

    Each method yields the lines of one event, usually one line. Call the methods in the order of the events.

    Args:
        redaction: replaces names in objects by hashes, but not names in calls and attempts. None keeps all names.
    """

    def __init__(self, redaction: Redaction | None = None) -> None:
        self._redaction = redaction
        self._present: dict[tuple[str, str], tuple[int, Current]] = {}
        self._numbers = NodeNumbers()
        self._order: Sequence[str] | None = None
        self._order_written = False
        self._moment = 0

    def begin_file(self, at: float) -> Iterator[Line]:
        """Yields the lines that follow a file's header: the whole cluster as it is now."""
        self._numbers = NodeNumbers()
        self._order_written = False
        self._learn(present for _, present in self._present.values())
        if self._present:
            yield CheckpointLine(at=at, moment=self._moment, objects=len(self._present))
        for (kind, key), (_, present) in list(self._present.items()):
            yield self._object_line(at, self._moment, kind, key, present)

    def change(self, at: float, moment: int, kind: str, key: str, present: Current) -> Iterator[Line]:
        """Yields the line that records a changed object; `present` is its new value, None if it was deleted.

        Objects of kinds that only users' rules read are not recorded.
        """
        self._moment = moment
        if kind not in RECORDED_KINDS:
            return
        if present is None:
            self._present.pop((kind, key), None)
        else:
            self._present[kind, key] = moment, present
        yield self._object_line(at, moment, kind, key, present)

    def checkpoint(self, at: float, moment: int, updates: Updates, dropped: int) -> Iterator[Line]:
        """Yields lines for all objects of the cluster, because `dropped` earlier changes were not recorded."""
        self._present.clear()
        self._learn(update.current for update in updates)
        objects = sum(update.kind in RECORDED_KINDS for update in updates)
        yield CheckpointLine(at=at, moment=moment, objects=objects, dropped=dropped)
        for kind, key, present in updates:
            yield from self.change(at, moment, kind, key, present)

    def _object_line(self, at: float, moment: int, kind: str, key: str, present: Current) -> ObjectLine:
        line = ObjectLine(at=at, moment=moment, kind=kind, key=key)
        obj = _object(present)
        if isinstance(present, PodPlacement):
            line.node = present.node_name
            line.assumed = present.state is not PodState.ADDED
        if self._redaction is not None:
            self._learn([present])
            line.key = self._redaction.key(kind, key)
            line.node = self._redaction.text(line.node)
        if obj is not None:
            line.object = _raw(obj, self._redaction)
        return line

    def _learn(self, values: Iterable[Current]) -> None:
        if self._redaction is not None:
            self._redaction.learn([obj for obj in map(_object, values) if obj is not None])

    def call(
        self, at: float, moment: int, verb: str, outcome: str, request: Any, result: Any, error: str, plan: int = 0
    ) -> Iterator[Line]:
        """Yields the lines that record a call of a verb.

        Args:
            result: the verb's answer; None if the answer was only an error.
            plan: the number of the plan for a pod group from which filter answered; 0 if filter used no plan.
        """
        line = CallLine(at=at, moment=moment, verb=cast(Verb, verb), result=cast(Outcome, outcome), error=error)
        if hasattr(request, "pod"):
            line.pod = _raw(request.pod)
        if isinstance(request, ExtenderArgs):
            try:
                numbers = self._numbers.numbers_of(request.names)
            except KeyError:  # a node has no number yet, which is rare
                yield from self._naming(at, request.names)
                numbers = self._numbers.numbers_of(request.names)
            line.nodes = as_ranges(np.unique(numbers))
            line.whole = request.node_names is None
            line.outside = self._outside(request, moment)
        elif line.pod != NULL:
            line.request = msgspec.Raw(
                encode_line({node: _essence(victims) for node, victims in request.victims.items()})
            )
        else:
            line.request = msgspec.Raw(encode_line(request))
        if isinstance(result, ExtenderFilterResult):
            line.refused = self._by_reason(result.failed_nodes)
            line.unresolvable = self._by_reason(result.failed_and_unresolvable_nodes)
            line.error = line.error or result.error
            line.plan = plan if plan or request.pod.group_key is not None else None
        elif isinstance(result, HostPriorityList):
            hosts = numbers if result.hosts is request.names else self._numbers.numbers_of(result.hosts)
            line.scores = as_digits(result.scores[np.unique(hosts, return_index=True)[1]])
        elif result is not None:
            line.answer = msgspec.Raw(encode(result))
        yield line

    def _outside(self, request: ExtenderArgs, moment: int) -> list[msgspec.Raw]:
        """Returns the Node objects of the request that the cache did not have at `moment`."""
        if request.node_names is not None:
            return []
        nodes = ((node.node, self._present.get((NODE, node.name))) for node in request.nodes or ())
        return [_raw(node) for node, cached in nodes if cached is None or cached[0] > moment]

    def _by_reason(self, refused: Mapping[str, str]) -> dict[str, str]:
        nodes: dict[str, list[str]] = {}
        for name, reason in refused.items():
            nodes.setdefault(reason, []).append(name)
        return {reason: as_ranges(np.unique(self._numbers.numbers_of(names))) for reason, names in nodes.items()}

    def attempt(self, head: DecisionHead, info: PodInfo, decided: Chosen | Failure) -> Iterator[Line]:
        """Yields the lines that record an attempt to schedule a pod."""
        line = AttemptLine(at=head.at, moment=head.moment, pod=_raw(info.pod), draws=head.draws)
        yield from self._ordering(line, head.order)
        if isinstance(decided, Chosen):
            line.node = decided.node_name
        else:
            line.message = decided.message
            line.plugins = sorted(decided.rejection.rules)
            if (plan := decided.preemption) is not None:
                line.nominated_node = plan.node_name
                line.victims = [victim.pod.key for victim in plan.victims]
        yield line

    def group(
        self, head: DecisionHead, decision: GroupDecision, victims: Sequence[PodInfo], *, is_failed: bool = False
    ) -> Iterator[Line]:
        """Yields the lines that record an attempt to schedule a group."""
        tree = decision.tree
        line = GroupLine(
            at=head.at, moment=head.moment, group=_named(tree),
            tree=msgspec.Raw(encode_line(_tree(tree))), draws=head.draws, message=decision.text,
            failed=is_failed,
        )  # fmt: skip
        yield from self._ordering(line, head.order)
        line.placed = decided_nodes(decision)
        line.victims = [victim.pod.key for victim in victims]
        yield line

    def plan(self, head: DecisionHead, plan: Plan, request: PlanRequest) -> Iterator[Line]:
        """Yields the lines that record filter's plan for a group."""
        line = PlanLine(
            at=head.at, moment=head.moment, number=plan.number, group=_named(request.tree),
            tree=msgspec.Raw(encode_line(_tree(request.tree))), member=request.call.info.uid, draws=head.draws,
            emptied=plan.is_emptied,
        )  # fmt: skip
        yield from self._ordering(line, head.order)
        yield from self._naming(head.at, request.call.names)
        line.nodes = as_ranges(np.unique(self._numbers.numbers_of(request.call.names)))
        line.before = request.before.number if request.before is not None else 0
        line.message = plan.refusal.reason if plan.refusal is not None else ""
        line.placed = planned_nodes(plan)
        yield line

    def _ordering(self, line: AttemptLine | GroupLine | PlanLine, order: Sequence[str] | None) -> Iterator[Line]:
        """Sets `line.order` if the order of nodes has changed; yields the lines that give new nodes a number."""
        if order is not None:
            self._order = order
            self._order_written = False
        if self._order is not None and not self._order_written:
            yield from self._naming(line.at, self._order)
            line.order = as_ranges(self._numbers.numbers_of(self._order))
            self._order_written = True

    def _naming(self, at: float, names: Sequence[str]) -> Iterator[Line]:
        if unknown := self._numbers.unknown(names):
            self._numbers.add(unknown)
            yield NodesLine(at=at, names=unknown)


def _object(present: Current) -> Object | None:
    """Returns the pod of a PodPlacement or PodInfo; returns any other value unchanged."""
    if isinstance(present, PodPlacement):
        return present.info.pod
    return present.pod if isinstance(present, PodInfo) else present


def _raw(obj: Object, redaction: Redaction | None = None) -> msgspec.Raw:
    """Returns the object as JSON, with the fields that a rule can read and no others."""
    obj = without_documents(obj)
    return msgspec.Raw(encode_line(obj if redaction is None else redaction.redact(obj)))


def _named(tree: Tree) -> str:
    return f"{type(tree.group).__name__} {tree.group.key}"


def _tree(tree: Tree) -> GroupTree:
    written = GroupTree(kind=type(tree.group).__name__, key=tree.group.key)
    if isinstance(tree, Leaf):
        written.waiting = [without_documents(info.pod) for info in tree.waiting]
        written.scheduled = list(tree.scheduled)
    else:
        written.children = [_tree(child) for child in tree.children]
    return written


def decided_nodes(decision: GroupDecision) -> dict[str, str]:
    """Returns {key of the pod: node} for the members that the decision places."""
    keys = {info.uid: info.pod.key for info in waiting_members(decision.tree)}
    return {keys[uid]: node for uid, node in decision.placed.items()}


def planned_nodes(plan: Plan) -> dict[str, str]:
    """Returns {key of the pod: node} for the members that the plan places."""
    return {info.pod.key: node for uid, info in plan.members.items() if (node := plan.node_of(uid)) is not None}


def _essence(victims: NodeVictims) -> NodeVictims:
    pods = None if victims.pods is None else [without_documents(pod) for pod in victims.pods]
    return msgspec.structs.replace(victims, pods=pods)


def without_documents(obj: ObjectT) -> ObjectT:
    """Returns the object without its original JSON, and without annotations that repeat its whole manifest.

    The JSON and the annotations contain environment variables and commands, which must not get into a recording.
    """
    if isinstance(obj, _WHOLE):
        obj = msgspec.structs.replace(obj, document=b"")
    return without_manifests(obj)
