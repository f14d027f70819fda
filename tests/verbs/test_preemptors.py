"""filter waits a moment for the watch where victims were just named: kube-scheduler may know that they are gone."""

from __future__ import annotations

import time
from weakref import ref

import msgspec
import pytest

from extender.cache.cache import Cache
from extender.model.pod import Pod
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.verbs.filter import Filter
from extender.verbs.preempt import Preempt
from extender.verbs.verb import MOST_PODS, PAUSE_SECONDS, SECONDS, RecentPreemptors
from tests.builders import make_node, make_pod
from tests.verbs.cluster import PROFILES, answer, args, cache_of, preemption_args

NODES = [make_node(name).allocatable(cpu="2", memory="16Gi", pods="110").obj() for name in ("n", "m", "other")]
VICTIMS = [make_pod(f"low-{on}").uid(f"low-{on}").node(on).req(cpu="2").obj() for on in ("n", "m", "other")]
PREEMPTOR = make_pod("high").req(cpu="2").priority(100).obj()


class Scheduler:
    """Both verbs over one cache, whose watch delivers the victim's deletion after so many pauses of filter."""

    def __init__(self, pauses: int) -> None:
        self.clock, self.pauses, self._deleted_after = ManualClock(), 0, pauses
        self.cache: Cache = cache_of(*NODES, *VICTIMS)
        preemptors = RecentPreemptors(self.clock, self._pause)
        self.filter = Filter(self.cache, PROFILES, Telemetry(), preemptors=preemptors)
        self.preempt = Preempt(self.cache, PROFILES, preemptors=preemptors)

    def _pause(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.pauses += 1
        if self.pauses == self._deleted_after:
            self.cache.deleted("Pod", msgspec.convert(VICTIMS[0], Pod))

    def preempts(self) -> None:
        answered = answer(self.preempt, preemption_args(PREEMPTOR, {"n": ["low-n"], "m": ["low-m"]}))
        assert answered["NodeNameToMetaVictims"].keys() == {"n", "m"}

    def fits(self, *names: str) -> list[str]:
        return list(answer(self.filter, args(PREEMPTOR, names=list(names)))["NodeNames"])


def test_filter_waits_for_the_deletion_of_the_victims() -> None:
    scheduler = Scheduler(pauses=3)
    scheduler.preempts()
    assert (scheduler.fits("n"), scheduler.pauses) == (["n"], 3)


def test_it_does_not_wait_for_long() -> None:
    scheduler = Scheduler(pauses=1000)
    scheduler.preempts()
    assert scheduler.fits("n") == []
    pauses = scheduler.pauses
    assert pauses == pytest.approx(SECONDS / PAUSE_SECONDS, abs=1)
    assert (scheduler.fits("n"), scheduler.pauses) == ([], pauses)


def test_it_does_not_wait_on_other_nodes_or_for_other_pods() -> None:
    scheduler = Scheduler(pauses=1)
    assert scheduler.fits("n") == []
    scheduler.preempts()
    assert scheduler.fits("other") == []
    assert scheduler.pauses == 0


def test_a_wait_sleeps_for_a_moment() -> None:
    preemptors = RecentPreemptors(ManualClock())
    preemptors.note("high", {"n"})
    began_at = time.monotonic()
    assert preemptors.wait("high", {"n"})
    assert time.monotonic() - began_at >= PAUSE_SECONDS


def test_who_preempted_a_while_ago_is_forgotten_and_of_the_answer_the_names_are_kept() -> None:
    class Victims(dict[str, str]):
        """A map that can be referred to weakly."""

    clock, victims = ManualClock(), Victims(n="low-n")
    preemptors, kept = RecentPreemptors(clock), ref(victims)
    preemptors.note("high", victims.keys())
    del victims
    assert kept() is None
    for number in range(100):
        clock.advance(SECONDS / 10)
        preemptors.note(f"{number}", {"n"})
    assert len(preemptors) < 20


def test_a_pod_that_preempts_again_is_remembered_longer_than_the_others() -> None:
    preemptors = RecentPreemptors(ManualClock(), lambda _: None)
    for number in [*range(MOST_PODS), 0, MOST_PODS]:
        preemptors.note(f"p{number}", ["n"])
    assert [preemptors.wait(uid, ["n"]) for uid in ("p0", "p1")] == [True, False]
