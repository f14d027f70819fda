"""The state machine of a reflector: which step follows which result, in any order of results."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.cluster.watch.list_watch_state import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    PAGE_SIZE,
    QUIET_SECONDS,
    UNSERVED_PAUSE_SECONDS,
    WITHDRAWN_SECONDS,
    List,
    ListWatchFailure,
    ListWatchState,
    Pause,
    Watch,
)

FIRST_PAGE = List("", PAGE_SIZE)


def listing() -> ListWatchState:
    return ListWatchState(Random(1))


def watching(version: str = "7") -> ListWatchState:
    reflection = listing()
    reflection.next(0.0)
    assert reflection.paged(version, "")
    return reflection


def after_pause(reflection: ListWatchState, now: float) -> List | Watch:
    pause = reflection.next(now)
    assert isinstance(pause, Pause)
    step = reflection.next(now + pause.seconds)
    assert isinstance(step, List | Watch)
    return step


def test_after_the_last_page_it_watches_from_the_version_of_the_list() -> None:
    reflection = listing()
    assert reflection.next(0.0) == FIRST_PAGE
    assert (reflection.paged("7", "more"), reflection.synced) == (False, False)
    assert reflection.next(0.0) == List("more", PAGE_SIZE)
    assert (reflection.paged("7", ""), reflection.synced) == (True, True)
    assert isinstance(step := reflection.next(0.0), Watch)
    assert step.version == "7"


def test_a_watch_that_ends_is_resumed_at_once_from_the_last_version() -> None:
    reflection = watching()
    reflection.next(0.0)
    reflection.observed("9")
    reflection.ended(400.0)
    assert isinstance(step := reflection.next(400.0), Watch)
    assert step.version == "9"


def test_a_watch_that_ends_at_once_is_followed_by_a_pause() -> None:
    reflection = watching()
    reflection.next(5.0)
    reflection.ended(5.0)
    assert isinstance(after_pause(reflection, 5.0), Watch)


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        pytest.param([ListWatchFailure.OTHER], Watch, id="an outage resumes"),
        pytest.param([ListWatchFailure.OTHER] * 5, Watch, id="a long outage resumes"),
        pytest.param([ListWatchFailure.UNSERVED], Watch, id="a 404 for a kind that was there is an outage"),
        pytest.param([ListWatchFailure.MALFORMED], Watch, id="a broken stream resumes"),
        pytest.param(
            [ListWatchFailure.MALFORMED] * 2, List, id="a stream that breaks twice in one place is listed over"
        ),
        pytest.param([ListWatchFailure.EXPIRED], List, id="an expired version is listed over"),
        pytest.param([ListWatchFailure.SINK], List, id="a sink that failed gets everything again"),
    ],
)
def test_a_failed_watch_is_followed_by_the_right_step(failures: list[ListWatchFailure], expected: type) -> None:
    reflection = watching()
    for attempt, failure in enumerate(failures):
        reflection.next(attempt * 100.0)
        reflection.failed(failure, attempt * 100.0)
    assert isinstance(after_pause(reflection, 100.0 * (len(failures) - 1)), expected)


def test_a_broken_stream_that_made_progress_is_resumed() -> None:
    reflection = watching()
    reflection.failed(ListWatchFailure.MALFORMED, 0.0)
    reflection.observed("8")
    reflection.failed(ListWatchFailure.MALFORMED, 100.0)
    assert isinstance(step := after_pause(reflection, 100.0), Watch)
    assert step.version == "8"


def test_a_failed_page_is_requested_again() -> None:
    reflection = listing()
    reflection.paged("7", "more")
    reflection.failed(ListWatchFailure.OTHER, 0.0)
    assert after_pause(reflection, 0.0) == List("more", PAGE_SIZE)


def test_a_list_whose_token_expired_is_requested_without_pages() -> None:
    reflection = listing()
    reflection.paged("7", "more")
    reflection.failed(ListWatchFailure.EXPIRED, 0.0)
    assert after_pause(reflection, 0.0) == List("", 0)


def test_an_unserved_kind_is_tried_rarely_until_it_is_served() -> None:
    reflection = listing()
    reflection.failed(ListWatchFailure.UNSERVED, 0.0)
    assert not reflection.served
    assert isinstance(step := reflection.next(0.0), Pause)
    assert step.seconds >= UNSERVED_PAUSE_SECONDS
    assert reflection.next(step.seconds) == FIRST_PAGE
    reflection.paged("7", "")
    assert reflection.served


def missed(reflection: ListWatchState, *times: float) -> ListWatchState:
    for now in times:
        reflection.next(now)
        reflection.failed(ListWatchFailure.UNSERVED, now)
    return reflection


def test_a_kind_is_gone_after_a_minute_of_404() -> None:
    reflection = missed(watching(), 0.0, 30.0, WITHDRAWN_SECONDS - 1)
    assert (reflection.served, reflection.synced) == (True, True)
    missed(reflection, WITHDRAWN_SECONDS)
    assert (reflection.served, reflection.synced, reflection.version) == (False, False, "")
    assert isinstance(step := reflection.next(WITHDRAWN_SECONDS), Pause)
    assert step.seconds >= UNSERVED_PAUSE_SECONDS
    assert reflection.next(WITHDRAWN_SECONDS + step.seconds) == FIRST_PAGE


@pytest.mark.parametrize(
    "sign",
    [
        pytest.param(lambda reflection: reflection.opened(), id="a watch is taken up"),
        pytest.param(lambda reflection: reflection.paged("9", "more"), id="a page comes"),
        pytest.param(lambda reflection: reflection.failed(ListWatchFailure.OTHER, 40.0), id="an outage"),
    ],
)
def test_any_response_other_than_404_restarts_the_minute(sign: Callable[[ListWatchState], object]) -> None:
    reflection = missed(watching(), 0.0, 30.0)
    sign(reflection)
    missed(reflection, 50.0, 50.0 + WITHDRAWN_SECONDS - 1)
    assert reflection.served
    missed(reflection, 50.0 + WITHDRAWN_SECONDS)
    assert not reflection.served


def test_retry_after_is_kept_up_to_ten_times_in_a_row() -> None:
    reflection = watching()
    for _ in range(2):
        waits = pauses(reflection, [2.0 * n for n in range(13)], retry_after_seconds=1.0)
        assert waits[:10] == [1.0] * 10
        assert 1.0 < waits[11] < waits[12]
        reflection.opened()
    assert pauses(reflection, [40.0], retry_after_seconds=25.0) == [25.0]


@pytest.mark.parametrize("seen_to_answer", [ListWatchState.answered, ListWatchState.distrust])
@pytest.mark.parametrize(
    ("retry_after_seconds", "waits"),
    [pytest.param(0.0, False, id="its own"), pytest.param(25.0, True, id="one that the server asked for")],
)
def test_a_pause_ends_when_the_server_answers_unless_the_server_set_it(
    seen_to_answer: Callable[[ListWatchState], None], retry_after_seconds: float, waits: bool
) -> None:
    reflection = watching()
    pauses(reflection, [10.0 * n for n in range(12)])
    pauses(reflection, [120.0], retry_after_seconds)
    seen_to_answer(reflection)
    assert isinstance(reflection.next(121.0), Pause) == waits


def test_an_expired_version_after_an_outage_is_followed_by_a_list_soon() -> None:
    reflection = watching()
    pauses(reflection, [10.0 * n for n in range(12)])
    [first] = pauses(reflection, [110.0], failure=ListWatchFailure.EXPIRED)
    assert first <= 2 * FIRST_PAUSE_SECONDS
    assert isinstance(reflection.next(110.0 + first), List)


def test_a_server_that_expires_every_version_is_listed_more_and_more_rarely() -> None:
    reflection, now, waits = watching(), 0.0, list[float]()
    for _ in range(8):
        waits += pauses(reflection, [now], failure=ListWatchFailure.EXPIRED)
        now += waits[-1]
        assert isinstance(reflection.next(now), List)
        reflection.paged("1", "")
    assert waits[-1] >= LONGEST_PAUSE_SECONDS


def pauses(
    reflection: ListWatchState,
    times: list[float],
    retry_after_seconds: float = 0.0,
    failure: ListWatchFailure = ListWatchFailure.OTHER,
) -> list[float]:
    seconds = []
    for now in times:
        reflection.failed(failure, now, retry_after_seconds)
        step = reflection.next(now)
        assert isinstance(step, Pause)
        seconds.append(step.seconds)
    return seconds


def test_pauses_grow_to_a_bound_and_are_short_again_after_quiet() -> None:
    lengths = pauses(watching(), [10.0 * n for n in range(12)])
    assert FIRST_PAUSE_SECONDS <= lengths[0] <= 2 * FIRST_PAUSE_SECONDS
    assert all(length <= 2 * LONGEST_PAUSE_SECONDS for length in lengths)
    assert lengths[-1] >= LONGEST_PAUSE_SECONDS
    assert pauses(watching(), [0.0, 1.0, 2.0 + QUIET_SECONDS])[-1] <= 2 * FIRST_PAUSE_SECONDS


class AnyOrder(RuleBasedStateMachine):
    """Any sequence of pages, events and failures, beside a simple model of what was received."""

    def __init__(self) -> None:
        super().__init__()
        self.reflection = ListWatchState(Random(3))
        self.now = 0.0
        self.version = 10
        self.known: int | None = None  # the version up to which everything was received
        self.listed_up_to: str | None = None
        self.step: Pause | List | Watch = Pause(0)

    @rule()
    def go_on(self) -> None:
        self.step = self.reflection.next(self.now)
        if isinstance(self.step, Pause):
            self.now += self.step.seconds
            self.step = self.reflection.next(self.now)
        assert not isinstance(self.step, Pause)
        if isinstance(self.step, Watch):
            assert self.step.version == str(self.known)
        else:
            assert self.step.continue_token in ("", self.listed_up_to or "")

    @precondition(lambda self: isinstance(self.step, List))
    @rule(last=st.booleans())
    def page(self, last: bool) -> None:
        self.version += 1
        done = self.reflection.paged(str(self.version), "" if last else f"t{self.version}")
        assert done == last
        self.known, self.listed_up_to = (self.version, None) if last else (self.known, f"t{self.version}")
        self.step = Pause(0)

    @precondition(lambda self: isinstance(self.step, Watch))
    @rule()
    def event(self) -> None:
        self.version += 1
        self.known = self.version
        self.reflection.observed(str(self.version))

    @precondition(lambda self: isinstance(self.step, Watch))
    @rule(lasted=st.floats(0, 600))
    def end(self, lasted: float) -> None:
        self.now += lasted
        self.reflection.ended(self.now)
        self.step = Pause(0)

    @precondition(lambda self: not isinstance(self.step, Pause))
    @rule(failure=st.sampled_from(ListWatchFailure))
    def fail(self, failure: ListWatchFailure) -> None:
        self.reflection.failed(failure, self.now)
        if not self.reflection.served:
            self.known = None
        self.step = Pause(0)

    @invariant()
    def synced_means_that_a_whole_list_has_come(self) -> None:
        assert self.reflection.synced == (self.known is not None)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(stateful_step_count=40)
