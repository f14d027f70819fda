"""Implements filter: returns the nodes that can take the pod, and the reason for each other node."""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from extender.cache.cache import Cache
from extender.extender_v1.messages import (
    ExtenderArgs,
    ExtenderFilterResult,
    NamesReader,
    decode_args,
    encode_filter,
    validate_filter,
)
from extender.framework.find_fit import FITS, Fit, find_fit
from extender.framework.profile import Profile, Profiles
from extender.framework.status import Code, Refusal
from extender.model.pod import Pod
from extender.preemption import leaving_victims
from extender.runtime.clock import NO_LIMIT, Deadline, TimeLimit
from extender.runtime.ports import Telemetry
from extender.table import PodInfo, Table
from extender.table.labels import Rows
from extender.verbs.group_planning import (
    BesideSiblings,
    GroupAnswers,
    PlannedNode,
    RefusedGroup,
    is_member,
    rows_in_dry_run,
)
from extender.verbs.refused_pods import RefusedPods
from extender.verbs.verb import RecentPreemptors, Summary

UNKNOWN_NODE = "node(s) unknown to the extender"
ELSEWHERE = "node(s) other than the one to which the pod may already be bound"
_MOST_REASON_CHARACTERS = 1024  # kube-scheduler cuts longer reasons


class Filter:
    """The filter verb. Upstream counterpart: HTTPExtender.Filter."""

    name = "filter"

    def __init__(
        self,
        cache: Cache,
        profiles: Profiles,
        telemetry: Telemetry,
        reader: NamesReader | None = None,
        limit: TimeLimit = NO_LIMIT,
        refused: RefusedPods | None = None,
        preemptors: RecentPreemptors | None = None,
        *,
        scheduler_filters: bool = True,
        plans: GroupAnswers | None = None,
    ) -> None:
        """
        Args:
            refused: records the pods that fit no node.
            preemptors: the pods for which preempt named victims; filter waits until the victims are gone.
            scheduler_filters: True if kube-scheduler runs its own filters before it calls this verb. It then also calls
                this verb in the dry run of a pod group's preemption.
            plans: plans pod groups as a whole; without it, members are judged one by one.
        """
        self._cache = cache
        self._profiles = profiles
        self._telemetry = telemetry
        self._limit = limit
        self._reader = reader or NamesReader()
        self._refused = refused
        self._preemptors = preemptors
        self._scheduler_filters = scheduler_filters
        self._plans = plans

    def decode(self, body: bytes) -> ExtenderArgs:
        return decode_args(body, self._reader)

    def decide(self, request: ExtenderArgs) -> ExtenderFilterResult:
        deadline = self._limit.begin()
        wakes = self._refused.wakes if self._refused else 0
        info = self._cache.info_of(request.pod)
        if info is None:
            info = PodInfo(request.pod)
            self._cache.remember(info, request.pod_bytes)
        profile = self._profiles.of(request.pod)
        result, rules = self._answer(request, info, profile, deadline)
        while not result.passed and self._waits(request):
            result, rules = self._answer(request, info, profile, deadline)
        if self._refused is not None:
            self._refused.note(request.pod, refused=bool(request.names) and not result.passed, rules=rules, wakes=wakes)
        return result

    def _waits(self, request: ExtenderArgs) -> bool:
        return self._preemptors is not None and self._preemptors.wait(request.pod.uid, request.names)

    def _answer(
        self, request: ExtenderArgs, info: PodInfo, profile: Profile, deadline: Deadline
    ) -> tuple[ExtenderFilterResult, Set[str]]:
        """Returns the answer from the current state of the cache, and the rules that rejected a node."""
        planned = self._plans.answer(info, request.names, profile, deadline) if self._plans is not None else None
        match planned:
            case PlannedNode(node_name):
                return replace(_result(request, {}, {}), best=node_name), frozenset()
            case RefusedGroup(reason, rules):
                return _result(request, dict.fromkeys(request.names, _cut(reason)), {}), rules
            case BesideSiblings(siblings):
                return self._judge(request, info, profile, deadline, siblings)
            case None:
                return self._judge(request, info, profile, deadline)

    def _judge(
        self,
        request: ExtenderArgs,
        info: PodInfo,
        profile: Profile,
        deadline: Deadline,
        siblings: Sequence[tuple[PodInfo, str]] = (),
    ) -> tuple[ExtenderFilterResult, Set[str]]:
        """Judges the pod on the nodes in the request; returns the answer, and the rules that rejected a node.

        `siblings` are other members of the pod's group with their planned nodes. They count as placed on these nodes.
        """
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        rules: set[str] = set()
        with self._cache.snapshot(self.name, deadline) as table, _beside(siblings, table):
            place = assumed_node(info, table)
            if place and place in request.names and _still_fits(place, profile, info, table):
                return _result(request, dict.fromkeys(set(request.names) - {place}, ELSEWHERE), {}), frozenset()
            nodes = requested_nodes(request, table)
            fits = [find_fit(profile, info, part.table, part.rows) for part in nodes.parts]
            if self._scheduler_filters and is_member(info.pod) and not any(len(fit.feasible) for fit in fits):
                # The call may belong to a dry run of the group's preemption. If not, `bind` refuses the node.
                for fit, part in zip(fits, nodes.parts, strict=True):
                    fit.accept(rows_in_dry_run(profile, info, part.table, part.rows))
            for fit, part in zip(fits, nodes.parts, strict=True):
                rules |= self._sort(fit, part.table, info.pod, failed, unresolvable)
        unresolvable |= dict.fromkeys(nodes.unknown, UNKNOWN_NODE)
        return _result(request, failed, unresolvable), rules

    def allow_all(self, request: ExtenderArgs) -> ExtenderFilterResult:
        return _result(request, {}, {})

    def failed(self, request: ExtenderArgs, message: str) -> ExtenderFilterResult:
        return ExtenderFilterResult(error=message)

    def encode(self, request: ExtenderArgs, result: ExtenderFilterResult) -> bytes:
        validate_filter(request.names, result)
        return encode_filter(result)

    def summary(self, request: ExtenderArgs, result: ExtenderFilterResult) -> Summary:
        return Summary(len(request.names), len(result.passed))

    def _sort(self, fit: Fit, table: Table, pod: Pod, failed: dict[str, str], unresolvable: dict[str, str]) -> Set[str]:
        """Adds each rejected node to `failed` or `unresolvable`; returns the rules that rejected a node."""
        if not fit.refusals:
            return frozenset()
        by_plugin = fit.by_plugin()
        for plugin, nodes in by_plugin.items():
            self._telemetry.refused(plugin or "PreFilter", nodes)
        waits_at = _node_with_leaving_victims(pod, table)
        reasons = [_reason(refusal) for refusal in fit.refusals]
        for row, cause in zip(fit.rows.tolist(), fit.cause.tolist(), strict=True):
            if cause != FITS:
                name = table.nodes.names[row]
                final = fit.refusals[cause].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE and name != waits_at
                (unresolvable if final else failed)[name] = reasons[cause]
        return by_plugin.keys()


