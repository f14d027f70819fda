"""DynamicResources: requires that the devices a pod claims are free on the node. Source: upstream dynamicresources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator

from extender.devices.allocations import BEST_ALTERNATIVE, FITS
from extender.devices.allocator import FILTER_TIMEOUT_SECONDS, UNTIMED, NodeTimeLimit
from extender.devices.plan import ClaimsOfVictims, deallocated, more_important_by_row, take_devices, unavailable
from extender.devices.pod_claims import (
    NAME,
    STALE,
    UNFIT,
    FindClaim,
    NodeClaims,
    PodDeviceClaims,
    existing_claims,
    pod_device_claims,
)
from extender.framework.cluster_events import Action, Change, Resource
from extender.framework.plugin import FILTER, PRE_FILTER, RESERVE, SCORE, Arguments, Plugin
from extender.framework.policy_fields import duration, duration_seconds
from extender.framework.queueing_hints import Interest, Interests, reads_names
from extender.framework.rules import (
    NO_REFUSAL,
    Check,
    PerTemplate,
    RowCheck,
    RowScorer,
    Scorer,
    Scores,
    Verdict,
    normalised,
)
from extender.framework.status import Code, Refusal, unresolvable, unschedulable
from extender.model.devices import ResourceClaim
from extender.model.pod_groups import PodGroup
from extender.runtime.clock import INTERRUPTIONS, Clock, SystemClock, note_subject
from extender.table import HypotheticalRemovals, PodInfo, Table, Trial
from extender.table.labels import BoolColumn, Rows


def claim_of(change: Change) -> tuple[str, ...] | None:
    """Returns the key of the changed claim, by which the queue looks up the waiting pods that use the claim.

    If devices became free, returns None, because any waiting pod may need them. If a claim for extended resources was
    deleted that had no devices, returns the UID of the pod that owned it; () if no pod owned it.
    """
    if _devices_become_free(change):
        return None
    if _can_be_recreated(change):
        return (change.old.controller.uid,) if change.old.controller else ()
    return ((change.new or change.old).key,)


def claim_helps(pod: PodInfo, change: Change) -> bool:
    """Returns True if devices became free, or a claim of the pod was added or changed its status.

    It also returns True if a claim for the pod's extended resources was deleted, because the next attempt can create a
    new claim. Upstream does not wake the pod then.
    """
    if _devices_become_free(change):
        return True
    if _can_be_recreated(change):
        return bool(change.old.controller and change.old.controller.uid == pod.uid)
    if change.new is None or change.new.key not in claims_of(pod):
        return False
    return change.old is None or change.old.status != change.new.status


def claims_of(pod: PodInfo) -> Iterator[str]:
    """Yields the keys of the claims that the pod uses, except claims that are not generated yet."""
    generated = {status.name: status.resource_claim_name for status in pod.pod.status.resource_claim_statuses or ()}
    for claim in pod.pod.spec.resource_claims or ():
        name = claim.resource_claim_name or generated.get(claim.name)
        if name:
            yield f"{pod.pod.namespace}/{name}"


def _claims_and_uid(pod: PodInfo) -> Iterator[str]:
    yield from claims_of(pod)
    yield pod.uid


def _can_be_recreated(change: Change) -> bool:
    return change.new is None and bool(change.old.is_for_extended_resources)


def _devices_become_free(change: Change) -> bool:
    """Returns True if the claim lost one of its devices.

    The claim may have new devices instead, if watch events in between were missed. Upstream ignores that case.
    """
    old: ResourceClaim | None = change.old
    new: ResourceClaim | None = change.new
    if old is None or old.allocation is None:
        return False
    if new is None or new.allocation is None:
        return True
    remaining = new.allocation.results
    return any(device not in remaining for device in old.allocation.results)


INTERESTS = Interests(
    (
        Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE),
        Interest(
            Resource.RESOURCE_CLAIM,
            Action.ADD | Action.UPDATE | Action.DELETE,
            claim_helps,
            reads_names(_claims_and_uid),
            claim_of,
        ),
        Interest(Resource.TARGET_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM),
        Interest(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE),
        Interest(Resource.RESOURCE_SLICE, Action.ADD | Action.UPDATE),
        Interest(Resource.DEVICE_TAINT_RULE, Action.ALL),
    )
)


@dataclass(slots=True, eq=False)
class ClaimsExist:
    """Keeps a pod out of the active queue until every claim that it names exists (upstream PreEnqueue).

    The pod gets no condition and no event, because the controller that creates its claims also writes the pod's status.

    Args:
        find: finds a claim.
        applies_to: returns True if the pod's profile has this plugin enabled.
        find_group: returns the group whose claims the pod may share; None if there is none.
    """

    _find: FindClaim
    _applies_to: Callable[[PodInfo], bool]
    _find_group: Callable[[PodInfo], PodGroup | None]

    def refuse(self, pod: PodInfo) -> Refusal | None:
        if not pod.pod.spec.resource_claims or not self._applies_to(pod):
            return None
        claims = existing_claims(pod.pod, self._find, self._find_group(pod))
        return claims if isinstance(claims, Refusal) else None


UNAVAILABLE = unresolvable(NAME, "resourceclaim not available on the node")
HELD = unschedulable(NAME, "node(s) had devices that a nominated pod of higher priority will get")


@dataclass(frozen=True, slots=True)
class DynamicResourcesFilter(PerTemplate):
    """Refuses nodes without the devices that the pod claims (upstream dynamicresources.DynamicResources, Filter).

    Upstream's PostFilter, which deallocates a claim that fits on no node, is in `devices.plan.idle_claim`.

    Attributes:
        clock: None means that binding timeouts never expire, and that the allocator is limited by steps, not by time.
        at_bind: True when the pod is being bound. The scheduler has then just created the claim for the pod's extended
            resources (upstream PreBind), and the filter checks it like any other claim. At any other time, such a claim
            remains from an earlier attempt and blocks the pod.
        preempts: True if a pod may evict others for their devices; see `devices.plan`.
    """

    binding_timeout_seconds: float = 600
    clock: Clock | None = None
    filter_timeout_seconds: float = FILTER_TIMEOUT_SECONDS
    at_bind: bool = False
    preempts: bool = False
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        claims = pod_device_claims(pod, table)
        if not isinstance(claims, PodDeviceClaims):
            return claims
        if self.at_bind and claims.special is not None and claims.special.requests:
            claims = replace(claims, user=(*claims.user, claims.special), special=None, backed={})
        if self.clock is None:
            check = _DynamicResourcesCheck(claims, table, float("-inf"), self.binding_timeout_seconds, UNTIMED)
        else:
            limit = NodeTimeLimit(self.clock.monotonic, self.filter_timeout_seconds or float("inf"))
            check = _DynamicResourcesCheck(claims, table, self.clock.now(), self.binding_timeout_seconds, limit)
        return _PreemptingCheck(check, replace(self, preempts=False), pod, table) if self.preempts else check


@dataclass(slots=True, eq=False)
class _DynamicResourcesCheck(Check):
    _claims: PodDeviceClaims
    _table: Table
    _now: float
    _binding_timeout_seconds: float
    _limit: NodeTimeLimit

    def refuse(self, rows: Rows) -> Verdict:
        node_claims = NodeClaims(self._claims, self._table, rows, self._limit)
        verdict = list(node_claims.refused)
        for group in node_claims.groups:
            try:
                verdict.extend(group.verdict(rows))
            except INTERRUPTIONS as error:
                note_subject(error, f"the claim {' or '.join(claim.key for claim in group.claims)}")
                raise
        allocated = self._claims.allocated
        if allocated:
            elsewhere = unavailable(allocated, self._table, rows, self._now, self._binding_timeout_seconds)
            verdict.append((_without(elsewhere, verdict), UNAVAILABLE))
        return verdict


class _PreemptingCheck(Check):
    """The check of a pod that may evict others for their devices. Nodes that lack devices may be preempted.

    A pod also leaves the devices alone that a nominated pod of a higher priority will get.
    """

    sees_pods = True

    def __init__(self, check: Check, predicate: DynamicResourcesFilter, pod: PodInfo, table: Table) -> None:
        self._check = check
        self._predicate = predicate
        self._pod = pod
        self._table = table
        self._nominated = more_important_by_row(pod, table)
        self._victims: ClaimsOfVictims | None = None

    def refuse(self, rows: Rows) -> Verdict:
        verdict = [(mask, _preemptible(refusal)) for mask, refusal in self._check.refuse(rows)]
        held = np.isin(rows, list(self._nominated))
        return [*verdict, (_without(held & ~self._fits(rows, held, {}, ()), verdict), HELD)] if held.any() else verdict

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> Verdict:
        if self._victims is None:
            self._victims = ClaimsOfVictims(self._table)
        freed = self._victims.freed(gone)
        alone = np.isin(rows, [*freed, *self._nominated])
        fits = self._fits(rows, alone, freed, self._victims.left_behind)
        if not alone.all():
            with self._supposing(self._victims.left_behind) as check:
                for mask, _ in check.refuse(rows[~alone]) if check else ((True, None),):
                    fits[np.flatnonzero(~alone)[mask]] = False
        return [(~fits, HELD)]

    def _fits(
        self,
        rows: Rows,
        chosen: BoolColumn,
        freed: Mapping[int, Sequence[ResourceClaim]],
        left_behind: Sequence[ResourceClaim],
    ) -> BoolColumn:
        """Returns bool[n]: True unless the row is `chosen` and does not fit with the claims freed there."""
        fits = np.ones(len(rows), np.bool_)
        for position in np.flatnonzero(chosen).tolist():
            row = int(rows[position])
            with self._supposing([*left_behind, *freed.get(row, ())], row) as check:
                fits[position] = check is not None and not any(mask.any() for mask, _ in check.refuse(rows[[position]]))
        return fits

    @contextmanager
    def _supposing(self, freed: Iterable[ResourceClaim], row: int | None = None) -> Iterator[Check | None]:
        """Yields the check as if these claims were deallocated; None if it refuses every node.

        Nominated pods of a higher priority take their devices on this row first.
        """
        trial = Trial(self._table)
        try:
            for claim in freed:
                trial.set_object(deallocated(claim))
            take_devices(trial, self._nominated.get(row, ()) if row is not None else (), row or 0)
            check = self._predicate.prepare(self._pod, self._table)
            yield RowCheck(lambda _rows: NO_REFUSAL) if check is None else check if isinstance(check, Check) else None
        finally:
            trial.revert()


def _preemptible(refusal: Refusal) -> Refusal:
    is_lack = refusal.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE and refusal not in (UNAVAILABLE, STALE, UNFIT)
    return Refusal(refusal.plugin, Code.UNSCHEDULABLE, refusal.reasons) if is_lack else refusal


def _without(mask: BoolColumn, verdict: Verdict) -> BoolColumn:
    for refused, _ in verdict:
        mask &= ~refused
    return mask


@dataclass(frozen=True, slots=True)
class DynamicResourcesScore(PerTemplate):
    """Prefers nodes whose devices satisfy an earlier alternative of a request (upstream Score, KEP-4816)."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        claims = pod_device_claims(pod, table)
        if not isinstance(claims, PodDeviceClaims):
            return None
        has_alternatives = any(request.first_available for claim in claims.user for request in claim.requests)
        allocated_score = sum(map(_score, claims.allocated))

        def score(rows: Rows) -> Scores:
            scores = np.zeros(len(rows), np.int64)
            for group in NodeClaims(claims, table, rows).groups:
                fitting = np.flatnonzero(group.mask)
                fitting = fitting[group.allocations.outcomes(rows[fitting], group.limit) == FITS]
                scores[fitting] = group.allocations.scores(rows[fitting]) + allocated_score
            return scores

        return RowScorer(score, normalised) if has_alternatives else None


