"""Replays a cycle of the stock scheduler for a root group, and compares each step with ours.

Stock is random where nodes or placements have equal scores, and where it says which placement failed. So each member is
placed where stock has placed it, if that is one of the best nodes, and of placements that are as good stock's is taken;
anything else is a difference.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from extender.devices.pod_claims import existing_claims
from extender.engine.decide import SchedulingCycle
from extender.engine.decision import Failure
from extender.engine.group_members import NOT_TRIED, decides_members, member_failures, with_reasons
from extender.framework.find_fit import Fit
from extender.framework.profile import Profile, Profiles
from extender.framework.status import NO_REJECTION, Refusal
from extender.groups import Composite, GroupDecision, GroupRules, GroupStatus, Leaf, MemberDecision, Tree, decide_group
from extender.groups.decision import group_decisions, leaf_decisions, with_reason
from extender.groups.group_preemption import (
    GROUP_DEALLOCATED,
    GROUP_UNRESERVED,
    MEMBERS_DONE,
    GroupPreemption,
    Prefer,
    idle_claims,
    preempt_for_group,
)
from extender.groups.group_tree import groups_of, mismatch, waiting_members
from extender.groups.topology_placements import domains
from extender.model.devices import ResourceClaim
from extender.model.pod import Pod
from extender.model.pod_groups import CompositePodGroup, PodGroup
from extender.offline.state import ClusterState
from extender.plugins.registry import default_profile
from extender.preemption.evaluator import Preemption
from extender.runtime.ports import Nominating
from extender.snapshots.objects import to_objects
from extender.table import PodInfo, Table, Trial
from extender.table.features import BY_NAME, VERSIONS
from extender.table.labels import Rows
from tests.builders import Object
from tests.group_conformance.cases import ROOT, gates_of, kind_of
from tests.stock.build import MINOR


class StockNode:
    """As another extender, gives stock's node half a point, so that it is chosen if it is among the best nodes."""

    def __init__(self) -> None:
        self.name = ""

    def __bool__(self) -> bool:
        return True

    def filter(self, _pod: PodInfo, _table: Table, _fit: Fit) -> None:
        pass

    def preempt(self, _pod: PodInfo, _table: Table, preemption: Preemption) -> Preemption:
        return preemption

    def prioritize(self, _pod: PodInfo, table: Table, rows: Rows) -> Any:
        return np.array([0.5 * (name == self.name) for name in table.nodes.names_of(rows)])


