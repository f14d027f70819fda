"""filter_with_pods_removed on all nodes at once gives the same as removing the pods node by node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.framework.rules import Check, Predicate, Verdict
from extender.framework.status import Refusal
from extender.plugins.inter_pod_affinity import InterPodAffinityFilter
from extender.plugins.pod_topology_spread import PodTopologySpreadFilter
from extender.table import HypotheticalRemovals, Table
from tests.builders import HOSTNAME, ZONE, PodBuilder, make_node, make_pod
from tests.framework.cluster import pod_info, table_of

ZONES = [None, "za", "za", "zb", "zc"]
FAST = {"disk": "ssd"}  # of every other node
LABELS: list[dict[str, str]] = [{"app": "web"}, {"app": "db"}, {"app": "web", "tier": "back"}]
WEB, DB = LABELS[:2]


def plain(pod: PodBuilder) -> PodBuilder:
    return pod


def refusing_web(pod: PodBuilder) -> PodBuilder:
    return pod.anti_affinity(ZONE, labels=WEB)


def refusing_db_nearby(pod: PodBuilder) -> PodBuilder:
    return pod.anti_affinity(HOSTNAME, labels=DB)


placed = st.lists(
    st.tuples(
        st.integers(0, len(ZONES) - 1),
        st.sampled_from(LABELS),
        st.sampled_from([plain, plain, refusing_web, refusing_db_nearby]),
        st.booleans(),  # whether it leaves
    ),
    max_size=14,
)

PREEMPTORS = [
    pytest.param(PodTopologySpreadFilter(), make_pod("p").label(WEB).spread(ZONE, labels=WEB), id="spread over zones"),
    pytest.param(
        PodTopologySpreadFilter(), make_pod("p").label(WEB).spread(HOSTNAME, labels=WEB), id="spread over nodes"
    ),
    pytest.param(
        PodTopologySpreadFilter(),
        make_pod("p").spread(ZONE, labels=WEB, minDomains=3).spread(HOSTNAME, max_skew=2, labels=DB),
        id="two constraints",
    ),
    pytest.param(
        PodTopologySpreadFilter(),
        make_pod("p").label(WEB).node_selector(FAST).spread(ZONE, labels=WEB).spread(HOSTNAME, labels=WEB),
        id="spread over some nodes",
    ),
    pytest.param(InterPodAffinityFilter(), make_pod("p").label(WEB), id="refused by others"),
    pytest.param(InterPodAffinityFilter(), make_pod("p").affinity(ZONE, labels=WEB), id="wants others"),
    pytest.param(InterPodAffinityFilter(), make_pod("p").label(WEB).affinity(ZONE, labels=WEB), id="wants its like"),
    pytest.param(
        InterPodAffinityFilter(),
        make_pod("p").label(WEB).affinity(ZONE, labels=WEB).affinity(HOSTNAME, labels=WEB),
        id="wants its like twice",
    ),
    pytest.param(
        InterPodAffinityFilter(),
        make_pod("p").label(DB).affinity(ZONE, labels=WEB).anti_affinity(HOSTNAME, labels=DB),
        id="wants some and refuses others",
    ),
]


@pytest.mark.parametrize(("predicate", "preemptor"), PREEMPTORS)
@settings(max_examples=25)
@given(pods=placed)
def test_filter_with_pods_removed_equals_a_new_check_for_each_node(
    predicate: Predicate, preemptor: PodBuilder, pods: list[tuple[int, dict[str, str], Any, bool]]
) -> None:
    table = cluster(pods)
    pod = pod_info(preemptor.obj())
    made = predicate.prepare(pod, table)
    if made is None:
        return
    assert isinstance(made, Check)
    leaving = [f"u{i}" for i, (*_, leaves) in enumerate(pods) if leaves]
    gone = HypotheticalRemovals(table, np.array([table.pods.slot_of[uid] for uid in leaving], np.intp))
    verdict = made.filter_with_pods_removed(table.nodes.rows, gone)
    assert verdict is not None
    want = {row: singly(predicate, preemptor, table, row, leaving) for row in table.nodes.rows.tolist()}
    assert refused(verdict, table.nodes.rows) == {row: refusal for row, refusal in want.items() if refusal}


def cluster(pods: list[tuple[int, dict[str, str], Any, bool]]) -> Table:
    nodes = [make_node(f"n{i}").label(FAST if i % 2 else {}) for i in range(len(ZONES))]
    zoned = [node.zone(zone) if zone else node for node, zone in zip(nodes, ZONES, strict=True)]
    standing = [
        terms(make_pod(f"e{i}").uid(f"u{i}").label(labels).node(f"n{node}"))
        for i, (node, labels, terms, _) in enumerate(pods)
    ]
    return table_of(*(node.obj() for node in zoned), *(each.obj() for each in standing))


def singly(predicate: Predicate, preemptor: PodBuilder, table: Table, row: int, leaving: list[str]) -> Refusal | None:
    """Returns True if the predicate, prepared again, accepts the node after its own pods were removed."""
    own = [uid for uid in leaving if table.pods.row[table.pods.slot_of[uid]] == row]
    with table.hypothetically(removed=own):
        made = predicate.prepare(pod_info(preemptor.obj()), table)
        assert not isinstance(made, Refusal)
        return refused(made.refuse(np.array([row])), np.array([row])).get(row) if made else None


def refused(verdict: Verdict, rows: Any) -> dict[int, Refusal]:
    return {int(row): refusal for mask, refusal in verdict for row in rows[mask]}
