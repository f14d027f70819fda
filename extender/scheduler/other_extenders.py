"""Calls the extenders that a policy names, as kube-scheduler calls them.

One difference is on purpose: if an answer contains Node objects, only their names are used, because in-tree plugins
would give changed nodes wrong scores (kubernetes#141781). Source: upstream extender.go; schedule_one.go
findNodesThatPassExtenders, prioritizeNodes, extendersBinding; preemption.go callExtenders.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from extender.cache.pod_states import PodPlacement
from extender.engine.decide import EXTENDER
from extender.errors import ExtenderError, ExtenderRefused, ExtenderUnanswered, MalformedAnswer, OutcomeUnknown, Refused
from extender.extender_v1 import client as wire_client
from extender.extender_v1.client import Filtered, Offer
from extender.extender_v1.messages import HostPriority
from extender.framework.find_fit import FITS, Fit
from extender.framework.rules import Scores
from extender.framework.status import Refusal, unresolvable, unschedulable
from extender.model.extender_config import ExtenderConfig, document_of
from extender.model.pod import Pod
from extender.preemption.candidates import Candidate, candidates_of
from extender.preemption.evaluator import Preemption
from extender.runtime.ports import Binder, Binding, Check, always
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NO_CANDIDATE = "no candidate node for preemption"
SCALE = 10
"""The factor that converts an extender's score of 0..10 to the range of a plugin's score, 0..100."""
_HIGHEST = 2**62  # the limit for one score, so that sums of scores do not overflow

_log = logging.getLogger(__name__)

T = TypeVar("T")
Priorities = list[HostPriority]
PrioritizeCall = Callable[["Extender"], Priorities]


class Post(Protocol):
    """Sends a verb and a body to one extender, and returns the body of the answer.

    Raises Refused if the extender did nothing, and OutcomeUnknown if it may have carried out the request.
    """

    def __call__(self, verb: str, body: bytes, check: Check = always) -> bytes: ...


@dataclass(frozen=True, slots=True, eq=False)
class Extender:
    """Calls one extender. Every method raises ExtenderError if it gets no usable answer."""

    config: ExtenderConfig
    post: Post

    def filter(self, pod: Pod, table: Table, rows: Rows) -> Filtered:
        """Calls filter; returns the nodes in `rows` that the extender accepts."""
        body = self.post(self.config.filter_verb, self._args(pod, table, rows))
        answer = self._read(lambda: wire_client.decode_filtered(body, names=self.config.node_cache_capable))
        if answer.error:
            raise Refused(answer.error, 200)
        return answer

    def prioritize(self, pod: Pod, table: Table, rows: Rows) -> Priorities:
        """Calls prioritize; returns the scores of the nodes in `rows`."""
        body = self.post(self.config.prioritize_verb, self._args(pod, table, rows))
        return self._read(lambda: wire_client.decode_priorities(body))

    def preempt(self, pod: Pod, candidates: Mapping[str, Candidate]) -> dict[str, Offer]:
        """Calls preempt; returns the candidate nodes that the extender accepts, with their victims."""
        names = self.config.node_cache_capable
        offers = {name: _offer(candidate, whole=not names) for name, candidate in candidates.items()}
        request = wire_client.encode_preemption_args(document_of(pod), offers, names=names)
        body = self.post(self.config.preempt_verb, request)
        return self._read(lambda: wire_client.decode_preemption_result(body))

    def bind(self, binding: Binding, check: Check) -> None:
        """Lets the extender bind the pod. Raises Refused or OutcomeUnknown, as a ports.Binder does."""
        if binding.annotations:  # a bound pod without them would not have what the rules chose
            keys = ", ".join(key for key, _ in binding.annotations)
            raise Refused(f"its bindVerb cannot write the annotations of Bind rules ({keys}); nothing was sent", 400)
        body = self.post(self.config.bind_verb, wire_client.encode_binding_args(binding), check)
        try:
            error = self._read(lambda: wire_client.decode_binding_result(body))
        except MalformedAnswer as malformed:
            raise OutcomeUnknown(str(malformed)) from None
        if error:
            raise Refused(error, 200)

    def malformed(self, what: str) -> MalformedAnswer:
        return MalformedAnswer(f"extender {self.config.url_prefix}: {what}")

    def _args(self, pod: Pod, table: Table, rows: Rows) -> bytes:
        nodes = table.nodes
        if self.config.node_cache_capable:
            return wire_client.encode_args(document_of(pod), nodes.names_of(rows))
        objects = (nodes.objects[row] for row in rows.tolist())
        return wire_client.encode_args(document_of(pod), None, [document_of(node) for node in objects if node])

    def _read(self, decode: Callable[[], T]) -> T:
        try:
            return decode()
        except MalformedAnswer as error:
            raise self.malformed(str(error)) from None


@dataclass(frozen=True, slots=True, eq=False)
class Extenders:
    """All extenders, in the order in which they are called.

    Attributes:
        map_calls: applies a function to several extenders, perhaps concurrently, and returns the results like `map`.
    """

    extenders: Sequence[Extender] = ()
    map_calls: Callable[[PrioritizeCall, Iterable[Extender]], Iterator[Priorities]] = map

    def __bool__(self) -> bool:
        return bool(self.extenders)

    def filter(self, pod: PodInfo, table: Table, fit: Fit) -> None:
        """Marks in `fit` the rows that an extender rejects. An extender gets only nodes that no earlier one rejected.

        Raises:
            ExtenderError: an extender that is not ignorable failed.
        """
        for extender in self._interested(pod.pod, lambda config: config.filter_verb):
            positions = np.flatnonzero(fit.cause == FITS)
            if not len(positions):
                return
            try:
                answer = extender.filter(pod.pod, table, fit.rows[positions])
                refused = _refused(extender, answer, table, fit.rows[positions])
            except ExtenderError as error:
                self.pass_over(extender, "filter", error)
                continue
            for refusal, refused_positions in refused.items():
                fit.refuse(positions[refused_positions], refusal)

    def prioritize(self, pod: PodInfo, table: Table, rows: Rows) -> Scores:
        """Returns what the extenders add to each node's score, as int64[row]; an extender that fails adds nothing."""
        total = np.zeros(len(rows), np.int64)
        extenders = [*self._interested(pod.pod, lambda config: config.prioritize_verb)]
        if not extenders:
            return total
        position_of = {table.nodes.names[row]: position for position, row in enumerate(rows.tolist())}
        answers = self.map_calls(lambda extender: _priorities(extender, pod, table, rows), extenders)
        for extender, priorities in zip(extenders, answers, strict=True):
            weight = extender.config.weight * SCALE
            for priority in priorities:
                if (position := position_of.get(priority.host)) is not None:
                    score = int(total[position]) + priority.score * weight
                    total[position] = min(max(score, -_HIGHEST), _HIGHEST)
        return total

    def preempt(self, pod: PodInfo, table: Table, preemption: Preemption) -> Preemption:
        """Returns the preemption without the candidates that an extender rejects. Extenders may change the victims.

        If no candidate remains, the result contains the reason.
        """
        extenders = [*self._interested(pod.pod, lambda config: config.preempt_verb)]
        offered: dict[str, Candidate] = {node: Candidate(node, (), 0) for node in preemption.without_victims}
        offered |= preemption.candidates
        if not extenders or not offered:
            return preemption
        for extender in extenders:
            try:
                offered = _checked(extender, extender.preempt(pod.pod, offered), offered, table)
            except ExtenderError as error:
                if not extender.config.ignorable:
                    return Preemption(candidates_of(table, {}), None, str(error))
                self.pass_over(extender, "preempt", error)
            if not offered:
                break
        candidates = candidates_of(table, {node: each for node, each in offered.items() if each.victims})
        return Preemption(candidates, candidates.best, None if candidates else NO_CANDIDATE)

    def binding(self, pod: Pod) -> Iterator[Extender]:
        """Yields the extenders that may bind the pod. The caller tries them in turn until one succeeds."""
        return self._interested(pod, lambda config: config.bind_verb)

    def _interested(self, pod: Pod, verb: Callable[[ExtenderConfig], str]) -> Iterator[Extender]:
        """Yields the extenders that implement the verb and are interested in the pod."""
        return (extender for extender in self.extenders if verb(extender.config) and extender.config.is_interested(pod))

    @staticmethod
    def pass_over(extender: Extender, verb: str, error: ExtenderError) -> None:
        """Logs the error if the extender is ignorable; otherwise raises it."""
        if not extender.config.ignorable:
            raise error
        _log.warning("extender ignored url=%s verb=%s reason=%r", extender.config.url_prefix, verb, str(error))


