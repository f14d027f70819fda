"""Compares decisions about the pods of a snapshot under two versions of Kubernetes, for `extender upgrade-check`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from extender.engine import Decision
from extender.framework.profile import Profiles
from extender.offline.recording.replay import ChangedDecision, Difference, ReplayResult
from extender.offline.state import ClusterState
from extender.policy.kubernetes_versions import by_name, changes, upgraded
from extender.preemption import Candidate
from extender.runtime.text import MOST_ROWS, Cells, counted, cut, listed, printable
from extender.table.features import Behaviours, FeatureGates, with_values

SEVERAL = "several changes work together"
_MOST_PODS = 5
_BECAUSE: Mapping[str, str] = {
    "attributes_fail_when_read": "attributes of devices are compared and read one by one",
    "candidates_without_victims": "extenders are offered nodes without victims",
    "capacities_have_domains": "capacities of devices have the driver's domain",
    "composite_placements_are_counted": "placements of CompositePodGroups are counted",
    "composites_have_conditions": "CompositePodGroups have a condition",
    "certificate_and_oci_features": "nodes must declare features of certificates and OCI profiles",
    "empty_labels_are_no_domain": "nodes with an empty topology label are in no domain",
    "empty_spread_selector_counts": "an empty selector of a spread constraint counts all pods",
    "enough_placements_end_the_search": "only a percentage of the topology domains is compared",
    "every_budget_protects": "every PodDisruptionBudget protects the pods that it selects",
    "every_class_has_its_resource": "every DeviceClass keeps its implicit resource",
    "exact_score_fractions": "scores of large amounts are exact",
    "exact_storage_capacity": "storage capacity is compared exactly",
    "failures_name_the_group": "members that fail with their group name the group",
    "incomplete_pools_refuse_the_node": "an incomplete pool of devices refuses only its node",
    "members_are_evicted_as_pods": "members of groups are evicted by their own priority",
    "negative_consumption_fails": "a claim consumes a negative amount",
    "no_victims_is_unschedulable": "a group without victims may release claims",
    "nominated_placement_first": "a group goes to the topology domain that it is nominated to",
    "ongoing_preemption_comes_first": "a group waits for its victims whatever its preemption policy is",
    "placement_fields": "the configuration has fields for placements",
    "pod_level_requests_in_score": "pod-level requests count in the score",
    "preemption_ranks_nodes": "groups preempt on the nodes with the least important victims",
    "shares_prevent_exclusive_use": "a device with a share in use is not given as a whole",
    "shrunk_nomination_wakes": "pods wake when the node that they are nominated to shrinks",
    "victims_by_uid": "the UID decides between equally important victims",
    "whole_trees_are_validated": "all groups and pods of a tree are validated",
}
"""A behaviour (`Behaviours`) -> the reason why it changes a decision."""


@dataclass(frozen=True, slots=True)
class ChangedPod:
    """A pod about which the two versions decide differently.

    Attributes:
        pod: namespace/name.
        before, after: the two decisions as texts.
        what: how the decision changes, as in "3 pods get another node".
        cause: the change of Kubernetes that makes the difference.
    """

    pod: str
    before: str
    after: str
    what: str
    cause: str


@dataclass(frozen=True, slots=True)
class UpgradeResult:
    """The outcome of a check of a snapshot: how many pods were judged, and those about which the decisions differ."""

    judged: int
    changed: Sequence[ChangedPod]
    notes: Sequence[str]

    def causes(self) -> Mapping[tuple[str, str], Sequence[str]]:
        """Returns (what changes, because of what) -> the pods, for most pods first."""
        pods: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for each in self.changed:
            pods[each.what, each.cause].append(each.pod)
        return dict(sorted(pods.items(), key=lambda item: -len(item[1])))

    def to_dict(self) -> dict[str, Any]:
        """Returns the form of a replay (docs/record-and-replay.md), with a step for each pod that changes."""
        changed = [
            ChangedDecision(number, 0.0, "pod", each.pod, [Difference(each.before, each.after, each.cause)])
            for number, each in enumerate(self.changed)
        ]
        notes = [*map(_sentence, self.causes().items()), *self.notes]
        return ReplayResult({"pod": self.judged}, {}, changed, notes).to_dict()


def check(
    state: ClusterState, target: str, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> UpgradeResult:
    """Decides about each pod of the cluster, as if it were waiting, under its own version and under `target`.

    Args:
        target: a version of Kubernetes, feature gates, or both (see `upgraded`).

    Raises:
        ConfigurationError: a version or gate is not known.
    """
    before = state.profiles.features
    after = upgraded(before, target)
    then, now = _under(state, before), _under(state, after)
    single = dict(_single_changes(before, after))
    states: dict[str, ClusterState] = {}
    changed: list[ChangedPod] = []
    infos = list(state.infos.values())
    for number, info in enumerate(infos, 1):
        one, other = then.engine.decide(info.pod), now.engine.decide(info.pod)
        if _outcome(one) != _outcome(other):
            cause = _cause(info.pod.key, _outcome(one), state, single, states)
            changed.append(ChangedPod(info.pod.key, _shown(one), _shown(other), _what(one, other), cause))
        progress(number, len(infos))
    difference = changes(before, after)
    note = (
        f"decided with {difference}" if difference else f"under {target}, nothing differs from the snapshot's version"
    )
    return UpgradeResult(len(infos), changed, [note])


def as_text(result: UpgradeResult, *, every: bool = False) -> Iterator[str]:
    """Yields lines of text: the counts by cause, then each pod. The list is shortened unless `every` is True."""
    number = len(result.changed)
    differ = f"{number} decisions differ" if number > 1 else "1 decision differs" if number else "no decision differs"
    yield f"{counted(result.judged, 'pod')} judged as if waiting: {differ}"
    yield from (printable(_sentence(item)) for item in result.causes().items())
    yield from (printable(f"note: {note}") for note in result.notes)
    rows: list[Cells] = [("POD", "BEFORE", "AFTER", "CAUSE")]
    rows += [(each.pod, each.before, each.after, each.cause) for each in result.changed]
    if result.changed:
        yield ""
        yield from cut(rows, None if every else MOST_ROWS)


def _sentence(item: tuple[tuple[str, str], Sequence[str]]) -> str:
    (what, cause), pods = item
    verb = what if len(pods) > 1 else what.replace("get ", "gets ", 1).replace("no longer fit", "no longer fits", 1)
    return f"{counted(len(pods), 'pod')} {verb} because {cause}: {listed(pods, _MOST_PODS)}"


def _under(state: ClusterState, features: FeatureGates) -> ClusterState:
    profiles = state.profiles
    return state.copy(Profiles(profiles.all, features, profiles.extenders, profiles.watch))


def _single_changes(before: FeatureGates, after: FeatureGates) -> Iterator[tuple[str, FeatureGates]]:
    """Yields each single change from `before` to `after`: its text, and `after` without it."""
    for field in fields(Behaviours):
        old = getattr(before.behaviours, field.name)
        if old != getattr(after.behaviours, field.name):
            yield _BECAUSE[field.name], replace(after, behaviours=replace(after.behaviours, **{field.name: old}))
    gates = by_name(before)
    for name, is_on in by_name(after).items():
        if is_on != gates[name]:
            state = "on" if is_on else "off"
            yield f"the feature gate {name} is {state}", with_values(after, {name: gates[name]})


def _cause(
    key: str,
    outcome: object,
    state: ClusterState,
    single: Mapping[str, FeatureGates],
    states: dict[str, ClusterState],
) -> str:
    """Returns the single change without which the pod's decision would be as before; SEVERAL if there is none."""
    for cause, features in single.items():
        if cause not in states:
            states[cause] = _under(state, features)
        if _outcome(states[cause].engine.decide(states[cause].info(key).pod)) == outcome:
            return cause
    return SEVERAL


