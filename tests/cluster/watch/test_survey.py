"""When a survey is confirmed, when it distrusts the watch, and how long a cache can be wrong without knowing it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from extender.cluster.credentials import Kubeconfig
from extender.cluster.kube_client import KubeClient
from extender.cluster.watch import survey as survey_module
from extender.cluster.watch.api_objects import version_number
from extender.cluster.watch.list_watch_state import ListWatchFailure, Pause, Watch
from extender.cluster.watch.reflector import Reflector
from extender.cluster.watch.survey import (
    PATIENCE_SECONDS,
    SHORTEST_INTERVAL_SECONDS,
    Survey,
    Surveyor,
    interval_seconds,
)
from extender.errors import ClusterError, OutcomeUnknown, Refused
from extender.model.kinds import KINDS
from extender.model.pod import Pod
from extender.runtime.clock import ManualClock
from tests.builders import make_pod
from tests.cluster.fake_api import PODS, FakeApiServer, answer, fake_api, hang_up
from tests.cluster.recorder import Recorder

MOST_BLIND_SECONDS = 110


class Followed:
    """A reflector of pods beside its API server; the test delivers the events.

    Attributes:
        reasons: why the watch was distrusted.
    """

    def __init__(self, client: KubeClient, recorder: Recorder | None = None) -> None:
        self.client = client
        self.clock = ManualClock()
        self.recorder = recorder or Recorder()
        self.reasons: list[str] = []
        self.reflector = Reflector(KINDS["Pod"], self.recorder, self.recorder, Random(1))
        self.surveyor = Surveyor([self.reflector], self.survey, self.recorder, self.clock)

    def list(self, page: dict[str, Any]) -> None:
        self.reflector.step(self.clock.monotonic())
        self.reflector.page(json.dumps(page).encode(), self.clock.monotonic())
        self.reflector.step(self.clock.monotonic())

    def deliver(self, kind: str, obj: dict[str, Any]) -> None:
        line = json.dumps({"type": kind, "object": obj}).encode() + b"\n"
        self.reflector.receive(line, self.clock.monotonic())

    def bookmark(self, version: int | str) -> None:
        self.deliver("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})

    def survey(self, _reflector: Reflector | None = None) -> Survey:
        return Survey(self.client, self.reflector, self.clock, self._distrust, self._distrust)

    def _distrust(self, reason: str) -> None:
        self.reasons.append(reason)
        self.reflector.state.distrust()

    @property
    def synced(self) -> bool:
        return self.reflector.state.synced

    def let_pass(self, seconds: int) -> None:
        """The two threads of a source, second by second."""
        for _ in range(seconds):
            self.clock.advance(1)
            self.surveyor.survey_next()
            self.surveyor.follow_up()


class FollowedApi(Followed):
    """Beside a fake API server."""

    def __init__(self, api: FakeApiServer, client: KubeClient, recorder: Recorder) -> None:
        super().__init__(client, recorder)
        self.api = api
        self.relist()

    def relist(self) -> None:
        self.clock.advance(100)  # no pause is longer
        self.list(self.api.page(PODS, 0, ""))

    def put(self, name: str) -> dict[str, Any]:
        return self.api.put(PODS, make_pod(name).uid(name).obj())

    def remove(self, name: str) -> dict[str, Any]:
        """Removes the pod; returns it as the event of its deletion has it."""
        pod = self.api.collections[PODS][f"default/{name}"]
        self.api.remove(PODS, f"default/{name}")
        version = self.api.page(PODS, 0, "")["metadata"]["resourceVersion"]
        return {**pod, "metadata": {**pod["metadata"], "resourceVersion": version}}


class Ages(Recorder):
    """A recorder of the moments at which the cache was known to be up to date."""

    def __init__(self) -> None:
        super().__init__()
        self.synced_as_of: list[float] = []

    def synced(self, kind: str, as_of: float) -> None:
        self.synced_as_of.append(as_of)


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with fake_api() as server:
        yield server


@pytest.fixture
def ages() -> Ages:
    return Ages()


@pytest.fixture
def followed(api: FakeApiServer, ages: Ages, tmp_path: Path) -> Iterator[FollowedApi]:
    client = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
    yield FollowedApi(api, client, ages)
    client.close()


# ---- when a survey is confirmed


def test_a_survey_is_confirmed_once_every_listed_pod_is_delivered(followed: FollowedApi) -> None:
    older, newest = followed.put("z"), followed.put("a")
    survey = followed.survey()
    followed.put("later")
    assert not survey.confirmed()
    followed.deliver("ADDED", older)
    assert not survey.confirmed()
    followed.deliver("ADDED", newest)
    assert survey.confirmed()
    assert followed.reasons == []


def test_a_survey_of_no_pods_is_confirmed_at_once(followed: FollowedApi) -> None:
    assert followed.survey().confirmed()


@pytest.mark.parametrize("changed", range(5))
def test_the_undelivered_pod_may_be_on_any_page(
    followed: FollowedApi, monkeypatch: pytest.MonkeyPatch, changed: int
) -> None:
    monkeypatch.setattr(survey_module, "_PAGE_SIZE", 2)
    for index in range(5):
        followed.deliver("ADDED", followed.put(f"p{index}"))
    pod = followed.put(f"p{changed}")
    survey = followed.survey()
    assert not survey.confirmed()
    followed.deliver("MODIFIED", pod)
    assert survey.confirmed()
    assert sum(call.startswith("GET /api/v1/pods") for call in followed.api.calls) == 3


def test_a_deletion_is_waited_for(followed: FollowedApi) -> None:
    followed.deliver("ADDED", followed.put("p"))
    deletion = followed.remove("p")
    survey = followed.survey()
    assert not survey.confirmed()
    followed.deliver("DELETED", deletion)
    assert survey.confirmed()
    assert followed.reasons == []


def test_a_listed_pod_that_was_deleted_since_is_not_waited_for(followed: FollowedApi) -> None:
    addition = followed.put("p")
    survey = followed.survey()
    followed.deliver("ADDED", addition)
    followed.deliver("DELETED", followed.remove("p"))
    assert survey.confirmed()
    assert followed.reasons == []


def test_a_pod_that_was_added_after_the_list_is_not_waited_for(followed: FollowedApi) -> None:
    survey = followed.survey()
    followed.deliver("ADDED", followed.put("p"))
    assert survey.confirmed()
    assert followed.reasons == []


def test_a_whole_list_that_is_newer_confirms_a_survey(followed: FollowedApi) -> None:
    followed.put("p")
    survey = followed.survey()
    followed.remove("p")
    followed.relist()
    assert survey.confirmed()


def test_a_whole_list_that_was_asked_for_later_confirms_a_survey_of_a_server_that_was_restored_since(
    followed: FollowedApi,
) -> None:
    followed.put("p")
    survey = followed.survey()
    followed.api.forget_since(100)
    followed.reflector.state.distrust()
    followed.relist()
    assert (survey.confirmed(), followed.reasons) == (True, [])


def test_the_list_is_a_quorum_read_of_what_the_reflector_follows(followed: FollowedApi) -> None:
    followed.survey()
    (call,) = followed.api.calls
    assert "resourceVersion" not in call
    assert "fieldSelector=status.phase" in call


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        pytest.param(answer(410), Refused, id="410"),
        pytest.param(answer(500), OutcomeUnknown, id="500"),
        pytest.param(hang_up, ClusterError, id="hang up"),
        pytest.param(lambda call: call.json(200, {"items": 3}), OutcomeUnknown, id="nonsense"),
        pytest.param(lambda call: call.json(200, {}), OutcomeUnknown, id="no list"),
        pytest.param(
            lambda call: call.json(200, {"metadata": {"resourceVersion": "zzz"}}), OutcomeUnknown, id="no version"
        ),
    ],
)
def test_a_survey_without_a_list_is_an_error(followed: FollowedApi, fault: object, error: type[ClusterError]) -> None:
    followed.api.fail(PODS, fault)  # type: ignore[arg-type]  # the table's column is wider
    with pytest.raises(error):
        followed.survey()


def test_versions_are_compared_as_numbers() -> None:
    assert version_number("9") < version_number("10")
    with pytest.raises(OutcomeUnknown, match="not a number"):
        version_number("x1")


def test_a_survey_knows_which_pods_it_shows_in_a_later_version(followed: FollowedApi) -> None:
    before = msgspec.convert(followed.put("p"), Pod)
    now = msgspec.convert(followed.put("p"), Pod)
    survey = followed.survey()
    assert survey.shows_newer("p", before)
    assert survey.shows_newer("p", None)
    assert not survey.shows_newer("p", now)
    assert not survey.shows_newer("gone", None)


# ---- when the watch is distrusted


def test_a_lost_modification_is_found_though_later_events_arrive(followed: FollowedApi) -> None:
    followed.deliver("ADDED", followed.put("p"))
    followed.put("p")  # this event is lost
    followed.deliver("ADDED", followed.put("other"))
    assert (followed.survey().confirmed(), followed.synced) == (False, False)
    assert followed.reasons == ["the watch lost the events of 1 object and delivered later ones"]


def test_a_lost_deletion_is_found_though_later_events_arrive(followed: FollowedApi) -> None:
    followed.deliver("ADDED", followed.put("p"))
    followed.remove("p")  # this event is lost
    followed.deliver("ADDED", followed.put("other"))
    assert (followed.survey().confirmed(), followed.synced) == (False, False)


def test_a_lost_addition_is_found_though_later_events_arrive(followed: FollowedApi) -> None:
    followed.put("p")  # this event is lost
    followed.deliver("ADDED", followed.put("other"))
    assert (followed.survey().confirmed(), followed.synced) == (False, False)


def test_a_modification_that_is_lost_after_a_deletion_under_the_same_uid_is_found(followed: FollowedApi) -> None:
    """A pod that leaves what is selected is deleted for the watch, and may come back."""
    followed.deliver("ADDED", followed.put("p"))
    followed.deliver("DELETED", followed.remove("p"))
    followed.deliver("ADDED", followed.put("p"))
    followed.put("p")  # this event is lost
    followed.deliver("ADDED", followed.put("other"))
    assert not followed.survey().confirmed()


def test_a_bookmark_past_a_pod_that_was_not_delivered_shows_that_an_event_is_lost(followed: FollowedApi) -> None:
    version = int(followed.put("p")["metadata"]["resourceVersion"])
    survey = followed.survey()
    assert (survey.confirmed(), followed.reasons) == (False, [])
    followed.bookmark(version)
    assert (survey.confirmed(), followed.synced, len(followed.reasons)) == (False, False, 1)
    followed.relist()
    assert survey.confirmed()


def test_a_survey_that_is_not_confirmed_in_time_distrusts_the_watch(followed: FollowedApi) -> None:
    followed.put("p")
    survey = followed.survey()
    followed.clock.advance(PATIENCE_SECONDS - 1)
    assert (survey.confirmed(), followed.synced) == (False, True)
    followed.clock.advance(1)
    assert (survey.confirmed(), followed.synced) == (False, False)
    assert followed.reasons == ["the watch has not delivered 1 object of a list within 20 s"]


def test_a_watch_that_goes_on_but_stays_behind_is_distrusted_too(followed: FollowedApi) -> None:
    backlog = [followed.put(f"p{index}") for index in range(4)]
    survey = followed.survey()
    for pod in backlog[:-1]:
        followed.clock.advance(PATIENCE_SECONDS / 3)
        followed.deliver("ADDED", pod)
    assert (survey.confirmed(), followed.synced) == (False, False)


def test_a_list_older_than_what_was_seen_shows_that_the_server_was_restored(followed: FollowedApi) -> None:
    followed.deliver("ADDED", followed.put("p"))
    followed.bookmark(4278)
    survey = followed.survey()
    assert (survey.confirmed(), followed.synced) == (False, False)
    assert followed.reasons == ["a list has version 101, but the watch had reached 4278"]
    followed.relist()
    assert (survey.confirmed(), followed.synced, followed.reflector.state.version) == (True, True, "101")


@pytest.mark.parametrize("past", [pytest.param(0, id="behind"), pytest.param(9, id="and is past it by now")])
@pytest.mark.parametrize("event", ["ADDED", "DELETED"])
def test_an_object_that_was_newer_than_it_is_shows_that_the_server_was_restored(
    followed: FollowedApi, event: str, past: int
) -> None:
    followed.put("p")
    pod = followed.put("p")
    followed.relist()
    followed.deliver(event, {**pod, "metadata": {**pod["metadata"], "resourceVersion": "105"}})
    for _ in range(past):
        followed.put("q")
    assert (followed.survey().confirmed(), followed.synced) == (False, False)


def test_a_pod_that_goes_while_everything_is_listed_again_is_no_longer_waited_for(followed: FollowedApi) -> None:
    followed.deliver("ADDED", followed.put("older"))
    version = int(followed.put("newest")["metadata"]["resourceVersion"])
    survey = followed.survey()
    followed.bookmark(version)
    assert (survey.confirmed(), len(followed.reasons)) == (False, 1)
    followed.remove("newest")
    followed.relist()
    assert (survey.confirmed(), followed.synced, len(followed.reasons)) == (True, True, 1)


@pytest.mark.parametrize("version", ["zzz", "-1", "1e9", "0"])
def test_a_bookmark_without_a_version_makes_the_reflector_list_everything(followed: FollowedApi, version: str) -> None:
    followed.bookmark(version)
    assert (followed.synced, followed.reflector.state.version) == (False, "100")
    followed.relist()
    assert followed.synced


def test_an_event_older_than_what_was_seen_makes_the_reflector_list_everything(followed: FollowedApi) -> None:
    followed.bookmark(999999999999)
    followed.deliver("ADDED", followed.put("p"))
    assert not followed.synced
    followed.relist()
    assert (followed.synced, followed.reflector.state.version) == (True, "101")


# ---- when a kind is surveyed


def test_a_kind_is_surveyed_whether_or_not_events_arrive(followed: FollowedApi) -> None:
    for second in range(60):
        followed.deliver("ADDED", followed.put(f"p{second}"))
        followed.let_pass(1)
    assert len(followed.api.calls) == 60 // SHORTEST_INTERVAL_SECONDS
    assert followed.reasons == []


def test_a_survey_is_followed_though_its_caller_does_not_ask_again(followed: FollowedApi) -> None:
    followed.put("p")
    followed.surveyor.survey(followed.reflector)
    followed.clock.advance(PATIENCE_SECONDS - 1)
    followed.surveyor.follow_up()
    assert followed.synced
    followed.clock.advance(1)
    followed.surveyor.follow_up()
    assert not followed.synced


def test_a_kind_is_as_old_as_the_question_that_a_survey_answers(followed: FollowedApi, ages: Ages) -> None:
    pod = followed.put("p")
    survey = followed.surveyor.survey(followed.reflector)
    followed.clock.advance(7)
    followed.surveyor.follow_up()
    assert ages.synced_as_of[1:] == []  # but for the list
    followed.deliver("ADDED", pod)
    followed.surveyor.follow_up()
    assert ages.synced_as_of[1:] == [followed.clock.monotonic(), survey.asked_at]


def test_a_kind_whose_watch_was_interrupted_is_surveyed_at_once(followed: FollowedApi) -> None:
    assert not followed.surveyor.survey_next()
    followed.surveyor.hurry(followed.reflector)
    assert followed.surveyor.survey_next()
    assert not followed.surveyor.survey_next()


def test_a_survey_that_fails_is_asked_for_again_and_leaves_the_kind_as_old_as_it_is(
    followed: FollowedApi, ages: Ages
) -> None:
    followed.api.fail(PODS, *[answer(500)] * 3)
    followed.let_pass(60)
    assert ages.synced_as_of[1:] == []
    followed.let_pass(20)
    assert ages.synced_as_of[1:] == [followed.clock.monotonic()]


def test_a_kind_that_is_not_synced_is_not_surveyed(followed: FollowedApi) -> None:
    followed.reflector.state.distrust()
    followed.let_pass(300)
    assert followed.api.calls == []


def test_a_reflector_that_pauses_after_failures_goes_on_as_soon_as_a_survey_is_answered(followed: FollowedApi) -> None:
    for _ in range(9):
        followed.reflector.broken(ListWatchFailure.OTHER, followed.clock.monotonic())
    assert isinstance(followed.reflector.step(followed.clock.monotonic()), Pause)
    followed.api.fail(PODS, answer(500))
    with pytest.raises(OutcomeUnknown):
        followed.surveyor.survey(followed.reflector)
    assert isinstance(followed.reflector.step(followed.clock.monotonic()), Pause)
    followed.surveyor.survey(followed.reflector)
    assert isinstance(followed.reflector.step(followed.clock.monotonic()), Watch)


# ---- how long a cache can be wrong without knowing it


class LargeCluster(KubeClient):
    """Answers lists of many pods after `list_seconds` of a fake clock; each pod has a UID and a version."""

    def __init__(self, pods: int, list_seconds: float) -> None:
        self.clock, self._served = ManualClock(), {}
        self.list_seconds = list_seconds
        self.versions = {f"pod-{index}": "7" for index in range(pods)}
        self.version = 7

    def page(self) -> dict[str, Any]:
        items = [{"metadata": {"uid": uid, "resourceVersion": version}} for uid, version in self.versions.items()]
        return {"metadata": {"resourceVersion": str(self.version)}, "items": items}

    @contextmanager
    def get(self, *_: object, **__: object) -> Iterator[Any]:
        body = json.dumps(self.page()).encode()  # what there is as the call arrives
        self.clock.advance(self.list_seconds)
        yield SimpleNamespace(status=200, read=lambda: body)

    def bind(self, uid: str) -> None:
        self.version += 1
        self.versions[uid] = str(self.version)


@pytest.mark.thorough
@pytest.mark.parametrize("lost_after_seconds", [0, 1, 29, 59, 60, 61])
@pytest.mark.parametrize(
    ("pods", "list_seconds"), [pytest.param(60_000, 30.0, id="60,000"), pytest.param(3, 0.5, id="3")]
)
def test_a_silent_watch_is_distrusted_within_110_s_however_large_the_cluster_is(
    pods: int, list_seconds: float, lost_after_seconds: int
) -> None:
    cluster = LargeCluster(pods, list_seconds)
    followed = Followed(cluster)
    followed.clock = cluster.clock
    followed.surveyor = Surveyor([followed.reflector], followed.survey, followed.recorder, cluster.clock)
    followed.list(cluster.page())
    followed.let_pass(lost_after_seconds)
    cluster.bind("pod-1")
    lost_at = cluster.clock.monotonic()
    while followed.synced:
        followed.let_pass(1)
    assert cluster.clock.monotonic() - lost_at <= MOST_BLIND_SECONDS


@pytest.mark.parametrize(
    ("objects", "seconds"), [(0, 20), (4_000, 20), (8_000, 40), (12_000, 60), (60_000, 60), (10**6, 60)]
)
def test_large_kinds_are_surveyed_more_rarely_but_once_a_minute(objects: int, seconds: float) -> None:
    assert interval_seconds(objects) == seconds
