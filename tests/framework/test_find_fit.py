"""Filtering: the first refusal counts, rules can name the only nodes, and nominated pods keep their room."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from extender.framework.find_fit import find_fit
from extender.framework.profile import Profile
from extender.framework.rules import Check, Predicate, Verdict
from extender.framework.status import Code, Refusal, failed, unresolvable, unschedulable
from extender.plugins.inter_pod_affinity import InterPodAffinityFilter
from extender.plugins.node_affinity import NodeAffinityFilter
from extender.plugins.node_ports import NodePorts
from extender.plugins.node_resources_fit import NodeResourcesFitFilter
from extender.table import PodInfo, Table
from extender.table.labels import Rows
from tests.builders import ZONE, make_node, make_pod, node_term
from tests.framework.cluster import pod_info, refusals, table_of

NODES = [make_node(f"n{i}").allocatable(cpu=str(i), pods="10").obj() for i in range(4)]
POD = make_pod("p").obj()


@dataclass(frozen=True)
class Refusing(Check):
    """Refuses the rows of these nodes, and counts the rows that it has checked."""

    name: str
    nodes: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    outright: Refusal | None = None

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        object.__setattr__(self, "_table", table)
        return self.outright or self

    def refuse(self, rows: Rows) -> Verdict:
        table: Table = self._table  # type: ignore[attr-defined]  # set by prepare
        mask = np.isin(rows, [table.nodes.row_of[node] for node in self.nodes])
        return [(mask, unschedulable(self.name, f"refused by {self.name}"))]


def test_the_first_refusal_is_reported() -> None:
    found = refusals([Refusing("A", ("n1",)), Refusing("B", ("n1", "n2"))], POD, *NODES)
    assert {name: refusal.plugin for name, refusal in found.items()} == {"n1": "A", "n2": "B"}


def test_a_refusal_at_prepare_refuses_every_node() -> None:
    hopeless = unresolvable("B", "never")
    found = refusals([Refusing("A", ("n1",)), Refusing("B", outright=hopeless)], POD, *NODES)
    assert found == dict.fromkeys(["n0", "n1", "n2", "n3"], hopeless)


def test_the_final_one_of_two_refusals_at_prepare_counts() -> None:
    perhaps, never = unschedulable("A", "perhaps"), unresolvable("B", "never")
    found = refusals([Refusing("A", outright=perhaps), Refusing("B", outright=never)], POD, *NODES)
    assert set(found.values()) == {never}


def test_only_nodes_that_all_rules_name_can_fit() -> None:
    rules: list[Predicate] = [
        Refusing("A", only=frozenset({"n1", "n2"})),
        Refusing("B", only=frozenset({"n2", "ghost"})),
    ]
    found = refusals(rules, POD, *NODES)
    assert found.keys() == {"n0", "n1", "n3"}
    assert found["n0"] == unresolvable("", "node(s) didn't satisfy plugin(s) [A B]")


def test_no_node_fits_if_rules_name_different_nodes() -> None:
    rules: list[Predicate] = [Refusing("A", only=frozenset({"n1"})), Refusing("B", only=frozenset({"n2"}))]
    assert set(refusals(rules, POD, *NODES).values()) == {
        unresolvable("", "node(s) didn't satisfy plugin(s) [A B] simultaneously")
    }


def test_a_node_must_fit_with_and_without_the_pods_nominated_to_it() -> None:
    awaited = make_pod("awaited").req(cpu="2").priority(5).nominated("n3").obj()
    pod = make_pod("p").req(cpu="2").priority(5).obj()
    found = refusals(NodeResourcesFitFilter(), pod, *NODES, awaited)
    assert found["n3"] == unschedulable("NodeResourcesFit", "Insufficient cpu")
    assert "n2" not in found
    more_important = make_pod("p").req(cpu="2").priority(6).obj()
    assert "n3" not in refusals(NodeResourcesFitFilter(), more_important, *NODES, awaited)


@dataclass(frozen=True)
class Failing(Refusing):
    """Ends in an error on these nodes."""

    def refuse(self, rows: Rows) -> Verdict:
        return [(mask, failed(self.name, "error")) for mask, _ in Refusing.refuse(self, rows)]


def test_an_error_on_a_node_without_room_for_the_pods_nominated_to_it_does_not_count() -> None:
    awaited = make_pod("awaited").req(cpu="2").priority(5).nominated("n3").obj()
    table = table_of(*NODES, awaited)
    profile = Profile("", [NodeResourcesFitFilter(), Failing("Broken", ("n3",))], [])
    pod = pod_info(make_pod("p").req(cpu="2").priority(5).obj())
    fit = find_fit(profile, pod, table, table.nodes.rows)
    assert (fit.error, table.nodes.names_of(fit.feasible)) == (None, ["n2"])
    more_important = pod_info(make_pod("p").req(cpu="2").priority(6).obj())
    assert find_fit(profile, more_important, table, table.nodes.rows).error == failed("Broken", "error")


def test_a_node_that_no_rule_names_is_judged_beside_the_pods_nominated_to_it() -> None:
    """As the pod's own nominated node is judged, before the others."""
    awaited = make_pod("awaited").req(cpu="1").priority(5).nominated("n3").obj()
    table = table_of(*NODES, awaited)
    rules: list[Predicate] = [Refusing("A", only=frozenset({"n2"})), NodeResourcesFitFilter(), InterPodAffinityFilter()]
    pod = pod_info(make_pod("p").req(cpu="1").priority(5).anti_affinity(ZONE, labels={"app": "other"}).obj())
    row = np.array([table.nodes.row_of["n3"]], np.intp)
    assert list(find_fit(Profile("", rules, []), pod, table, row, narrowed=False).feasible) == list(row)


