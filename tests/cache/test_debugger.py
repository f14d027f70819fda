"""The comparer finds and corrects what is wrong in the cache; a change on its way is not wrong."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from weakref import ref

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cache.cache import Cache
from extender.cache.debugger import CacheDifference, Comparer, Report
from extender.cache.pod_states import PodPlacement, PodState
from extender.devices.allocations import Devices
from extender.errors import ClusterError
from extender.model.meta import LabelSelector, Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.selectors import compile_selector
from extender.table import PodCountQuery, Table
from extender.table.podinfo import Group
from extender.table.terms import IncomingPod
from tests.builders import make_node, make_pod
from tests.cache.watched_cluster import WatchedCluster

EVERY_POD = PodCountQuery(None, compile_selector(msgspec.convert({}, LabelSelector)))

randoms = st.integers(0, 2**32).map(Random)


def comparer_of(cluster: WatchedCluster) -> Comparer:
    """One for which time passes while events are delivered and things go on."""

    def pause(_seconds: float) -> None:
        cluster.live(1)
        cluster.deliver_all()

    return Comparer(cluster.cache, cluster, cluster.alarms, pause)


def compare(cluster: WatchedCluster) -> Report:
    return comparer_of(cluster).compare()


def compare_in_peace(cluster: WatchedCluster) -> Report:
    """While nothing happens, and no watch delivers anything."""
    return Comparer(cluster.cache, Still(cluster), cluster.alarms, lambda _: None).compare()


def ask(cluster: WatchedCluster) -> None:
    """Makes two tables, and standing answers in both."""
    with cluster.cache.snapshot("one") as one, cluster.cache.snapshot("two") as two:
        for table in (one, two):
            table.matching(EVERY_POD)
            info = next(iter(table.pods))
            for group in (info.group, Group("another", frozenset()), info.group):  # the second time, it is kept
                table.terms.effects_on(IncomingPod(group, frozenset()))


@given(randoms)
def test_changes_on_their_way_are_no_differences(random: Random) -> None:
    cluster = WatchedCluster(random)
    for _ in range(4):
        cluster.live(random.randrange(40))
        ask(cluster)
        report = compare(cluster)
        assert report.differences == []
        assert report.undecided == []
    assert cluster.alarms.recorded == []


# ---- what may be wrong with objects


def lose_a_node(cache: Cache) -> None:
    del cache._objects._observed["Node"]["n0"]


def keep_a_node_that_is_gone(cache: Cache) -> None:
    cache._objects._observed["Node"]["ghost"] = msgspec.convert(make_node("ghost").obj(), Node)


def mistake_a_label(cache: Cache) -> None:
    node = cache._objects._observed["Node"]["n0"]
    cache._objects._observed["Node"]["n0"] = msgspec.structs.replace(
        node, metadata=msgspec.structs.replace(node.metadata, labels={"zone": "nowhere"})
    )


def mistake_a_uid(cache: Cache) -> None:
    node = cache._objects._observed["Node"]["n0"]
    cache._objects._observed["Node"]["n0"] = msgspec.structs.replace(
        node, metadata=msgspec.structs.replace(node.metadata, uid="made-before")
    )


def lose_a_volume(cache: Cache) -> None:
    del cache._objects._observed["PersistentVolume"]["v"]


def lose_a_pod(cache: Cache) -> None:
    uid = cache._pods.uid_of["default/fixed"]
    del (
        cache._pods.watched[uid],
        cache._placements._placements[uid],
        cache._pods.uid_of["default/fixed"],
    )


def lose_a_place(cache: Cache) -> None:
    del cache._placements._placements[cache._pods.uid_of["default/fixed"]]


def mistake_a_place(cache: Cache) -> None:
    uid = cache._pods.uid_of["default/fixed"]
    placed = cache._placements._placements
    placed[uid] = placed[uid]._replace(node_name="n2")


def lose_a_name(cache: Cache) -> None:
    del cache._pods.uid_of["default/fixed"]


def place_a_pod_that_waits(cache: Cache) -> None:
    uid = cache._pods.uid_of["default/waits"]
    cache._placements._placements[uid] = PodPlacement(cache._pods.watched[uid], "n1", PodState.ADDED)


def keep_a_pod_that_is_gone(cache: Cache) -> None:
    cache.changed("Pod", msgspec.convert(make_pod("ghost").node("n1").obj(), Pod))


WRONG_OBJECTS = [
    pytest.param(lose_a_node, "Node", "n0", id="a node is lost"),
    pytest.param(keep_a_node_that_is_gone, "Node", "ghost", id="a node should be gone"),
    pytest.param(mistake_a_label, "Node", "n0", id="a node looks otherwise at the same version"),
    pytest.param(lose_a_volume, "PersistentVolume", "v", id="an object of another kind is lost"),
    pytest.param(lose_a_pod, "Pod", "default/fixed", id="a pod is lost"),
    pytest.param(lose_a_place, "Pod", "default/fixed", id="a pod counts nowhere"),
    pytest.param(mistake_a_place, "Pod", "default/fixed", id="a pod counts on another node"),
    pytest.param(lose_a_name, "Pod", "default/fixed", id="a pod is not found by its name"),
    pytest.param(place_a_pod_that_waits, "Pod", "default/waits", id="a pod without a node counts"),
    pytest.param(keep_a_pod_that_is_gone, "Pod", "default/ghost", id="a pod should be gone"),
]


@pytest.mark.parametrize(("damage", "kind", "key"), WRONG_OBJECTS)
@settings(max_examples=15)
@given(random=randoms)
def test_a_wrong_object_is_found_and_corrected(
    damage: Callable[[Cache], None], kind: str, key: str, random: Random
) -> None:
    cluster = WatchedCluster(random)
    cluster.live(random.randrange(30))
    cluster.deliver_all()
    ask(cluster)
    damage(cluster.cache)
    found = compare_in_peace(cluster).differences
    assert [(difference.kind, difference.key) for difference in found if difference.kind != "Table"] == [(kind, key)]
    assert (kind, key) in [recorded[:2] for recorded in cluster.alarms.recorded]
    assert cluster.relisted == [kind]
    assert compare(cluster).differences == []
    cluster.deliver_all()
    assert_true(cluster)


@pytest.mark.parametrize(
    ("damage", "how"),
    [
        pytest.param(mistake_a_place, "is placed on node n2, but listed on n0", id="another node"),
        pytest.param(lose_a_place, "is placed on node (none), but listed on n0", id="no node"),
        pytest.param(place_a_pod_that_waits, "is placed on node n1, but listed on (none)", id="a node too many"),
    ],
)
def test_a_difference_names_the_node_in_the_cache_and_the_one_in_the_list(
    damage: Callable[[Cache], None], how: str
) -> None:
    cluster = WatchedCluster(Random(1))
    damage(cluster.cache)
    found = compare_in_peace(cluster).differences
    assert [difference.how for difference in found if difference.kind == "Pod"] == [how]


def test_a_difference_names_both_uids_of_a_recreated_node() -> None:
    cluster = WatchedCluster(Random(1))
    uid = cluster.cache._objects._observed["Node"]["n0"].uid
    mistake_a_uid(cluster.cache)
    found = compare_in_peace(cluster).differences
    how = f"is cached with UID made-before, but listed with {uid}"
    assert [difference.how for difference in found if difference.kind == "Node"] == [how]


def test_a_difference_names_both_versions_of_a_pod() -> None:
    cluster = WatchedCluster(Random(1))
    cached = cluster.objects["Pod", "default/fixed"].metadata.resource_version
    cluster.put("Pod", make_pod("fixed").label(app="other").node("n0").obj())
    listed = cluster.objects["Pod", "default/fixed"].metadata.resource_version
    how = f"is cached at version {cached}, but listed at {listed}"
    assert compare_in_peace(cluster).undecided == [CacheDifference("Pod", "default/fixed", how)]


class Still:
    """The same cluster, in which nothing happens while it is listed."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster
        self.kinds, self.has_delivered, self.relist = cluster.kinds, cluster.has_delivered, cluster.relist

    def list(self, kind: str) -> tuple[str, Sequence[Object]]:
        return str(10**9), [obj for (its_kind, _), obj in self._cluster.objects.items() if its_kind == kind]


