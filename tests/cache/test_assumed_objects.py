"""Readers see an assumed object instead of the observed one until it is written, discarded or outdated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from extender.cache.cache import Cache
from extender.errors import Outdated
from extender.model.devices import PendingClaim
from extender.model.storage import ClaimReference, PersistentVolume
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from tests.builders import make_claim, make_pv, make_request

replace = msgspec.structs.replace
KIND = PersistentVolume.__name__


def volume(version: int, claim: str = "") -> PersistentVolume:
    built = msgspec.convert(make_pv("v"), PersistentVolume)
    reference = ClaimReference(namespace="default", name=claim, uid=claim) if claim else None
    metadata = replace(built.metadata, resource_version=str(version))
    return replace(built, metadata=metadata, spec=replace(built.spec, claim_ref=reference))


def recreated(obj: PersistentVolume) -> PersistentVolume:
    return replace(obj, metadata=replace(obj.metadata, uid="another"))


def claim_of(found: object) -> str:
    assert isinstance(found, PersistentVolume)
    return found.spec.claim_ref.name if found.spec.claim_ref else ""


def cache_with(*objects: PersistentVolume) -> Cache:
    cache = Cache(ManualClock(), Telemetry())
    for each in objects:
        cache.changed(KIND, each)
    return cache


Step = Callable[[Cache], Any]


def intend(version: int) -> Step:
    return lambda cache: cache.assume_object(volume(version, "intended"))


def write(version: int) -> Step:
    return lambda cache: cache.confirm_object(volume(version, "intended"))


def tell(version: int, claim: str = "") -> Step:
    return lambda cache: cache.changed(KIND, volume(version, claim))


def intend_anew(version: int) -> Step:
    return lambda cache: cache.assume_object(volume(version, "anew"))


def list_meanwhile(version: int) -> Step:
    return lambda cache: cache.replaced(KIND, [volume(version)], asked_at=ManualClock().monotonic())


def list_others_later(cache: Cache) -> None:
    cache.replaced("PersistentVolumeClaim", [], asked_at=ManualClock().monotonic() + 1)


def list_later(version: int, claim: str = "") -> Step:
    return lambda cache: cache.replaced(KIND, [volume(version, claim)], asked_at=ManualClock().monotonic() + 1)


def abandon(cache: Cache) -> None:
    cache.restore_object(KIND, "v")


@pytest.mark.parametrize(
    ("steps", "seen"),
    [
        pytest.param([intend(5)], "intended", id="intended"),
        pytest.param([intend(5), tell(5)], "intended", id="the same version is observed again"),
        pytest.param([intend(5), tell(6, "other")], "other", id="a newer version is observed"),
        pytest.param([intend(5), abandon], "", id="discarded"),
        pytest.param([intend(5), tell(6), abandon], "", id="discarded too late"),
        pytest.param([intend(5), write(8)], "intended", id="written"),
        pytest.param([intend(5), write(8), tell(7)], "intended", id="an earlier version is observed after the write"),
        pytest.param([intend(5), write(8), tell(8, "intended")], "intended", id="the write is confirmed"),
        pytest.param(
            [intend(5), write(8), tell(9, "other")], "other", id="a later version is observed after the write"
        ),
        pytest.param([intend(5), tell(9, "other"), write(8)], "other", id="it is observed before the write returns"),
        pytest.param([intend(5), write(8), abandon], "intended", id="a written object cannot be discarded"),
        pytest.param([intend(5), write(8), intend_anew(8), abandon], "intended", id="not by others either"),
        pytest.param([intend(5), write(8), intend_anew(8), tell(8, "intended")], "anew", id="another assumes more"),
        pytest.param([intend(5), write(8), list_later(5)], "", id="the server has lost the write"),
        pytest.param([intend(5), write(8), list_others_later], "intended", id="another kind is listed later"),
        pytest.param(
            [intend(5), write(8), list_later(9, "other")], "other", id="the server has lost the write and continues"
        ),
        pytest.param([intend(5), list_meanwhile(5), write(8)], "intended", id="listed before the write returns"),
        pytest.param(
            [intend(5), write(8), list_meanwhile(5)], "intended", id="the list was requested before the write"
        ),
    ],
)
def test_readers_see_assumed_objects_until_the_watch_is_newer(steps: list[Step], seen: str) -> None:
    cache = cache_with(volume(5))
    for step in steps:
        step(cache)
        with cache.snapshot("test") as old:
            assert old.objects.get(PersistentVolume, "v") == cache.effective(KIND, "v")
    assert claim_of(cache.effective(KIND, "v")) == seen
    cache.refresh(2)
    with cache.snapshot("test"), cache.snapshot("another") as fresh:
        assert claim_of(fresh.objects.get(PersistentVolume, "v")) == seen


def test_observed_returns_the_object_without_assumptions() -> None:
    cache = cache_with(volume(5))
    cache.assume_object(volume(5, "intended"))
    assert cache.observed(KIND, "v") == volume(5)
    assert cache.objects(KIND) == {"v": volume(5)}


@pytest.mark.parametrize("gone", [lambda cache: cache.deleted(KIND, volume(5)), lambda cache: cache.replaced(KIND, [])])
def test_a_deleted_object_leaves_no_assumption(gone: Step) -> None:
    cache = cache_with(volume(5))
    cache.assume_object(volume(5, "intended"))
    gone(cache)
    assert cache.effective(KIND, "v") is None
    with cache.snapshot("test") as table:
        assert table.objects.get(PersistentVolume, "v") is None


def test_an_object_that_is_deleted_before_the_write_returns_stays_deleted() -> None:
    cache = cache_with(volume(5))
    cache.assume_object(volume(5, "intended"))
    cache.deleted(KIND, volume(5))
    cache.confirm_object(volume(8, "intended"))
    assert cache.effective(KIND, "v") is None


@pytest.mark.parametrize(
    "known",
    [
        pytest.param([], id="gone"),
        pytest.param([volume(6)], id="changed"),
        pytest.param([recreated(volume(5))], id="recreated by a restored API server"),
    ],
)
def test_an_object_that_changed_since_the_decision_cannot_be_assumed(known: list[PersistentVolume]) -> None:
    cache = cache_with(*known)
    with pytest.raises(Outdated):
        cache.assume_object(volume(5, "intended"))
    assert cache.effective(KIND, "v") == (known[0] if known else None)


def test_an_object_of_a_kind_without_a_watch_is_assumed_once_until_it_is_restored() -> None:
    cache = cache_with()
    pending = msgspec.convert(make_claim("c", make_request("r", "gpu")), PendingClaim)
    cache.assume_object(pending)
    with pytest.raises(Outdated):
        cache.assume_object(pending)
    with cache.snapshot("test") as table:
        assert list(table.objects.all(PendingClaim)) == ["default/c"]
    cache.restore_object("PendingClaim", "default/c")
    with cache.snapshot("test") as table:
        assert list(table.objects.all(PendingClaim)) == []


class Heard:
    def __init__(self) -> None:
        self.changes: list[tuple[str, str | None, str | None]] = []

    def changed(self, kind: str, before: Any, after: Any) -> None:
        self.changes.append((kind, before and claim_of(before), after and claim_of(after)))

    def displaced(self, *_: Any) -> None:
        pass

    def missed(self) -> None:
        pass


def test_a_listener_learns_of_discarded_objects_and_not_of_assumed_ones() -> None:
    cache, heard = cache_with(volume(5)), Heard()
    cache.listen(heard)
    cache.assume_object(volume(5, "intended"))
    assert heard.changes == []
    cache.restore_object(KIND, "v")
    assert heard.changes == [(KIND, "intended", "")]
    cache.restore_object(KIND, "v")
    assert len(heard.changes) == 1


@pytest.mark.parametrize(
    ("then", "recorded"),
    [
        pytest.param(tell(3, "written"), [("", "written")], id="the watch shows it"),
        pytest.param(tell(5, "later"), [("", "written"), ("written", "later")], id="the watch skips it"),
        pytest.param(lambda cache: cache.deleted(KIND, volume(5)), [("written", None)], id="it is deleted"),
        pytest.param(list_others_later, [], id="another kind is listed later"),
    ],
)
def test_a_listener_learns_of_written_objects(then: Step, recorded: list[tuple[str, str | None]]) -> None:
    """Otherwise the pods that were rejected because of the written object would not be tried again."""
    cache, heard = cache_with(volume(1)), Heard()
    cache.confirm_object(volume(3, "written"))
    cache.listen(heard)
    then(cache)
    assert [(before, after) for _, before, after in heard.changes] == recorded
