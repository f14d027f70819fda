"""A pod that was refused everywhere, and that fits by now, is found without anybody's asking."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.cache.cache import Cache
from extender.model.pod import Pod
from extender.runtime.clock import ManualClock
from extender.runtime.ports import NullTelemetry
from extender.verbs.filter import Filter
from extender.verbs.refused_pods import LONGEST_SECONDS, RefusedPods
from tests.builders import make_node, make_pod
from tests.verbs.cluster import PROFILES, answer, args, cache_of, tell

AFTER_SECONDS = 15.0
POD = make_pod("p").uid("p").req(cpu="1").obj()


def node(cpu: str) -> dict[str, Any]:
    return make_node("n").allocatable(cpu=cpu, memory="16Gi", pods="110").obj()


class Webhook:
    """Filter over a cluster of one node, which is too small for the pod at first."""

    def __init__(self, after_seconds: float = AFTER_SECONDS) -> None:
        self.clock = ManualClock()
        self.cache: Cache = cache_of(node("500m"), POD)
        self.refused = RefusedPods(self.cache, PROFILES, self.clock, after_seconds)
        self._filter = Filter(self.cache, PROFILES, NullTelemetry(), refused=self.refused)

    def ask(self) -> list[str]:
        names: list[str] = answer(self._filter, args(POD, names=["n"]))["NodeNames"]
        return names

    def tell(self, obj: dict[str, Any]) -> None:
        tell(self.cache, [obj])

    def after(self, seconds: float) -> list[str]:
        """The pods that are found once so much time has passed."""
        self.clock.advance(seconds)
        return [pod.name for pod in self.refused.fitting()]


def test_a_pod_that_fits_by_now_is_found_once_when_nobody_has_asked_again() -> None:
    webhook = Webhook()
    assert webhook.ask() == []
    webhook.tell(node("4"))
    assert webhook.after(AFTER_SECONDS - 1) == []
    assert webhook.after(1) == ["p"]
    assert webhook.after(LONGEST_SECONDS) == []


def test_a_pod_that_still_does_not_fit_is_left_alone() -> None:
    webhook = Webhook()
    webhook.ask()
    assert webhook.after(AFTER_SECONDS) == []


def test_the_time_begins_anew_when_the_scheduler_asks_again() -> None:
    webhook = Webhook()
    webhook.ask()
    webhook.clock.advance(AFTER_SECONDS - 1)
    webhook.ask()
    webhook.tell(node("4"))
    assert webhook.after(1) == []
    assert webhook.after(AFTER_SECONDS) == ["p"]


@pytest.mark.parametrize("ends", ["passes", "is bound", "is deleted"])
def test_a_pod_that_waits_no_longer_is_forgotten(ends: str) -> None:
    webhook = Webhook()
    webhook.ask()
    webhook.tell(node("4"))
    if ends == "passes":
        assert webhook.ask() == ["n"]
    elif ends == "is bound":
        webhook.tell(make_pod("p").uid("p").req(cpu="1").node("n").obj())
    else:
        webhook.cache.deleted("Pod", msgspec.convert(POD, Pod))
    assert webhook.after(AFTER_SECONDS) == []


def test_a_pod_that_others_refuse_is_found_less_and_less_often() -> None:
    webhook = Webhook()
    for seconds in (15, 30, 60, 120, 240):
        webhook.tell(node("500m"))
        webhook.ask()
        webhook.tell(node("4"))
        assert (webhook.after(seconds - 1), webhook.after(1)) == ([], ["p"])
    webhook.tell(node("500m"))
    webhook.ask()
    webhook.tell(node("4"))
    assert webhook.after(10 * LONGEST_SECONDS) == []


def test_it_can_be_switched_off() -> None:
    webhook = Webhook(after_seconds=0)
    webhook.ask()
    webhook.tell(node("4"))
    assert webhook.after(LONGEST_SECONDS) == []
