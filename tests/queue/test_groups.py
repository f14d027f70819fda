"""Pod groups in the queue: members move together, and a rejected group waits for an event that may help a member."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from extender.errors import IllegalTransition
from extender.framework.cluster_events import ASSIGNED_POD_DELETE, NODE_ADD, Action, Change, Resource
from extender.framework.queueing_hints import Interest, Interests
from extender.framework.status import Refusal, unresolvable
from extender.model.pod_groups import GroupName
from extender.plugins.scheduling_gates import SchedulingGates
from extender.queue.entries import GroupOutcome, QueuedGroup, QueuedPod, Tier
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import ManualClock
from extender.table import PodInfo
from tests.builders import PodBuilder, make_pod
from tests.queue.queueing import QueueRecorder, function_calls, info, refused, without_trees

FIT, GANG = "Fit", "GangScheduling"
NEW_NODE = Change(NODE_ADD)
INTERESTS = {
    FIT: Interests((Interest(Resource.NODE, Action.ADD),)),
    "SchedulingGates": Interests((Interest(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),)),
}


@dataclass
class Minimum:
    """A PreEnqueue rule that waits until the queue has been given this many members of the group."""

    count: int = 0
    seen: set[str] = field(default_factory=set)

    def refuse(self, pod: PodInfo) -> Refusal | None:
        return unresolvable(GANG, "too few") if pod.pod.group_key and len(self.seen) < self.count else None


class Groups:
    """A queue of groups, and what a loop does with it."""

    def __init__(self, minimum: int = 0) -> None:
        self.clock, self.minimum, self.recorded = ManualClock(), Minimum(minimum), QueueRecorder()
        rules = (self.minimum, SchedulingGates())
        self.queue = PriorityQueue(self.recorded, self.clock, INTERESTS, rules, root_of=without_trees)

    def add(self, *pods: PodBuilder | str) -> None:
        for pod in pods:
            built = info(member(pod) if isinstance(pod, str) else pod)
            self.minimum.seen.add(built.uid)
            self.queue.add(built)

    def pop(self) -> QueuedGroup:
        group = self.queue.pop(0)
        assert isinstance(group, QueuedGroup)
        return group

    def fail(self, group: QueuedGroup) -> None:
        """All members fail; the attempt goes on."""
        for pod in list(group.pods):
            self.queue.add_unschedulable(pod, refused(FIT))

    def reject(self, group: QueuedGroup, *names: str, outcome: GroupOutcome = GroupOutcome.REJECTED) -> None:
        """Ends the attempt: the named members, or all, fail and the others are bound."""
        for pod in list(group.pods):
            if not names or pod.info.pod.name in names:
                self.queue.add_unschedulable(pod, refused(FIT) if outcome is not GroupOutcome.ERROR else refused())
            else:
                self.queue.done(pod.uid)
        self.queue.finish_group(group, outcome)

    def tiers(self) -> dict[str, str]:
        """Returns the tier of each waiting pod by name."""
        return {pod.pod.name: tier.value for tier, pods in self.queue.pods().items() for pod in pods}

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.queue.flush_backoff()


def member(name: str, group: str = "g") -> PodBuilder:
    return make_pod(name).group(group)


def uid(name: str) -> str:
    return info(name).uid


def names(group: QueuedGroup) -> list[str]:
    return [pod.info.pod.name for pod in group.in_order()]


def test_members_are_popped_together() -> None:
    groups = Groups()
    groups.add("a", make_pod("single"), "b", member("c", "other"))
    group = groups.pop()
    assert names(group) == ["a", "b"]
    groups.reject(group)
    assert isinstance(groups.queue.pop(0), QueuedPod)


def test_members_are_tried_by_priority_attempts_age_and_name() -> None:
    groups = Groups()
    groups.add("b", "a", member("high").priority(5))
    assert names(groups.pop()) == ["high", "a", "b"]


def test_a_group_waits_until_every_rule_admits_every_member() -> None:
    groups = Groups(minimum=3)
    groups.add("a", member("b").gate("quota"))
    assert groups.tiers() == {"a": "gated", "b": "gated"}
    groups.add("c")
    assert groups.tiers() == {"a": "gated", "b": "gated", "c": "gated"}
    groups.add(member("b"))
    assert groups.tiers() == {"a": "active", "b": "active", "c": "active"}


def calls_to_join(size: int) -> int:
    """Returns the calls of functions when a member joins a gated group of this size."""
    groups = Groups(minimum=size + 2)
    groups.add(*(f"m{number}" for number in range(size)))
    late = info(member("late"))
    calls = function_calls(lambda: groups.queue.add(late))
    assert set(groups.tiers().values()) == {"gated"}
    return calls


def test_a_member_that_joins_a_gated_group_does_not_move_the_others() -> None:
    assert calls_to_join(200) == calls_to_join(20)


def test_a_gated_member_that_joins_an_active_group_gates_it() -> None:
    groups = Groups()
    groups.add("a", member("b").gate("quota"))
    assert groups.tiers() == {"a": "gated", "b": "gated"}
    groups.queue.delete(uid("b"))
    assert groups.tiers() == {"a": "active"}


def test_a_rejected_group_waits_for_an_event_that_may_help_a_member() -> None:
    groups = Groups()
    groups.add("a", "b")
    groups.reject(groups.pop())
    groups.pass_time(60)
    assert groups.tiers() == {"a": "unschedulable", "b": "unschedulable"}
    assert groups.queue.move(Change(ASSIGNED_POD_DELETE, info(make_pod("x").node("n")))) == 0
    assert groups.queue.move(NEW_NODE) == 1
    assert groups.tiers() == {"a": "active", "b": "active"}


def test_a_rejected_group_whose_objects_change_keeps_its_backoff() -> None:
    groups = Groups()
    groups.add("a")
    groups.reject(groups.pop())
    groups.queue.groups_changed([without_trees("default/g")], "PodGroupUpdate")
    assert groups.tiers() == {"a": "backoff"}


def test_a_woken_group_that_backs_off_may_be_popped_while_nothing_else_is_ready() -> None:
    groups = Groups()
    groups.add("a")
    groups.reject(groups.pop())
    groups.queue.move(NEW_NODE)
    assert groups.tiers() == {"a": "backoff"}
    assert names(groups.pop()) == ["a"]


def test_a_group_is_tried_without_backoff_if_a_rule_was_waiting_for_the_event_for_one_member() -> None:
    groups = Groups()
    groups.add("a", "b")
    group = groups.pop()
    groups.queue.add_unschedulable(group.members[uid("a")], refused(FIT))
    groups.queue.add_unschedulable(group.members[uid("b")], refused(pending=FIT))
    groups.queue.finish_group(group, GroupOutcome.REJECTED)
    groups.queue.move(NEW_NODE)
    assert groups.tiers() == {"a": "active", "b": "active"}


def test_an_event_during_the_attempt_counts() -> None:
    groups = Groups()
    groups.add("a", "b")
    group = groups.pop()
    groups.queue.move(NEW_NODE)
    groups.reject(group)
    assert groups.tiers() == {"a": "backoff", "b": "backoff"}


def test_a_group_whose_attempt_ends_in_an_error_backs_off_without_an_event() -> None:
    groups = Groups()
    groups.add("a", "b")
    group = groups.pop()
    groups.fail(group)
    groups.queue.finish_group(group, GroupOutcome.ERROR)
    assert groups.tiers() == {"a": "backoff", "b": "backoff"}


@pytest.mark.parametrize("wake", [lambda queue: queue.activate([uid("a")]), lambda queue: queue.back_off(uid("a"))])
def test_a_member_that_is_woken_during_the_attempt_makes_its_group_back_off(
    wake: Callable[[PriorityQueue], object],
) -> None:
    groups = Groups()
    groups.add("a", "b")
    group = groups.pop()
    groups.fail(group)
    wake(groups.queue)
    groups.queue.finish_group(group, GroupOutcome.REJECTED)
    assert groups.tiers() == {"a": "backoff", "b": "backoff"}


def test_what_is_left_of_a_success_is_tried_at_once_and_keeps_its_age() -> None:
    groups = Groups()
    groups.add("a", "b")
    group = groups.pop()
    added_at = group.timestamp
    groups.clock.advance(3)
    groups.reject(group, "b", outcome=GroupOutcome.SUCCESS)
    assert groups.tiers() == {"b": "active"}
    again = groups.pop()
    assert (again.timestamp, again.unschedulable_count, again.attempts) == (added_at, 0, 2)


def test_a_member_that_comes_during_the_attempt_waits_for_its_end() -> None:
    groups = Groups()
    groups.add("a")
    group = groups.pop()
    groups.add("late")
    assert groups.tiers() == {}
    assert [info.pod.name for info in groups.queue.pods_in_flight()] == ["a", "late"]
    groups.reject(group)
    assert groups.tiers() == {"a": "backoff", "late": "backoff"}


def test_a_member_of_another_group_that_comes_during_the_attempt_is_ready_at_once() -> None:
    groups = Groups()
    groups.add("a")
    groups.pop()
    groups.add(member("other", "h"))
    assert groups.tiers() == {"other": "active"}


def test_a_new_member_wakes_a_rejected_group() -> None:
    groups = Groups()
    groups.add("a")
    groups.reject(groups.pop())
    groups.add("b")
    assert groups.tiers() == {"a": "backoff", "b": "backoff"}


def test_the_longest_backoff_grows_with_the_size_of_the_group() -> None:
    groups = Groups()
    groups.add(*"abcdefgh")
    for seconds in (
        1,
        3,
        5,
        9,
        17,
        29,
    ):  # 1, 2, 4, 8, 16 and 28.28 seconds, and the rest of the window in which they end
        groups.reject(groups.pop(), outcome=GroupOutcome.ERROR)
        groups.pass_time(seconds - 1)
        assert set(groups.tiers().values()) == {"backoff"}
        groups.pass_time(1 if seconds > 1 else 2)
        assert set(groups.tiers().values()) == {"active"}


def test_a_member_whose_bind_fails_later_joins_those_that_wait() -> None:
    groups = Groups()
    groups.add("a", "b", "c")
    group = groups.pop()
    a, b, c = (group.members[uid(name)] for name in "abc")
    groups.queue.add_unschedulable(c, refused(FIT))
    groups.queue.finish_group(group, GroupOutcome.SUCCESS)
    groups.queue.add_unschedulable(b, refused())
    assert groups.tiers() == {"c": "active", "b": "active"}
    groups.queue.done(a.uid)
    assert groups.tiers() == {"c": "active", "b": "active"}


def test_a_member_whose_bind_fails_alone_backs_off() -> None:
    groups = Groups()
    groups.add("a")
    group = groups.pop()
    (pod,) = group.pods
    groups.queue.finish_group(group, GroupOutcome.SUCCESS)
    groups.queue.add_unschedulable(pod, refused())
    assert groups.tiers() == {"a": "backoff"}
    assert groups.queue.pop(0) is None


def test_a_member_whose_group_moved_during_the_attempt_waits_with_its_new_tree() -> None:
    groups = Groups()
    groups.add("a", "b")
    group = groups.pop()
    tree = GroupName("CompositePodGroup", "default/tree")
    groups.fail(group)
    groups.queue._root_of = lambda _: tree
    groups.queue.finish_group(group, GroupOutcome.REJECTED)
    groups.pass_time(20)
    moved = groups.pop()
    assert (moved.root, names(moved)) == (tree, ["a", "b"])


def test_a_deleted_member_leaves_its_group_and_the_last_takes_it_along() -> None:
    groups = Groups()
    groups.add("a", "b")
    groups.queue.delete(uid("a"))
    assert groups.tiers() == {"b": "active"}
    groups.queue.delete(uid("b"))
    assert groups.queue.pop(0) is None
    assert groups.queue.pending() == dict.fromkeys((tier.value for tier in Tier), 0)


def test_a_member_deleted_during_the_attempt_does_not_come_back() -> None:
    groups = Groups()
    groups.add("a", "b")
    group = groups.pop()
    groups.queue.delete(uid("a"))
    groups.reject(group)
    assert groups.tiers() == {"b": "unschedulable"}
    groups.queue.delete(uid("b"))
    assert groups.tiers() == {}
    assert groups.queue.rejections() == {}


def test_a_failed_member_deleted_before_the_attempt_ends_does_not_come_back() -> None:
    groups = Groups()
    groups.add("a", "b")
    group = groups.pop()
    groups.fail(group)
    groups.queue.delete(uid("a"))
    groups.queue.finish_group(group, GroupOutcome.REJECTED)
    assert groups.tiers() == {"b": "unschedulable"}


def test_a_pod_of_another_group_is_deleted_during_the_attempt() -> None:
    groups = Groups()
    groups.add("a")
    groups.pop()
    groups.add(member("other", "h"))
    groups.queue.delete(uid("other"))
    assert groups.tiers() == {}


def test_a_deleted_member_no_longer_counts_as_rejected() -> None:
    groups = Groups()
    groups.add("a", "b")
    groups.reject(groups.pop())
    before = sum(groups.queue.rejections().values())
    groups.queue.delete(uid("a"))
    assert (before, sum(groups.queue.rejections().values())) == (2, 1)


def test_a_group_in_no_attempt_cannot_end_one() -> None:
    groups = Groups()
    groups.add("a")
    group = groups.pop()
    groups.reject(group)
    with pytest.raises(IllegalTransition):
        groups.queue.finish_group(group, GroupOutcome.SUCCESS)


def test_activating_a_member_makes_its_group_ready() -> None:
    groups = Groups()
    groups.add("a", "b")
    groups.reject(groups.pop())
    groups.queue.activate([uid("b")])
    assert groups.tiers() == {"a": "active", "b": "active"}


def test_pods_are_counted_one_by_one() -> None:
    groups = Groups()
    groups.add("a", "b", make_pod("single"))
    assert groups.queue.pending()["active"] == 3
    groups.reject(groups.pop())
    assert groups.queue.rejections() == {(FIT, ""): 2}


def test_a_rejected_member_that_joins_its_waiting_group_counts_as_rejected() -> None:
    groups = Groups()
    groups.add("a")
    group = groups.pop()
    (pod,) = group.pods
    groups.queue.finish_group(group, GroupOutcome.SUCCESS)
    groups.add("b")
    groups.queue.add_unschedulable(pod, refused(FIT))
    assert groups.tiers() == {"b": "active", "a": "active"}
    assert groups.queue.rejections() == {(FIT, ""): 1}


def test_a_member_that_joins_its_waiting_group_comes_from_no_tier() -> None:
    groups = Groups()
    groups.add("a", "b")
    added = "UnscheduledPodAdd"
    assert groups.recorded.moves == [("default/a", "", "active", added), ("default/b", "", "active", added)]


def test_groups_and_single_pods_are_counted_apart() -> None:
    groups = Groups()
    groups.add("a", "b", member("c", "h"), make_pod("single"))
    none = {(tier.value, "pod"): 0 for tier in Tier}
    assert groups.queue.entities() == none | {("active", "pod"): 1, ("active", "podgroup"): 2}


def test_a_group_enters_a_queue_as_one_entity() -> None:
    groups = Groups()
    groups.add("a", "b", make_pod("single"))
    groups.reject(groups.pop())
    assert groups.queue.move(NEW_NODE) == 1
    added, rejected = "UnscheduledPodAdd", "ScheduleAttemptFailure"
    assert groups.recorded.entities == [
        ("active", added, "podgroup"),
        ("active", added, "pod"),
        ("unschedulable", rejected, "podgroup"),
        ("backoff", "NodeAdd", "podgroup"),
    ]