class Forced:
    """Takes the nodes and placements that stock has taken, if they are among the best.

    Attributes:
        differences: where they are not.
    """

    def __init__(
        self,
        profile: Profile,
        state: ClusterState,
        root: Tree,
        stock: Object,
        tries: Sequence[Object],
        *,
        is_dry_run: bool = False,
    ) -> None:
        self.prefer: Prefer | None = None
        self.profile = profile
        self._stock_node = StockNode()
        self._cycle = SchedulingCycle(profile, extenders=self._stock_node)
        self._state = state
        self._stock = stock
        self._is_dry_run = is_dry_run
        self._tries: dict[tuple[str, tuple[str, ...]], Object] = {}
        for each in tries:
            self._tries.setdefault((each["pod"], tuple(each["nodes"])), each)
        self._parents = dict(_parents(root))
        self._paths = dict(_paths(root))
        self._placements: dict[str, str] = {}
        self._again = _placed_again(stock, is_dry_run=is_dry_run)
        # Until 1.37, a group is placed again when its placement is chosen; since then, if others are tried after it.
        is_next = state.table.features.behaviours.failures_name_the_group
        self._is_last = set(_last_children(root)) if is_next else set()
        is_error = any(each["reason"] == "SchedulerError" for each in stock["conditions"].values())
        self._ends_in_error = is_error and is_dry_run == ("dryRunFrom" in stock)
        messages = [each["message"] for each in stock["conditions"].values()] if self._ends_in_error else []
        is_of_member = any("failed to schedule other pod from a pod group" in message for message in messages)
        self._failed_try = tries[-1] if is_of_member else None
        self.differences: list[str] = []

    def decide_one(self, info: PodInfo, rows: Rows | None) -> MemberDecision:
        """Decides as stock did on these nodes."""
        names = self._names_of(rows)
        if not self._may_come_before_error(info, names):
            return MemberDecision(None, "not tried: in stock, an error on another placement ends all")
        attempt = self._tries.get((info.pod.key, tuple(sorted(names))))
        if attempt is None and self._ends_in_error:
            return MemberDecision(None, "not tried: in stock, an error on another placement came first")
        if attempt is None:
            self.differences.append(f"{info.pod.key}: stock has not tried it on {names}")
            return MemberDecision(None, "not tried", is_error=True)
        stock = self._stock_node.name = attempt.get("node", "")
        decision = decides_members(self._cycle.decide_member, self._state.table, self.prefer)(info, rows)
        if (decision.node_name or "") != stock:
            ours = decision.node_name or decision.message
            self.differences.append(f"{info.pod.key}: stock {stock or 'no node'}, ours {ours}")
        return decision

    def _may_come_before_error(self, info: PodInfo, names: Sequence[str]) -> bool:
        """Returns True unless stock ended in an error on other nodes.

        We need not try all placements, so ours may end before the error. All but the one with the error are skipped.
        """
        if self._failed_try is None:
            return True
        pod, nodes = self._failed_try["pod"], set(self._failed_try["nodes"])
        path, failed_path = self._paths[info.pod.key], self._paths[pod]
        if path == failed_path:
            return nodes == set(names)
        below_common = next(group for group in path if group not in failed_path)
        return nodes <= set(self._names_of(self._rows_for(below_common)))

    def choose(self, decisions: Sequence[GroupDecision]) -> GroupDecision:
        """Returns the decision for the placement that stock chose, or whose failure it reports."""
        tree = decisions[0].tree
        if decisions[0].is_success:
            chosen = next((each for each in decisions if self._has_chosen(each)), None)
            if chosen is None and decisions[0].placed and self._shows_choice(decisions):
                self.differences.append(f"{tree.group.key}: stock chose none of {[each.placed for each in decisions]}")
            chosen = chosen or max(decisions, key=self._texts_of_stock)
            self._placements[tree.group.key] = chosen.placement
            return chosen
        keys = {info.pod.key for info in waiting_members(tree)}
        tries = [set(each["nodes"]) for each in self._stock["tries"] if each["pod"] in keys]
        tried = [each for nodes in tries for each in decisions if nodes <= self._nodes_of(each)]
        return max([*tried, *decisions], key=self._texts_of_stock)

    def _texts_of_stock(self, decision: GroupDecision) -> tuple[int, int]:
        """Returns the number of groups, and of members, below for which stock has the same text in this phase.

        A group that was not tried has the text of a group above. The texts of members are those of the cycle itself,
        not of the dry run.
        """
        leaves = leaf_decisions(decision)
        texts = [(leaf.cause, self._text(leaf.tree.group.key)) for leaf in leaves]
        same_groups = sum((cause in text) + (decision.cause in text) for cause, text in texts)
        return same_groups, 0 if self._is_dry_run else sum(map(self._members_as_in_stock, leaves))

    def _members_as_in_stock(self, leaf: GroupDecision) -> int:
        failures = self._stock["failures"]
        pods = {info.uid: info.pod.key for info in waiting_members(leaf.tree)}
        messages = {pods[uid]: member.message for uid, member in leaf.members.items()}
        return sum(key in failures and message == failures[key]["message"] for key, message in messages.items())

    def _text(self, group: str) -> str:
        """Returns what stock says of the group before preemption or, in the dry run, what preemption says of it."""
        condition = self._stock["conditions"].get(group, {"message": ""})
        before, _, after = condition["message"].partition("pod group preemption: ")
        return str(after if self._is_dry_run else before)

    def _has_chosen(self, decision: GroupDecision) -> bool:
        """Returns True if stock chose this placement of the group.

        Stock places the members again when it has chosen a placement: once for their own group, and once for each group
        above it, from the inside out. So it has done that more often than there are groups between.
        """
        nodes = self._nodes_of(decision)
        depths = self._depths(decision.tree.group.key)
        return any(self._again[pod, node] > depth for pod, depth in depths.items() for node in nodes)

    def _shows_choice(self, decisions: Sequence[GroupDecision]) -> bool:
        """Returns True if stock has placed a member of the group again because it chose one of these placements."""
        depths = self._depths(decisions[0].tree.group.key)
        nodes = set().union(*map(self._nodes_of, decisions))
        again = {place: count for place, count in self._again.items() if place[0] in depths and place[1] in nodes}
        is_placed_again = any(count > depths[pod] for (pod, _), count in again.items())
        return not self._ends_in_error and (is_placed_again or not self._is_last)

    def _depths(self, key: str) -> dict[str, int]:
        """Returns how often stock places each member of the group again before it chooses the group's placement."""
        below = {pod: path[path.index(key) + 1 :] for pod, path in self._paths.items() if key in path}
        return {pod: sum(each not in self._is_last for each in path) for pod, path in below.items()}

    def _nodes_of(self, decision: GroupDecision) -> set[str]:
        return set(self._names_of(self._domains(decision.tree)[decision.placement]))

    def _names_of(self, rows: Rows | None) -> list[str]:
        nodes = self._state.table.nodes
        return nodes.names_of(nodes.rows if rows is None else rows)

    def _domains(self, tree: Tree) -> dict[str, Rows | None]:
        """Returns the domains of the group on the placement that is tried for the groups above it."""
        placements = domains(tree, self._state.table, self._rows_for(tree.group.key))
        assert not isinstance(placements, str)
        return {placement.name: placement.rows for placement in placements}

    def _rows_for(self, key: str) -> Rows | None:
        """Returns the nodes of the placement that is tried for the group above this one."""
        parent = self._parents.get(key)
        if parent is None:
            return None
        above = self._domains(parent)
        return next(iter(above.values())) if len(above) == 1 else above[self._placements[parent.group.key]]


