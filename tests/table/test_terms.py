"""The effects of placed pods' affinity terms on a pod always equal a comparison with every term."""

from __future__ import annotations

from collections import Counter
from itertools import count as numbers
from typing import Any

import msgspec
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.model.node import Node
from extender.model.pod import Pod
from extender.table import PodInfo, Table
from extender.table.labels import LabelColumns
from extender.table.podinfo import Group
from extender.table.terms import Effect, IncomingPod, TermEffects, TermKind, Terms, held_terms
from tests.builders import HOSTNAME, ZONE, PodBuilder, expression, make_node, make_pod

ROWS = 20  # more than the first capacity, so that the sums grow
PROD = frozenset({("env", "prod")})
ASKINGS = [
    IncomingPod(Group("default", frozenset({("app", "web")})), frozenset()),
    IncomingPod(Group("default", frozenset({("app", "db"), ("tier", "back")})), PROD),
    IncomingPod(Group("other", frozenset()), PROD),
]


def with_no_terms(pod: PodBuilder) -> PodBuilder:
    return pod


def refusing_web(pod: PodBuilder) -> PodBuilder:
    return pod.anti_affinity(HOSTNAME, labels={"app": "web"})


def of_two_minds(pod: PodBuilder) -> PodBuilder:
    return pod.affinity(ZONE, weight=5, labels={"app": "web"}).anti_affinity(ZONE, weight=7, labels={"app": "web"})


def refusing_twice(pod: PodBuilder) -> PodBuilder:
    term: dict[str, Any] = {"namespaceSelector": {}, "labels": {"app": "db"}}
    return pod.anti_affinity(ZONE, **term).anti_affinity(ZONE, **term)


def wanting_prod(pod: PodBuilder) -> PodBuilder:
    return pod.affinity(ZONE, namespaceSelector={"matchLabels": {"env": "prod"}}).affinity(HOSTNAME, weight=3)


def refusing_all_but_web(pod: PodBuilder) -> PodBuilder:
    pod.anti_affinity(ZONE, expressions=[expression("app", "NotIn", "web"), expression("tier", "DoesNotExist")])
    return pod.anti_affinity(ZONE, weight=3, expressions=[expression("app", "NotIn", "db")], namespaceSelector={})


_NUMBERS = numbers()
KINDS_OF_PODS = [refusing_all_but_web, with_no_terms, refusing_web, of_two_minds, refusing_twice, wanting_prod]


class TermsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.pods: dict[str, tuple[PodInfo, str]] = {}
        self.asked: set[IncomingPod] = set()

    @rule(name=st.sampled_from(["n0", "n1", "elsewhere"]), labels=st.sampled_from([{}, {ZONE: "z"}, {HOSTNAME: "h"}]))
    def set_node(self, name: str, labels: dict[str, str]) -> None:
        self.table.set_node(msgspec.convert(make_node(name).label(labels).obj(), Node))

    @rule(name=st.sampled_from(["n0", "n1", "elsewhere"]))
    def remove_node(self, name: str) -> None:
        self.table.remove_node(name)

    @rule(
        uid=st.integers(0, 12),
        row=st.integers(0, ROWS),
        kind=st.sampled_from(KINDS_OF_PODS),
        namespace=st.sampled_from(["default", "other"]),
    )
    def place(self, uid: int, row: int, kind: Any, namespace: str) -> None:
        pod = PodInfo(msgspec.convert(kind(make_pod("p", namespace).uid(f"u{uid}")).obj(), Pod))
        self.table.place(pod, f"n{row}")
        self.pods[pod.uid] = (pod, f"n{row}")

    @rule(uid=st.integers(0, 12))
    def take_away(self, uid: int) -> None:
        self.table.take_away(f"u{uid}")
        self.pods.pop(f"u{uid}", None)

    @rule(asking=st.sampled_from(ASKINGS))
    def ask(self, asking: IncomingPod) -> None:
        self.asked.add(asking)

    @rule()
    def forget_by_asking_for_many_others(self) -> None:
        for i in range(520):
            kept_effects(self.table.terms, IncomingPod(Group("x", frozenset({("i", str(i))})), frozenset()))

    @invariant()
    def answers_equal_asking_every_pod(self) -> None:
        for asking in self.asked:
            recorded = {
                effect: count.by_node
                for effect, count in self.table.terms.effects_on(asking).effects.items()
                if count.amounts
            }
            want = self.recount(asking)
            assert recorded.keys() == want.keys()
            for effect, by_row in want.items():
                assert {row: amount for row, amount in enumerate(recorded[effect].tolist()) if amount} == {
                    row: amount for row, amount in by_row.items() if amount
                }

    @invariant()
    def slots_tell_what_each_pod_adds(self) -> None:
        for asking in self.asked:
            for effect, count in self.table.terms.effects_on(asking).effects.items():
                amounts = count.amount_by_slot(self.table.terms.slots)[self.table.pods.terms]
                standing = self.table.pods.row >= 0
                sums = np.bincount(self.table.pods.row[standing], amounts[standing], self.table.nodes.capacity)
                assert np.array_equal(sums, count.by_node), effect

    def recount(self, asking: IncomingPod) -> dict[Effect, Counter[int]]:
        sums: dict[Effect, Counter[int]] = {}
        for pod, name in self.pods.values():
            for held in held_terms(pod):
                has_domains = held.effect.topology_key in self.table.nodes.labels
                if has_domains and asking.is_matched_by(held.term):
                    sums.setdefault(held.effect, Counter())[self.table.nodes.row_of[name]] += held.amount
        return sums