def test_an_error_on_a_nominated_node_that_no_rule_names_does_not_count() -> None:
    table = table_of(*NODES)
    profile = Profile(
        "", [Refusing("A", only=frozenset({"n0"})), Failing("Broken", ("n3",)), Refusing("B", ("n0",))], []
    )
    pod = pod_info(make_pod("p").obj())
    fit = find_fit(profile, pod, table, table.nodes.rows)
    nominated = find_fit(profile, pod, table, np.array([table.nodes.row_of["n3"]], np.intp), narrowed=False)
    assert nominated.error == failed("Broken", "error")
    fit.add_earlier(nominated)
    assert (fit.error, fit.narrowed_by) == (None, ["A"])


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param([Refusing("B", ("n0", "n1", "n2", "n3"))], id="no rule names nodes"),
        pytest.param(
            [Refusing("A", only=frozenset({"n1"})), Refusing("B", only=frozenset({"n2"}))],
            id="rules name different nodes",
        ),
    ],
)
def test_the_nominated_nodes_own_refusal_counts_only_if_rules_leave_other_nodes(rules: list[Refusing]) -> None:
    table = table_of(*NODES)
    pod, row = pod_info(POD), np.array([table.nodes.row_of["n3"]], np.intp)
    fit = find_fit(Profile("", rules, []), pod, table, table.nodes.rows)
    before = dict(fit.refused()), list(fit.narrowed_by), len(fit.refusals)
    fit.add_earlier(find_fit(Profile("", [Refusing("B", ("n3",))], []), pod, table, row, narrowed=False))
    assert (dict(fit.refused()), list(fit.narrowed_by), len(fit.refusals)) == before


@pytest.mark.parametrize(
    ("nominated_by", "names", "refused"),
    [
        pytest.param("mine", (), True, id="its own"),
        pytest.param("other", (), False, id="another's"),
        pytest.param("other", ("mine", "other"), True, id="another profile's of the same scheduler"),
        pytest.param("other", ("mine", "third"), False, id="another's than all profiles"),
    ],
)
def test_a_scheduler_leaves_room_for_its_own_nominated_pods(
    nominated_by: str, names: tuple[str, ...], refused: bool
) -> None:
    awaited = make_pod("awaited").scheduler(nominated_by).req(cpu="2").priority(5).nominated("n3").obj()
    table = table_of(*NODES, awaited)
    profile = Profile("mine", [NodeResourcesFitFilter()], (), scheduler_names=frozenset(names))
    fit = find_fit(profile, pod_info(make_pod("p").scheduler("mine").req(cpu="2").obj()), table, table.nodes.rows)
    assert (table.nodes.row_of["n3"] not in fit.feasible) is refused


@pytest.mark.parametrize("apart", [False, True], ids=["alone", "with anti-affinity in its zone"])
def test_pods_nominated_to_many_nodes_count_on_their_own_node_only(apart: bool) -> None:
    nodes = [make_node(f"n{i}").zone("z").allocatable(cpu=str(i), pods="10").obj() for i in range(9)]
    awaited = [
        make_pod(f"awaited-{i}").req(cpu="1").label(app=f"{i % 3}").host_port(80 + i % 2).priority(5).nominated(f"n{i}")
        for i in range(8)
    ]
    pod = make_pod("p").req(cpu="2").host_port(80).priority(5)
    table = table_of(*nodes, *(each.obj() for each in awaited))
    info = pod_info((pod.anti_affinity(ZONE, labels={"app": "1"}) if apart else pod).obj())
    profile = Profile("p", [NodePorts(), NodeResourcesFitFilter(), InterPodAffinityFilter()], ())
    together = find_fit(profile, info, table, table.nodes.rows)
    for position, row in enumerate(table.nodes.rows):
        assert together.refusal(position) == find_fit(profile, info, table, np.array([row])).refusal(0)
    plugins = {refusal.plugin for _, refusal in together.refused()}
    assert plugins == {"NodePorts", "NodeResourcesFit", *(["InterPodAffinity"] if apart else [])}


def test_nominated_pods_leave_no_trace_in_the_table() -> None:
    table = table_of(*NODES, make_pod("awaited").req(cpu="2").priority(5).nominated("n3").obj())
    before = table.nodes.requested.copy()
    find_fit(Profile("p", [NodeResourcesFitFilter()], ()), pod_info(POD), table, table.nodes.rows)
    assert np.array_equal(table.nodes.requested, before)


def test_only_the_given_rows_are_checked() -> None:
    table = table_of(*NODES)
    rows = np.array([table.nodes.row_of["n2"], table.nodes.row_of["n0"]])
    affinity = make_pod("p").require_node(
        node_term(fields=[{"key": "metadata.name", "operator": "In", "values": ["n2"]}])
    )
    fit = find_fit(Profile("p", [NodeAffinityFilter()], ()), pod_info(affinity.obj()), table, rows)
    assert fit.feasible.tolist() == [rows[0]]
    assert fit.with_code(Code.UNSCHEDULABLE_AND_UNRESOLVABLE).tolist() == [rows[1]]
    assert fit.by_plugin() == {"": 1}
