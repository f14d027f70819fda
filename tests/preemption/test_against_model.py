"""The dry run on all nodes at once equals a plain model of SelectVictimsOnNode, node by node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from extender.framework.find_fit import awaited_pods, find_fit, prepare, run
from extender.framework.profile import Profile
from extender.framework.rules import Check, Predicate, Verdict
from extender.framework.status import Code, Refusal
from extender.preemption.evaluator import preempt
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.labels import Rows
from tests.builders import HOSTNAME, ZONE, Object, PodBuilder, make_pod
from tests.framework.cluster import pod_info, table_of
from tests.preemption.clusters import RULES, node, preemptor, victim

NODES = ["n0", "n1", "n2", "n3"]


@dataclass(frozen=True, slots=True)
class Shortsighted:
    """A rule that cannot filter many nodes at once with pods removed."""

    rule: Predicate

    @property
    def name(self) -> str:
        return self.rule.name

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        made = self.rule.prepare(pod, table)
        return _Shortsighted(made) if isinstance(made, Check) else made


class _Shortsighted(Check):
    def __init__(self, check: Check) -> None:
        self._check = check
        self.only, self.sees_pods = check.only, check.sees_pods

    def refuse(self, rows: Rows) -> Verdict:
        return self._check.refuse(rows)

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> Verdict | None:
        return None


def model(profile: Profile, pod: PodInfo, table: Table, name: str) -> list[str]:
    """Returns the victims on one node, by removing pods from the table and adding them again."""
    row = table.nodes.row_of[name]
    lesser = [info for info in map(table.pods.info, table.pods.on(row).tolist()) if info.priority < pod.priority]
    lesser.sort(key=lambda info: (-info.priority, info.pod.status.start_time, info.pod.namespace, info.pod.name))
    away = [info.uid for info in lesser]
    if not lesser or not fits_without(profile, pod, table, name, away):
        return []
    for info in lesser:
        without_it = [uid for uid in away if uid != info.uid]
        if fits_without(profile, pod, table, name, without_it):
            away = without_it
    return away


def fits_without(profile: Profile, pod: PodInfo, table: Table, name: str, away: list[str]) -> bool:
    row = np.array([table.nodes.row_of[name]])
    awaited = [(info, name) for info in awaited_pods(profile, pod, table).by_row().get(int(row[0]), ())]
    with table.hypothetically(removed=away):
        alone = run(prepare(profile, pod, table), table, row)
        with table.hypothetically(placed=awaited):
            together = run(prepare(profile, pod, table), table, row)
    return len(alone.feasible) == len(together.feasible) == 1


LABELS = st.fixed_dictionaries({"app": st.sampled_from(["web", "db"])})


@st.composite
def standing_pods(draw: st.DrawFn) -> list[Object]:
    pods = []
    for number in range(draw(st.integers(1, 14))):
        cpu, priority = draw(st.sampled_from(["0", "1", "2"])), draw(st.sampled_from([0, 10, 100]))
        pod = victim(f"p{number}", draw(st.sampled_from(NODES)), cpu, priority, draw(st.integers(0, 3)))
        pods.append(_with_demands(draw, pod.label(draw(LABELS))).obj())
    return pods


@st.composite
def waiting_pods(draw: st.DrawFn) -> list[Object]:
    return [
        _with_demands(draw, make_pod(f"w{number}").req(cpu="1").priority(draw(st.sampled_from([10, 50, 100]))))
        .label(draw(LABELS))
        .nominated(draw(st.sampled_from(NODES)))
        .obj()
        for number in range(draw(st.integers(0, 2)))
    ]


@st.composite
def preemptors(draw: st.DrawFn) -> Object:
    pod = preemptor(draw(st.sampled_from(["1", "3", "4"])), 50).label(draw(LABELS))
    if draw(st.booleans()):
        pod.spread(draw(st.sampled_from([HOSTNAME, ZONE])), labels=draw(LABELS))
    if draw(st.booleans()):
        pod.affinity(draw(st.sampled_from([HOSTNAME, ZONE])), labels=draw(LABELS))
    return _with_demands(draw, pod).obj()


def _with_demands(draw: st.DrawFn, pod: PodBuilder) -> PodBuilder:
    if draw(st.integers(0, 3)) == 0:
        pod.host_port(80, ip=draw(st.sampled_from([None, "10.0.0.1"])))
    if draw(st.integers(0, 3)) == 0:
        pod.anti_affinity(draw(st.sampled_from([HOSTNAME, ZONE])), labels=draw(LABELS))
    return pod


def one_holder_a_port(pods: list[Object]) -> list[Object]:
    """Leaves at most one user of a port on each node; another test has two."""
    seen: set[str] = set()
    kept = []
    for pod in pods:
        name = pod["spec"].get("nodeName", "")
        if pod["spec"]["containers"][0].get("ports") and name:
            if name in seen:
                continue
            seen.add(name)
        kept.append(pod)
    return kept


@given(standing_pods(), waiting_pods(), preemptors(), st.booleans())
def test_the_dry_run_decides_like_the_model(
    standing: list[Object], waiting: list[Object], pod: Object, shortsighted: bool
) -> None:
    nodes = [node(name).zone(f"z{i % 2}").obj() for i, name in enumerate(NODES)]
    table, info = table_of(*nodes, *one_holder_a_port(standing), *waiting), pod_info(pod)
    profile = Profile("test", tuple(map(Shortsighted, RULES)) if shortsighted else RULES, ())
    slots = dict(table.pods.slot_of)
    fit = find_fit(profile, info, table, table.nodes.rows)
    candidates = preempt(profile, info, table, fit).candidates
    assert table.pods.slot_of == slots
    asked = [rule for rule in RULES if rule.prepare(info, table) is not None]  # upstream Skip: the others stay out
    for row in table.nodes.rows.tolist():
        name = table.nodes.names[row]
        helps = row in fit.with_code(Code.UNSCHEDULABLE)
        want = model(Profile("model", asked, ()), info, table, name) if helps else []
        got = [gone.uid for gone in candidates[name].victims] if name in candidates else []
        assert got == want
