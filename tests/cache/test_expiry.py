"""An assumed pod expires only after a survey has shown that the cache missed no bind of it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from extender.cache.cache import Cache
from extender.cache.expiry import SURVEY_SECONDS, Expiry, PodSurvey
from extender.errors import OutcomeUnknown
from extender.model.pod import Pod
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.table import PodInfo
from tests.cache.test_cache import TTL, node, pod


class Watch:
    """Holds events back; its surveys compare the pods there are with those it has shown.

    Attributes:
        missed: UIDs of pods of which a survey has a newer version.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache, self._backlog = cache, list[str]()
        self._made = self._told = 0
        self.surveys, self.missed = 0, set[str]()
        self.error: Exception | None = None

    def place(self, name: str) -> None:
        """The API server has bound the pod; the watch has not shown it yet."""
        self._backlog.append(name)
        self._made += 1

    def tell_next(self) -> None:
        self._cache.changed("Pod", pod(self._backlog.pop(0), "n"))
        self._told += 1

    def survey(self) -> PodSurvey:
        self.surveys += 1
        if self.error:
            raise self.error
        return Asked(self, self._made)

    def has_delivered(self, count: int) -> bool:
        return self._told >= count


@dataclass
class Asked:
    """A PodSurvey."""

    watch: Watch
    there_are: int

    def confirmed(self) -> bool:
        return self.watch.has_delivered(self.there_are)

    def shows_newer(self, uid: str, pod: Pod | None) -> bool:
        return uid in self.watch.missed


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cache(clock: ManualClock) -> Cache:
    cache = Cache(clock, Telemetry(), TTL)
    cache.changed("Node", node("n"))
    return cache


@pytest.fixture
def watch(cache: Cache) -> Watch:
    return Watch(cache)


@pytest.fixture
def expiry(cache: Cache, watch: Watch, clock: ManualClock) -> Expiry:
    return Expiry(cache, watch.survey, clock)


def bind(cache: Cache, *names: str) -> None:
    for name in names:
        cache.assume(PodInfo(pod(name)), "n")
        cache.finish_binding(pod(name).uid)


def test_a_pod_that_was_not_bound_expires(cache: Cache, watch: Watch, expiry: Expiry, clock: ManualClock) -> None:
    bind(cache, "p")
    clock.advance(TTL - 1)
    assert (expiry.sweep(), watch.surveys) == ([], 0)
    clock.advance(1)
    assert expiry.sweep() == ["default/p"]
    assert (expiry.sweep(), watch.surveys) == ([], 1)


def test_a_pod_that_a_late_event_confirms_does_not_expire_before_it(
    cache: Cache, watch: Watch, expiry: Expiry, clock: ManualClock
) -> None:
    bind(cache, "first", "second", "lost")
    watch.place("first")
    watch.place("second")
    clock.advance(TTL)
    assert expiry.sweep() == []
    watch.tell_next()
    assert expiry.sweep() == []
    watch.tell_next()
    assert expiry.sweep() == ["default/lost"]
    assert cache.size().assumed_pods == 0
    assert cache.size().pods == 2


def test_a_pod_that_became_overdue_after_a_survey_waits_for_the_next(
    cache: Cache, watch: Watch, expiry: Expiry, clock: ManualClock
) -> None:
    bind(cache, "early")
    watch.place("elsewhere")
    clock.advance(2)
    bind(cache, "late")
    clock.advance(TTL - 2)
    assert expiry.sweep() == []
    clock.advance(3)
    watch.place("late")
    watch.tell_next()
    assert expiry.sweep() == ["default/early"]
    assert expiry.sweep() == []
    watch.tell_next()
    assert (expiry.sweep(), cache.size().assumed_pods) == ([], 0)


def test_a_pod_that_is_bound_again_during_a_survey_keeps_its_place(
    cache: Cache, expiry: Expiry, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind(cache, "p")
    clock.advance(TTL)
    monkeypatch.setattr(Asked, "shows_newer", lambda _self, uid, _told: cache.finish_binding(uid, certain=False))
    assert (expiry.sweep(), cache.size().assumed_pods) == ([], 1)


def test_every_pod_keeps_its_place_while_pods_cannot_be_listed(
    cache: Cache, watch: Watch, expiry: Expiry, clock: ManualClock
) -> None:
    bind(cache, "p")
    clock.advance(TTL)
    watch.error = OutcomeUnknown("no answer")
    with pytest.raises(OutcomeUnknown):
        expiry.sweep()
    watch.error = None
    clock.advance(1)
    assert (expiry.sweep(), watch.surveys) == ([], 1)  # the API server is not asked every second
    clock.advance(SURVEY_SECONDS)
    assert expiry.sweep() == ["default/p"]


@pytest.mark.parametrize("lag_seconds", [5, 17, 19, 30, 60])
def test_a_watch_that_is_always_late_keeps_no_place_for_ever(
    cache: Cache, watch: Watch, expiry: Expiry, clock: ManualClock, lag_seconds: int
) -> None:
    """One pod is bound each second, and each event is late; so each survey takes as long to be confirmed."""
    bind(cache, "lost")
    expired_after = 0
    for second in range(int(TTL) + 3 * lag_seconds):
        watch.place(f"p{second}")
        if second >= lag_seconds:
            watch.tell_next()
        if expiry.sweep():
            expired_after = second
            break
        clock.advance(1)
    assert TTL <= expired_after <= TTL + lag_seconds + 1
    assert watch.surveys == 1


def test_a_pod_of_which_a_survey_has_a_newer_version_keeps_its_place(
    cache: Cache, watch: Watch, expiry: Expiry, clock: ManualClock
) -> None:
    """As if the event of its binding was lost on the way."""
    bind(cache, "bound", "lost")
    watch.missed.add(pod("bound").uid)
    clock.advance(TTL)
    assert expiry.sweep() == ["default/lost"]
    assert (expiry.sweep(), watch.surveys) == ([], 1)
    clock.advance(SURVEY_SECONDS)
    assert (expiry.sweep(), watch.surveys) == ([], 2)
    cache.replaced("Pod", [pod("bound", "n")])
    clock.advance(SURVEY_SECONDS)
    assert (expiry.sweep(), watch.surveys, cache.size().assumed_pods) == ([], 2, 0)


@pytest.mark.parametrize("certain", [True, False], ids=["bound", "no answer to the bind"])
def test_a_pod_that_no_watch_confirms_is_overdue_after_thirty_seconds_if_not_set_otherwise(certain: bool) -> None:
    clock = ManualClock()
    cache = Cache(clock, Telemetry())
    cache.changed("Node", node("n"))
    cache.assume(PodInfo(pod("p")), "n")
    cache.finish_binding(pod("p").uid, certain=certain)
    now = clock.monotonic()
    assert [list(cache.overdue(now + seconds)) for seconds in (29.5, 30.5)] == [[], [pod("p").uid]]
