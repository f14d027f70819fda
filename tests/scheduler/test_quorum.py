"""Members of a gang wait for each other at Permit."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import pytest

from extender import Node, Pod, Wait, permit, reserve
from extender.errors import BindingFailed
from extender.plugins.gang_scheduling import NAME as GANG_SCHEDULING
from extender.plugins.registry import default_profile
from extender.scheduler.group_scheduling import Quorum
from tests.builders import make_pod_group
from tests.plugins.users.failures import Remembered
from tests.scheduler.test_pod_groups import ON, member, node
from tests.scheduler.world import World


@dataclass
class AtPermit:
    """A permit that is allowed, waits, or is rejected."""

    state: str

    def ready(self) -> bool:
        if self.state == "rejected":
            raise BindingFailed("not now", "rule")
        return self.state == "allowed"


def two_of(placed: Collection[str]) -> Collection[str]:
    return placed if len(placed) >= 2 else frozenset()


@pytest.mark.parametrize(
    ("others", "is_ready"),
    [
        pytest.param([None], True, id="no rule waits"),
        pytest.param([AtPermit("allowed")], True, id="allowed"),
        pytest.param([AtPermit("waiting")], False, id="the other waits"),
        pytest.param([AtPermit("waiting"), AtPermit("rejected")], False, id="one waits and one is rejected"),
        pytest.param([AtPermit("allowed"), AtPermit("rejected")], True, id="enough without the rejected one"),
    ],
)
def test_a_member_is_bound_once_enough_members_are_allowed(others: list[Any], *, is_ready: bool) -> None:
    permits: dict[str, Any] = {"own": None} | {str(number): each for number, each in enumerate(others)}
    assert Quorum("own", permits, two_of).ready() is is_ready


def test_a_member_is_rejected_when_too_few_others_are_left() -> None:
    permits: dict[str, Any] = {"own": None, "other": AtPermit("rejected")}
    with pytest.raises(BindingFailed, match="too many members of the gang were rejected at Permit") as raised:
        Quorum("own", permits, two_of).ready()
    assert raised.value.plugin == GANG_SCHEDULING


def test_a_gang_waits_for_five_minutes() -> None:
    overdue = Quorum("own", {}, two_of).overdue()
    assert str(overdue) == "rejected due to timeout after waiting 5m0s at plugin GangScheduling"
    assert (overdue.plugin, Quorum.timeout_seconds) == (GANG_SCHEDULING, 300.0)


def test_no_member_is_bound_while_a_rule_may_still_reject_another() -> None:
    @permit
    def holds_b(pod: Pod, node: Node) -> Wait | None:
        return Wait(60) if pod.name == "b" else None

    profile = replace(default_profile(), permit=[holds_b.rule("holds-b", {}, Remembered())])
    world = World(make_pod_group("workers", 2), node("n1"), *map(member, "ab"), features=ON, profile=profile)
    world.settle()
    assert [world.node_of(name) for name in "ab"] == ["", ""]
    (waits,) = world.permits.pending("holds-b")
    waits.allow("holds-b")
    world.settle()
    assert [world.node_of(name) for name in "ab"] == ["n1", "n1"]


def test_a_member_whose_sibling_is_rejected_at_permit_gives_back_what_it_reserved() -> None:
    held: list[str] = []

    @reserve
    def licence(pod: Pod, node: Node) -> str | None:
        held.append(pod.name)
        return "no licence" if pod.name == "b" else None

    @licence.unreserve
    def _give_back(pod: Pod, node: Node) -> None:
        held.remove(pod.name)

    profile = replace(default_profile(), permit=[licence.rule("licence", {}, Remembered())])
    world = World(make_pod_group("workers", 2), node("n1"), *map(member, "ab"), features=ON, profile=profile)
    world.settle()
    assert ([world.node_of(name) for name in "ab"], world.cache.overview().assumed) == (["", ""], [])
    assert held == []