def _placed_again(stock: Object, *, is_dry_run: bool) -> Counter[tuple[str, str]]:
    """Returns how often stock placed a member on a node without a try; the nominations end the dry run."""
    again, dry_run_from = stock.get("again", []), stock.get("againDryRunFrom")
    if not is_dry_run:
        return Counter((each["pod"], each["node"]) for each in again[:dry_run_from])
    nominations = [(pod, failure["nominated"]) for pod, failure in stock["failures"].items() if "nominated" in failure]
    return Counter([*((each["pod"], each["node"]) for each in again[dry_run_from:]), *nominations])


def _last_children(tree: Tree) -> Iterator[str]:
    """Yields the keys of the root and of each group that is tried after all other children of its parent."""
    yield tree.group.key
    children = tree.children if isinstance(tree, Composite) else ()
    for number, child in enumerate(children, 1):
        yield from list(_last_children(child))[0 if number == len(children) else 1 :]


def _paths(tree: Tree) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields each waiting member, and the groups above it from this one down; all by their keys."""
    key = tree.group.key
    if isinstance(tree, Leaf):
        yield from ((info.pod.key, (key,)) for info in tree.waiting)
        return
    for child in tree.children:
        yield from ((pod, (key, *path)) for pod, path in _paths(child))


def _parents(tree: Tree) -> Iterator[tuple[str, Composite]]:
    """Yields each group below this one, by its key, and the group directly above it."""
    if isinstance(tree, Leaf):
        return
    for child in tree.children:
        yield child.group.key, tree
        yield from _parents(child)


def differences(case: Object, stock: Object, version: str = MINOR) -> list[str]:
    """Returns what we decide otherwise than stock of this version in the case."""
    gates: dict[str, Any] = {BY_NAME[gate]: True for gate in gates_of(kind_of(case))}
    features = replace(VERSIONS[version].features, generic_workload=True, **gates)
    profiles = Profiles([default_profile()], features)
    state = ClusterState(to_objects(case["cluster"]["items"]), profiles)
    root = _tree(state, [each["pod"] for each in stock["tries"]])
    is_held = _is_short(root) or _is_gated(root, state)
    if is_held != bool(stock.get("gated")):
        return [f"the group is {'' if is_held else 'not '}held back, otherwise than in stock"]
    if is_held:
        return []
    pods = state.table.pods
    fault = mismatch(root, lambda leaf: [pods.info(pods.slot_of[uid]) for uid in leaf.scheduled], features)
    if fault is not None:
        return list(_refusals(root, fault, stock))
    if _only_unreserved(stock):
        return []
    first, dry = _phases(stock)
    profile = state.profiles.all[0]
    cycle = Forced(profile, state, root, stock, first)
    dry_run = Forced(_without_images(profile), state, root, stock, dry, is_dry_run=True)
    trial = Trial(state.table)
    rules = GroupRules(by_placements=features.topology_aware_workload_scheduling, percentage_of_placements_to_score=100)
    names_groups = features.behaviours.failures_name_the_group
    decision = decide_group(root, trial, cycle.decide_one, rules, cycle.choose)
    preemption, dry_decisions = NOT_TRIED, list[GroupDecision]()
    groups = list(group_decisions(decision))
    if decision.status is GroupStatus.UNSCHEDULABLE and "config" not in case:

        def decide(prefer: Prefer | None) -> GroupDecision:
            dry_run.prefer = prefer
            dry_decisions.append(decide_group(root, trial, dry_run.decide_one, rules, dry_run.choose))
            return dry_decisions[-1]

        preemption = preempt_for_group(root, trial, decide, cycle.profile)
        idle = idle_claims(decision, cycle.profile, state.table)
        groups = [with_reasons(group, preemption, idle) for group in groups]
    elif decision.status is GroupStatus.UNSCHEDULABLE and not names_groups:
        # Once the root has failed, what PodGroupPostFilter says is appended to all groups; here it says nothing.
        groups = [with_reason(group, "") for group in groups]
    different = [*cycle.differences, *dry_run.differences]
    if preemption.victims and any(map(_has_failed_child, dry_decisions)) and not names_groups:
        as_stock = preempt_for_group(root, trial, lambda _: _with_all_children(dry_decisions[0]), cycle.profile)
        return [*different, *(_surplus(preemption, stock) if list(_evictions(as_stock, stock)) else ())]
    different += _evictions(preemption, stock)
    return different or ([] if _failed_to_preempt(stock) else list(_outcomes(groups, preemption, stock)))


def _refusals(root: Tree, fault: str, stock: Object) -> Iterator[str]:
    """Yields where stock does not refuse the tree as invalid."""
    for group in groups_of(root):
        ours = {"status": "False", "reason": f"{type(group).__name__}Error", "message": fault}
        if ours != (theirs := stock["conditions"].get(group.key)):
            yield f"{group.key}: stock {theirs}, ours {ours}"
    for info in waiting_members(root):
        yield from _failure(info.pod, Failure(fault), stock)


def _only_unreserved(stock: Object) -> bool:
    """Returns True if stock took its claim from the group instead of looking for victims; see docs/differences.md."""
    return any(each["message"].endswith(GROUP_UNRESERVED) for each in stock["conditions"].values())


def _has_failed_child(decision: GroupDecision) -> bool:
    """Returns True if a child group failed: stock also makes room for those of its members that were placed."""
    return any(not child.is_success or _has_failed_child(child) for child in decision.children.values())


def _with_all_children(decision: GroupDecision) -> GroupDecision:
    """Returns the decision with the placed members of child groups that failed, for which stock makes room too.

    It may then evict other pods, and spare one that we evict: the room that is left is smaller from the first pod on.
    """
    children = {key: _with_all_children(child) for key, child in decision.children.items()}
    return replace(decision, status=GroupStatus.SCHEDULED, children=children)


def _failed_to_preempt(stock: Object) -> bool:
    """Returns True if stock's own error ended the cycle: it looks for claims of members that no rule has read yet.

    It does so if another rule has refused all members before; docs/differences.md names it.
    """
    messages = {each["message"] for each in stock["conditions"].values()}
    return messages == {'error in "DynamicResources" PodGroupPostFilter plugins: not found'}


def _without_images(profile: Profile) -> Profile:
    """Returns the profile of stock's dry run, which sees no images; see docs/differences.md."""
    return replace(profile, priorities=[each for each in profile.priorities if each.priority.name != "ImageLocality"])


