"""VolumeBinding: a pod's claims must be bound, or bindable, to volumes that the node can reach.

Source: upstream plugin volumebinding. `plan_volumes` follows volumeBinder.AssumePodVolumes and BindPodVolumes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from msgspec import structs

from extender.framework.cluster_events import Action, Change, Resource
from extender.framework.plugin import FILTER, PRE_FILTER, PRE_SCORE, RESERVE, SCORE, Arguments, Plugin
from extender.framework.policy_fields import (
    MAX_POINT_SCORE,
    MAX_UTILIZATION,
    NonNegative,
    OptionalShape,
    ShapePoint,
    points,
    score_by_utilization,
)
from extender.framework.queueing_hints import USED_CLAIMS, Interest, Interests, Reads, changes, claim_of, uses_claim
from extender.framework.rules import Check, PerNode, RowCheck, RowScorer, Scorer, Scores, Verdict
from extender.framework.status import Refusal, failed, unresolvable
from extender.model.pod_volumes import ClaimUse
from extender.model.quantity import nano, units
from extender.model.storage import SELECTED_NODE_ANNOTATION, ClaimReference, PersistentVolume, PersistentVolumeClaim
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, Rows
from extender.volumes.accessibility import NONE
from extender.volumes.node_volumes import (
    NAME,
    PodVolumeClaims,
    PodVolumes,
    StaticBinding,
    pod_volume_claims,
    volume_claims,
)

_ADD_OR_UPDATE = Action.ADD | Action.UPDATE
NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
VOLUME_MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


def capacity_ceases_to_matter(pod: PodInfo, change: Change) -> bool:
    """Returns True if the driver of an inline volume of the pod no longer reports storage capacity."""
    if not change.old.spec.storage_capacity or change.new.spec.storage_capacity:
        return False
    return change.new.name in _inline_drivers(pod)


def _inline_drivers(pod: PodInfo) -> frozenset[str]:
    return frozenset(volume.csi.driver for volume in pod.pod.spec.volumes or () if volume.csi)


def capacity_grows(_pod: PodInfo, change: Change) -> bool:
    """Returns True if the driver can provision larger volumes than before."""
    if change.old is None:
        return True
    before, after = change.old.volume_limit, change.new.volume_limit
    return after is not None and (before is None or nano(after) > nano(before))


INTERESTS = Interests(
    (
        Interest(
            Resource.STORAGE_CLASS, _ADD_OR_UPDATE, changes(lambda storage_class: storage_class.allowed_topologies)
        ),
        Interest(Resource.PERSISTENT_VOLUME_CLAIM, _ADD_OR_UPDATE, uses_claim, USED_CLAIMS, claim_of),
        Interest(Resource.PERSISTENT_VOLUME, _ADD_OR_UPDATE),
        Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        Interest(Resource.CSI_NODE, _ADD_OR_UPDATE, changes(lambda csi_node: csi_node.migrated_plugins)),
        Interest(Resource.CSI_DRIVER, Action.UPDATE, capacity_ceases_to_matter, Reads(_inline_drivers)),
        Interest(Resource.CSI_STORAGE_CAPACITY, _ADD_OR_UPDATE, capacity_grows),
    )
)


@dataclass(frozen=True, slots=True)
class VolumeBindingFilter(PerNode):
    """Refuses nodes where the pod's claims are not bound and cannot be bound (upstream VolumeBinding, Filter).

    Only the code that binds the pod uses `bind_timeout_seconds`.
    """

    bind_timeout_seconds: float = 600
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        claims = pod_volume_claims(pod, table)
        if not isinstance(claims, PodVolumeClaims):
            return claims
        return RowCheck(lambda rows: verdict(PodVolumes(claims, table, rows)))


def verdict(volumes: PodVolumes) -> Verdict:
    """Returns the refusals of nodes: first those for errors, then one for each combination of failed checks."""
    refused: list[tuple[BoolColumn, Refusal]] = []
    no_error = np.ones(len(volumes.rows), np.bool_)
    for mask, message in volumes.errors:
        refused.append((mask & no_error, failed(NAME, f'running "{NAME}" filter plugin: {message}')))
        no_error &= ~mask
    causes = {
        NODE_CONFLICT: volumes.node_conflict,
        BIND_CONFLICT: volumes.bind_conflict,
        NOT_ENOUGH_SPACE: volumes.not_enough_space,
        VOLUME_MISSING: volumes.volume_missing,
    }
    combination = np.zeros(len(volumes.rows), np.int64)
    for bit, mask in enumerate(causes.values()):
        combination |= (mask & no_error).astype(np.int64) << bit
    for code in np.unique(combination[combination > 0]):
        reasons = [reason for bit, reason in enumerate(causes) if code >> bit & 1]
        refused.append((combination == code, unresolvable(NAME, *reasons)))
    return refused


def claim_refusals(claims: Sequence[ClaimUse], table: Table, rows: Rows) -> Mapping[int, Refusal]:
    """Returns the refusals of those of `rows` where a pod with these claims cannot get its volumes, by row."""
    usable = volume_claims(claims, table)
    if isinstance(usable, Refusal):
        return dict.fromkeys(rows.tolist(), usable)
    refused = verdict(PodVolumes(usable, table, rows))
    return {row: refusal for mask, refusal in refused for row in rows[mask].tolist()}


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """The writes needed before a pod is bound: (claim, volume) pairs to bind, and claims to provision."""

    bind: tuple[tuple[PersistentVolumeClaim, PersistentVolume], ...] = ()
    provision: tuple[PersistentVolumeClaim, ...] = ()


def plan_volumes(pod: PodInfo, table: Table, row: int) -> VolumePlan | Refusal:
    """Returns the writes that bind the claims of `pod` on the node at `row`.

    Returns a Refusal if the claims do not allow that node.
    """
    claims = pod_volume_claims(pod, table)
    if not isinstance(claims, PodVolumeClaims):
        return claims or VolumePlan()
    volumes = PodVolumes(claims, table, np.array([row]))
    for mask, refusal in verdict(volumes):
        if mask[0]:
            return refusal
    return VolumePlan(
        tuple(
            (binding.claim, binding.volumes[binding.picked[0]].volume)
            for binding in volumes.static_bindings
            if binding.picked[0] != NONE
        ),
        tuple(provision.claim for provision in volumes.dynamic_provisions if provision.needed[0]),
    )


LEAST_USED = (ShapePoint(0, MAX_POINT_SCORE), ShapePoint(MAX_UTILIZATION, 0))


@dataclass(frozen=True, slots=True)
class VolumeBindingScore(PerNode):
    """Scores nodes by the share of storage that the pod's claims would use (StorageCapacityScoring, KEP-4049).

    `shape` is the line that maps this share to a score.
    """

    shape: Sequence[ShapePoint] = LEAST_USED
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        if not table.features.storage_capacity_scoring:
            return None
        claims = pod_volume_claims(pod, table)
        if not isinstance(claims, PodVolumeClaims) or not claims.delayed:
            return None
        by_utilization = score_by_utilization(self.shape)
        is_exact = table.features.behaviours.exact_storage_capacity

        def score(rows: Rows) -> Scores:
            total = np.zeros(len(rows), np.int64)
            classes = np.zeros(len(rows), np.int64)
            for usage in _usage_by_class(PodVolumes(claims, table, rows)).values():
                utilization = _utilization(usage)
                if is_exact:  # sizes beyond 2^63 are capped, so the product overflows, and upstream scores it like 0
                    utilization = np.maximum(utilization, 0)
                total += np.where(usage.counts, by_utilization[utilization], 0)
                classes += usage.counts
            # Rounds halves up like Go's math.Round, but with exact integers.
            averages: Scores = (2 * total + classes) // np.maximum(2 * classes, 1)
            return averages

        return RowScorer(score)


def _utilization(usage: ClassUsage) -> Scores:
    """Returns the share of the storage class's capacity that would be in use, in whole percent: int64[n]."""
    overfull = (usage.capacity == 0) | (usage.requested > usage.capacity)
    share = usage.requested * MAX_UTILIZATION // np.where(overfull, 1, usage.capacity)
    return np.where(overfull, MAX_UTILIZATION, share)


