"""Names the changes of Kubernetes behind decisions that another version makes differently."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import NamedTuple

from extender.offline.recording.worlds import Rules, World
from extender.policy.kubernetes_versions import by_name
from extender.runtime.text import counted, listed
from extender.table.features import Behaviours, FeatureGates, with_values

SEVERAL = "several changes work together"
OWN = "this program decides otherwise than the one that made the recording"
MOST_NAMES = 5
_SINGULAR: Mapping[str, str] = {"are": "is", "fit": "fits", "get": "gets", "pass": "passes"}
"""The verb at the beginning of what changes (`Consequence`), for a single pod."""
BECAUSE: Mapping[str, str] = {
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
    "request_sums_are_capped": "the requests on a node add up to 2^63 - 1 at most",
    "exact_storage_capacity": "storage capacity is compared exactly",
    "failures_name_the_group": "members that fail with their group name the group",
    "group_priorities_have_no_maximum": "groups may have the priority of system classes",
    "incomplete_pools_refuse_the_node": "an incomplete pool of devices refuses only its node",
    "members_are_evicted_as_pods": "members of groups are evicted by their own priority",
    "metrics_have_entities": "metrics have other labels",
    "more_objects_are_refused": "the API server checks more of claims and groups",
    "negative_consumption_fails": "a claim consumes a negative amount",
    "no_victims_is_unschedulable": "a group without victims may release claims",
    "nominated_placement_first": "a group goes to the topology domain that it is nominated to",
    "ongoing_preemption_comes_first": "a group waits for its victims whatever its preemption policy is",
    "placement_fields": "the configuration has fields for placements",
    "pod_level_requests_in_score": "pod-level requests count in the score",
    "preemption_ranks_nodes": "groups preempt on the nodes with the least important victims",
    "recreated_groups_are_new": "groups that are created again wake their members",
    "shares_prevent_exclusive_use": "a device with a share in use is not given as a whole",
    "shrunk_nomination_wakes": "pods wake when the node that they are nominated to shrinks",
    "victims_by_uid": "the UID decides between equally important victims",
    "whole_trees_are_validated": "all groups and pods of a tree are validated",
}
"""A behaviour (`Behaviours`) -> the reason why it changes a decision."""


class Consequence(NamedTuple):
    """An effect of a change of Kubernetes on pods or groups: "pod", "get another node", "... count in the score"."""

    noun: str
    what: str
    cause: str


def counted_by_cause(changed: Iterable[tuple[Consequence, str]], most: int | None = MOST_NAMES) -> list[str]:
    """Returns a sentence for each effect with the pods or groups that it has, those with most of them first.

    Args:
        most: how many names a sentence has at most; None for all.
    """
    names: defaultdict[Consequence, dict[str, None]] = defaultdict(dict)
    for effect, name in changed:
        names[effect][name] = None
    sentences = []
    for (noun, what, cause), keys in sorted(names.items(), key=lambda item: -len(item[1])):
        verb, _, rest = what.partition(" ")
        verb = verb if len(keys) > 1 else _SINGULAR[verb]
        shown = listed(list(keys), most or len(keys))
        sentences.append(f"{counted(len(keys), noun)} {verb} {rest} because {cause}: {shown}")
    return sentences


class Causes:
    """Finds out for the decisions of a recording which change of Kubernetes makes them differ.

    Each change has a world that decides without it, on the objects of the world that has all changes.

    Args:
        before: the rules of the recording.
        after: the world of the other version.
    """

    def __init__(self, before: Rules, after: World) -> None:
        features = single_changes(before.profiles.features, after.rules.profiles.features)
        self._features = dict(features)
        self._after = after
        self._before = after.under(before)
        self._worlds: dict[str, World] = {}

    def of(self, differs: Callable[[World], bool]) -> str:
        """Returns the single change without which the decision would be as recorded; SEVERAL if there is none.

        It is OWN if the decision differs without any change. `differs` makes the decision again in a world.
        """
        if differs(self._before):
            return OWN
        for cause, features in self._features.items():
            if cause not in self._worlds:
                self._worlds[cause] = self._after.under(self._after.rules.with_features(features))
            if not differs(self._worlds[cause]):
                return cause
        return SEVERAL


def single_changes(before: FeatureGates, after: FeatureGates) -> Iterator[tuple[str, FeatureGates]]:
    """Yields each single change from `before` to `after`: its text, and `after` without it."""
    for field in fields(Behaviours):
        old = getattr(before.behaviours, field.name)
        if old != getattr(after.behaviours, field.name):
            yield BECAUSE[field.name], replace(after, behaviours=replace(after.behaviours, **{field.name: old}))
    gates = by_name(before)
    for name, is_on in by_name(after).items():
        if is_on != gates[name]:
            state = "on" if is_on else "off"
            yield f"the feature gate {name} is {state}", with_values(after, {name: gates[name]})
