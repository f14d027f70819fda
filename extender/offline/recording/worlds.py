"""Rebuilds a recorded process, with its cache, verbs and scheduling cycles, at any moment and under any rules.

`Causes` names the changes of Kubernetes behind decisions that another version makes differently: it makes a decision
again with one change at a time.
"""

from __future__ import annotations

from collections import ChainMap, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from extender.cache.cache import Cache
from extender.cache.changes import NODE, POD, Changes, Current, Update, apply
from extender.cache.pod_states import PodPlacement
from extender.engine.decide import SchedulingCycle
from extender.engine.decision import Chosen, Failure
from extender.engine.group_members import GroupSchedulingCycle, MemberJudge, decides_members
from extender.errors import MalformedCluster
from extender.extender_v1.messages import ExtenderArgs, ExtenderPreemptionArgs, NodeBytes
from extender.framework.profile import Profile, Profiles
from extender.framework.status import Refusal
from extender.groups import Composite, GroupDecision, GroupRules, Leaf, Tree
from extender.groups.group_tree import too_deep, waiting_members
from extender.model.pod import Pod
from extender.model.pod_groups import MAX_TREE_DEPTH, CompositePodGroup, GroupName, PodGroup
from extender.plugins.users.rule_calls import OfflineHost
from extender.policy.library import Library
from extender.policy.loading import AnyPolicy, load, read
from extender.policy.policy import PROVIDERS, Policy, by_name, parsed, upgraded
from extender.recording.lines import (
    AttemptLine,
    CallLine,
    GroupLine,
    GroupTree,
    NodeNumbers,
    PlanLine,
    RecordedSettings,
    decoded_pod,
    from_ranges,
)
from extender.runtime.clock import Deadline, ManualClock
from extender.runtime.ports import Telemetry
from extender.runtime.text import counted, listed
from extender.table import PodInfo, Table, Trial
from extender.table.features import Behaviours, FeatureGates, with_values
from extender.table.journal import BEGINNING
from extender.table.labels import Rows
from extender.verbs.bind import at_bind, refusal_on
from extender.verbs.filter import Filter
from extender.verbs.group_planning import GroupAnswer, MemberCall, Plan, Planner, PlanRequest
from extender.verbs.preempt import Preempt
from extender.verbs.prioritize import Prioritize, Scale

_Group = TypeVar("_Group", PodGroup, CompositePodGroup)
_World = TypeVar("_World")
_MOST_PLANS = 256


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which a process makes its decisions.

    Attributes:
        asks_extenders: True if the scheduling loop also asks other extenders, whose answers are not recorded.
        library: the plugins and users' rules that the profiles were made from.
        settings: the recorded settings. The policy in them is ignored if the rules are those of another policy.
    """

    profiles: Profiles
    asks_extenders: bool
    library: Library
    settings: RecordedSettings

    @classmethod
    def of_recording(cls, settings: RecordedSettings, trusted: Rules | None = None) -> Rules:
        """Returns the rules that applied when the recording was made.

        A recording may come from an untrusted source, and importing a module runs its code. So users' rules are taken
        only from installed entry points and from the `trusted` rules.

        Raises:
            ConfigurationError: the policy has faults, or names a rule that is neither installed nor trusted.
        """
        rules = trusted.library.imported if trusted else {}
        library = Library(host=_SilentHost(), rules=rules, imports=False)
        text = settings.policy
        policy = Policy((PROVIDERS[settings.provider](),)) if text is None else load(text.encode(), library)
        return cls._of(settings, policy, library)

    @classmethod
    def of_policy(cls, policy: AnyPolicy, settings: RecordedSettings) -> Rules:
        """Returns the rules of another policy, with all other settings from the recording.

        If `policy` is a path, modules with users' rules may be imported from the directory of that file.

        Raises:
            ConfigurationError: the policy has faults, or a rule that it names cannot be imported here.
            OSError: the file cannot be read.
        """
        folder = str(Path(policy).parent.resolve()) if isinstance(policy, str | Path) else ""
        library = Library(host=_SilentHost(), folder=folder)
        match policy:
            case Profiles():
                return cls(policy, bool(policy.extenders), library, settings)
            case str() | Path():
                policy = load(Path(policy).read_bytes(), library)
            case Mapping():
                policy = read(policy, library)
        return cls._of(settings, policy, library)

    def with_gates(self, target: str) -> Rules:
        """Returns the same rules under other feature gates, such as "A=true,B=false" or "1.36" (see `upgraded`).

        Raises ConfigurationError if a gate or version is not known.
        """
        return self.with_features(upgraded(self.profiles.features, target))

    def with_features(self, features: FeatureGates) -> Rules:
        """Returns the same rules with these gates, and the behaviours of their version."""
        profiles = self.profiles
        return replace(self, profiles=Profiles(profiles.all, features, profiles.extenders, profiles.watch))

    @classmethod
    def _of(cls, settings: RecordedSettings, policy: Policy, library: Library) -> Rules:
        features = parsed(settings.feature_gates, policy.features, settings.kubernetes_version or None)
        profiles = Profiles(policy.profiles, features)
        if settings.mode == "schedule":
            profiles = Profiles(policy.scheduler_profiles().all, profiles.features, policy.extenders)
        return cls(profiles, settings.mode == "schedule" and bool(policy.extenders), library, settings)


class _SilentHost(OfflineHost):
    """Ignores failures of users' rules, because this is a replay."""

    def failed(self, rule: str, error: BaseException) -> None:
        """Does nothing, because a replay compares only answers, not failures."""

    def limited(self, deadline: Deadline) -> Deadline:
        """Returns the deadline itself, because the rule may take as long as it took."""
        return deadline