class ClassUsage:
    """The storage of one class on n nodes: the bytes that the pod's claims request, and the capacity; both int64[n].

    `counts`, bool[n]: True for nodes where a claim would use the class. On other nodes, the class gets no score.
    """

    def __init__(self, rows: int) -> None:
        self.requested: Scores = np.zeros(rows, np.int64)
        self.capacity: Scores = np.zeros(rows, np.int64)
        self.counts: BoolColumn = np.zeros(rows, np.bool_)

    def add(self, claim: PersistentVolumeClaim, here: BoolColumn) -> None:
        """Adds a claim on the nodes where `here` is True. The caller adds the capacity."""
        self.counts |= here
        self.requested += np.where(here, units(claim.requested_storage), 0)


def _usage_by_class(volumes: PodVolumes) -> Mapping[str, ClassUsage]:
    """Returns, for each storage class, how much storage the pod's claims would use on each node.

    On a node where an existing volume matches any of the claims, new volumes do not count. A new volume never counts if
    its driver does not report capacity.
    """
    usage: defaultdict[str, ClassUsage] = defaultdict(lambda: ClassUsage(len(volumes.rows)))
    has_match = np.zeros(len(volumes.rows), np.bool_)
    for binding in volumes.static_bindings:
        for class_name, here in _nodes_by_class(binding).items():
            usage[class_name].add(binding.claim, here)
            usage[class_name].capacity += np.where(here, binding.bytes, 0)
        has_match |= binding.picked != NONE
    for provision in volumes.dynamic_provisions:
        if provision.bytes_left is not None:
            here = provision.needed & ~has_match
            of_class = usage[provision.claim.class_name]
            of_class.add(provision.claim, here)
            # It replaces the capacity, because all claims of a class share one pool.
            of_class.capacity = np.where(here, provision.bytes_left, of_class.capacity)
    return usage


