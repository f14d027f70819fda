"""bind of gangs: the members are bound together, or all are refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from extender import Node, permit
from extender import Pod as ViewedPod
from extender.cache.cache import Cache
from extender.errors import OutcomeUnknown, Refused
from extender.framework.profile import Profiles
from extender.model.pod import Pod
from extender.plugins.registry import default_profile
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.table import PodInfo
from extender.table.features import VERSIONS, FeatureGates
from extender.verbs.bind import Bind, PermitWait
from extender.verbs.group_quorum import GroupQuorum
from tests.builders import Object, make_node, make_pod, make_pod_group
from tests.plugins.users.failures import Remembered
from tests.stock.waiting import wait_until
from tests.verbs.cluster import PROFILES, FakeBinder, answer, binding, cache_of, tell

LONG, SHORT = 30.0, 0.05  # a test that should not wait fails after LONG
NODES = [make_node(name).allocatable(cpu="2", memory="64Gi", pods="110").obj() for name in ("n0", "n1")]


def gang(size: int) -> list[Object]:
    return [make_pod(f"m{i}").uid(f"m{i}").req(cpu="1").group("gang").obj() for i in range(size)]


class Counted(Telemetry):
    def __init__(self) -> None:
        self.refused_members: list[tuple[str, int]] = []

    def quorum_refused(self, reason: str, members: int) -> None:
        self.refused_members.append((reason, members))


class Binds:
    """bind with a quorum; each call runs in a thread."""

    def __init__(
        self,
        cache: Cache,
        seconds: float,
        binder: FakeBinder,
        pool: ThreadPoolExecutor,
        most_waiting: int,
        free: threading.Semaphore | None,
    ) -> None:
        self.cache, self.binder, self.pool = cache, binder, pool
        self.telemetry = Counted()
        self.quorum = GroupQuorum(cache, self.telemetry, seconds, most_waiting, free=free)
        self.verb = Bind(cache, PROFILES, binder, Telemetry(), quorum=self.quorum)

    def begin(self, pod: Object, node: str) -> Future[str]:
        return self.pool.submit(self.bind, pod, node)

    def bind(self, pod: Object, node: str) -> str:
        error: str = answer(self.verb, binding(pod, node))["Error"]
        return error

    def delete(self, pod: Object) -> None:
        self.cache.deleted("Pod", msgspec.convert(pod, Pod))

    def info(self, uid: str) -> PodInfo:
        info = self.cache.find_pod(uid, f"default/{uid}")
        assert info is not None
        return info

    def assumed(self) -> set[str]:
        return {uid for uids in self.cache.unconfirmed().values() for uid in uids}

    def waiting(self) -> set[str]:
        """The members whose calls wait for their gang; a member is assumed a moment before its call waits."""
        return {uid for its_round in list(self.quorum._rounds.values()) for uid in list(its_round.waiting)}


@contextmanager
def binds(
    *objects: Object,
    seconds: float = LONG,
    binder: FakeBinder | None = None,
    most_waiting: int = 100,
    free: threading.Semaphore | None = None,
    features: FeatureGates = VERSIONS["1.37"].features,
) -> Iterator[Binds]:
    with ThreadPoolExecutor() as pool:
        cache = cache_of(*NODES, *objects, features=features)
        yield Binds(cache, seconds, binder or FakeBinder(), pool, most_waiting, free)


def test_a_gang_is_bound_once_enough_members_wait() -> None:
    pods = gang(3)
    with binds(make_pod_group("gang", 3), *pods) as webhook:
        calls = [webhook.begin(pod, "n0") for pod in pods[:2]]
        assert wait_until(lambda: webhook.waiting() == {"m0", "m1"})
        assert webhook.binder.bound == []
        assert webhook.bind(pods[2], "n1") == ""
        assert [call.result() for call in calls] == ["", ""]
        assert sorted(webhook.binder.bound) == [("m0", "n0"), ("m1", "n0"), ("m2", "n1")]


def test_one_member_without_room_refuses_all() -> None:
    pods = gang(3)
    with binds(make_pod_group("gang", 3), *pods) as webhook:
        calls = [webhook.begin(pod, "n0") for pod in pods[:2]]
        assert wait_until(lambda: webhook.waiting() == {"m0", "m1"})
        assert webhook.bind(pods[2], "n0") == "n0 no longer fits: Insufficient cpu"
        reason = "1 of 3 members that pod group default/gang needs are missing because others cannot be bound"
        assert [call.result() for call in calls] == [reason, reason]
        assert (webhook.binder.bound, webhook.assumed()) == ([], set())
        assert webhook.telemetry.refused_members == [("unfit", 2)]


def test_members_that_do_not_come_refuse_those_that_wait() -> None:
    pods = gang(2)
    with binds(make_pod_group("gang", 2), *pods, seconds=SHORT) as webhook:
        reason = "1 of 2 members that pod group default/gang needs are missing after 0.05 s"
        assert webhook.bind(pods[0], "n0") == reason
        assert (webhook.binder.bound, webhook.assumed()) == ([], set())
        assert webhook.telemetry.refused_members == [("timeout", 1)]


def test_a_refused_gang_can_be_bound_later() -> None:
    pods = gang(2)
    with binds(make_pod_group("gang", 2), *pods, seconds=SHORT) as webhook:
        assert webhook.bind(pods[0], "n0")
        assert webhook.bind(pods[1], "n1")
    with binds(make_pod_group("gang", 2), *pods) as webhook:
        assert [call.result() for call in [webhook.begin(pod, "n0") for pod in pods]] == ["", ""]


def test_a_surplus_member_needs_no_others() -> None:
    pods = gang(3)
    with binds(make_pod_group("gang", 2), *pods) as webhook:
        assert [call.result() for call in [webhook.begin(pod, "n0") for pod in pods[:2]]] == ["", ""]
        assert webhook.bind(pods[2], "n1") == ""


def test_a_member_that_is_deleted_while_it_waits_does_not_count() -> None:
    pods = gang(4)
    with binds(make_pod_group("gang", 3), *pods) as webhook:
        calls = [webhook.begin(pods[0], "n0")]
        assert wait_until(lambda: webhook.waiting() == {"m0"})
        webhook.delete(pods[0])
        calls += [webhook.begin(pod, "n0") for pod in pods[1:3]]
        assert wait_until(lambda: webhook.waiting() == {"m1", "m2"})
        assert not wait_until(lambda: webhook.binder.bound, timeout_seconds=0.2)
        assert webhook.bind(pods[3], "n1") == ""
        assert [call.result() for call in calls[1:]] == ["", ""]


def test_a_deleted_member_that_waited_leaves_its_gang_out_of_reach() -> None:
    pods = gang(3)
    with binds(make_pod_group("gang", 3), *pods) as webhook:
        first = webhook.begin(pods[0], "n0")
        assert wait_until(lambda: webhook.waiting() == {"m0"})
        webhook.delete(pods[0])
        reason = "2 of 3 members that pod group default/gang needs are missing because others cannot be bound"
        assert webhook.bind(pods[1], "n0") == reason
        assert first.result() == reason
        assert (webhook.binder.bound, webhook.assumed()) == ([], set())


def test_the_call_of_a_deleted_member_ends_and_its_siblings_wait_on() -> None:
    pods = gang(4)
    with binds(make_pod_group("gang", 3), *pods) as webhook:
        deleted, sibling = (webhook.begin(pod, "n0") for pod in pods[:2])
        assert wait_until(lambda: webhook.waiting() == {"m0", "m1"})
        webhook.quorum.end_deleted()
        webhook.delete(pods[0])
        webhook.quorum.end_deleted()
        assert deleted.result() == "pod default/m0 no longer exists"
        assert not sibling.done()
        others = [webhook.begin(pod, "n1") for pod in pods[2:]]
        assert [call.result() for call in (sibling, *others)] == ["", "", ""]


def test_a_gang_that_lost_too_many_members_no_longer_waits() -> None:
    pods = gang(2)
    with binds(make_pod_group("gang", 2), *pods) as webhook:
        deleted = webhook.begin(pods[0], "n0")
        assert wait_until(lambda: webhook.waiting() == {"m0"})
        webhook.delete(pods[0])
        webhook.quorum.end_deleted()
        assert deleted.result() == "pod default/m0 no longer exists"
        assert webhook.bind(pods[1], "n1").startswith("1 of 2 members that pod group default/gang needs are missing")


def test_members_that_are_deleted_together_refuse_their_gang_once() -> None:
    pods = gang(4)
    with binds(make_pod_group("gang", 4), *pods) as webhook:
        calls = [webhook.begin(pod, node) for pod, node in zip(pods[:3], ("n0", "n0", "n1"), strict=True)]
        assert wait_until(lambda: webhook.waiting() == {"m0", "m1", "m2"})
        for pod in pods[:2]:
            webhook.delete(pod)
        webhook.quorum.end_deleted()
        assert [call.result() for call in calls[:2]] == [f"pod default/m{i} no longer exists" for i in range(2)]
        assert "others cannot be bound" in calls[2].result()
        assert webhook.telemetry.refused_members == [("unfit", 1)]


def test_bound_members_count_after_a_restart() -> None:
    placed = make_pod("bound").uid("bound").req(cpu="1").group("gang").node("n0").obj()
    pods = gang(2)
    with binds(make_pod_group("gang", 3), placed, *pods) as webhook:
        assert [call.result() for call in [webhook.begin(pod, "n1") for pod in pods]] == ["", ""]


def test_a_waiting_member_that_the_watch_shows_on_its_node_counts_once() -> None:
    pods = gang(3)
    with binds(make_pod_group("gang", 3), *pods) as webhook:
        calls = [webhook.begin(pods[0], "n0")]
        assert wait_until(lambda: webhook.waiting() == {"m0"})
        tell(webhook.cache, [make_pod("m0").uid("m0").req(cpu="1").group("gang").node("n0").obj()])
        calls.append(webhook.begin(pods[1], "n0"))
        assert wait_until(lambda: webhook.waiting() == {"m0", "m1"})
        assert webhook.binder.bound == []
        assert webhook.bind(pods[2], "n1") == ""
        assert [call.result() for call in calls] == ["", ""]


def test_a_member_whose_bind_got_no_answer_does_not_count() -> None:
    pods = gang(3)
    with binds(
        make_pod_group("gang", 2), *pods, binder=FakeBinder(OutcomeUnknown("lost"), Refused("no", 403))
    ) as webhook:
        calls = [webhook.begin(pod, "n0") for pod in pods[:2]]
        assert sorted(bool(call.result()) for call in calls) == [True, True]
        again = webhook.begin(pods[2], "n1")
        assert wait_until(lambda: "m2" in webhook.assumed())
        assert not again.done()
        refused = next(pod for pod in pods[:2] if webhook.cache.placement(pod["metadata"]["uid"]) is None)
        assert webhook.bind(refused, "n1") == ""
        assert again.result() == ""


def test_pods_of_basic_groups_do_not_wait() -> None:
    pods = gang(2)
    with binds(make_pod_group("gang"), *pods) as webhook:
        assert webhook.bind(pods[0], "n0") == ""


def test_the_wait_at_permit_leaves_less_time_for_the_other_members() -> None:
    clock = ManualClock()

    @permit
    def slow(pod: ViewedPod, node: Node) -> bool:
        clock.advance(2.9)
        return True

    cache = cache_of(*NODES, make_pod_group("gang", 2), *(pods := gang(2)))
    profiles = Profiles([replace(default_profile(), permit=[slow.rule("slow", {}, Remembered())])])
    quorum = GroupQuorum(cache, Telemetry(), 2.5, most_waiting=100)
    binder = FakeBinder()
    verb = Bind(cache, profiles, binder, Telemetry(), permit_wait=PermitWait(3.0, 1, clock), quorum=quorum)
    reason = "1 of 2 members that pod group default/gang needs are missing after 0.1 s"
    assert answer(verb, binding(pods[0], "n0"))["Error"] == reason
    assert binder.bound == []


def test_a_member_whose_bind_may_still_be_refused_does_not_count() -> None:
    pods = gang(2)
    with binds(make_pod_group("gang", 2), *pods) as webhook:
        first = webhook.cache.find_pod("m0", "default/m0")
        assert first is not None
        with webhook.quorum.uncounted(first, "n0"):
            webhook.cache.assume(first, "n0")
            second = webhook.begin(pods[1], "n1")
            assert wait_until(lambda: webhook.waiting() == {"m1"})
            assert not wait_until(second.done, timeout_seconds=0.2)
            webhook.cache.forget("m0")
            webhook.quorum.failed(first)
        reason = "1 of 2 members that pod group default/gang needs are missing because others cannot be bound"
        assert second.result() == reason
        assert webhook.binder.bound == []


def test_a_member_that_may_not_wait_ends_the_wait_of_a_gang_that_needs_it() -> None:
    pods = gang(3)
    with binds(make_pod_group("gang", 3), *pods, free=threading.Semaphore(1)) as webhook:
        calls = [webhook.begin(pod, "n0") for pod in pods[:2]]
        assert sorted(call.result(LONG / 2) for call in calls) == [
            "2 of 3 members that pod group default/gang needs are missing because others cannot be bound",
            "too many members are waiting for their gangs",
        ]


def test_all_gangs_together_wait_in_a_limited_number_of_calls() -> None:
    gangs = {
        name: [make_pod(f"{name}{i}").uid(f"{name}{i}").req(cpu="100m").group(name).obj() for i in range(3)]
        for name in "abc"
    }
    groups = [make_pod_group(name, 3) for name in gangs]
    pods = [pod for members in gangs.values() for pod in members]
    with binds(*groups, *pods, most_waiting=2) as webhook:
        calls = {name: webhook.begin(gangs[name][0], "n0") for name in gangs}
        assert wait_until(lambda: any(call.done() for call in calls.values()))
        refused = next(name for name, call in calls.items() if call.done())
        assert calls.pop(refused).result() == "too many members are waiting for their gangs"
        assert wait_until(lambda: webhook.waiting() == {f"{name}0" for name in calls})
        assert [webhook.bind(gangs[name][1], "n0") for name in calls] == ["", ""]
        assert [call.result() for call in calls.values()] == ["", ""]
        again = [webhook.begin(pod, "n0") for pod in gangs[refused][:2]]
        assert [call.result() for call in again] == ["", ""]


def test_a_member_that_the_watch_shows_on_its_node_counts_before_its_own_call_has_decided() -> None:
    """Another replica has bound it, and its call here is still in a rule of Permit."""
    pods = gang(2)
    with binds(make_pod_group("gang", 2), *pods) as webhook, webhook.quorum.uncounted(webhook.info("m0"), "n0"):
        tell(webhook.cache, [{**pods[0], "spec": {**pods[0]["spec"], "nodeName": "n0"}}])
        assert webhook.bind(pods[1], "n1") == ""


def test_calls_are_bound_at_the_latest_when_their_time_is_over_if_the_gang_now_needs_fewer() -> None:
    pods = gang(3)
    with binds(make_pod_group("gang", 3), *pods, seconds=3.0) as webhook:
        calls = [webhook.begin(pod, "n0") for pod in pods[:2]]
        assert wait_until(lambda: webhook.waiting() == {"m0", "m1"})
        tell(webhook.cache, [make_pod_group("gang", 2)])
        assert [call.result() for call in calls] == ["", ""]