def assert_true(cluster: WatchedCluster) -> None:
    """A table shows the cluster's nodes and its placed pods."""
    pods = [obj for obj in cluster.objects.values() if isinstance(obj, Pod)]
    assumed = {uid for uid, held in cluster.cache.pods().items() if held.state is PodState.ASSUMED}
    with cluster.cache.snapshot("test") as table:
        nodes = {table.nodes.names[row] for row in table.nodes.rows}
        places = {info.uid: table.nodes.names[table.pods.row[table.pods.slot_of[info.uid]]] for info in table.pods}
    assert nodes == {key for kind, key in cluster.objects if kind == "Node"}
    assert {uid: node for uid, node in places.items() if uid not in assumed} == {
        pod.uid: pod.node_name for pod in pods if pod.node_name and pod.uid not in assumed
    }


# ---- what may be wrong with tables


def slot_of_fixed(table: Table) -> int:
    return next(slot for slot, info in enumerate(table.pods.infos) if info and info.pod.name == "fixed")


def miscount_requests(table: Table) -> None:
    table.nodes.requested[0, table.nodes.row_of["n0"]] += 1


def miscount_room(table: Table) -> None:
    table.nodes.allocatable[1, table.nodes.row_of["n1"]] -= 1


def miscount_a_port(table: Table) -> None:
    next(iter(table.ports.in_use().values()))[table.nodes.row_of["n0"]] += 1  # where `fixed` stands


