"""Decides where a pod can run, and says why it cannot run elsewhere, in the real or in a hypothetical cluster.

`Engine.decide` runs a pod's profile over the nodes of a table and returns a `Decision`. `Engine.suppose` changes the
table for the length of a `with` block. The offline answers, the pages and users of the library call the engine, so they
need not know how rules, scores and preemption are run.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.errors import ExtenderError, MalformedCluster, MalformedQuantity, RuleFailed, RuleHangs, RuleUnanswered
from extender.framework.find_fit import FITS, Fit, awaited_pods, find_fit, outside, prepare
from extender.framework.profile import Profiles
from extender.framework.score import Scoring, score
from extender.framework.status import Refusal, failed
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.plugins import details
from extender.preemption import NO_NODES, Preemption, fit_message, preempt, preemption_message
from extender.runtime.clock import INTERRUPTIONS, NO_LIMIT, TimeLimit, note_subject
from extender.table import PodInfo, Table, Trial
from extender.table.labels import Rows

IntArray = NDArray[np.int64]

_NO_SCORES = Scoring(np.zeros(0, np.intp), np.zeros(0, np.int64), ())


class RefusedNodes(NamedTuple):
    """A refusal, and the names of all nodes that gave it."""

    refusal: Refusal
    nodes: list[str]


@dataclass(frozen=True, slots=True)
class PluginScore:
    """The scores of one priority, in the order of `Decision.feasible`: int64[len(feasible)] each.

    Attributes:
        plugin: the name of the plugin.
        weight: the factor by which its scores are multiplied in the total.
        raw: the scores before normalisation, in the plugin's own unit.
        normalised: the scores scaled to 0..100.
    """

    plugin: str
    weight: int
    raw: IntArray
    normalised: IntArray

    @property
    def weighted(self) -> IntArray:
        """The points that the plugin adds to the total of each node: `normalised * weight`."""
        return self.normalised * self.weight


class Decision:
    """The engine's decision about one pod over all nodes of a cluster.

    It keeps the engine's arrays, and builds lists of names and dictionaries only when they are first read, because that
    would be slow for thousands of nodes.

    Attributes:
        pod: the pod that was judged; a pod that is on a node is judged as if it were waiting.
        preemption: the outcome of preemption, or None if it was not tried. It has `candidates` (the nodes where
            evictions would help, with the victims), the `nominated_node`, or the `reason` why evictions do not help.
        message: the verdict as the scheduler writes it into the pod's condition.
    """

    def __init__(
        self,
        pod: Pod,
        node_names: Sequence[str],
        fit: Fit,
        scoring: Scoring,
        preemption: Preemption | None,
        message: str,
    ) -> None:
        self.pod = pod
        self.preemption = preemption
        self.message = message
        self._node_names = node_names
        self._fit = fit
        self._scoring = scoring

    def __repr__(self) -> str:
        return f"Decision({self.pod.key}: {len(self._scoring.rows)} of {len(self._fit.rows)} nodes feasible)"

    @cached_property
    def nodes(self) -> list[str]:
        """The names of the nodes that were considered, feasible or not."""
        return self._named(self._fit.rows)

    @property
    def error(self) -> Refusal | None:
        """The error because of which no node is feasible; None if there was no such error.

        The error comes from a filter on any node, or from a plugin that cannot score the pod.
        """
        return None if len(self._scoring.rows) else self._fit.error

    @cached_property
    def feasible(self) -> list[str]:
        """The nodes that can take the pod; none if the attempt ends in an error."""
        return self._named(self._scoring.rows)

    @cached_property
    def refusals(self) -> dict[str, Refusal]:
        """Node name -> the first refusal on this node, with its `plugin`, `code` and `reasons`.

        `plugin` is empty if the node was not examined, because the plugins in `limited_by` allow only other nodes.
        """
        return {self._node_names[row]: refusal for row, refusal in self._fit.refused()}

    @cached_property
    def refused_nodes(self) -> list[RefusedNodes]:
        """The distinct refusals, each with the nodes that gave it."""
        rows, cause = self._fit.rows, self._fit.cause
        grouped = [RefusedNodes(each, self._named(rows[cause == i])) for i, each in enumerate(self._fit.refusals)]
        return [group for group in grouped if group.nodes]

    @cached_property
    def reasons(self) -> Counter[str]:
        """The number of nodes that refuse the pod, for each reason."""
        counts: Counter[str] = Counter()
        for refusal, nodes in self.refused_nodes:
            counts.update(dict.fromkeys(refusal.reasons, len(nodes)))
        return counts

    @property
    def limited_by(self) -> Sequence[str]:
        """The plugins that limited the pod to certain nodes before any node was examined."""
        return self._fit.narrowed_by

    @cached_property
    def scores(self) -> dict[str, PluginScore]:
        """The scores of each plugin. Plugins that do not apply to the pod are left out, because they add no points."""
        return {
            scored.plugin: PluginScore(scored.plugin, scored.weight, scored.raw, scored.scores)
            for scored in self._scoring.by_plugin
        }

    @property
    def total(self) -> IntArray:
        """The total points of each node, over all plugins, in the order of `feasible`: int64[len(feasible)]."""
        return self._scoring.total

    @property
    def nominated(self) -> str | None:
        """The node that the pod is nominated to, if it can take the pod; the scheduler takes it without scoring."""
        name = self.pod.status.nominated_node_name
        return name if name in self.feasible else None

    @cached_property
    def best(self) -> list[str]:
        """The nominated node, else the nodes with the highest total, of which the scheduler picks one at random."""
        if self.nominated is not None:
            return [self.nominated]
        if not len(self.total):
            return []
        return self._named(self._scoring.rows[self.total == self.total.max()])

    def _named(self, rows: Rows) -> list[str]:
        return [self._node_names[row] for row in rows.tolist()]


class DecisionLimit:
    """Limits the time of each decision. No decision starts while a user's rule from an earlier decision still runs.

    Attributes:
        time: the limit, which starts again for each decision.
        unanswered: the last rule that exceeded the limit, or None. The rule may still be running.
    """

    def __init__(self, time: TimeLimit = NO_LIMIT) -> None:
        self.time = time
        self.unanswered: RuleUnanswered | None = None

    @contextmanager
    def begin(self, table: Table) -> Iterator[None]:
        """Limits the time of the `with` block.

        Raises DeadlineExceeded if the block takes too long, or if the rule in `unanswered` still runs.
        """
        late = self.unanswered
        if late is not None and late.has_returned is not None and not late.has_returned():
            raise RuleUnanswered(f"{late} yet")
        try:
            with table.until(self.time.begin()):
                yield
        except RuleUnanswered as error:
            self.unanswered = error
            raise


class Engine:
    """Decides about pods on one table. One thread at a time may use it.

    A pod that is on a node is judged as if it were waiting. Every method that decides raises:
        MalformedCluster: the pod has a malformed quantity.
        RuleFailed: a user's rule raised.
        DeadlineExceeded: the limit has passed.
    """

    def __init__(self, table: Table, profiles: Profiles, limit: DecisionLimit | None = None) -> None:
        self.table = table
        self.profiles = profiles
        self.limit = limit or DecisionLimit()

    def decide(self, pod: Pod | PodInfo, nodes: Iterable[str] | None = None) -> Decision:
        """Filters and scores the nodes for the pod, tries preemption if none can take it, and returns the decision.

        By default, all nodes are considered.
        """
        info, rows = self._waiting(pod), self._rows(nodes)
        profile = self.profiles.of(info.pod)
        with self._deciding(info):
            fit = self._fit(info, rows)
            feasible = self._feasible(info, fit)
            try:
                scoring = self._scored(info, feasible)
            except RuleFailed as failure:
                fit.refuse(np.flatnonzero(np.isin(rows, feasible)), failed(failure.plugin, str(failure)))
                return Decision(info.pod, self.table.nodes.names, fit, _NO_SCORES, None, str(failure))
            if len(feasible) or profile.preemption is None or fit.error is not None:
                preemption = None
            else:
                preemption = preempt(profile, info, self.table, fit)
            message = self._message(info, fit, feasible, preemption)
        return Decision(info.pod, self.table.nodes.names, fit, scoring, preemption, message)

    def feasible(
        self, pod: Pod | PodInfo, nodes: Iterable[str] | None = None, *, despite_errors: bool = False
    ) -> list[str]:
        """Returns those of the nodes that can take the pod, without scoring them; `nodes=None` means all nodes.

        If a filter ends in an error on any node, the result is empty, unless `despite_errors` is True.
        """
        info = self._waiting(pod)
        with self._deciding(info):
            fit = self._fit(info, self._rows(nodes))
        return self.table.nodes.names_of(fit.feasible if despite_errors else self._feasible(info, fit))

    def preempt(self, pod: Pod | PodInfo, nodes: Iterable[str] | None = None) -> Preemption:
        """Returns which pods preemption would evict for the pod, even if the pod's profile has no preemption.

        Preemption tries `nodes`, by default all nodes on which an eviction may help.
        """
        info = self._waiting(pod)
        profile = self.profiles.of(info.pod)
        with self._deciding(info):
            fit = self._fit(info, self.table.nodes.rows)
            return preempt(profile, info, self.table, fit, rows=None if nodes is None else self._rows(nodes))

    def filter_by(self, plugin: str, pod: Pod | PodInfo, nodes: Iterable[str]) -> dict[str, Refusal]:
        """Runs one filter of the pod's profile; returns the refusal of each node that it refuses, by node name.

        Pods that are nominated to the nodes are not counted. If the filter restricts the pod to certain nodes in
        advance (upstream PreFilterResult), the pod's own nominated node is allowed too; see `_fit`.
        """
        info, rows = self._waiting(pod), self._rows(nodes)
        fit = Fit(rows)
        for predicate in self.profiles.of(info.pod).predicates:
            if predicate.name != plugin:
                continue
            with self._deciding(info):
                prepared = predicate.prepare(info, self.table)
                if isinstance(prepared, Refusal):
                    fit.refuse(np.arange(len(rows)), prepared)
                elif prepared is not None:
                    fit.refuse_all(None, prepared.refuse(rows))
                    if prepared.only is not None:
                        remaining = np.flatnonzero(fit.cause == FITS)
                        only = prepared.only | {info.pod.status.nominated_node_name}
                        fit.refuse_all(remaining, outside(only, [plugin], self.table, rows[remaining]))
        return {self.table.nodes.names[row]: refusal for row, refusal in fit.refused()}

    def awaited_on(self, node_name: str, pod: Pod | PodInfo) -> list[PodInfo]:
        """Returns the pods that are nominated to the node and for which `pod` must leave room there."""
        info, row = self._waiting(pod), self.table.nodes.row_of[node_name]
        return awaited_pods(self.profiles.of(info.pod), info, self.table).by_row().get(row, [])

    def filters(self, pod: Pod | PodInfo) -> list[str]:
        """Returns the names of the filters in the pod's profile, in the order in which they run."""
        return [predicate.name for predicate in self.profiles.of(self._waiting(pod).pod).predicates]

    def disabled_filters(self, pod: Pod | PodInfo) -> Sequence[str]:
        """Returns the names of the filters that the pod's profile disables."""
        return self.profiles.of(self._waiting(pod).pod).disabled_filters

    def detail(self, plugin: str, reason: str, pod: Pod | PodInfo, nodes: Iterable[str]) -> str:
        """Returns the numbers behind the `reason` with which a plugin refused these nodes; "" if there are none."""
        info = self._waiting(pod)
        with self._deciding(info):
            awaited = awaited_pods(self.profiles.of(info.pod), info, self.table)
            return details.detail(plugin, reason, info, self.table, self._rows(nodes), awaited)

    def free_for(self, pod: Pod | PodInfo, resource: str, nodes: Iterable[str]) -> IntArray:
        """Returns how much of a resource each node has free, minus what nominated pods will take: int64[len(nodes)]."""
        info, rows = self._waiting(pod), self._rows(nodes)
        index = self.table.nodes.resources.get(resource)
        if index is None:
            return np.zeros(len(rows), np.int64)
        columns = self.table.nodes
        awaited = awaited_pods(self.profiles.of(info.pod), info, self.table).taken(index, columns.capacity)
        with self.suppose(remove=[info]):
            free: IntArray = columns.allocatable[index] - columns.requested[index] - awaited
            return free[rows]

    def depends_on_resources_only(self, pod: Pod | PodInfo) -> bool:
        """Returns True if other pods can keep this pod from a node only by using up the node's resources."""
        info = self._waiting(pod)
        with self._deciding(info):
            checks = prepare(self.profiles.of(info.pod), info, self.table).checks
        return all(check.sees_resources_only or not check.sees_pods for _, check in checks)

    @contextmanager
    def suppose(
        self,
        *,
        place: Iterable[tuple[PodInfo, str]] = (),
        remove: Iterable[PodInfo] = (),
        objects: Iterable[Object] = (),
    ) -> Iterator[None]:
        """Changes the table for the length of a `with` block, then undoes the changes in reverse order.

        The changes are made in this order: objects, removals, placements. They are undone even if the block raises, or
        if one of them cannot be made. Blocks may be nested. A supposed pod counts exactly as a real one does.

        Args:
            place: pairs of a pod and the name of its new node. A pod that is on another node is moved.
            remove: pods to remove from their nodes; their nominations are removed, too.
            objects: nodes and objects of other kinds to add or replace. A Pod among them is placed on its node.
        """
        trial = Trial(self.table)
        try:
            for obj in objects:
                trial.set_object(obj)
            for info in remove:
                trial.take_away(info.uid)
            for info, node_name in place:
                trial.place(info, node_name)
            yield
        finally:
            trial.revert()

    @contextmanager
    def within_limit(self) -> Iterator[None]:
        """Runs the block within the time limit; an exception of a user's rule becomes a RuleFailed."""
        with self.limit.begin(self.table), rule_errors():
            yield

    @contextmanager
    def _deciding(self, info: PodInfo) -> Iterator[None]:
        """Runs the block within the time limit of a decision, as if the pod were on no node.

        An error names the pod or the user's rule that caused it.
        """
        try:
            with (
                quantities_of(info.pod),
                rule_errors(),
                self.limit.begin(self.table),
                self.table.hypothetically(removed=[info.uid]),
            ):
                yield
        except INTERRUPTIONS as error:
            note_subject(error, f"pod {info.pod.key}")
            raise

    def _waiting(self, pod: Pod | PodInfo) -> PodInfo:
        """Returns the pod without its node name, so that it is judged like a waiting pod."""
        info = PodInfo(pod) if isinstance(pod, Pod) else pod
        placed = info.uid in self.table.pods.slot_of
        return PodInfo(info.pod.placed_on("")) if placed and info.pod.node_name else info

    def _rows(self, nodes: Iterable[str] | None) -> Rows:
        if nodes is None:
            return self.table.nodes.rows
        return np.array([self.table.nodes.row_of[name] for name in nodes], np.intp)

    def _fit(self, pod: PodInfo, rows: Rows) -> Fit:
        """Returns which rows can take the pod.

        The scheduler checks the pod's nominated node first, even if PreFilter restricts the pod to other nodes.
        Source: upstream evaluateNominatedNode.
        """
        profile = self.profiles.of(pod.pod)
        fit = find_fit(profile, pod, self.table, rows)
        row = self.table.nodes.row_of.get(pod.pod.status.nominated_node_name, -1)
        if not fit.narrowed_by or fit.refused_at_once or row not in rows:
            return fit
        nominated = find_fit(profile, pod, self.table, np.array([row], np.intp), narrowed=False)
        if len(nominated.feasible):
            fit.accept(nominated.rows)
        elif not len(fit.feasible) and fit.error is None:
            fit.add_earlier(nominated)
        return fit

    def _feasible(self, pod: PodInfo, fit: Fit) -> Rows:
        """Returns the rows that can take the pod; no rows if a filter ended in an error on any node.

        If the pod's nominated node can take it, errors do not matter, because upstream tries that node first.
        """
        feasible = fit.feasible
        return feasible if fit.error is None or self._is_nominated_to(pod, feasible) else feasible[:0]

    def _scored(self, pod: PodInfo, feasible: Rows) -> Scoring:
        """Returns the scores of the feasible rows. A pod that is nominated to one of them needs no scores.

        Raises RuleFailed if a plugin cannot score the pod and the choice depends on scores.
        """
        try:
            return score(self.profiles.of(pod.pod), pod, self.table, feasible)
        except RuleFailed:
            if not self._is_nominated_to(pod, feasible):
                raise
            return Scoring(feasible, np.zeros(len(feasible), np.int64), ())

    def _is_nominated_to(self, pod: PodInfo, rows: Rows) -> bool:
        return self.table.nodes.row_of.get(pod.pod.status.nominated_node_name, -1) in rows

    def _message(self, pod: PodInfo, fit: Fit, feasible: Rows, preemption: Preemption | None) -> str:
        if not len(fit.rows):
            return NO_NODES
        if len(feasible):
            return f"{len(feasible)}/{len(fit.rows)} nodes are available"
        if preemption is None:
            return fit_message(fit)
        return f"{fit_message(fit)} {preemption_message(fit, preemption, pod, self.table)}".strip()


@contextmanager
def quantities_of(obj: Object) -> Iterator[None]:
    """Turns a MalformedQuantity in the `with` block into a MalformedCluster, whose message names the object."""
    try:
        yield
    except MalformedQuantity as error:
        raise MalformedCluster(f"{type(obj).__name__} {obj.key}: {error}") from None


@contextmanager
def rule_errors() -> Iterator[None]:
    """Turns an exception of a user's rule in the `with` block into a RuleFailed, whose message names the rule."""
    try:
        yield
    except ExtenderError:
        raise
    except RuleHangs as error:
        raise RuleFailed(str(error)) from None
    except Exception as error:
        if not (notes := "; ".join(getattr(error, "__notes__", ()))):
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise RuleFailed(
            f"{notes.removeprefix('in ')} raised {message} ({place.filename}, line {place.lineno})"
        ) from error