class PlayedRandom(Random):
    """Returns the recorded random numbers again; once they are used up, it draws new ones."""

    def __init__(self, draws: Sequence[tuple[int, int]]) -> None:
        super().__init__(0)
        self._draws = list(reversed(draws))

    def getrandbits(self, bits: int, /) -> int:
        if self._draws and self._draws[-1][0] == bits:
            return self._draws.pop()[1]
        return super().getrandbits(bits)


class World:
    """A cache to which recorded changes are applied, and the verbs and scheduling cycles that decide on it.

    Args:
        other: a world whose objects and plans this one reads as well; None for a world of its own.
    """

    def __init__(self, rules: Rules, numbers: NodeNumbers, other: World | None = None) -> None:
        self.rules = rules
        self._numbers = numbers
        self._changes: Changes = other._changes if other else Changes()
        features, settings = rules.profiles.features, rules.settings
        self._cache = Cache(ManualClock(), Telemetry(), features=features, changes=self._changes)
        self.plans: ReplayedPlans = ReplayedPlans(other.plans if other else None)
        self.filter = Filter(
            self._cache, rules.profiles, Telemetry(), scheduler_filters=settings.scheduler_filters, plans=self.plans
        )  # fmt: skip
        self.prioritize = Prioritize(self._cache, rules.profiles, Scale(settings.score_scale))
        self.preempt = Preempt(self._cache, rules.profiles)
        self._at_bind = rules.profiles.with_each(at_bind)
        self._ordered = _OrderedTable(Table(features), self._changes)
        self._described: dict[str, PodPlacement | PodInfo] = other._described if other else {}
        self._remembered: dict[str, PodInfo] = other._remembered if other else {}

    def under(self, rules: Rules) -> World:
        """Returns a world with the same objects that decides by other rules.

        A plan that it has not made itself is that of this world.
        """
        return World(rules, self._numbers, self)

    def change(self, kind: str, key: str, present: Current) -> None:
        self._changes.note(kind, key, present)
        if isinstance(present, PodPlacement | PodInfo):
            self._described[key] = present
        elif kind == POD:
            self._described.pop(key, None)

    def table(self) -> AbstractContextManager[Table]:
        return self._cache.snapshot("replay")

    def args(self, line: CallLine) -> ExtenderArgs:
        """Returns the recorded request of filter or prioritize. Raises MalformedInput if the request is not valid."""
        names, pod = self._numbers.named(from_ranges(line.nodes)), decoded_pod(line)
        if not line.whole:
            return ExtenderArgs(pod, names, None)
        outside = {node.name: node for node in map(NodeBytes, line.outside)}
        nodes = [outside.get(name) or NodeBytes(msgspec.Raw(_NAMED % name.encode())) for name in names]
        return ExtenderArgs(pod, None, nodes)

    def preemption_args(self, line: CallLine) -> ExtenderPreemptionArgs:
        """Returns the recorded request of preempt. Raises MalformedCluster if the request is not valid."""
        return ExtenderPreemptionArgs(decoded_pod(line), line.offered_victims())

    def remember(self, pod: Pod) -> None:
        """Stores the pod of a filter call, because its bind may be recorded before the watch event of the pod."""
        self._remembered[pod.uid] = PodInfo(pod)

    def refused_at_bind(self, uid: str, node: str) -> str | None:
        """Returns why the rules refuse the bind; "" if they allow the bind.

        Returns None if the pod is unknown or placed already, or if the node does not exist.
        """
        present = self._described.get(uid) or self._remembered.get(uid)
        if not isinstance(present, PodInfo):
            return None
        with self.table() as table:
            if uid in table.pods.slot_of or node not in table.nodes.row_of:
                return None
            refusal = refusal_on(table.nodes.row_of[node], self._at_bind.of(present.pod), present, table)
        return ", ".join(refusal.reasons) or refusal.plugin if refusal else ""

    def attempt(self, line: AttemptLine) -> Chosen | Failure:
        """Tries to schedule the pod again, with the recorded random numbers."""
        info = PodInfo(decoded_pod(line))
        table = self._recorded_order(line)
        return SchedulingCycle(self.profile(info.pod), PlayedRandom(line.draws)).decide(info, table).outcome

    def plan(self, line: PlanLine) -> Plan:
        """Plans the group again, with the recorded random numbers; keeps the plan, so that filter can answer from it.

        Raises MalformedCluster if a recorded group does not exist, or if the member of the call does not wait.
        """
        before = self.plans.before(line)
        table = self._recorded_order(line)
        tree = _tree(line.decoded_tree(), table)
        members = _check_waiting(tree, table)
        member = next((info for info in members if info.uid == (line.member or members[0].uid)), None)
        if member is None:
            raise MalformedCluster(f"member: {line.member} is not a waiting member in `tree`")
        names = self._numbers.named(from_ranges(line.nodes))
        call = MemberCall(member, names, self.profile(member.pod))
        judge, settings = MemberJudge(PlayedRandom(line.draws)), self.rules.settings
        planner = Planner(judge, scheduler_filters=settings.scheduler_filters, coscheduling=settings.coscheduling)
        plan = planner.plan(PlanRequest(call, tree, before), table)
        self.plans.add(line, plan)
        return plan

    def group_attempt(self, line: GroupLine) -> tuple[GroupDecision, Sequence[PodInfo]]:
        """Tries to schedule the group again, with the recorded random numbers; returns also the pods to evict.

        Raises MalformedCluster if a recorded group does not exist, or if there is no waiting member.
        """
        table, random = self._recorded_order(line), PlayedRandom(line.draws)
        tree = _tree(line.decoded_tree(), table)
        members = _check_waiting(tree, table)
        profile = self.profile(members[0].pod)
        rules = GroupRules.of(profile, by_placements=table.features.topology_aware_workload_scheduling)
        decides = partial(decides_members, SchedulingCycle(profile, random).decide_member, table)
        group = GroupSchedulingCycle(tree, Trial(table), decides, profile, rules, random.choice)
        decision = group.decide()
        return decision, group.preempt(decision).victims

    def _recorded_order(self, line: AttemptLine | GroupLine | PlanLine) -> Table:
        """Returns the table with its nodes in the order that they had when the line was recorded."""
        if line.order:
            self._ordered.order = self._numbers.named(from_ranges(line.order))
        return self._ordered.table()

    def profile(self, pod: Pod) -> Profile:
        return self.rules.profiles.of(pod)

    def refusal(self, pod: Pod, node: str) -> Refusal | None:
        """Returns the refusal of the pod on the node; None if the pod fits, or if the node does not exist."""
        with self.table() as table:
            if node not in table.nodes.row_of:
                return None
            return refusal_on(table.nodes.row_of[node], self.profile(pod), PodInfo(pod), table)

    def scores(self, pod: Pod, names: Sequence[str] | None = None) -> dict[str, dict[str, int]]:
        """Returns {plugin: {node: points}} for the existing nodes in `names`, by default for all nodes that fit.

        The points are the plugin's score times its weight.
        """
        info, cycle = PodInfo(pod), SchedulingCycle(self.profile(pod))
        with self.table() as table:
            if names is None:
                rows = cycle.filter(info, table, table.nodes.rows)[0].feasible
            else:
                present = [name for name in dict.fromkeys(names) if table.nodes.has(name)]
                rows = np.array([table.nodes.row_of[name] for name in present], np.intp)
            scoring = cycle.score(info, table, rows)
            scored = table.nodes.names_of(rows)
        return {
            part.plugin: dict(zip(scored, (part.scores * part.weight).tolist(), strict=True))
            for part in scoring.by_plugin
        }