def _outcome(decision: Decision) -> object:
    """Returns what must be equal for two decisions to be the same: the best nodes, or else where pods are evicted."""
    if decision.feasible:
        return sorted(decision.best)
    eviction = _eviction(decision)
    if eviction is None:
        return sorted((node, refusal.code, refusal.reasons) for node, refusal in decision.refusals.items())
    return eviction.node, [victim.uid for victim in eviction.victims]


def _shown(decision: Decision) -> str:
    if decision.feasible:
        return listed(sorted(decision.best), _MOST_PODS)
    eviction = _eviction(decision)
    if eviction is None:
        return decision.message
    return f"{eviction.node}, evicting {listed([victim.pod.key for victim in eviction.victims], _MOST_PODS)}"


def _what(before: Decision, after: Decision) -> str:
    if before.feasible and after.feasible:
        return "get another node"
    if before.feasible or after.feasible:
        return "no longer fit" if before.feasible else "get a node"
    return "get other victims" if _eviction(before) and _eviction(after) else "get another refusal"


def _eviction(decision: Decision) -> Candidate | None:
    """Returns the node that preemption chooses for the pod, with the victims; None if no eviction helps."""
    preemption = decision.preemption
    if preemption is None or preemption.nominated_node is None:
        return None
    return preemption.candidates[preemption.nominated_node]
