"""Allocations: kept results equal new ones, and a search that takes too long ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.devices import allocations
from extender.devices.allocator import Allocator, DeviceResults
from extender.devices.plan import DevicePlan, plan_devices
from extender.errors import DeadlineExceeded
from extender.framework.find_fit import find_fit
from extender.framework.profile import Profile
from extender.model.devices import PendingClaim, ResourceClaim
from extender.model.kinds import KINDS
from extender.model.node import Node
from extender.plugins.dynamic_resources import DynamicResourcesFilter
from extender.runtime.clock import Deadline, SystemClock
from extender.table import Table
from extender.table.journal import Journal
from tests.builders import (
    Object,
    expression,
    make_claim,
    make_device,
    make_node,
    make_pod,
    make_request,
    make_result,
    make_slice,
    node_term,
    with_allocation,
)
from tests.devices.strategies import ATTRIBUTES, CLASSES, GPU, NODES, claims, nodes, rules, slices, taken
from tests.framework.cluster import pod_info, table_of
from tests.stock.oracle import Oracle

pytestmark = pytest.mark.slow

POD = make_pod("p").resource_claim("c").obj()


@dataclass(frozen=True)
class Change:
    """An object that is set or removed."""

    obj: Object
    gone: bool = False


def changes() -> st.SearchStrategy[list[Change]]:
    one = st.builds(Change, st.one_of(slices(), slices(), taken(), nodes(), rules()), st.booleans())
    return st.lists(one, max_size=12)


@settings(max_examples=150, deadline=None)
@given(claims("c"), changes())
def test_kept_allocations_equal_new_ones(claim: Object, happened: Sequence[Change]) -> None:
    check_kept_answers(claim, happened)


@pytest.fixture(scope="module")
def little_remembered() -> Iterator[None]:
    """Journals drop removed keys at once, so that readers start over."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal.__init__, "__defaults__", (1,))
        yield


@settings(max_examples=50, deadline=None)
@given(claims("c"), changes())
def test_kept_allocations_equal_new_ones_after_the_journal_has_dropped_keys(
    little_remembered: None, claim: Object, happened: Sequence[Change]
) -> None:
    check_kept_answers(claim, happened)


def check_kept_answers(claim: Object, happened: Sequence[Change]) -> None:
    """After every change, a table that has followed all changes decides like a new one."""
    present = {("Node", name): make_node(name).obj() for name in NODES}
    table = table_of(*CLASSES, claim, *present.values())
    for change in happened:
        apply(change, table)
        key = change.obj["kind"], change.obj["metadata"]["name"]
        present.pop(key, None)
        if not change.gone:
            present[key] = change.obj
        assert verdicts(table) == verdicts(table_of(*CLASSES, claim, *present.values()))


@settings(max_examples=300, deadline=None)
@given(
    claims("c"),
    st.lists(slices(), max_size=4, unique_by=lambda obj: obj["metadata"]["name"]),
    st.lists(taken(), max_size=2, unique_by=lambda obj: obj["metadata"]["name"]),
    st.lists(rules(), max_size=1),
)
def test_nodes_are_judged_together_as_each_is_alone(
    claim: Object, offered: list[Object], others: list[Object], tainting: list[Object]
) -> None:
    """A single node is searched; several nodes are compared by their columns, if the claim is a plain one."""
    objects = [*CLASSES, claim, *(make_node(name).obj() for name in NODES), *offered, *others, *tainting]
    alone = [verdicts(table_of(*objects), row=row) for row in range(len(NODES))]
    assert verdicts(table_of(*objects)) == {name: reason for found in alone for name, reason in found.items()}