def _score(claim: ResourceClaim) -> int:
    """Returns the sum of the scores of the alternatives (firstAvailable) that an allocated claim uses.

    The earlier an alternative is in its list, the higher is its score.
    """
    allocated = {result.request for result in (claim.allocation.results if claim.allocation else ())}
    return sum(
        BEST_ALTERNATIVE - position
        for request in claim.requests
        for position, alternative in enumerate(request.first_available or ())
        if f"{request.name}/{alternative.name}" in allocated
    )


class DynamicResourcesArgs(Arguments):
    kind: Literal["DynamicResourcesArgs"] = "DynamicResourcesArgs"
    filter_timeout: Annotated[str, AfterValidator(duration(0))] = "10s"
    """The time limit of the allocator for one node; 0 means no limit."""
    binding_timeout: Annotated[str, AfterValidator(duration(1))] = "10m"
    """The time that `extender schedule` waits for the binding conditions of devices."""
    device_preemption: bool = False
    """True to evict pods of lower priority for their devices, in `extender schedule`; kube-scheduler never does."""


_CLOCK = SystemClock()
PLUGIN = Plugin(
    NAME,
    DynamicResourcesArgs,
    lambda args: DynamicResourcesFilter(
        duration_seconds(args.binding_timeout),
        _CLOCK,
        duration_seconds(args.filter_timeout),
        preempts=args.device_preemption,
    ),
    lambda _: DynamicResourcesScore(),
    weight=2,
    points=frozenset(("preEnqueue", "postFilter", "podGroupPostFilter", RESERVE, "preBind")),
    # Without its filter, Reserve fails for each pod with claims to allocate, because the devices are chosen at filter.
    needs=((FILTER, PRE_FILTER), (SCORE, PRE_FILTER), (RESERVE, PRE_FILTER), (RESERVE, FILTER)),
    scores_filtered=True,
    interests=INTERESTS,
)