def _nodes_by_class(binding: StaticBinding) -> Mapping[str, BoolColumn]:
    """Returns, for each storage class, the nodes where `binding` picks a volume of the class: bool[n].

    The class is read from the volume's spec; the legacy annotation is ignored.
    """
    picked: defaultdict[str, list[int]] = defaultdict(list)
    for index in np.unique(binding.picked[binding.picked != NONE]).tolist():
        picked[binding.volumes[index].volume.spec.storage_class_name].append(index)
    return {class_name: np.isin(binding.picked, indices) for class_name, indices in picked.items()}


class VolumeBindingArgs(Arguments):
    kind: Literal["VolumeBindingArgs"] = "VolumeBindingArgs"
    bind_timeout_seconds: NonNegative = 600
    """The time that `extender schedule` waits for volumes to be bound."""
    shape: OptionalShape = ()
    """The points of a line that maps the requested share of a volume to a score. By default, emptier storage is better.
    """


PLUGIN = Plugin(
    NAME,
    VolumeBindingArgs,
    lambda args: VolumeBindingFilter(args.bind_timeout_seconds),
    lambda args: VolumeBindingScore(points(args.shape) or LEAST_USED),
    points=frozenset((PRE_SCORE, RESERVE, "preBind")),
    # Without its filter, Reserve succeeds and reserves nothing.
    needs=((FILTER, PRE_FILTER), (SCORE, PRE_FILTER), (RESERVE, PRE_FILTER)),
    scores_filtered=True,
    interests=INTERESTS,
)


def bound(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """Returns the volume with a claimRef that names the claim, as a bound volume has it."""
    reference = ClaimReference(namespace=claim.namespace, name=claim.name, uid=claim.uid)
    return structs.replace(volume, spec=structs.replace(volume.spec, claim_ref=reference))


def selected(claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    """Returns the claim with the annotation that selects the node for its new volume."""
    annotations = {**claim.annotations, SELECTED_NODE_ANNOTATION: node_name}
    return structs.replace(claim, metadata=structs.replace(claim.metadata, annotations=annotations))
