"""Answers that are kept are those that would be found anew, whatever has happened in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.framework.find_fit import find_fit
from extender.framework.profile import Profile
from extender.model.devices.claims import PendingClaim, ResourceClaim
from extender.model.kinds import KINDS
from extender.model.node import Node
from extender.plugins.dynamic_resources.predicate import DynamicResourcesFilter
from extender.table import Table
from extender.table.journal import Journal
from tests.builders import (
    Object,
    make_claim,
    make_device,
    make_node,
    make_pod,
    make_request,
    make_result,
    make_slice,
    with_allocation,
)
from tests.devices.strategies import CLASSES, GPU, NODES, claims, nodes, rules, slices, taken
from tests.framework.cluster import pod_info, table_of

POD = make_pod("p").resource_claim("c").obj()


@dataclass(frozen=True)
class Change:
    """An object that is set, or taken away again."""

    obj: Object
    gone: bool = False


def changes() -> st.SearchStrategy[list[Change]]:
    one = st.builds(Change, st.one_of(slices(), slices(), taken(), nodes(), rules()), st.booleans())
    return st.lists(one, max_size=12)


@settings(max_examples=150, deadline=None)
@given(claims("c"), changes())
def test_kept_answers_are_true(claim: Object, happened: Sequence[Change]) -> None:
    check_kept_answers(claim, happened)


@pytest.fixture(scope="module")
def little_remembered() -> None:
    """Journals forget removed keys at once, and readers begin anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal.__init__, "__defaults__", (1,))
        yield


@settings(max_examples=50, deadline=None)
@given(claims("c"), changes())
def test_answers_are_true_when_little_is_remembered(
    little_remembered: None, claim: Object, happened: Sequence[Change]
) -> None:
    check_kept_answers(claim, happened)


def check_kept_answers(claim: Object, happened: Sequence[Change]) -> None:
    """After every change, the table that has seen it all decides like one that has not."""
    present = {("Node", name): make_node(name).obj() for name in NODES}
    table = table_of(*CLASSES, claim, *present.values())
    for change in happened:
        apply(change, table)
        key = change.obj["kind"], change.obj["metadata"]["name"]
        present.pop(key, None)
        if not change.gone:
            present[key] = change.obj
        assert verdicts(table) == verdicts(table_of(*CLASSES, claim, *present.values()))


def test_what_is_decided_counts_before_the_api_server_has_it() -> None:
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


def test_a_search_without_end_is_given_up() -> None:
    devices = [make_device(f"gpu-{number}", {"rank": number % 7}) for number in range(32)]
    endless = make_claim("c", make_request("r", "gpu", count=8), constraints=[{"distinctAttribute": f"{GPU}/rank"}])
    offered = make_slice("s", GPU, "pool", *devices, allNodes=True)
    reason = 'running "DynamicResources" filter plugin: timed out trying to allocate devices'
    table = table_of(*CLASSES, endless, *(make_node(name).obj() for name in NODES), offered)
    assert verdicts(table) == dict.fromkeys(NODES, reason)


def apply(change: Change, table: Table) -> None:
    """What the cache does when it hears of the change."""
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


def verdicts(table: Table) -> dict[str, str]:
    """Node name -> reason, of the nodes that cannot have the devices."""
    fit = find_fit(Profile("test", [DynamicResourcesFilter()], ()), pod_info(POD), table, table.nodes.rows)
    return {table.nodes.names[row]: refusal.reasons[0] for row, refusal in fit.refused()}
