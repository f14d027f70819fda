"""A scheduling loop is not started with a profile that it would not keep to."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from extender.app.loop import LoopRules, cycles_of
from extender.errors import ConfigurationError
from extender.framework.permit import Permits, Wait
from extender.model.pod import Pod
from extender.plugins.users.binding import permit, reserve
from extender.policy.library import Library
from extender.policy.loading import read
from extender.policy.policy import Policy
from extender.queue.entries import QueuedPod, Tier
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import ManualClock
from extender.scheduler.other_extenders import Extenders
from extender.table import NodeInfo
from tests.builders import make_node
from tests.policy.configurations import profile
from tests.queue.queueing import QueueRecorder, info, refused
from tests.verbs.cluster import cache_of


def test_what_cannot_be_switched_off_is_refused_by_name() -> None:
    policy = read(profile(plugins={"queueSort": {"disabled": [{"name": "PrioritySort"}]}}))
    with pytest.raises(ConfigurationError, match="PrioritySort cannot be disabled at queueSort without a rule"):
        cycles_of(policy, None, Random(1), Extenders())
    assert cycles_of(read(profile()), None, Random(1), Extenders()).keys() == {"default-scheduler"}


class Loop:
    """The rules of a loop with one pod that they refused."""

    def __init__(self, policy: Policy | None = None) -> None:
        policy = policy or read(profile())
        self.rules = LoopRules(policy, policy.features, lambda policy: cycles_of(policy, None, Random(1), Extenders()))
        self.cache = cache_of(make_node("n1").obj())
        self.permits = Permits(self.cache.snapshot)
        self.queue = PriorityQueue(QueueRecorder(), ManualClock(), {})
        self.queue.add(info("p"))
        pod = self.queue.pop(0)
        assert isinstance(pod, QueuedPod)
        self.queue.add_unschedulable(pod, refused("NodeName"))

    def adopt(self, policy: Policy) -> None:
        self.rules.adopt(policy, self.queue, self.permits)

    def waiting(self) -> dict[Tier, int]:
        return {tier: len(pods) for tier, pods in self.queue.pods().items() if pods}


def test_another_policy_is_adopted_and_the_pods_tried_again_that_the_one_before_refused() -> None:
    loop = Loop()
    before = loop.rules.cycles["default-scheduler"]
    loop.adopt(read(profile(plugins={"multiPoint": {"disabled": [{"name": "NodeName"}]}})))
    now = loop.rules.cycles["default-scheduler"]
    names = [{rule.name for rule in cycle.profile.predicates} for cycle in (before, now)]
    assert names[0] - names[1] == {"NodeName"}
    assert loop.rules.profiles.all == (now.profile,)
    assert loop.waiting() == {Tier.BACKOFF: 1}


EXTENDER = {"urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter"}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        pytest.param({"podMaxBackoffSeconds": 20}, "podMaxBackoffSeconds", id="backoff"),
        pytest.param({"extenders": [EXTENDER]}, "extenders", id="extenders"),
        pytest.param({"profiles": [{"schedulerName": "other"}]}, "profiles: schedulerName", id="names"),
        pytest.param({"featureGates": {"DRAFractionalCapacityRange": True}}, "featureGates", id="features"),
    ],
)
def test_what_a_running_loop_was_made_for_cannot_change(fields: dict[str, Any], path: str) -> None:
    loop = Loop()
    before = dict(loop.rules.cycles)
    with pytest.raises(ConfigurationError) as caught:
        loop.adopt(read({**profile(), **fields}))
    assert caught.value.faults == (f"{path}: cannot change while the process runs, restart it",)
    assert (loop.rules.cycles, loop.waiting()) == (before, {Tier.UNSCHEDULABLE: 1})


def holding() -> Library:
    """A library with a rule that reserves something, as another import of its module makes it."""
    rule = reserve(lambda pod, node: True)
    rule.unreserve(lambda pod, node: None)
    return Library(rules={"Holds": rule})


def test_a_rule_that_holds_what_pods_have_reserved_cannot_be_replaced_but_taken_out() -> None:
    document, library = profile(plugins={"reserve": {"enabled": [{"name": "Holds"}]}}), holding()
    loop = Loop(read(document, library))
    loop.adopt(read({**document, "percentageOfNodesToScore": 7}, library))
    with pytest.raises(ConfigurationError) as caught:
        loop.adopt(read(document, holding()))
    place = f"its unreserve is in {__file__}"
    assert caught.value.faults == (f"Holds ({place}): cannot change while the process runs, restart it",)
    loop.adopt(read(profile()))


def test_pods_wait_no_longer_for_a_rule_that_is_taken_out() -> None:
    def waits(pod: Pod, node: NodeInfo) -> Wait:
        return Wait(900)

    library = Library(rules={name: permit(waits) for name in ("Stays", "Goes")})
    before, after = (
        read(profile(plugins={"permit": {"enabled": [{"name": name} for name in names]}}), library)
        for names in (("Stays", "Goes"), ("Stays",))
    )
    loop = Loop(before)
    pods = {"a": before, "b": after}
    permits = [loop.permits.run(by.profiles[0].permit, info(name).pod, "n1") for name, by in pods.items()]
    loop.adopt(after)
    assert [str(each and each.rejection) for each in permits] == ["rule Goes is no longer in the policy", "None"]
