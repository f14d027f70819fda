"""A binder for the leader only."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from extender.cluster.election.leader_binder import LeaderBinder, WritesInFlight
from extender.errors import OutcomeUnknown, Refused


class Recorded:
    """A binder that notes its calls, and whether writes were in flight meanwhile."""

    def __init__(self) -> None:
        self.in_flight = WritesInFlight()
        self.calls: list[str] = []
        self.idle_meanwhile: list[bool] = []
        self.error: Exception | None = None

    def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        self.calls.append(f"{namespace}/{name} {uid} {node} {annotations}")
        self.idle_meanwhile.append(self.in_flight.idle())
        if self.error:
            raise self.error


def fenced(leading: bool) -> tuple[LeaderBinder, Recorded]:
    inner = Recorded()
    return LeaderBinder(inner, lambda: leading, inner.in_flight), inner


def test_the_leader_binds() -> None:
    binder, inner = fenced(leading=True)
    binder.bind("default", "p", "u", "n", {"a": "b"})
    assert inner.calls == ["default/p u n {'a': 'b'}"]
    assert (inner.idle_meanwhile, inner.in_flight.idle()) == ([False], True)


def test_a_standby_binds_nothing() -> None:
    binder, inner = fenced(leading=False)
    with pytest.raises(Refused, match="not the leader"):
        binder.bind("default", "p", "u", "n")
    assert (inner.calls, inner.in_flight.idle()) == ([], True)


def test_a_bind_that_failed_is_no_longer_under_way() -> None:
    binder, inner = fenced(leading=True)
    inner.error = OutcomeUnknown("as the test wants it")
    with pytest.raises(OutcomeUnknown):
        binder.bind("default", "p", "u", "n")
    assert inner.in_flight.idle()