def test_a_plain_claim_is_searched_for_on_the_chosen_node_only(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = []

    class Counted(Allocator):
        def run(self) -> DeviceResults | None:
            searches.append(self)
            return super().run()

    monkeypatch.setattr(allocations, "Allocator", Counted)
    claim = make_claim("c", make_request("r", "gpu", f"{ATTRIBUTES}.rank == 1", count=2))
    nodes = [make_node(name).obj() for name in "abcdef"]
    slices = [offered(name, 4, lambda i: i % 2, nodeName=name) for name in "abcde"]
    table = table_of(*CLASSES, claim, *nodes, *slices)
    assert verdicts(table) == {"f": "cannot allocate all claims"}
    assert not searches
    plan = plan_devices(pod_info(POD), table, table.nodes.row_of["c"], str)
    assert isinstance(plan, DevicePlan)
    assert [result.device for result in plan.allocate[0][1].results] == ["gpu-1", "gpu-3"]
    assert len(searches) == 1


def test_a_pending_allocation_counts_before_the_api_server_has_it() -> None:
    claim, other = (make_claim(name, make_request("r", "gpu")) for name in ("c", "other"))
    table = table_of(*CLASSES, make_node("a").obj(), claim, other, make_slice("s", GPU, "a", "gpu-0", nodeName="a"))
    not_all = {"a": "cannot allocate all claims"}
    assert verdicts(table) == {}
    decided = with_allocation(other, make_result("a", "gpu-0"))
    table.set_object("PendingClaim", msgspec.convert(decided, PendingClaim))
    assert verdicts(table) == not_all
    table.set_object("ResourceClaim", msgspec.convert(decided, ResourceClaim))
    table.remove_object("PendingClaim", "default/other")
    assert verdicts(table) == not_all
    table.set_object("ResourceClaim", msgspec.convert(other, ResourceClaim))
    assert verdicts(table) == {}
    own = with_allocation(claim, make_result("a", "gpu-0"))
    table.set_object("PendingClaim", msgspec.convert(own, PendingClaim))
    assert verdicts(table) == {"a": "resource claim default/c is in the process of being allocated"}


class HastyClock(SystemClock):
    """A clock that advances by six seconds each time it is read."""

    def __init__(self) -> None:
        self._looks = count()

    def monotonic(self) -> float:
        return 6.0 * next(self._looks)


@pytest.mark.parametrize("looks", range(1, 8))
def test_a_deadline_that_passes_while_devices_are_counted_loses_no_change(looks: int) -> None:
    """`looks`: how often the clock is read before the deadline passes."""
    claim = make_claim("c", make_request("r", "gpu"))
    nodes = [make_node(name).label(disk="ssd" if name < "c" else "hdd").obj() for name in "abcd"]
    on_ssd = {"nodeSelectorTerms": [node_term(expression("disk", "In", "ssd"))]}
    slices = [offered(name, 2, lambda i: i, nodeSelector=on_ssd) for name in ("one", "two")]
    table = table_of(*CLASSES, claim, *nodes, *slices)
    with suppress(DeadlineExceeded), table.until(Deadline(HastyClock(), 6.0 * looks)):
        verdicts(table)
    assert verdicts(table) == dict.fromkeys("cd", "cannot allocate all claims")


def offered(name: str, number: int, *attributes: Callable[[int], object], **fields: Any) -> Object:
    """Returns a slice with that many devices, whose attributes are functions of their numbers."""
    kinds = ("rank", "serial")
    devices = [
        make_device(f"gpu-{i}", dict(zip(kinds, (each(i) for each in attributes), strict=False))) for i in range(number)
    ]
    return make_slice(name, GPU, name, *devices, **fields)


def distinct(*attributes: str) -> list[Object]:
    return [{"distinctAttribute": f"{GPU}/{attribute}"} for attribute in attributes]


def test_an_endless_search_ends_on_each_node_independently() -> None:
    """Eleven devices with different ranks are needed; only the last node has eleven ranks."""
    claim = make_claim("c", make_request("r", "gpu", count=11), constraints=distinct("rank", "serial"))
    nodes = [make_node(name).obj() for name in "abcdef"]
    hard = [offered(name, 60, lambda i: i % 10, lambda i: i, nodeName=name) for name in "abcde"]
    easy = offered("f", 11, lambda i: i, lambda i: i, nodeName="f")
    rule = DynamicResourcesFilter(clock=HastyClock())
    reason = 'running "DynamicResources" filter plugin: timed out trying to allocate devices'
    assert verdicts(table_of(*CLASSES, claim, *nodes, *hard, easy), rule) == dict.fromkeys("abcde", reason)


@pytest.mark.parametrize(
    ("requests", "constraints", "devices", "fits"),
    [
        pytest.param([make_request("r", "gpu", count=17)], [], offered("s", 16, int), False, id="17 of 16"),
        pytest.param([make_request("r", "gpu", count=16)], [], offered("s", 16, int), True, id="16 of 16"),
        pytest.param(
            [make_request("any", "gpu"), make_request("model", "gpu", f"{ATTRIBUTES}.rank == 1", count=13)],
            [],
            offered("s", 14, lambda i: int(i < 13)),
            True,
            id="any, and 13 of one model, where the last is of another",
        ),
        pytest.param(
            [make_request("any", "gpu", count=2), make_request("model", "gpu", f"{ATTRIBUTES}.rank == 1", count=13)],
            [],
            offered("s", 14, lambda i: int(i < 13)),
            False,
            id="two of any, and 13 of one model",
        ),
        pytest.param(
            [make_request("r", "gpu", count=8)],
            distinct("rank"),
            offered("s", 32, lambda i: i % 7),
            False,
            id="eight ranks of seven",
        ),
        pytest.param(
            [make_request("r", "gpu", count=9)],
            [{"matchAttribute": f"{GPU}/rank"}],
            offered("s", 32, lambda i: i % 4),
            False,
            id="nine of one rank, where there are eight of each",
        ),
        pytest.param(
            [make_request("r", "gpu", count=8)],
            [{"matchAttribute": f"{GPU}/rank"}],
            offered("s", 30, lambda i: (i + 2) % 4),
            True,
            id="eight of one rank, where only the later ranks have as many",
        ),
    ],
)
class TestHardSearches:
    """They end soon, because branches that cannot lead to a solution are skipped."""

    @staticmethod
    def objects(requests: list[Object], constraints: list[Object], devices: Object) -> list[Object]:
        claim = make_claim("c", *requests, constraints=constraints)
        return [*CLASSES, claim, make_node("a").obj(), {**devices, "spec": {**devices["spec"], "nodeName": "a"}}]

    def test_here(self, requests: list[Object], constraints: list[Object], devices: Object, fits: bool) -> None:
        found = verdicts(table_of(*self.objects(requests, constraints, devices)))
        assert found == ({} if fits else {"a": "cannot allocate all claims"})

    @pytest.mark.stock
    def test_as_stock(
        self, requests: list[Object], constraints: list[Object], devices: Object, fits: bool, oracle: Oracle
    ) -> None:
        answer = oracle.answer(self.objects(requests, constraints, devices), POD)
        assert answer["filter"]["a"].get("reasons") == (None if fits else ["cannot allocate all claims"])


def apply(change: Change, table: Table) -> None:
    """Changes the table as the cache does."""
    obj = msgspec.convert(change.obj, KINDS[change.obj["kind"]].type)
    match change.gone, obj:
        case True, Node():
            table.remove_node(obj.name)
        case False, Node():
            table.set_node(obj)
        case True, _:
            table.remove_object(change.obj["kind"], obj.key)
        case _:
            table.set_object(change.obj["kind"], obj)


def verdicts(table: Table, rule: DynamicResourcesFilter | None = None, row: int | None = None) -> dict[str, str]:
    """Returns node name -> reason for the nodes that cannot provide the devices; of all nodes, or of one `row`."""
    rules = [rule or DynamicResourcesFilter()]
    rows = table.nodes.rows if row is None else table.nodes.rows[[row]]
    fit = find_fit(Profile("test", rules, ()), pod_info(POD), table, rows)
    return {table.nodes.names[row]: refusal.reasons[0] for row, refusal in fit.refused()}