def _beside(siblings: Sequence[tuple[PodInfo, str]], table: Table) -> AbstractContextManager[None]:
    """Places other members of the pod's group on their planned nodes in `table`, until the `with` block ends."""
    return table.hypothetically(placed=siblings) if siblings else nullcontext()


def _still_fits(node: str, profile: Profile, info: PodInfo, table: Table) -> bool:
    """Returns True if the node exists, and the pod, which is assumed there, would still fit."""
    row = table.nodes.row_of[node]
    if not table.nodes.present[row]:
        return False
    with table.hypothetically(removed=[info.uid]):
        return find_fit(profile, info, table, np.array([row], np.intp)).refusal(0) is None


def _reason(refusal: Refusal) -> str:
    return _cut(", ".join(refusal.reasons[:_MOST_REASON_CHARACTERS]) or f"refused by {refusal.plugin}")


def _cut(reason: str) -> str:
    return reason if len(reason) <= _MOST_REASON_CHARACTERS else f"{reason[: _MOST_REASON_CHARACTERS - 3]}..."


def _node_with_leaving_victims(pod: Pod, table: Table) -> str:
    """Returns the pod's nominated node if pods of lower priority are terminating there; "" otherwise.

    If the answer called that node unresolvable, kube-scheduler would evict more pods on another node.
    """
    row = table.nodes.row_of.get(pod.status.nominated_node_name, -1)
    if row < 0:
        return ""
    return pod.status.nominated_node_name if len(leaving_victims(table, row, pod.priority)) else ""


