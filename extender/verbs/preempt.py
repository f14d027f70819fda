"""Implements preempt: decides on which of the proposed nodes evictions help the pod, and which pods to evict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from extender.cache.cache import Cache
from extender.extender_v1.messages import (
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    MetaPod,
    MetaVictims,
    NodeVictims,
    decode_preemption_args,
    encode,
    validate_preempt,
)
from extender.framework.profile import Profiles
from extender.preemption.candidates import UnitKind, disruption_of
from extender.preemption.evaluator import process_preemption
from extender.runtime.clock import NO_LIMIT, TimeLimit
from extender.table import PodInfo, Table
from extender.verbs.filter import assumed_node
from extender.verbs.verb import RecentPreemptors, Summary


@dataclass(frozen=True, slots=True, eq=False)
class Preempt:
    """The preempt verb. Upstream counterpart: HTTPExtender.ProcessPreemption.

    kube-scheduler looks up every victim of the answer in its own snapshot. If a victim is missing there, the whole
    preemption fails. Therefore:

    - If the victims that kube-scheduler proposes are enough, the answer contains only victims from the proposal, as few
      as are needed. Otherwise, or if the request proposes none, the answer may contain other pods.
    - The answer adds no pod whose bind the watch has not confirmed, because kube-scheduler may have given up that bind.
    - A proposed victim that the cache does not show on the node stays in the answer.

    Attributes:
        preemptors: records the pods for which this verb names victims; None to record nothing.
    """

    name = "preempt"

    cache: Cache
    profiles: Profiles
    limit: TimeLimit = NO_LIMIT
    preemptors: RecentPreemptors | None = None

    def decode(self, body: bytes) -> ExtenderPreemptionArgs:
        return decode_preemption_args(body)

    def decide(self, request: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        deadline = self.limit.begin()
        info = PodInfo(request.pod)
        profile = self.profiles.of(request.pod)
        answer: dict[str, MetaVictims] = {}
        if profile.preemption is None:  # the policy disables preemption
            return ExtenderPreemptionResult(answer)
        with self.cache.snapshot(self.name, deadline) as table:
            if assumed_node(info, table):  # the pod may be bound already, so an eviction elsewhere would not help
                return ExtenderPreemptionResult(answer)
            offers = {node: request.victims[node] for node in request.victims if node in table.nodes.row_of}
            uids_by_node = {node: offer.uids for node, offer in offers.items()}
            processed = process_preemption(profile, info, table, uids_by_node, self.cache.unconfirmed())
            for node, candidate in processed.candidates.items():
                uids = _ordered(candidate.victims, offers[node], table)
                uids += _unseen(offers[node], node, info, table)
                answer[node] = _meta_victims(uids, candidate.num_pdb_violations)
            for node in processed.feasible:
                offer = offers[node]
                answer[node] = _meta_victims(_of_lower_priority(offer, info, table), offer.pdb_violations)
        result = self._answered(request, answer)
        if result and self.preemptors is not None:
            self.preemptors.note(info.uid, result.keys())
        return ExtenderPreemptionResult(result)

    def allow_all(self, request: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        offers = {node: _meta_victims(offer.uids, offer.pdb_violations) for node, offer in request.victims.items()}
        return ExtenderPreemptionResult(self._answered(request, offers))

    def _answered(self, request: ExtenderPreemptionArgs, answer: Mapping[str, MetaVictims]) -> dict[str, MetaVictims]:
        """Returns the nodes that the answer may contain: a node without victims rejects the answer as malformed.

        Since Kubernetes 1.38 the request may contain nodes without victims, to which another extender may add some.
        kube-scheduler then takes back an empty list, and a missing node counts as refused.
        """
        may_be_empty = self.profiles.features.behaviours.candidates_without_victims
        return {
            node: victims
            for node, victims in answer.items()
            if victims.pods or (may_be_empty and not request.victims[node].uids)
        }

    def failed(self, request: ExtenderPreemptionArgs, message: str) -> None:
        return None

    def encode(self, request: ExtenderPreemptionArgs, result: ExtenderPreemptionResult) -> bytes:
        validate_preempt(request.victims, result)
        return encode(result)

    def summary(self, request: ExtenderPreemptionArgs, result: ExtenderPreemptionResult) -> Summary:
        return Summary(len(request.victims), len(result.node_name_to_meta_victims))


def _meta_victims(uids: list[str], violations: int) -> MetaVictims:
    return MetaVictims([MetaPod(uid) for uid in dict.fromkeys(uids)], max(violations, 0))


def _ordered(victims: Sequence[PodInfo], offer: NodeVictims, table: Table) -> list[str]:
    """Returns the UIDs of the victims, the most important first.

    `victims` is already sorted. Before Kubernetes 1.38, equally important pods are sorted by name there, and are put in
    the order of the request here. If any victim belongs to a group, the order of `victims` is kept.
    """
    if table.features.behaviours.victims_by_uid or any(
        disruption_of(info, table).kind is not UnitKind.POD for info in victims
    ):
        return [info.uid for info in victims]
    turn = {uid: index for index, uid in enumerate(offer.uids)}
    ordered = sorted(victims, key=lambda info: (-info.priority, info.started_seconds, turn.get(info.uid, len(turn))))
    return [info.uid for info in ordered]


def _of_lower_priority(offer: NodeVictims, pod: PodInfo, table: Table) -> list[str]:
    """Returns the proposed UIDs of pods that have a lower priority than `pod`, or an unknown priority."""
    priorities = {victim.uid: victim.priority for victim in offer.pods or ()}
    for uid in offer.uids:
        slot = table.pods.slot_of.get(uid)
        if slot is not None:
            priorities[uid] = disruption_of(table.pods.info(slot), table).priority
    return [uid for uid in offer.uids if uid and priorities.get(uid, pod.priority - 1) < pod.priority]


def _unseen(offer: NodeVictims, node: str, pod: PodInfo, table: Table) -> list[str]:
    """Returns the proposed victims of lower priority that the table does not show on the node."""
    row = table.nodes.row_of[node]
    slot_of = table.pods.slot_of
    uids = _of_lower_priority(offer, pod, table)
    return [uid for uid in uids if uid not in slot_of or table.pods.row[slot_of[uid]] != row]