def _phases(stock: Object) -> tuple[Sequence[Object], Sequence[Object]]:
    """Returns the tries of the cycle itself, and those of preemption's dry run."""
    tries = stock["tries"]
    return tries[: stock.get("dryRunFrom", len(tries))], tries[stock.get("dryRunFrom", len(tries)) :]


def _outcomes(groups: Sequence[GroupDecision], preemption: GroupPreemption, stock: Object) -> Iterator[str]:
    placed: dict[str, str] = {}
    for group in groups:
        theirs = stock["conditions"].get(group.tree.group.key)
        ours = {"status": str(group.is_success), "reason": group.status.value, "message": _settled(group.text)}
        is_reported = isinstance(group.tree, Leaf) or group.names_groups
        if is_reported and ours != (theirs and {**theirs, "message": _settled(theirs["message"])}):
            yield f"{group.tree.group.key}: stock {theirs}, ours {ours}"
    for leaf in groups:
        if isinstance(leaf.tree, Composite):
            continue
        failures = member_failures(leaf, preemption, NO_REJECTION)
        for info in waiting_members(leaf.tree):
            member = leaf.members[info.uid]
            if leaf.is_success and member.node_name is not None:
                placed[info.pod.key] = member.node_name
            yield from _failure(info.pod, failures.get(info.uid), stock)
    if placed != stock["placed"]:
        yield f"placed: stock {stock['placed']}, ours {placed}"


