"""filter: which of the nodes can take the pod, and why not the others."""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.cache.cache import Cache
from extender.extender_v1.decoding import NamesReader, decode_args
from extender.extender_v1.encoding import encode_filter, validate_filter
from extender.extender_v1.types import ExtenderArgs, ExtenderFilterResult
from extender.framework.find_fit import FITS, Fit, find_fit
from extender.framework.profile import Profile, Profiles
from extender.framework.status import Code, Refusal
from extender.model.pod import Pod
from extender.runtime.clock import NO_LIMIT, Deadline, TimeLimit
from extender.runtime.ports import Telemetry
from extender.table import PodInfo, Table
from extender.table.labels import Rows
from extender.verbs.refused_pods import RefusedPods
from extender.verbs.verb import Summary
from extender.verbs.waiting import RecentPreemptors

UNKNOWN_NODE = "node(s) unknown to the extender"
ELSEWHERE = "node(s) were not where a bind of the pod may have succeeded"
_MOST_REASON_CHARACTERS = 1024  # kube-scheduler shows no more, and it goes out once for each node


class Filter:
    """Upstream counterpart: HTTPExtender.Filter."""

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
    ) -> None:
        """`refused` is told what the scheduler was told; `preemptors` are not refused
        before the watch has had the time to tell that their victims are gone.
        """
        self._refused, self._preemptors = refused, preemptors
        self._cache, self._profiles, self._telemetry, self._limit = cache, profiles, telemetry, limit
        self._reader = reader or NamesReader()

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
        result, rules = self._judge(request, info, profile, deadline)
        while request.names and not result.passed and self._waits(request):
            result, rules = self._judge(request, info, profile, deadline)
        if self._refused is not None:
            self._refused.note(request.pod, refused=bool(request.names) and not result.passed, rules=rules, wakes=wakes)
        return result

    def _waits(self, request: ExtenderArgs) -> bool:
        return self._preemptors is not None and self._preemptors.wait(request.pod.uid, request.names)

    def _judge(
        self, request: ExtenderArgs, info: PodInfo, profile: Profile, deadline: Deadline
    ) -> tuple[ExtenderFilterResult, Set[str]]:
        """Returns the answer by what is known now, and the rules that refused."""
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        rules: set[str] = set()
        with self._cache.snapshot(self.name, deadline) as table:
            place = place_kept_for(info, table)
            if place and place in request.names and _would_keep(place, profile, info, table):
                return _result(request, dict.fromkeys(set(request.names) - {place}, ELSEWHERE), {}), frozenset()
            nodes = requested_nodes(request, table)
            for part in nodes.parts:
                fit = find_fit(profile, info, part.table, part.rows)
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
        """Returns the rules that refused, and puts their reasons into the one or the other by node."""
        if not fit.refusals:
            return frozenset()
        by_plugin = fit.by_plugin()
        for plugin, nodes in by_plugin.items():
            self._telemetry.refused(plugin or "PreFilter", nodes)
        waits_at = _waits_for_victims_at(pod, table)
        reasons = [_reason(refusal) for refusal in fit.refusals]
        for row, cause in zip(fit.rows.tolist(), fit.cause.tolist(), strict=True):
            if cause != FITS:
                name = table.nodes.names[row]
                final = fit.refusals[cause].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE and name != waits_at
                (unresolvable if final else failed)[name] = reasons[cause]
        return by_plugin.keys()


def _would_keep(node: str, profile: Profile, info: PodInfo, table: Table) -> bool:
    """Returns whether the pod fits where it counts already: else it would be in its own way."""
    row = np.array([table.nodes.row_of[node]], np.intp)
    with table.hypothetically(removed=[info.uid]):
        return find_fit(profile, info, table, row).refusal(0) is None


def _reason(refusal: Refusal) -> str:
    reason = ", ".join(refusal.reasons[:_MOST_REASON_CHARACTERS]) or f"refused by {refusal.plugin}"
    return reason if len(reason) <= _MOST_REASON_CHARACTERS else f"{reason[: _MOST_REASON_CHARACTERS - 3]}..."


def _waits_for_victims_at(pod: Pod, table: Table) -> str:
    """Returns the pod's nominated node while lesser pods are leaving it: if it were answered as unresolvable, the
    scheduler would evict another set of victims elsewhere."""
    row = table.nodes.row_of.get(pod.status.nominated_node_name, -1)
    if row < 0:
        return ""
    slots = table.pods.on(row)
    leaving = table.pods.terminating[slots] & (table.pods.priority[slots] < pod.priority)
    return pod.status.nominated_node_name if np.any(leaving) else ""


def _result(request: ExtenderArgs, failed: dict[str, str], unresolvable: dict[str, str]) -> ExtenderFilterResult:
    names, nodes = request.node_names, request.nodes
    if failed or unresolvable:
        refused = failed.keys() | unresolvable.keys()
        names = None if names is None else [name for name in names if name not in refused]
        nodes = None if nodes is None else [node for node in nodes if node.name not in refused]
    return ExtenderFilterResult(
        nodes=nodes, node_names=names, failed_nodes=failed, failed_and_unresolvable_nodes=unresolvable
    )


def place_kept_for(info: PodInfo, table: Table) -> str:
    """Returns the node where the pod counts though no watch has told so, "" for none: bind binds it nowhere else."""
    slot = table.pods.slot_of.get(info.uid)
    if slot is None or table.pods.info(slot).pod.node_name:
        return ""
    row = table.pods.row[slot]
    return table.nodes.names[row] if table.nodes.present[row] else ""


class Part(NamedTuple):
    """Rows of one table, and where in the request's names they stand: intp[n] each."""

    table: Table
    rows: Rows
    positions: NDArray[np.intp]


class RequestedNodes(NamedTuple):
    """The request's names, each once, the parts to decide on, and the names that nobody knows."""

    names: list[str]
    parts: Sequence[Part]
    unknown: Sequence[str]


def requested_nodes(args: ExtenderArgs, table: Table) -> RequestedNodes:
    """Returns the nodes that filter or prioritize is asked about, as rows of tables.

    Nodes that the cache knows are checked as the cache knows them, in `table`; whole nodes that it does not know, such
    as the templates an autoscaler tries, by the request alone, in a table of their own that is thrown away.
    """
    names, nodes = args.names, table.nodes
    rows = nodes.rows_of(names)
    if rows is None:  # a name is unknown, or is there twice
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
