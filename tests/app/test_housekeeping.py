"""What a process does for its cache now and then."""

from __future__ import annotations

import msgspec
import pytest

from extender.app.housekeeping import relist_interrupted
from extender.cache.cache import Cache
from extender.cache.changes import Changes
from extender.model.meta import Object
from extender.model.node import Node
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from tests.builders import make_node


class Lister:
    """A ports.Lister of some kinds; `relisted` are those that it was asked to list again."""

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds
        self.relisted: list[str] = []

    def kinds(self) -> tuple[str, ...]:
        return self._kinds

    def list(self, kind: str) -> tuple[str, tuple[Object, ...]]:
        raise NotImplementedError(kind)

    def relist(self, kind: str, why: str) -> None:
        self.relisted.append(kind)

    def has_delivered(self, kind: str, version: str) -> bool:
        raise NotImplementedError(kind, version)


@pytest.mark.parametrize(
    ("kinds", "relisted"),
    [(("Node", "Pod"), ["Node"]), (("Pod",), [])],
    ids=["the interrupted kind is followed", "it is not followed"],
)
def test_a_kind_of_which_a_change_was_interrupted_is_listed_again(
    monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...], relisted: list[str]
) -> None:
    cache, lister = Cache(ManualClock(), Telemetry()), Lister(*kinds)
    relist_interrupted(cache, lister)
    assert lister.relisted == []
    monkeypatch.setattr(Changes, "note", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cache.changed("Node", msgspec.convert(make_node("n").obj(), Node))
    relist_interrupted(cache, lister)
    assert lister.relisted == relisted
