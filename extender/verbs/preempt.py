"""preempt: which of the scheduler's candidates will do, and with which victims.

kube-scheduler may hear that the victims are gone sooner than this cache does. It asks at once whether the pod fits now,
and a "no" has it evict other pods on other nodes, until the watch has told.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from threading import Lock

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
from extender.runtime.clock import NO_LIMIT, Clock, TimeLimit
from extender.table import PodInfo, Table
from extender.verbs.verb import Summary, place_kept_for

MOST_PODS = 1024
SECONDS, PAUSE_SECONDS = 1.0, 0.02


class RecentPreemptors:
    """Has filter wait for the watch, for `SECONDS` at most after victims were named.

    Args:
        pause: waits for so many seconds; by default as time.sleep, looked up late: simulations have another.
    """

    def __init__(self, clock: Clock, pause: Callable[[float], object] | None = None) -> None:
        self._clock, self._pause, self._lock = clock, pause or time.sleep, Lock()
        self._pods: OrderedDict[str, tuple[float, Collection[str]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pods)

    def note(self, uid: str, nodes: Collection[str]) -> None:
        """Takes in that victims were named for the pod, on these nodes."""
        now = self._clock.monotonic()
        with self._lock:
            self._pods[uid] = now + SECONDS, frozenset(nodes)
            self._pods.move_to_end(uid)
            while len(self._pods) > MOST_PODS or next(iter(self._pods.values()))[0] < now:
                self._pods.popitem(last=False)

    def wait(self, uid: str, nodes: Collection[str]) -> bool:
        """Waits a moment if victims of the pod may have gone from one of the nodes; returns whether it has waited."""
        with self._lock:
            until, named = self._pods.get(uid, (0.0, ()))
        if self._clock.monotonic() >= until or not any(node in named for node in nodes):
            return False
        self._pause(PAUSE_SECONDS)
        return True


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
        with self._cache.snapshot(self.name) as table, table.until(deadline):
            if place_kept_for(info, table):  # whoever went for it elsewhere would go in vain
                return ExtenderPreemptionResult(answered)
            victims = {node: request.victims[node] for node in request.victims if node in table.nodes.row_of}
            offered = {node: given.uids for node, given in victims.items()}
            processed = process_preemption(profile, info, table, offered, self._cache.view.unconfirmed())
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
