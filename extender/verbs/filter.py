"""Implements filter: returns the nodes that can take the pod, and the reason for each other node.

`RefusedPods` finds pods that filter rejected but that fit now, and makes kube-scheduler try them again. kube-scheduler
tries a rejected pod again after an event that may help it, and otherwise after five minutes (kubernetes#122022). It can
miss the right moment for two reasons:

- An event reaches kube-scheduler before it reaches this cache. The pod is tried again at once, and is rejected again
  because the cache still shows the old state.
- A user's rule depends on something outside the cluster, which changes. The rule can report the change (`wake`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice, repeat
from threading import Lock
from typing import NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from extender.cache.cache import Cache
from extender.errors import DeadlineExceeded
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
from extender.model.meta import NO_LABELS
from extender.model.pod import Pod
from extender.preemption.evaluator import leaving_victims
from extender.runtime.clock import NO_LIMIT, Clock, Deadline, TimeLimit
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
from extender.verbs.verb import RecentPreemptors, Summary

UNKNOWN_NODE = "node(s) unknown to the extender"
ELSEWHERE = "node(s) other than the one to which the pod may already be bound"
_MOST_REASON_CHARACTERS = 1024  # kube-scheduler cuts longer reasons


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """The filter verb. Upstream counterpart: HTTPExtender.Filter.

    Attributes:
        refused: records the pods that fit no node.
        preemptors: the pods for which preempt named victims; filter waits until the victims are gone.
        scheduler_filters: True if kube-scheduler runs its own filters before it calls this verb. It then also calls
            this verb in the dry run of a pod group's preemption.
        plans: plans pod groups as a whole; without it, members are judged one by one.
    """

    name = "filter"

    cache: Cache
    profiles: Profiles
    telemetry: Telemetry
    reader: NamesReader = field(default_factory=NamesReader)
    limit: TimeLimit = NO_LIMIT
    refused: RefusedPods | None = None
    preemptors: RecentPreemptors | None = None
    _: KW_ONLY
    scheduler_filters: bool = True
    plans: GroupAnswers | None = None

    def decode(self, body: bytes) -> ExtenderArgs:
        return decode_args(body, self.reader)

    def decide(self, request: ExtenderArgs) -> ExtenderFilterResult:
        deadline = self.limit.begin()
        wakes = self.refused.wakes if self.refused else 0
        info = self.cache.info_of(request.pod)
        if info is None:
            info = PodInfo(request.pod)
            self.cache.remember(info, request.pod_bytes)
        profile = self.profiles.of(request.pod)
        result, rules = self._answer(request, info, profile, deadline)
        while not result.passed and self._waits(request):
            result, rules = self._answer(request, info, profile, deadline)
        if self.refused is not None:
            self.refused.note(request.pod, refused=bool(request.names) and not result.passed, rules=rules, wakes=wakes)
        return result

    def _waits(self, request: ExtenderArgs) -> bool:
        return self.preemptors is not None and self.preemptors.wait(request.pod.uid, request.names)

    def _answer(
        self, request: ExtenderArgs, info: PodInfo, profile: Profile, deadline: Deadline
    ) -> tuple[ExtenderFilterResult, Set[str]]:
        """Returns the answer from the current state of the cache, and the rules that rejected a node."""
        planned = self.plans.answer(info, request.names, profile, deadline) if self.plans is not None else None
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
        with self.cache.snapshot(self.name, deadline) as table, _beside(siblings, table):
            place = assumed_node(info, table)
            if place and place in request.names and _still_fits(place, profile, info, table):
                return _result(request, dict.fromkeys(set(request.names) - {place}, ELSEWHERE), {}), frozenset()
            nodes = requested_nodes(request, table)
            fits = [find_fit(profile, info, part.table, part.rows) for part in nodes.parts]
            if self.scheduler_filters and is_member(info.pod) and not any(len(fit.feasible) for fit in fits):
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
            self.telemetry.refused(plugin or "PreFilter", nodes)
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


MOST_PODS = 1024
LONGEST_SECONDS = 300.0  # kube-scheduler tries every pod again after this time
WOKEN_SECONDS = 1.0
_MOST_DOUBLED = 6
MOST_AT_ONCE = 32
_ANY = ""  # means every rule


class Activator(Protocol):
    """Makes the scheduler that called filter try a pod again (upstream framework.Handle.Activate)."""

    def activate(self, pod: Pod) -> None:
        """Asks the scheduler to try the pod again. Raises no error, even if the request fails."""


@dataclass(slots=True)
class _Refused:
    """A rejected pod: its key, its labels, and the rules that rejected it.

    Attributes:
        at: when the pod was rejected, in monotonic seconds.
        looked: True if the pod was checked because `after_seconds` had passed.
        woken: True if `wake` was called for one of the rules, and the pod has not been checked since.
        fitted: how often the pod fitted at a check.
        taken: True if `take` has returned the pod.
    """

    key: str
    labels: Mapping[str, str]
    rules: Collection[str]
    at: float
    looked: bool = False
    woken: bool = False
    fitted: int = 0
    taken: bool = False


class RefusedPods:
    """Remembers rejected pods, and checks each pod again `after_seconds` after the rejection.

    If `wake` is called for a pod, its check is already due one second after the rejection. If `after_seconds` is 0,
    only `wake` and `wake_all` cause checks.

    A pod that fits at a check may be rejected again all the same, for example because kube-scheduler's own filters
    refuse the node. Each time this happens, both delays double for the pod. The shorter one grows to a minute at most.

    Attributes:
        wakes: the number of calls of `wake` and `wake_all` so far.
    """

    def __init__(
        self, cache: Cache, profiles: Profiles, clock: Clock, after_seconds: float, limit: TimeLimit = NO_LIMIT
    ) -> None:
        self._cache = cache
        self._profiles = profiles
        self._clock = clock
        self._after_seconds = after_seconds
        self._limit = limit
        self._lock = Lock()
        self._pods: OrderedDict[str, _Refused] = OrderedDict()
        self._last_wake: dict[str, int] = {}
        self.wakes = 0

    def note(self, pod: Pod, *, refused: bool, rules: Collection[str] = (), wakes: int = 0) -> None:
        """Records filter's answer about a pod.

        Args:
            refused: True if every node was rejected.
            rules: the rules that rejected a node.
            wakes: the value of `self.wakes` before filter decided. A call of `wake` since then counts for this pod.
        """
        with self._lock:
            earlier = self._pods.pop(pod.uid, None)
            if refused:
                woken = any(self._last_wake.get(rule, 0) > wakes for rule in (_ANY, *rules))
                fitted = earlier.fitted if earlier else 0
                self._pods[pod.uid] = _Refused(
                    pod.key, pod.labels, rules, self._clock.monotonic(), woken=woken, fitted=fitted
                )
                if len(self._pods) > MOST_PODS:
                    self._pods.popitem(last=False)

    def wake(self, rule: str, namespace: str | None = None, labels: Mapping[str, str] = NO_LABELS) -> None:
        """Schedules a check of the pods that the rule rejected, because something that the rule reads has changed.

        Args:
            namespace: only pods of this namespace; None means any namespace.
            labels: only pods that have these labels.
        """
        with self._lock:
            self.wakes += 1
            self._last_wake[rule] = self.wakes
            for pod in self._pods.values():
                named = namespace in (None, pod.key.partition("/")[0]) and labels.items() <= pod.labels.items()
                pod.woken = pod.woken or (named and rule in pod.rules)

    def wake_all(self) -> None:
        """Schedules a check of every pod, because the rules have changed."""
        with self._lock:
            self.wakes += 1
            self._last_wake[_ANY] = self.wakes
            for pod in self._pods.values():
                pod.woken = True

    def fitting(self) -> Iterator[Pod]:
        """Yields the pods that are due for a check and fit a node now. Checks at most MOST_AT_ONCE pods."""
        for uid, key in self._due():
            info = self._cache.find_pod(uid, key)
            if info is None or self._cache.placement(uid) is not None:
                self._forget(uid)
                continue
            if self._fits(info):
                self._fitted(uid)
                yield info.pod

    def take(self, rules: Set[str]) -> list[tuple[str, str]]:
        """Returns (UID, namespace/name) of pods that any of `rules` rejected, at most MOST_AT_ONCE pods.

        Each pod is returned only once after a rejection, unless `give_back` is called for it. Pods rejected less than a
        second ago are left out, so that kube-scheduler can preempt for them first.
        """
        latest = self._clock.monotonic() - WOKEN_SECONDS
        with self._lock:
            refused = ((uid, pod) for uid, pod in self._pods.items() if not pod.taken and pod.at <= latest)
            pods = list(islice(((uid, pod) for uid, pod in refused if not rules.isdisjoint(pod.rules)), MOST_AT_ONCE))
            for _, pod in pods:
                pod.taken = True
        return [(uid, pod.key) for uid, pod in pods]

    def give_back(self, uid: str) -> None:
        """Lets `take` return the pod once more."""
        with self._lock:
            if uid in self._pods:
                self._pods[uid].taken = False

    def _fits(self, info: PodInfo) -> bool:
        """Returns True if a node can take the pod; False if no node can, or if the check takes too long."""
        profile = self._profiles.of(info.pod)
        deadline = self._limit.begin()
        with suppress(DeadlineExceeded), self._cache.snapshot("refused", deadline) as table:
            return len(find_fit(profile, info, table, table.nodes.rows).feasible) > 0
        return False

    def _due(self) -> list[tuple[str, str]]:
        now = self._clock.monotonic()
        with self._lock:
            due = list(islice(((uid, pod) for uid, pod in self._pods.items() if self._is_due(pod, now)), MOST_AT_ONCE))
            for _, pod in due:
                if pod.woken:
                    pod.woken = False
                else:
                    pod.looked = True
        return [(uid, pod.key) for uid, pod in due]

    def _is_due(self, pod: _Refused, now: float) -> bool:
        waited = now - pod.at
        if pod.woken:
            return waited >= WOKEN_SECONDS * (1 << min(pod.fitted, _MOST_DOUBLED))
        wait: float = self._after_seconds * (1 << pod.fitted)
        return not pod.looked and 0 < wait <= LONGEST_SECONDS and waited >= wait

    def _fitted(self, uid: str) -> None:
        with self._lock:
            if uid in self._pods:
                self._pods[uid].fitted += 1

    def _forget(self, uid: str) -> None:
        with self._lock:
            self._pods.pop(uid, None)