def _result(request: ExtenderArgs, failed: dict[str, str], unresolvable: dict[str, str]) -> ExtenderFilterResult:
    names, nodes = request.node_names, request.nodes
    if failed or unresolvable:
        refused = failed.keys() | unresolvable.keys()
        names = None if names is None else [name for name in names if name not in refused]
        nodes = None if nodes is None else [node for node in nodes if node.name not in refused]
    return ExtenderFilterResult(
        nodes=nodes, node_names=names, failed_nodes=failed, failed_and_unresolvable_nodes=unresolvable
    )


def assumed_node(info: PodInfo, table: Table) -> str:
    """Returns the name of the node where the pod is assumed, until the watch shows the pod there; otherwise "".

    While a pod is assumed, bind refuses every other node for it, even if its own node was deleted.
    """
    slot = table.pods.slot_of.get(info.uid)
    if slot is None or table.pods.info(slot).pod.node_name:
        return ""
    name: str = table.nodes.names[table.pods.row[slot]]
    return name


class Part(NamedTuple):
    """The nodes of a request that are rows of `table`. `positions` are their indices in `RequestedNodes.names`."""

    table: Table
    rows: Rows
    positions: NDArray[np.intp]


class RequestedNodes(NamedTuple):
    """The nodes of a request.

    Attributes:
        names: the names in the request, without duplicates.
        parts: the rows of the nodes, by table.
        unknown: the names of the nodes that are in no table.
    """

    names: list[str]
    parts: Sequence[Part]
    unknown: Sequence[str]


def requested_nodes(args: ExtenderArgs, table: Table) -> RequestedNodes:
    """Returns the nodes of a filter or prioritize request as rows of tables.

    Nodes in the cache become rows of `table`, even if the request contains whole Node objects. Node objects that the
    cache does not know, such as an autoscaler's templates, become rows of a second table, which only this request uses.
    """
    names, nodes = args.names, table.nodes
    rows = nodes.rows_of(names)
    if rows is None:  # a name is unknown or occurs twice
        names = list(dict.fromkeys(names))
        rows = np.fromiter(map(nodes.row_of.get, names, repeat(-1)), np.intp, len(names))
    elif np.count_nonzero(nodes.present[rows]) == len(rows):
        return RequestedNodes(names, [Part(table, rows, np.arange(len(names)))], ())
    known = (rows >= 0) & nodes.present[rows]
    parts = [Part(table, rows[known], np.flatnonzero(known))]
    unknown = [(position, names[position]) for position in np.flatnonzero(~known).tolist()]
    if args.node_names is None:
        parts.append(_nodes_outside_cache(args, dict(unknown), table))
        unknown = []
    return RequestedNodes(names, parts, [name for _, name in unknown])


def _nodes_outside_cache(args: ExtenderArgs, unknown: dict[int, str], cached: Table) -> Part:
    sent = {node.name: node for node in args.nodes or ()}
    table = Table(cached.features)
    table.deadline = cached.deadline
    for name in unknown.values():
        table.set_node(sent[name].node)
    rows = np.array([table.nodes.row_of[name] for name in unknown.values()], np.intp)
    return Part(table, rows, np.array(list(unknown), np.intp))