class ReplayedPlans:
    """The plans for pod groups that the replay has made again, by their numbers in the recording.

    Filter answers calls about members of a group from these plans.

    Attributes:
        current: the number of the plan for the next call; 0 if filter used no plan when the call was recorded.

    Args:
        others: the plans of another world, from which those come that this world has not made.
    """

    def __init__(self, others: ReplayedPlans | None = None) -> None:
        self._plans: OrderedDict[int, tuple[PlanLine, Plan]] = OrderedDict()
        inherited = others._known.maps if others else []
        self._known: ChainMap[int, tuple[PlanLine, Plan]] = ChainMap(self._plans, *inherited)
        self.current = 0

    def add(self, line: PlanLine, plan: Plan) -> None:
        """Stores a plan, and forgets the oldest one if there are too many."""
        self._plans[line.number] = line, plan
        if len(self._plans) > _MOST_PLANS:
            self._plans.popitem(last=False)

    def before(self, line: PlanLine) -> Plan | None:
        """Returns the plan that the plan in `line` replaces; None for a new plan.

        Raises MalformedCluster if the replaced plan is missing.
        """
        if not line.before:
            return None
        if not self.has(line.before):
            raise MalformedCluster(f"plan {line.before} is missing")
        return self._known[line.before][1]

    def has(self, number: int) -> bool:
        return number in self._known

    def recorded_node(self, pod: Pod) -> str:
        """Returns the pod's node in the recording of the current plan; "" if the plan has no node for the pod."""
        return self._known[self.current][0].placed.get(pod.key, "") if self.current else ""

    def answer(self, info: PodInfo, names: list[str], _profile: Profile, _deadline: Deadline) -> GroupAnswer | None:
        return self._known[self.current][1].answer(info, names) if self.current else None


