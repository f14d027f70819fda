"""A pod that was refused everywhere, and that fits by now, is found without anybody's asking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from extender.cache.cache import Cache
from extender.framework.permit import NO_PERMITS
from extender.framework.profile import Profile, Profiles
from extender.model.pod import Pod
from extender.plugins.node_unschedulable import NodeUnschedulable
from extender.plugins.users.function import put_in_force
from extender.plugins.users.handle import RunningProcess
from extender.plugins.users.predicate import predicate
from extender.plugins.users.rule_calls import OfflineHost
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.verbs.filter import LONGEST_SECONDS, MOST_AT_ONCE, WOKEN_SECONDS, Filter, RefusedPods
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
        self._filter = Filter(self.cache, PROFILES, Telemetry(), refused=self.refused)

    def ask(self) -> list[str]:
        names: list[str] = answer(self._filter, args(POD, names=["n"]))["NodeNames"]
        return names

    def tell(self, obj: dict[str, Any]) -> None:
        tell(self.cache, [obj])

    def after(self, seconds: float) -> list[str]:
        """The pods that are found once so much time has passed."""
        self.clock.advance(seconds)
        return [pod.name for pod in self.refused.fitting()]


def test_a_rejected_pod_that_fits_now_is_found_once_if_it_was_not_retried() -> None:
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


def test_the_time_begins_again_when_the_scheduler_asks_again() -> None:
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


class LicenceServer:
    """Outside the cluster; a rule asks it, and wakes the pods that it refused."""

    def __init__(self) -> None:
        self.left = 0
        self.while_asked: Callable[[], object] = lambda: None

    def take(self) -> bool:
        left = self.left
        self.while_asked()
        return left > 0


class Licensed:
    """Filter by one rule of a user's, which asks a server, over a cluster of one node."""

    def __init__(self, pods: int = 1) -> None:
        self.server, self.clock = LicenceServer(), ManualClock()
        self.pods = [make_pod(f"p{number}").uid(f"p{number}").obj() for number in range(pods)]
        self.cache: Cache = cache_of(node("4"), *self.pods)
        self.rule = predicate(lambda pod, node: self.server.take())
        rules = [NodeUnschedulable(), self.rule.rule("rules:licensed", {}, OfflineHost())]
        profiles = Profiles([Profile("p", rules, [])])
        self.refused = RefusedPods(self.cache, profiles, self.clock, after_seconds=0)
        put_in_force(profiles.all, RunningProcess(self.refused.wake, NO_PERMITS))
        self._filter = Filter(self.cache, profiles, Telemetry(), refused=self.refused)

    def ask(self, *others: dict[str, Any]) -> None:
        """Asks about the node, and about nodes that only the request knows."""
        for pod in self.pods:
            answer(self._filter, args(pod, nodes=[node("4"), *others]))

    def woken(self, after_seconds: float = WOKEN_SECONDS) -> int:
        """How many pods are found, so long after they were refused."""
        self.clock.advance(after_seconds)
        return len(list(self.refused.fitting()))


def test_a_rule_wakes_the_pods_that_it_refused() -> None:
    licensed = Licensed()
    licensed.ask()
    licensed.server.left = 1
    assert licensed.woken() == 0
    licensed.rule.wake()
    assert [licensed.woken(0), licensed.woken()] == [1, 0]


def test_a_rule_wakes_pods_though_another_refused_the_nodes_that_only_the_request_knows() -> None:
    licensed = Licensed()
    licensed.ask(make_node("template").unschedulable().obj())
    licensed.server.left = 1
    licensed.rule.wake()
    assert licensed.woken() == 1


def test_another_rule_wakes_none_of_them() -> None:
    licensed = Licensed()
    licensed.ask()
    licensed.server.left = 1
    licensed.refused.wake("rules:other")
    assert licensed.woken() == 0


@pytest.mark.parametrize(("namespace", "woken"), [("default", 1), ("other", 0)])
def test_a_rule_wakes_only_pods_of_the_namespace_that_it_names(namespace: str, woken: int) -> None:
    licensed = Licensed()
    licensed.ask()
    licensed.server.left = 1
    licensed.refused.wake("rules:licensed", namespace)
    assert licensed.woken() == woken


def test_a_pod_that_is_woken_and_still_does_not_fit_is_left_alone() -> None:
    licensed = Licensed()
    licensed.ask()
    licensed.rule.wake()
    assert licensed.woken() == 0


def test_a_wake_while_the_pod_is_decided_on_is_not_lost() -> None:
    licensed = Licensed()
    licensed.server.while_asked = licensed.rule.wake
    licensed.ask()
    licensed.server.left = 1
    assert licensed.woken() == 1


def test_no_more_pods_are_woken_at_once_than_the_api_server_and_the_scheduler_can_bear() -> None:
    licensed = Licensed(pods=2 * MOST_AT_ONCE)
    licensed.ask()
    licensed.server.left = 1
    licensed.rule.wake()
    assert [licensed.woken(), licensed.woken(), licensed.woken()] == [MOST_AT_ONCE, MOST_AT_ONCE, 0]


def test_deleted_pods_do_not_delay_the_check_of_others_twice() -> None:
    licensed = Licensed(pods=MOST_AT_ONCE + 1)
    licensed.ask()
    for pod in licensed.pods[:MOST_AT_ONCE]:
        licensed.cache.deleted("Pod", msgspec.convert(pod, Pod))
    licensed.server.left = 1
    found = []
    for _ in range(2):
        licensed.rule.wake()
        found.append(licensed.woken())
    assert found == [0, 1]


def test_a_pod_that_others_refuse_is_woken_less_and_less_often_and_once_a_minute_still() -> None:
    licensed = Licensed()
    licensed.server.while_asked = lambda: None
    for seconds in (1, 2, 4, 8, 16, 32, 64, 64):
        licensed.server.left = 0
        licensed.ask()
        licensed.server.left = 1
        licensed.rule.wake()
        assert (licensed.woken(seconds - 1), licensed.woken(1)) == (0, 1)


@pytest.mark.parametrize("while_asked", [False, True])
def test_other_rules_have_every_refused_pod_judged_again(while_asked: bool) -> None:
    licensed = Licensed()
    licensed.rule.wake()  # an earlier wake must not hide the later one
    if while_asked:
        licensed.server.while_asked = licensed.refused.wake_all
    licensed.ask()
    licensed.server.left = 1
    if not while_asked:
        licensed.refused.wake_all()
    assert licensed.woken() == 1