@dataclass(frozen=True, slots=True, eq=False)
class ExtenderBinder:
    """A ports.Binder that lets an extender with a bindVerb bind the pods that it is interested in.

    Attributes:
        binder: binds all other pods.
        placement_of: takes the UID of a pod, and returns its placement in the cache; None if the pod was deleted.
    """

    binder: Binder
    extenders: Extenders
    placement_of: Callable[[str], PodPlacement | None]

    def bind(self, binding: Binding, check: Check = always) -> None:
        """Binds the pod. Raises ExtenderRefused if an extender refuses the bind, or the errors of ports.Binder.

        If an ignorable extender gives no answer, the next one is asked. A refusal after that settles nothing, because
        the first extender may have bound the pod: it raises ExtenderUnanswered.
        """
        placement, unanswered = self.placement_of(binding.uid), None
        try:
            for extender in self.extenders.binding(placement.info.pod) if placement else ():
                try:
                    extender.bind(binding, check)
                except Refused as error:
                    self.extenders.pass_over(extender, "bind", ExtenderRefused(str(error), error.status))
                except OutcomeUnknown as error:
                    unanswered = ExtenderUnanswered(str(error))
                    self.extenders.pass_over(extender, "bind", unanswered)
                else:
                    return
            self.binder.bind(binding, check)
        except Refused:
            if unanswered is not None:
                raise unanswered from None
            raise


