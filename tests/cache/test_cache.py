"""The cache against a plain model: after any events in any order a snapshot shows what the model has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.cache.cache import Cache
from extender.cache.observed import CachedPod
from extender.cache.pod_states import PodState
from extender.errors import DeadlineExceeded, IllegalTransition, Outdated, UnknownNode
from extender.framework.status import Refusal, unschedulable
from extender.model.node import Node
from extender.model.pod import Pod
from extender.runtime.clock import Deadline, ManualClock, TimeLimit
from extender.runtime.ports import Telemetry
from extender.table import PodInfo, Table
from extender.table.journal import RESOURCES
from extender.table.node_columns import CPU
from tests.builders import make_node, make_pod

TTL = 30.0


def node(name: str) -> Node:
    return msgspec.convert(make_node(name).obj(), Node)


def pod(name: str, on: str = "", **status: Any) -> Pod:
    builder = make_pod(name).req(cpu="1")
    obj = (builder.node(on) if on else builder).obj()
    obj.setdefault("status", {}).update(status)
    return msgspec.convert(obj, Pod)


class SlowClock(ManualClock):
    """Advances by 0.1 s each time it is read."""

    def monotonic(self) -> float:
        self.advance(0.1)
        return super().monotonic()


FULL = unschedulable("NodeResourcesFit", "full")


def fits(_table: Table) -> None:
    """A check that refuses no node."""


def cache_with(*nodes: str, ttl_seconds: float = TTL) -> tuple[Cache, ManualClock]:
    clock = ManualClock()
    cache = Cache(clock, Telemetry(), ttl_seconds)
    for name in nodes:
        cache.changed("Node", node(name))
    return cache, clock


def standing(cache: Cache) -> dict[str, str]:
    """Returns the node of each pod by UID, as a reader sees it."""
    with cache.snapshot("test") as table:
        return {info.uid: table.nodes.names[table.pods.row[slot]] for slot, info in enumerate(table.pods.infos) if info}


class CacheMachine(RuleBasedStateMachine):
    """Watch events, binds and the passing of time, compared with dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.cache, self.clock = cache_with("n0", "n1", "n2")
        self.assumed: dict[str, tuple[str, float | None]] = {}  # uid -> node, expiry
        self.added: dict[str, str] = {}
        self.watched: set[str] = set()  # objects that the watch shows

    uids = st.integers(0, 5).map("p{}".format)
    names = st.sampled_from(["n0", "n1", "n2"])

    def uid(self, name: str) -> str:
        return pod(name).uid

    @rule(name=uids)
    def watch_sees_it_waiting(self, name: str) -> None:
        if self.uid(name) not in self.added:  # a pod is never unbound
            self.cache.changed("Pod", pod(name))
            self.watched.add(self.uid(name))

    @rule(name=uids, on=names)
    def watch_sees_it_placed(self, name: str, on: str) -> None:
        uid = self.uid(name)
        on = self.added.get(uid, on)
        self.cache.changed("Pod", pod(name, on))
        self.assumed.pop(uid, None)
        self.added[uid] = on
        self.watched.add(uid)

    @rule(name=uids)
    def watch_sees_it_go(self, name: str) -> None:
        self.cache.deleted("Pod", pod(name))
        self.assumed.pop(self.uid(name), None)
        self.added.pop(self.uid(name), None)
        self.watched.discard(self.uid(name))

    @rule(name=uids)
    def watch_sees_it_finish(self, name: str) -> None:
        self.cache.changed("Pod", pod(name, self.added.get(self.uid(name), ""), phase="Succeeded"))
        self.assumed.pop(self.uid(name), None)
        self.added.pop(self.uid(name), None)
        self.watched.discard(self.uid(name))

    @rule(placed=st.dictionaries(uids, names, max_size=4), waiting=st.sets(uids, max_size=3))
    def relist(self, placed: dict[str, str], waiting: set[str]) -> None:
        placed = {name: self.added.get(self.uid(name), on) for name, on in placed.items()}
        waiting = {name for name in waiting - placed.keys() if self.uid(name) not in self.added}
        self.cache.replaced("Pod", [pod(name, on) for name, on in placed.items()] + [pod(name) for name in waiting])
        listed = {self.uid(name) for name in placed.keys() | waiting}
        gone = self.watched - listed  # a list removes only what the watch has shown
        self.added = {self.uid(name): on for name, on in placed.items()}
        self.assumed = {u: v for u, v in self.assumed.items() if u not in self.added and u not in gone}
        self.watched = listed

    @rule(name=uids, on=names, good=st.booleans())
    def assume(self, name: str, on: str, good: bool) -> None:
        info, uid = PodInfo(pod(name)), self.uid(name)
        if uid in self.assumed or uid in self.added:
            with pytest.raises(IllegalTransition):
                self.cache.assume(info, on, fits)
            return
        assert self.cache.assume(info, on, lambda _: None if good else FULL) == (None if good else FULL)
        if good:
            self.assumed[uid] = (on, None)

    @rule(name=uids)
    def finish(self, name: str) -> None:
        uid = self.uid(name)
        on, _ = self.assumed.get(uid, ("", None))
        if uid in self.assumed or uid in self.added:
            self.cache.finish_binding(uid)
            if uid in self.assumed:
                self.assumed[uid] = (on, self.clock.monotonic() + TTL)
        else:
            with pytest.raises(IllegalTransition):
                self.cache.finish_binding(uid)

    @rule(name=uids)
    def forget(self, name: str) -> None:
        if self.assumed.pop(self.uid(name), None):
            self.cache.forget(self.uid(name))
        else:
            with pytest.raises(IllegalTransition):
                self.cache.forget(self.uid(name))

    @rule(seconds=st.sampled_from([1.0, 29.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        now = self.clock.monotonic()
        over = {u for u, (_, expiry) in self.assumed.items() if expiry is not None and expiry <= now}
        assert bool(self.cache.overdue(now)) == bool(over)
        assert len(self.cache.expire(self.cache.overdue(now), now)) == len(over)
        self.assumed = {u: v for u, v in self.assumed.items() if u not in over}

    @invariant()
    def a_snapshot_shows_what_counts(self) -> None:
        want = {**self.added, **{uid: on for uid, (on, _) in self.assumed.items()}}
        assert standing(self.cache) == want
        assert self.cache.size().assumed_pods == len(self.assumed)
        with self.cache.snapshot("test") as table:
            used = {name: int(table.nodes.requested[CPU, row]) for name, row in table.nodes.row_of.items()}
        assert used == {name: 1000 * list(want.values()).count(name) for name in ("n0", "n1", "n2")}


CacheMachine.TestCase.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=50)
test_cache_machine = CacheMachine.TestCase


def test_a_refused_check_sees_the_current_table_and_changes_nothing() -> None:
    cache, _ = cache_with("n")
    cache.changed("Pod", pod("there", "n"))
    seen: list[int] = []

    def check(table: Table) -> Refusal | None:
        seen.append(int(table.nodes.requested[CPU, table.nodes.row_of["n"]]))
        return FULL

    assert cache.assume(PodInfo(pod("new")), "n", check) == FULL
    assert seen == [1000]
    assert cache.placement(pod("new").uid) is None
    assert standing(cache) == {pod("there").uid: "n"}


def test_a_pod_cannot_be_assumed_on_an_unknown_node() -> None:
    cache, _ = cache_with()
    with pytest.raises(UnknownNode, match="node n is not in the cache"):
        cache.assume(PodInfo(pod("p")), "n", fits)


def test_a_table_whose_check_raised_is_not_used_again() -> None:
    cache, _ = cache_with("n")

    def check(table: Table) -> Refusal | None:
        table.place(PodInfo(pod("half-done")), "n")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cache.assume(PodInfo(pod("p")), "n", check)
    assert standing(cache) == {}


def test_a_pod_without_a_time_to_live_never_expires() -> None:
    cache, clock = cache_with("n", ttl_seconds=0)
    cache.assume(PodInfo(pod("p")), "n", fits)
    cache.finish_binding(pod("p").uid)
    clock.advance(1e9)
    assert cache.expire(cache.overdue(clock.monotonic()), clock.monotonic()) == []


def test_a_pod_whose_bind_got_no_answer_expires_even_without_a_time_to_live() -> None:
    """It may not be bound at all; kube-scheduler forgets and retries it at once."""
    cache, clock = cache_with("n", ttl_seconds=0)
    cache.assume(PodInfo(pod("p")), "n", fits)
    cache.finish_binding(pod("p").uid, certain=False)
    clock.advance(31.0)
    assert cache.expire(cache.overdue(clock.monotonic()), clock.monotonic()) == ["default/p"]


def resized(name: str, cpu: str, version: int) -> Pod:
    return msgspec.convert(make_pod(name).uid(name).req(cpu=cpu).resource_version(version).obj(), Pod)


@pytest.mark.parametrize("answered", [False, True], ids=["being bound", "its bind got no answer"])
def test_an_assumed_pod_that_is_resized_counts_as_what_it_will_be(answered: bool) -> None:
    cache, _ = cache_with("n")
    cache.changed("Pod", resized("p", "1", 5))
    cache.assume(PodInfo(resized("p", "1", 5)), "n")
    if answered:
        cache.finish_binding("p", certain=False)
    for version, cpu, counted in ((7, "2", 2000), (6, "1", 2000), (8, "3", 3000)):  # a version from before counts not
        cache.changed("Pod", resized("p", cpu, version))
        with cache.snapshot("test") as table:
            assert table.nodes.requested[CPU, table.nodes.row_of["n"]] == counted
    assert cache.size().assumed_pods == 1


def test_an_assumed_pod_does_not_expire_before_its_bind_has_finished() -> None:
    cache, clock = cache_with("n")
    cache.assume(PodInfo(pod("p")), "n", fits)
    clock.advance(1e9)
    assert cache.expire(cache.overdue(clock.monotonic()), clock.monotonic()) == []
    placement = cache.placement(pod("p").uid)
    assert placement is not None
    assert placement.state is PodState.ASSUMED


def test_a_nominated_pod_is_shown_until_it_is_placed() -> None:
    cache, _ = cache_with("n")
    cache.changed("Pod", pod("p", nominatedNodeName="n"))
    with cache.snapshot("test") as table:
        assert [*table.nominated["n"]] == [pod("p").uid]
    cache.assume(PodInfo(pod("p")), "n", fits)
    with cache.snapshot("test") as table:
        assert table.nominated == {}


def test_the_table_counts_a_pod_once_when_the_watch_confirms_what_was_assumed() -> None:
    cache, _ = cache_with("n")
    cache.changed("Pod", pod("p"))
    cache.assume(PodInfo(pod("p")), "n")
    with cache.snapshot("test") as table:
        position = table.journal.now
    cache.changed("Pod", pod("p", "n"))
    with cache.snapshot("test") as table:
        assert table.journal.since(position, RESOURCES) == []
        assert table.nodes.requested[CPU, table.nodes.row_of["n"]] == 1000
        assert [info.pod.node_name for info in table.pods] == ["n"]


def test_find_pod_distinguishes_a_pod_from_an_earlier_one_of_its_name() -> None:
    cache, _ = cache_with()
    cache.changed("Pod", pod("p"))
    assert cache.find_pod(pod("p").uid, "default/p") is not None
    assert cache.find_pod("another-uid", "default/p") is None
    cache.remember(PodInfo(pod("asked-about")), 1000)
    assert cache.find_pod(pod("asked-about").uid, "default/asked-about") is not None


def test_a_list_removes_objects_of_any_kind_that_it_lacks() -> None:
    cache, _ = cache_with("gone", "kept")
    with cache.snapshot("test"):
        pass
    cache.replaced("Node", [node("kept")])
    with cache.snapshot("test") as table:
        assert [table.nodes.names[row] for row in table.nodes.rows] == ["kept"]


def test_a_list_without_news_changes_nothing() -> None:
    cache, _ = cache_with()
    listed = [msgspec.convert(make_node("n").resource_version(5).obj(), Node)]
    cache.replaced("Node", listed)
    with cache.snapshot("test") as table:
        first = table.nodes.node(0)
    cache.replaced("Node", [msgspec.convert(make_node("n").resource_version(5).obj(), Node)])
    with cache.snapshot("test") as table:
        assert table.nodes.node(0) is first
    cache.replaced("Node", [msgspec.convert(make_node("n").resource_version(6).label(new="yes").obj(), Node)])
    with cache.snapshot("test") as table:
        assert table.nodes.node(0).labels["new"] == "yes"


@pytest.mark.parametrize(
    ("asked_after", "terminates"),
    [
        pytest.param(-1, True, id="a list that was requested earlier does not show it"),
        pytest.param(1, False, id="a restored server has lost it"),
    ],
)
def test_an_evicted_pod_terminates_until_a_later_list_shows_otherwise(asked_after: float, *, terminates: bool) -> None:
    cache, clock = cache_with("n")
    victim = msgspec.convert(make_pod("p").node("n").resource_version(5).obj(), Pod)
    cache.changed("Pod", victim)
    cache.evicted(victim.uid)
    cache.replaced("Pod", [victim], clock.monotonic() + asked_after)
    known = cache.find_pod(victim.uid, victim.key)
    assert known is not None
    assert known.pod.terminating is terminates


def test_an_event_from_before_an_eviction_does_not_undo_it() -> None:
    """Otherwise the preemptor would evict other pods elsewhere. Found by the simulation."""
    cache, _ = cache_with("n")

    def tell(version: int, **labels: str) -> Pod:
        victim = make_pod("p").node("n").resource_version(version).label(**labels)
        recorded = msgspec.convert((victim.deleted() if labels.get("at") == "its end" else victim).obj(), Pod)
        cache.changed("Pod", recorded)
        known = cache.find_pod(recorded.uid, recorded.key)
        assert known is not None
        return known.pod

    uid = tell(5).uid
    cache.evicted(uid)
    for version, at in ((6, "its bind"), (7, "its condition")):
        assert (tell(version, at=at).terminating, tell(version, at=at).labels) == (True, {"at": at})
    deleted = tell(8, at="its end")
    assert deleted.terminating
    assert deleted.status.conditions is None  # as the watch shows it, no longer as it was assumed


def test_a_restored_server_may_give_one_version_to_two_contents() -> None:
    cache, _ = cache_with()
    for node_name in ("n1", "n2"):
        cache.replaced("Pod", [msgspec.convert(make_pod("p").node(node_name).resource_version(5).obj(), Pod)])
        cache.replaced("Node", [msgspec.convert(make_node("n").label(at=node_name).resource_version(5).obj(), Node)])
    assert [held.node_name for held in cache.pods().values()] == ["n2"]
    assert cache.objects("Node")["n"].labels["at"] == "n2"


def test_an_object_that_cannot_be_read_is_reported_and_left_out() -> None:
    recorded: list[tuple[str, str]] = []

    class Listening(Telemetry):
        def unreadable(self, kind: str, key: str, why: str) -> None:
            recorded.append((key, why))

    cache = Cache(ManualClock(), Listening())
    cache.replaced("Pod", [pod("good", "n"), msgspec.convert(make_pod("bad").req(cpu="1Gx").node("n").obj(), Pod)])
    cache.changed("Node", msgspec.convert(make_node("n").allocatable(cpu="lots").obj(), Node))
    assert standing(cache) == {pod("good").uid: "n"}
    assert [key for key, _ in recorded] == ["default/bad", "n"]
    assert "'1Gx' is not a quantity" in recorded[0][1]


def test_a_refreshed_table_needs_no_update_when_it_is_lent() -> None:
    cache, _ = cache_with(*(f"n{i}" for i in range(500)))
    cache.refresh(2)
    with cache.snapshot("one") as one, cache.snapshot("two") as two:
        assert len(one.nodes.rows) == len(two.nodes.rows) == 500
        cache.refresh(2)  # both are on loan: nothing to do, and no new table
    cache.changed("Pod", pod("p", "n1"))
    cache.refresh(2)
    with cache.snapshot("again") as table:
        assert table in (one, two)
        assert len(table.pods) == 1


def test_a_refresh_updates_every_idle_table() -> None:
    cache, _ = cache_with("n")
    cache.refresh(2)
    cache.changed("Pod", pod("p", "n"))
    cache.refresh(2)

    def no_time() -> Deadline:
        return TimeLimit(SlowClock(), 0.05).begin()  # ends the first update of a table

    with cache.snapshot("one", no_time()) as one, cache.snapshot("two", no_time()) as two:
        assert (len(one.pods), len(two.pods)) == (1, 1)


def test_a_refresh_ends_at_the_readers_deadline_and_the_next_reader_continues_with_it() -> None:
    cache, _ = cache_with("n")
    with cache.snapshot("first") as first:
        pass
    for number in range(100):
        cache.changed("Pod", pod(f"p{number}", "n"))
    with pytest.raises(DeadlineExceeded), cache.snapshot("late", TimeLimit(SlowClock(), 1.0).begin()):
        pass
    cache.deleted("Pod", pod("p0", "n"))
    cache.deleted("Pod", pod("p99", "n"))
    with cache.snapshot("next") as table:
        assert {info.pod.name for info in table.pods} == {f"p{number}" for number in range(1, 99)}
    assert table is first
    with cache.snapshot("again") as again:
        assert again is table  # the updates that it had taken in by then were kept


def test_a_pod_that_is_assumed_before_the_watch_shows_it_is_listed_without_its_object() -> None:
    cache, _ = cache_with("n")
    cache.assume(PodInfo(pod("early")), "n")
    assert cache.pods() == {pod("early").uid: CachedPod(None, "n", PodState.ASSUMED, findable=False)}


def test_there_are_as_many_tables_as_readers_at_once() -> None:
    cache, _ = cache_with("n")
    with cache.snapshot("one") as one, cache.snapshot("two") as two:
        assert one is not two
        cache.changed("Pod", pod("p", "n"))
        assert not len(one.pods)
    with cache.snapshot("again") as again:
        assert again in (one, two)
        assert len(again.pods) == 1


def test_many_threads_together_do_not_overfill_a_node() -> None:
    cache, _ = cache_with("n")  # `check` says how many pods have room
    taken: list[str] = []

    def check(table: Table) -> Refusal | None:
        return FULL if table.nodes.requested[CPU, table.nodes.row_of["n"]] >= 4000 else None

    def bind(name: str) -> None:
        if not cache.assume(PodInfo(pod(name)), "n", check):
            taken.append(name)
            cache.finish_binding(pod(name).uid)

    threads = [threading.Thread(target=bind, args=(f"p{i}",)) for i in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 4
    with cache.snapshot("test") as table:
        assert np.array_equal(table.nodes.requested[CPU][table.nodes.rows], [4000])


def in_between(happens: Callable[[], object]) -> None:
    """Calls `action`, which needs the cache's lock, in another thread."""
    thread = threading.Thread(target=happens, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


class Bystander:
    """A slow check, during which another pod is placed, one for each name."""

    def __init__(self, cache: Cache, clock: ManualClock, names: Iterable[str], on: str, seconds: float) -> None:
        self._cache, self._clock, self._names, self._on, self._seconds = cache, clock, iter(names), on, seconds
        self.seen: list[int] = []

    def check(self, table: Table) -> Refusal | None:
        self.seen.append(int(table.nodes.requested[CPU, table.nodes.row_of["n"]]) // 1000)
        if len(self.seen) < 2 or self._seconds:
            name = next(self._names, None)
            if name is not None:
                in_between(lambda: self._cache.changed("Pod", pod(name, self._on)))
        self._clock.advance(self._seconds)
        return FULL if self.seen[-1] else None


@pytest.mark.parametrize("seconds", [pytest.param(0.0, id="quick"), pytest.param(3.0, id="slow")])
def test_a_check_runs_without_the_lock_and_again_after_a_change(seconds: float) -> None:
    cache, clock = cache_with("n")
    bystander = Bystander(cache, clock, ["there"], "n", seconds)
    assert cache.assume(PodInfo(pod("new")), "n", bystander.check) == FULL
    assert bystander.seen == [0, 1]
    assert standing(cache) == {pod("there").uid: "n"}


@pytest.mark.parametrize(("on", "checks"), [pytest.param("", 1, id="waits"), pytest.param("other", 2, id="elsewhere")])
def test_a_check_does_not_run_again_for_a_pod_that_waits(on: str, checks: int) -> None:
    cache, clock = cache_with("n", "other")
    bystander = Bystander(cache, clock, ["comes"], on, 3.0)
    assert cache.assume(PodInfo(pod("new")), "n", bystander.check) is None
    assert len(bystander.seen) == checks


@pytest.mark.parametrize(("changed", "checks"), [("n", 2), ("other", 1)])
def test_a_check_runs_again_after_a_change_of_its_own_node_only(changed: str, checks: int) -> None:
    cache, _ = cache_with("n", "other")
    seen: list[Table] = []

    def check(table: Table) -> None:
        seen.append(table)
        if len(seen) == 1:
            in_between(lambda: cache.changed("Node", node(changed)))

    assert cache.assume(PodInfo(pod("new")), "n", check) is None
    assert len(seen) == checks


def test_a_quick_check_of_a_node_that_keeps_changing_runs_once_more_under_the_lock() -> None:
    cache, clock = cache_with("n")
    clock.advance(1000)
    names = [f"p{number}" for number in range(5)]
    left = iter(names)

    def check(table: Table) -> Refusal | None:
        seen.append(int(table.nodes.requested[CPU, table.nodes.row_of["n"]]) // 1000)
        if (name := next(left, None)) is not None:
            in_between(lambda: cache.changed("Pod", pod(name, "n")))
        return None

    seen: list[int] = []
    assert cache.assume(PodInfo(pod("new")), "n", check) is None
    assert seen == [0, 1, 2, 3, 4, 5]
    assert standing(cache) == dict.fromkeys((pod(name).uid for name in [*names, "new"]), "n")


def test_a_slow_check_of_a_node_that_keeps_changing_ends_in_an_error() -> None:
    cache, clock = cache_with("n", "other")
    bystander = Bystander(cache, clock, map("p{}".format, count()), "other", 3.0)
    with pytest.raises(Outdated, match="default/new: the cluster changed during each of 5 checks of node n"):
        cache.assume(PodInfo(pod("new")), "n", bystander.check)
    assert cache.placement(pod("new").uid) is None


def test_a_confirmed_pod_that_a_list_shows_without_a_node_has_no_place() -> None:
    """As after the API server was restored from a copy."""
    cache = Cache(ManualClock(), Telemetry())
    cache.changed("Node", node("n"))
    cache.changed("Pod", pod("p", "n"))
    cache.replaced("Pod", [pod("p")])
    held = cache.pods()[pod("p").uid]
    assert (held.node_name, held.state) == ("", PodState.INITIAL)


def test_a_long_list_is_stored_in_batches() -> None:
    cache, _ = cache_with("n0", "n1")
    cache.replaced("Pod", [pod(f"gone-{number}", on="n0") for number in range(500)])
    seen: list[int] = []

    class Reader:
        def changed(self, kind: str, before: Any, after: Any) -> None:
            seen.append(sum(node == "n1" for node in standing(cache).values()))

        def displaced(self, placement: Any, event: Any) -> None:
            pass

        def missed(self) -> None:
            pass

    listed = [pod(f"new-{number}", on="n1") for number in range(500)]
    cache.listen(Reader())
    cache.replaced("Pod", listed)
    assert seen[0] == 0
    assert any(0 < number < 500 for number in seen)
    assert standing(cache) == {each.uid: "n1" for each in listed}
