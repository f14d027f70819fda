"""Turns changes, calls and attempts into the lines of a recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from extender.cache.changes import NODE, Current, Updates
from extender.cache.placements import PodPlacement
from extender.cache.pod_states import PodState
from extender.engine.decision import Chosen, Failure
from extender.extender_v1.codec import encode
from extender.extender_v1.messages import NULL, ExtenderArgs, ExtenderFilterResult, HostPriorityList, NodeVictims
from extender.groups import GroupDecision, Leaf, Tree
from extender.groups.group_tree import waiting_members
from extender.model.devices import PendingClaim
from extender.model.extender_config import WHOLE
from extender.model.kinds import KINDS
from extender.model.meta import Object
from extender.model.redaction import ObjectT, Redaction, without_manifests
from extender.recording.lines import (
    AttemptLine,
    CallLine,
    CheckpointLine,
    GroupLine,
    GroupTree,
    Line,
    NodeNumbers,
    NodesLine,
    ObjectLine,
    Outcome,
    PlanLine,
    Verb,
    as_digits,
    as_ranges,
)
from extender.table import PodInfo
from extender.verbs.group_planning import Plan, PlanRequest

_ENCODE = msgspec.json.Encoder().encode
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
            line.request = msgspec.Raw(_ENCODE({node: _essence(victims) for node, victims in request.victims.items()}))
        else:
            line.request = msgspec.Raw(_ENCODE(request))
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
            tree=msgspec.Raw(_ENCODE(_tree(tree))), draws=head.draws, message=decision.text,
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
            tree=msgspec.Raw(_ENCODE(_tree(request.tree))), member=request.call.info.uid, draws=head.draws,
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
    return msgspec.Raw(_ENCODE(obj if redaction is None else redaction.redact(obj)))


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