def move_a_node_to_another_zone(table: Table) -> None:
    column = table.nodes.labels["topology.kubernetes.io/zone"]
    row = table.nodes.row_of["n0"]
    column.write(row, "nowhere")


def lose_taints(table: Table) -> None:
    table.nodes.taint_set[table.nodes.row_of["n0"]] = 0 if table.nodes.taint_set[table.nodes.row_of["n0"]] else 1


def hide_a_node(table: Table) -> None:
    table.nodes.present[table.nodes.row_of["n0"]] = False


def miscount_an_answer(table: Table) -> None:
    table.matching(EVERY_POD).by_node[table.nodes.row_of["n1"]] += 1


def miscount_a_total(table: Table) -> None:
    table.matching(EVERY_POD).total += 1


def miscount_terms(table: Table) -> None:
    answer = table.terms.effects_on(table.terms.incoming_pods()[0])
    next(iter(answer.effects.values())).by_node[table.nodes.row_of["n0"]] += 1


def move_a_pod(table: Table) -> None:
    table.pods.row[slot_of_fixed(table)] = table.nodes.row_of["n1"]


def change_a_priority(table: Table) -> None:
    table.pods.priority[slot_of_fixed(table)] += 1


def forget_a_nomination(table: Table) -> None:
    for uid in list(table.nominated["n1"]):
        table.withdraw(uid)


def forget_an_object(table: Table) -> None:
    table.objects.remove("Namespace", "default")


def forget_a_pod(table: Table) -> None:
    del table.pods.slot_of[table.pods.info(slot_of_fixed(table)).uid]


def tear_it_apart(table: Table) -> None:
    table.nodes.row_of["n0"] = 10**6


WRONG_TABLES = [
    pytest.param(miscount_requests, "requested cpu is", id="requests of a node"),
    pytest.param(miscount_room, "allocatable memory is", id="allocatable of a node"),
    pytest.param(miscount_a_port, "port is", id="ports"),
    pytest.param(move_a_node_to_another_zone, "label topology.kubernetes.io/zone is nowhere", id="domains"),
    pytest.param(lose_taints, "taints is", id="taints"),
    pytest.param(hide_a_node, "presence is False, expected True", id="presence"),
    pytest.param(miscount_an_answer, "pods found by", id="a standing answer"),
    pytest.param(miscount_a_total, "total is", id="its total"),
    pytest.param(miscount_terms, "Effect", id="a standing answer about terms"),
    pytest.param(move_a_pod, "node is n1, expected n0", id="the node of a pod"),
    pytest.param(change_a_priority, "priority is 1, expected 0", id="the priority of a pod"),
    pytest.param(forget_a_nomination, "nominated pods is", id="a nomination"),
    pytest.param(forget_an_object, "object is None", id="an object of another kind"),
    pytest.param(forget_a_pod, "pod is None, expected there", id="a pod"),
    pytest.param(tear_it_apart, "cannot be read: IndexError", id="parts that do not fit together"),
]


