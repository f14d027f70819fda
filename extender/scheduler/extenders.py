"""Other extenders, asked by the loop as the stock scheduler asks them.

Sources: upstream extender.go; schedule_one.go, findNodesThatPassExtenders, prioritizeNodes, extendersBinding;
preemption.go, callExtenders. Otherwise than there, whole nodes that come back are read for their names only: in-tree
scores of other nodes than those asked about would be wrong (kubernetes#141781).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from extender.cache.placements import PodPlacement
from extender.errors import ExtenderError, MalformedAnswer, OutcomeUnknown, Refused
from extender.extender_v1 import client as wire_client
from extender.extender_v1.client import Filtered, Offer
from extender.extender_v1.types import HostPriority
from extender.framework.find_fit import FITS, Fit
from extender.framework.rules import Scores
from extender.framework.status import Refusal, unresolvable, unschedulable
from extender.model.documents import document_of
from extender.model.extender_config import ExtenderConfig
from extender.model.pod import Pod
from extender.preemption import Candidate, Preemption, candidates_of
from extender.runtime.ports import Binder, Binding
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NAME = "Extender"
"""The plugin name of all extenders: pods that one of them refused are tried again on any event."""
NO_CANDIDATE = "no candidate node for preemption"
SCALE = 10
"""The factor by which an extender's score, 0..10, weighs as much as a plugin's of 0..100."""
_HIGHEST = 2**62  # so that no sum of scores runs over

_log = logging.getLogger(__name__)

T = TypeVar("T")
Priorities = list[HostPriority]
IncomingPod = Callable[["Extender"], Priorities]


Post = Callable[[str, bytes], bytes]
"""Sends a verb and a body to one extender, and returns the body of the answer.

Raises Refused: nothing was done; OutcomeUnknown: what was asked may have been done.
"""


@dataclass(frozen=True, slots=True)
class Extender:
    """One extender. Every method raises ExtenderError where there is no answer, or none that can be used."""

    config: ExtenderConfig
    post: Post

    def filter(self, pod: Pod, table: Table, rows: Rows) -> Filtered:
        """Returns the nodes that can take the pod."""
        body = self.post(self.config.filter_verb, self._args(pod, table, rows))
        answer = self._read(lambda: wire_client.decode_filtered(body, names=self.config.node_cache_capable))
        if answer.error:
            raise Refused(answer.error, 200)
        return answer

    def prioritize(self, pod: Pod, table: Table, rows: Rows) -> Priorities:
        """Returns the scores of the nodes."""
        body = self.post(self.config.prioritize_verb, self._args(pod, table, rows))
        return self._read(lambda: wire_client.decode_priorities(body))

    def preempt(self, pod: Pod, candidates: Mapping[str, Candidate]) -> dict[str, Offer]:
        """Returns the candidates that are left, with their victims."""
        names = self.config.node_cache_capable
        offers = {name: _offer(candidate, whole=not names) for name, candidate in candidates.items()}
        asked = wire_client.encode_preemption_args(document_of(pod), offers, names=names)
        body = self.post(self.config.preempt_verb, asked)
        return self._read(lambda: wire_client.decode_preemption_result(body))

    def bind(self, binding: Binding) -> None:
        """Has the pod bound. Raises Refused or OutcomeUnknown, as a ports.Binder."""
        asked = wire_client.encode_binding_args(binding)
        body = self.post(self.config.bind_verb, asked)
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
        known = (nodes.objects[row] for row in rows.tolist())
        return wire_client.encode_args(document_of(pod), None, [document_of(node) for node in known if node])

    def _read(self, decode: Callable[[], T]) -> T:
        try:
            return decode()
        except MalformedAnswer as error:
            raise self.malformed(str(error)) from None


class Extenders:
    """All extenders, in the order in which they are asked.

    Args:
        side_by_side: asks those that prioritize: one after the other, or by the map of a pool of threads.
    """

    def __init__(
        self,
        extenders: Sequence[Extender] = (),
        side_by_side: Callable[[IncomingPod, Iterable[Extender]], Iterator[Priorities]] = map,
    ) -> None:
        self._extenders, self._side_by_side = extenders, side_by_side

    def __bool__(self) -> bool:
        return bool(self._extenders)

    def filter(self, pod: PodInfo, table: Table, fit: Fit) -> None:
        """Has the feasible rows of `fit` filtered; each extender is asked about those that the last one let pass.

        Raises:
            ExtenderError: one that cannot be done without has failed.
        """
        for extender in self._asked(pod.pod, lambda config: config.filter_verb):
            positions = np.flatnonzero(fit.cause == FITS)
            if not len(positions):
                return
            try:
                answer = extender.filter(pod.pod, table, fit.rows[positions])
                refused = _refused(extender, answer, table, fit.rows[positions])
            except ExtenderError as error:
                self.pass_over(extender, "filter", error)
                continue
            for refusal, at in refused.items():
                fit.refuse(positions[at], refusal)

    def prioritize(self, pod: PodInfo, table: Table, rows: Rows) -> Scores:
        """Returns what the extenders add to the nodes' totals: int64[n]. One that fails adds nothing."""
        total = np.zeros(len(rows), np.int64)
        asked = [*self._asked(pod.pod, lambda config: config.prioritize_verb)]
        position_of = {table.nodes.names[row]: position for position, row in enumerate(rows.tolist())} if asked else {}
        opinions = self._side_by_side(lambda extender: _priorities(extender, pod, table, rows), asked)
        for extender, priorities in zip(asked, opinions, strict=True):
            weight = extender.config.weight * SCALE
            for each in priorities:
                if (position := position_of.get(each.host)) is not None:
                    score = int(total[position]) + each.score * weight
                    total[position] = min(max(score, -_HIGHEST), _HIGHEST)
        return total

    def preempt(self, pod: PodInfo, table: Table, found: Preemption) -> Preemption:
        """Returns the preemption with the candidates that the extenders leave, or the reason why they leave none."""
        asked = [*self._asked(pod.pod, lambda config: config.preempt_verb)]
        if not asked or not found.candidates:
            return found
        candidates = found.candidates
        for extender in asked:
            try:
                candidates = candidates_of(table, _checked(extender, extender.preempt(pod.pod, candidates), table))
            except ExtenderError as error:
                if not extender.config.ignorable:
                    return Preemption(candidates_of(table, {}), None, str(error))
                self.pass_over(extender, "preempt", error)
            if not candidates:
                break
        return Preemption(candidates, candidates.best, "" if candidates else NO_CANDIDATE)

    def binding(self, pod: Pod) -> Iterator[Extender]:
        """Yields the extenders that may bind the pod: the first that does not fail binds it."""
        return self._asked(pod, lambda config: config.bind_verb)

    def _asked(self, pod: Pod, verb: Callable[[ExtenderConfig], str]) -> Iterator[Extender]:
        return (each for each in self._extenders if verb(each.config) and each.config.is_interested(pod))

    @staticmethod
    def pass_over(extender: Extender, verb: str, error: ExtenderError) -> None:
        """Logs the error of an ignorable extender; raises that of any other."""
        if not extender.config.ignorable:
            raise error
        _log.warning("going on without extender %s, %s: %s", extender.config.url_prefix, verb, error)


