"""preempt: which of the scheduler's candidates will do, and with which victims."""

from __future__ import annotations

from collections.abc import Sequence

from extender.cache.cache import Cache
from extender.extender_v1.decoding import decode_preemption_args
from extender.extender_v1.encoding import encode, validate_preempt
from extender.extender_v1.types import (
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    MetaPod,
    MetaVictims,
    NodeVictims,
)
from extender.framework.profile import Profiles
from extender.preemption import process_preemption
from extender.runtime.clock import NO_LIMIT, TimeLimit
from extender.table import PodInfo, Table
from extender.verbs.filter import place_kept_for
from extender.verbs.verb import Summary
from extender.verbs.waiting import RecentPreemptors


class Preempt:
    """Upstream counterpart: HTTPExtender.ProcessPreemption.

    The scheduler holds every victim of the answer against its own snapshot, and one that it does not know there fails
    the whole preemption. So its own choice is kept wherever it suffices, cut down to what is needed; pods beyond it are
    chosen only where it does not, or where the scheduler leaves the choice to the extender; never one whose bind nobody
    but this cache counts, for the scheduler may have given it up. Pods among its victims that the cache has not seen
    yet, or no more, stay in.
    """

    name = "preempt"

    def __init__(
        self,
        cache: Cache,
        profiles: Profiles,
        limit: TimeLimit = NO_LIMIT,
        preemptors: RecentPreemptors | None = None,
    ) -> None:
        """`preemptors` are told for whom victims are named."""
        self._cache, self._profiles, self._limit, self._preemptors = cache, profiles, limit, preemptors

    def decode(self, body: bytes) -> ExtenderPreemptionArgs:
        return decode_preemption_args(body)

    def decide(self, request: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        deadline = self._limit.begin()
        info = PodInfo(request.pod)
        profile = self._profiles.of(request.pod)
        answered: dict[str, MetaVictims] = {}
        if profile.preemption is None:  # the policy has it disabled
            return ExtenderPreemptionResult(answered)
        with self._cache.snapshot(self.name, deadline) as table:
            if place_kept_for(info, table):  # whoever went for it elsewhere would go in vain
                return ExtenderPreemptionResult(answered)
            victims = {node: request.victims[node] for node in request.victims if node in table.nodes.row_of}
            offered = {node: given.uids for node, given in victims.items()}
            processed = process_preemption(profile, info, table, offered, self._cache.unconfirmed())
            for node, candidate in processed.candidates.items():
                uids = _ordered(candidate.victims, victims[node])
                uids += _unseen(victims[node], node, info, table)
                answered[node] = _meta_victims(uids, candidate.num_pdb_violations)
            for node in processed.feasible:
                given = victims[node]
                answered[node] = _meta_victims(_lesser(given, info, table), given.pdb_violations)
        result = {node: victims for node, victims in answered.items() if victims.pods}
        if result and self._preemptors is not None:
            self._preemptors.note(info.uid, result.keys())
        return ExtenderPreemptionResult(result)

    def allow_all(self, request: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        given = {node: _meta_victims(victims.uids, victims.pdb_violations) for node, victims in request.victims.items()}
        return ExtenderPreemptionResult({node: victims for node, victims in given.items() if victims.pods})

    def failed(self, request: ExtenderPreemptionArgs, message: str) -> None:
        return None

    def encode(self, request: ExtenderPreemptionArgs, result: ExtenderPreemptionResult) -> bytes:
        validate_preempt(request.victims, result)
        return encode(result)

    def summary(self, request: ExtenderPreemptionArgs, result: ExtenderPreemptionResult) -> Summary:
        return Summary(len(request.victims), len(result.node_name_to_meta_victims))


def _meta_victims(uids: list[str], violations: int) -> MetaVictims:
    return MetaVictims([MetaPod(uid) for uid in dict.fromkeys(uids)], max(violations, 0))


def _ordered(victims: Sequence[PodInfo], given: NodeVictims) -> list[str]:
    """Returns UIDs, the most important first, as the scheduler needs them; of equals, in the order that it gave."""
    turn = {uid: index for index, uid in enumerate(given.uids)}
    ordered = sorted(victims, key=lambda info: (-info.priority, info.started_seconds, turn.get(info.uid, len(turn))))
    return [info.uid for info in ordered]


def _lesser(given: NodeVictims, pod: PodInfo, table: Table) -> list[str]:
    """Returns the UIDs given, without those of pods that are known to be as important as `pod`."""
    priorities = {victim.uid: victim.priority for victim in given.pods or ()}
    for uid in given.uids:
        slot = table.pods.slot_of.get(uid)
        if slot is not None:
            priorities[uid] = int(table.pods.priority[slot])
    return [uid for uid in given.uids if uid and priorities.get(uid, pod.priority - 1) < pod.priority]


def _unseen(given: NodeVictims, node: str, pod: PodInfo, table: Table) -> list[str]:
    """Returns the lesser victims given that the table does not know on the node."""
    row = table.nodes.row_of[node]
    slot_of = table.pods.slot_of
    return [uid for uid in _lesser(given, pod, table) if uid not in slot_of or table.pods.row[slot_of[uid]] != row]