TermsMachine.TestCase.settings = settings(max_examples=settings().max_examples // 4, stateful_step_count=30)
test_terms_machine = TermsMachine.TestCase


def kept_effects(terms: Terms, incoming: IncomingPod) -> TermEffects:
    """Asks for two such pods with another one between them, so that the sums are stored."""
    terms.effects_on(incoming)
    terms.effects_on(IncomingPod(Group(f"between {next(_NUMBERS)}", frozenset()), frozenset()))
    return terms.effects_on(incoming)


def test_an_answer_in_use_is_kept() -> None:
    terms = Table().terms
    first = kept_effects(terms, ASKINGS[0])
    for i in range(1000):
        kept_effects(terms, IncomingPod(Group("x", frozenset({("i", str(i))})), frozenset()))
        assert terms.effects_on(ASKINGS[0]) is first


def test_filter_and_score_share_an_answer_that_is_kept_once_another_pod_needs_it() -> None:
    terms = Table().terms
    asking, other = ASKINGS[:2]
    answer = terms.effects_on(asking)
    assert terms.effects_on(asking) is answer
    assert terms.incoming_pods() == ()
    terms.effects_on(other)
    kept = terms.effects_on(asking)
    assert terms.incoming_pods() == (asking,)
    assert terms.effects_on(asking) is kept


def test_a_large_cluster_keeps_the_effects_of_many_terms_for_few_pods() -> None:
    labels, holder = LabelColumns(65536), make_pod("holder")
    for key in range(30):
        holder.anti_affinity(f"key-{key}", labels={"app": "web"})
    labels.write(0, {}, {f"key-{key}": "v" for key in range(30)})
    terms = Terms(65536, labels)
    terms.add(PodInfo(msgspec.convert(holder.obj(), Pod)), 1)
    for number in range(10):
        web = frozenset({("app", "web"), ("number", str(number))})
        answer = kept_effects(terms, IncomingPod(Group("default", web), frozenset()))
        assert [count.total for count in answer.effects.values()] == [1] * 30
    assert len(terms.incoming_pods()) == 2, "32 MiB have room for 64 counts"


def test_weights_of_preferred_anti_affinity_are_negative_and_required_terms_count_one() -> None:
    pod = of_two_minds(refusing_web(make_pod("p"))).obj()
    held = held_terms(PodInfo(msgspec.convert(pod, Pod)))
    assert [(term.effect, term.amount) for term in held] == [
        (Effect(TermKind.REQUIRED_ANTI_AFFINITY, HOSTNAME), 1),
        (Effect(TermKind.PREFERRED, ZONE), 5),
        (Effect(TermKind.PREFERRED, ZONE), -7),
    ]


def test_pods_with_long_labels_replace_one_another() -> None:
    terms = Terms(4, LabelColumns(4))
    for number in range(20):
        kept_effects(terms, IncomingPod(Group("default", frozenset({(f"{number}", "x" * 400_000)})), frozenset()))
    assert 1 < len(terms.incoming_pods()) < 12


def placed(terms: Terms, pod: PodBuilder) -> int:
    return terms.add(PodInfo(msgspec.convert(pod.obj(), Pod)), 1)


def test_a_term_whose_topology_key_no_node_has_has_no_effect() -> None:
    terms, holder = Table().terms, make_pod("holder")
    for key in range(500):
        holder.anti_affinity(f"key-{key}")
    placed(terms, holder)
    assert terms.effects_on(IncomingPod(Group("default", frozenset()), frozenset())).effects == {}


def test_terms_of_one_pod_with_the_same_effect_share_a_sum() -> None:
    labels = LabelColumns(4)
    labels.write(0, {}, {ZONE: "z"})
    terms, holder = Terms(4, labels), make_pod("holder")
    for number in range(500):
        holder.anti_affinity(ZONE, expressions=[expression(f"k{number}", "DoesNotExist")])
    slot = placed(terms, holder)
    effects = kept_effects(terms, ASKINGS[0]).effects
    assert [count.total for count in effects.values()] == [500]
    (pods,) = terms.pods_by_terms.values()
    assert list(pods.sums.values()) == [500]
    terms.remove(slot, 1)
    assert not terms.effects_on(ASKINGS[0]).effects[Effect(TermKind.REQUIRED_ANTI_AFFINITY, ZONE)].amounts


def test_many_terms_drop_the_kept_effects_which_are_computed_when_needed() -> None:
    labels = LabelColumns(4)
    labels.write(0, {}, {ZONE: "z"})
    terms, holder = Terms(4, labels), make_pod("holder")
    for number in range(200):
        kept_effects(terms, IncomingPod(Group("default", frozenset({("i", str(number))})), frozenset()))
        holder.anti_affinity(ZONE, expressions=[expression(f"k{number}", "DoesNotExist")])
    placed(terms, holder)
    assert terms.incoming_pods() == ()
    assert [count.total for count in terms.effects_on(ASKINGS[0]).effects.values()] == [200]