class ExtenderBinder:
    """A ports.Binder that leaves pods to the extender that binds them, if there is one.

    Args:
        binder: for all other pods.
        placement_of: UID -> the place of the pod that is to be bound, if it is still known.
    """

    def __init__(
        self, binder: Binder, extenders: Extenders, placement_of: Callable[[str], PodPlacement | None]
    ) -> None:
        self._binder, self._extenders, self._placement_of = binder, extenders, placement_of

    def bind(self, binding: Binding) -> None:
        placement = self._placement_of(binding.uid)
        for extender in self._extenders.binding(placement.info.pod) if placement else ():
            try:
                extender.bind(binding)
            except ExtenderError as error:
                self._extenders.pass_over(extender, "bind", error)
            else:
                return
        self._binder.bind(binding)


def _refused(extender: Extender, answer: Filtered, table: Table, rows: Rows) -> dict[Refusal, list[int]]:
    """Returns positions in `rows` by their refusal; nodes that the answer leaves out are unresolvable."""
    names = table.nodes.names_of(rows)
    passed = set(answer.passed)
    if unasked := passed.difference(names):
        raise extender.malformed(f"filter lets {min(unasked)} pass, which it was not asked about")
    refused: dict[Refusal, list[int]] = defaultdict(list)
    for position, name in enumerate(names):
        if name not in passed:
            refused[_refusal(answer, name)].append(position)
    return refused


def _refusal(answer: Filtered, name: str) -> Refusal:
    if name in answer.failed and name not in answer.unresolvable:
        return unschedulable(NAME, *_reasons(answer.failed[name]))
    return unresolvable(NAME, *_reasons(answer.unresolvable.get(name, "")))


def _reasons(reason: str) -> tuple[str, ...]:
    return (reason,) if reason else ()


def _priorities(extender: Extender, pod: PodInfo, table: Table, rows: Rows) -> Priorities:
    try:
        return extender.prioritize(pod.pod, table, rows)
    except ExtenderError as error:
        _log.warning("no scores of extender %s: %s", extender.config.url_prefix, error)
        return []


def _offer(candidate: Candidate, *, whole: bool) -> Offer:
    pods = [document_of(victim.pod) for victim in candidate.victims] if whole else []
    return Offer([victim.uid for victim in candidate.victims], candidate.num_pdb_violations, pods)


def _checked(extender: Extender, offers: Mapping[str, Offer], table: Table) -> dict[str, Candidate]:
    """Returns the candidates of an answer. Raises MalformedAnswer where it names what is not there, or no victims."""
    candidates: dict[str, Candidate] = {}
    for name, offer in offers.items():
        row = table.nodes.row_of.get(name)
        if row is None or not table.nodes.present[row]:
            raise extender.malformed(f"preempt names node {name}, which there is not")
        for uid in offer.uids:
            slot = table.pods.slot_of.get(uid)
            if slot is None or table.pods.row[slot] != row:
                raise extender.malformed(f"preempt names a victim of UID {uid!r}, which is not on node {name}")
        if offer.uids:
            victims = tuple(table.pods.info(table.pods.slot_of[uid]) for uid in offer.uids)
            candidates[name] = Candidate(name, victims, offer.num_pdb_violations)
        elif not extender.config.ignorable:
            raise extender.malformed(f"preempt gives no victims for node {name}")
    return candidates