@pytest.mark.parametrize(("damage", "how"), WRONG_TABLES)
@settings(max_examples=10)
@given(random=randoms)
def test_a_wrong_table_is_found_and_discarded(damage: Callable[[Table], None], how: str, random: Random) -> None:
    cluster = WatchedCluster(random)
    cluster.live(random.randrange(30))
    cluster.deliver_all()
    ask(cluster)
    with cluster.cache.snapshot("damage") as damaged:
        damage(damaged)
    report = compare_in_peace(cluster)
    assert {difference.kind for difference in report.differences} == {"Table"}
    assert any(difference.how.startswith(how) for difference in report.differences), report.differences
    assert report.compared["Table"] == 2
    for _ in range(3):
        with cluster.cache.snapshot("a") as a, cluster.cache.snapshot("b") as b:
            assert damaged not in (a, b)
    assert compare(cluster).differences == []


def test_a_table_that_cannot_be_read_is_a_difference_of_no_object() -> None:
    cluster = WatchedCluster(Random(1))
    ask(cluster)
    with cluster.cache.snapshot("damage") as damaged:
        tear_it_apart(damaged)
    found = compare_in_peace(cluster).differences
    assert [difference.key for difference in found if difference.how.startswith("cannot be read")] == [""]


def test_a_table_that_cannot_take_in_the_next_event_is_discarded() -> None:
    cluster = WatchedCluster(Random(1))
    ask(cluster)
    with cluster.cache.snapshot("damage") as damaged:
        damaged.ports._in_use.clear()  # the ports of a pod that goes cannot be given back
    cluster.remove("Pod", "default/fixed")
    cluster.deliver_all()
    assert {difference.kind for difference in compare(cluster).differences} == {"Table"}
    assert compare(cluster).differences == []


# ---- what can be said, and what not


def test_a_watch_that_is_behind_is_distrusted_without_a_difference() -> None:
    cluster = WatchedCluster(Random(1))
    cluster.put("Node", make_node("new").obj())
    report = compare_in_peace(cluster)
    assert report.differences == []
    assert report.undecided == [CacheDifference("Node", "new", "is listed, but not cached")]
    assert cluster.relisted == ["Node"]


def test_a_watch_that_catches_up_with_the_list_is_trusted() -> None:
    cluster = WatchedCluster(Random(1))
    cluster.put("Node", make_node("new").obj())
    report = Comparer(cluster.cache, Still(cluster), cluster.alarms, lambda _: cluster.deliver_all()).compare()
    assert (report.differences, report.undecided, cluster.relisted) == ([], [], [])


def test_an_object_that_is_listed_during_a_comparison_is_not_a_difference() -> None:
    cluster = WatchedCluster(Random(1))
    node = cluster.objects["Node", "n0"]
    before = cluster.cache.cursor()
    assert not cluster.cache.reported_since(before, ("Node", "n0"))
    cluster.cache.replaced("Node", [each for each in cluster.objects.values() if isinstance(each, Node)])
    assert cluster.cache.reported_since(before, ("Node", "n0"))
    assert not cluster.cache.correct(("Node", "n0"), None, before)
    assert cluster.cache.observed("Node", "n0") == node


def test_a_pod_that_is_being_bound_is_not_compared() -> None:
    cluster = WatchedCluster(Random(1))
    waits = cluster.objects["Pod", "default/waits"]
    info = cluster.cache.find_pod(waits.uid, waits.key)
    assert info is not None
    cluster.cache.assume(info, "n2", lambda _: None)
    assert compare(cluster).differences == []
    cluster.cache.finish_binding(waits.uid)
    assert compare_in_peace(cluster).differences == []
    placement = cluster.cache.placement(waits.uid)
    assert placement is not None
    assert placement.node_name == "n2"


def test_a_comparison_ends_without_a_decision_when_the_process_ends() -> None:
    cluster = WatchedCluster(Random(1))
    cluster.remove("Pod", "default/fixed")
    pauses: list[float] = []

    def ends(seconds: float) -> bool:
        pauses.append(seconds)
        return True

    report = Comparer(cluster.cache, cluster, cluster.alarms, ends).compare()
    assert "Pod" not in {difference.kind for difference in report.differences}
    assert cluster.relisted == []