def _failure(pod: Pod, ours: Failure | None, stock: Object) -> Iterator[str]:
    key, theirs = pod.key, stock["failures"].get(pod.key)
    if (ours and _settled(ours.message)) != (theirs and _settled(theirs["message"])):
        yield f"{key}: stock {theirs}, ours {ours and ours.message!r}"
    elif ours and _nomination_after(pod, ours) != theirs.get("nominated", pod.status.nominated_node_name):
        yield f"{key}: stock nominates {theirs.get('nominated')!r}, ours {ours.nominated_node!r}"


def _nomination_after(pod: Pod, failure: Failure) -> str:
    """Returns the node that the pod is nominated to after it has failed; "" if none."""
    is_kept = failure.nominated_node is Nominating.KEEP
    return pod.status.nominated_node_name if is_kept else failure.node_to_nominate


def _surplus(preemption: GroupPreemption, stock: Object) -> Iterator[str]:
    if surplus := _leaving(preemption) - set(stock.get("victims", [])):
        yield f"victims: ours {sorted(surplus)}, which stock spares"


def _leaving(preemption: GroupPreemption) -> set[str]:
    return {info.pod.key for info in preemption.victims if info.pod.metadata.deletion_timestamp is None}


def _evictions(preemption: GroupPreemption, stock: Object) -> Iterator[str]:
    leaving = sorted(_leaving(preemption))
    if leaving != stock.get("victims", []):
        yield f"victims: stock {stock.get('victims', [])}, ours {leaving}"


def _settled(message: str) -> str:
    """Returns the text without what is random in stock, and without the words of a plugin's own error.

    Stock appends the reason of PodGroupPostFilter several times to a status that groups share, and names any of the
    scheduled members that are in no domain, or in several. It names any of the nodes on which a plugin has failed.
    Which idle claims it takes is another difference; see docs/differences.md.
    """
    message = re.sub(r"(cannot determine domain for already scheduled pods:) .*", r"\1", message)
    message = re.sub(r'(running (\w+ plugin "\w+"|"\w+" filter plugin):) .*', r"\1", message)
    message = re.sub(r"(, pod group preemption: .*?)\1+$", r"\1", message)
    return re.sub(r"(, )+$", ", ", message).replace(GROUP_DEALLOCATED, MEMBERS_DONE)


def _tree(state: ClusterState, tried: Sequence[str]) -> Tree:
    """Builds the tree of the only root; members are in the order in which stock has tried them."""
    order = {key: number for number, key in reversed(list(enumerate(tried)))}
    infos = sorted(state.infos.values(), key=lambda info: (order.get(info.pod.key, len(tried)), info.pod.name))
    groups: list[PodGroup | CompositePodGroup] = [
        *state.objects.all(PodGroup).values(),
        *state.objects.all(CompositePodGroup).values(),
    ]

    def built(group: PodGroup | CompositePodGroup) -> Tree:
        if isinstance(group, PodGroup):
            own = [info for info in infos if info.pod.group_key == group.key]
            waiting = [info for info in own if not info.pod.node_name]
            return Leaf(group, waiting, [info.uid for info in own if info.pod.node_name])
        children = [each for each in groups if each.parent_key == group.key]
        return Composite(group, [built(child) for child in sorted(children, key=lambda child: child.name)])

    (root,) = [group for group in groups if group.name == ROOT]
    return built(root)


def _is_short(tree: Tree) -> bool:
    """Returns True if there are too few pods for the group to be tried (PreEnqueue of GangScheduling)."""
    if isinstance(tree, Leaf):
        return len(tree.waiting) + len(tree.scheduled) < tree.group.min_count
    return sum(not _is_short(child) for child in tree.children) < tree.group.min_count


def _is_gated(tree: Tree, state: ClusterState) -> bool:
    """Returns True if a member has a scheduling gate or lacks a claim, which holds the whole group."""

    def find(key: str) -> ResourceClaim | None:
        return state.objects.get(ResourceClaim, key)

    assert isinstance(tree, Leaf) or not state.table.features.group_claims
    group = tree.group if isinstance(tree, Leaf) and state.table.features.group_claims else None
    pods = [info.pod for info in waiting_members(tree)]
    return any(pod.spec.scheduling_gates or isinstance(existing_claims(pod, find, group), Refusal) for pod in pods)