def _refused(extender: Extender, answer: Filtered, table: Table, rows: Rows) -> dict[Refusal, list[int]]:
    """Returns, for each refusal, the positions in `rows` of the nodes that the extender refused with it.

    A node that the answer does not mention counts as unresolvable.
    """
    names = table.nodes.names_of(rows)
    passed = set(answer.passed)
    if unknown := passed.difference(names):
        raise extender.malformed(f"filter lets {min(unknown)} pass, which is not in the request")
    refused: dict[Refusal, list[int]] = defaultdict(list)
    for position, name in enumerate(names):
        if name not in passed:
            refused[_refusal(answer, name)].append(position)
    return refused


def _refusal(answer: Filtered, name: str) -> Refusal:
    if name in answer.failed and name not in answer.unresolvable:
        return unschedulable(EXTENDER, *_reasons(answer.failed[name]))
    return unresolvable(EXTENDER, *_reasons(answer.unresolvable.get(name, "")))


def _reasons(reason: str) -> tuple[str, ...]:
    return (reason,) if reason else ()


def _priorities(extender: Extender, pod: PodInfo, table: Table, rows: Rows) -> Priorities:
    try:
        return extender.prioritize(pod.pod, table, rows)
    except ExtenderError as error:
        _log.warning("extender gave no scores url=%s reason=%r", extender.config.url_prefix, str(error))
        return []


def _offer(candidate: Candidate, *, whole: bool) -> Offer:
    pods = [document_of(victim.pod) for victim in candidate.victims] if whole else []
    return Offer([victim.uid for victim in candidate.victims], candidate.num_pdb_violations, pods)


def _checked(
    extender: Extender, offers: Mapping[str, Offer], asked: Mapping[str, Candidate], table: Table
) -> dict[str, Candidate]:
    """Returns the candidates of an answer to a request with the candidates `asked`.

    Raises:
        MalformedAnswer: a node or pod does not exist, or a node that had victims has none.
    """
    candidates: dict[str, Candidate] = {}
    for name, offer in offers.items():
        row = table.nodes.row_of.get(name)
        if row is None or not table.nodes.present[row]:
            raise extender.malformed(f"preempt names node {name}, which does not exist")
        for uid in offer.uids:
            slot = table.pods.slot_of.get(uid)
            if slot is None or table.pods.row[slot] != row:
                raise extender.malformed(f"preempt names a victim with UID {uid!r}, which is not on node {name}")
        if offer.uids or (name in asked and not asked[name].victims):
            victims = tuple(table.pods.info(table.pods.slot_of[uid]) for uid in offer.uids)
            candidates[name] = Candidate(name, victims, offer.num_pdb_violations)
        elif not extender.config.ignorable:
            raise extender.malformed(f"preempt gives no victims for node {name}")
    return candidates


def log_passed_over(pod: PodInfo, error: ExtenderError) -> None:
    """Logs that the pod's nominated node was not checked before the other nodes."""
    _log.warning("checking the nominated node failed pod=%s reason=%r", pod.pod.key, str(error))