def _check_waiting(tree: Tree, table: Table) -> Sequence[PodInfo]:
    """Returns the waiting members. Raises MalformedCluster if no member waits, or if one of them is on a node."""
    members = waiting_members(tree)
    if not members or any(info.uid in table.pods.slot_of for info in members):
        raise MalformedCluster(
            "tree: expected at least one waiting member, and no waiting member that is on a node already"
        )
    return members


def _tree(recorded: GroupTree, table: Table, level: int = 1) -> Tree:
    """Returns the recorded tree. Raises MalformedCluster if a group does not exist, or if the tree is too deep."""
    if level > MAX_TREE_DEPTH:
        raise MalformedCluster(f"tree: {too_deep(GroupName(recorded.kind, recorded.key))}")
    if recorded.kind == CompositePodGroup.__name__:
        composite = _existing(table.objects.get(CompositePodGroup, recorded.key), recorded)
        return Composite(composite, [_tree(child, table, level + 1) for child in recorded.children])
    group = _existing(table.objects.get(PodGroup, recorded.key), recorded)
    return Leaf(group, list(map(PodInfo, recorded.waiting)), recorded.scheduled)


def _existing(group: _Group | None, recorded: GroupTree) -> _Group:
    if group is None:
        raise MalformedCluster(f"tree: {recorded.kind} {recorded.key} does not exist")
    return group


_NAMED = b'{"metadata":{"name":"%b"}}'


class _OrderedTable:
    """A table with the nodes in the order of the recorded table, because that order breaks ties.

    Attributes:
        order: the names of the nodes in the recorded order; empty if any order will do.
    """

    def __init__(self, empty: Table, changes: Changes) -> None:
        self._features = empty.features
        self._changes = changes
        self._table = empty
        self._cursor = BEGINNING
        self._checked: tuple[Rows, Sequence[str]] | None = None
        self.order: Sequence[str] = ()

    def table(self) -> Table:
        missed = self._changes.since(self._cursor)
        if missed is None:
            self._rebuild()
        else:
            apply(missed, self._table)
            self._cursor = self._changes.now
        if not self._is_in_order():
            self._rebuild()
        return self._table

    def _is_in_order(self) -> bool:
        rows = self._table.nodes.rows
        if self._checked is None or self._checked[0] is not rows or self._checked[1] is not self.order:
            names = self._table.nodes.names_of(rows)
            if self.order and names != list(self.order) and set(names) == set(self.order):
                return False
            self._checked = rows, self.order
        return True

    def _rebuild(self) -> None:
        positions = {name: position for position, name in enumerate(self.order)}

        def nodes_in_order(update: Update) -> tuple[bool, int]:
            return (update.kind != NODE, positions.get(update.key, 0))

        self._table = Table(self._features)
        apply(sorted(self._changes.all(), key=nodes_in_order), self._table)
        self._cursor = self._changes.now


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


class Causes(Generic[_World]):
    """Finds out for decisions which change of Kubernetes makes them differ.

    Args:
        under: returns what decides under these feature gates, such as a World; it is called once for each.
    """

    def __init__(self, before: FeatureGates, after: FeatureGates, under: Callable[[FeatureGates], _World]) -> None:
        self._before = before
        self._single = dict(single_changes(before, after))
        self._under = cache(under)

    def of(self, differs: Callable[[_World], bool]) -> str:
        """Does the same as `single`, but returns OWN if the decision differs without any change."""
        return OWN if differs(self._under(self._before)) else self.single(differs)

    def single(self, differs: Callable[[_World], bool]) -> str:
        """Returns the single change without which the decision would be as before; SEVERAL if there is none.

        `differs` makes the decision again in a world.
        """
        return next((cause for cause, features in self._single.items() if not differs(self._under(features))), SEVERAL)


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