def test_a_kind_that_cannot_be_listed_is_reported_and_the_others_are_compared() -> None:
    cluster = WatchedCluster(Random(1))

    class Partly(Still):
        def list(self, kind: str) -> tuple[str, Sequence[Object]]:
            if kind == "Node":
                raise ClusterError("no answer in 30 s")
            return super().list(kind)

    report = Comparer(cluster.cache, Partly(cluster), cluster.alarms, lambda _: None).compare()
    assert report.unlisted == {"Node": "no answer in 30 s"}
    assert report.compared["Pod"] == 2
    assert report.differences == []


def test_an_object_that_cannot_be_read_is_not_a_difference() -> None:
    cluster = WatchedCluster(Random(1))
    cluster.put("Pod", make_pod("bad").req(cpu="1Gx").node("n0").obj())
    cluster.deliver_all()
    assert compare(cluster).differences == []


def test_repeated_comparisons_do_not_add_tables() -> None:
    cluster = WatchedCluster(Random(1))
    cluster.cache.refresh(3)
    for _ in range(5):
        assert compare(cluster).compared["Table"] == 3
    assert len(cluster.cache._tables) == 3


def test_a_table_that_a_reader_uses_is_compared_once_it_is_returned() -> None:
    cluster = WatchedCluster(Random(1))
    cluster.cache.refresh(2)
    with ExitStack() as reader:
        reader.enter_context(cluster.cache.snapshot("reader"))
        assert cluster.cache.check_tables(lambda _table, _fresh: True, reader.close) == 2


def test_a_change_during_a_comparison_is_in_both_tables() -> None:
    cluster = WatchedCluster(Random(1))
    cluster.cache.refresh(2)
    sizes: list[tuple[int, int]] = []

    def is_right(table: Table, fresh: Table) -> bool:
        sizes.append((len(table.nodes.rows), len(fresh.nodes.rows)))
        cluster.put("Node", make_node(f"late-{len(sizes)}").obj())
        cluster.deliver_all()
        return True

    cluster.cache.check_tables(is_right, lambda: None)
    assert sizes == [(3, 3), (4, 4)]


def test_a_comparison_that_raises_discards_both_of_its_tables() -> None:
    cluster = WatchedCluster(Random(1))
    cluster.cache.refresh(3)

    def fails(_table: Table, _fresh: Table) -> bool:
        raise MemoryError

    with pytest.raises(MemoryError):
        cluster.cache.check_tables(fails, lambda: None)
    assert len(cluster.cache._tables) == 2
    assert cluster.cache.check_tables(lambda _table, _fresh: True, lambda: None) == 2


def test_a_comparison_that_raises_while_it_fills_its_table_keeps_the_others() -> None:
    cluster = WatchedCluster(Random(1))
    for number in range(100):
        cluster.put("Node", make_node(f"more-{number}").obj())
    cluster.deliver_all()
    cluster.cache.refresh(3)

    def ends() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        cluster.cache.check_tables(lambda _table, _fresh: True, ends)
    assert len(cluster.cache._tables) == 3
    assert cluster.cache.check_tables(lambda _table, _fresh: True, lambda: None) == 3


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Full garbage collections rarely run, so a table in a reference cycle would stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def table_with_reader(cluster: WatchedCluster) -> ref[Table]:
    """The table of the cluster's cache, with a reader that refers to the table."""
    with cluster.cache.snapshot("test") as table:
        table.reader(Devices)
        return ref(table)


def test_a_replaced_table_is_freed_at_once() -> None:
    cluster = WatchedCluster(Random(1))
    known = table_with_reader(cluster)
    with without_garbage_collection():
        compare(cluster)
        assert known() is None


def test_a_table_that_starts_over_frees_the_old_one_at_once() -> None:
    cluster = WatchedCluster(Random(1))
    known = table_with_reader(cluster)
    cluster.cache._changes.restart("Node", {})
    with without_garbage_collection(), cluster.cache.snapshot("next"):
        assert known() is None
