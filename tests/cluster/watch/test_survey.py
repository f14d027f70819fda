"""When a reflector counts as having told of all that there is, and when it is distrusted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from extender.cluster.http.credentials import Kubeconfig
from extender.cluster.http.kube_client import KubeClient
from extender.cluster.watch import survey as survey_module
from extender.cluster.watch.decoding import version_number
from extender.cluster.watch.list_watch_state import ListWatchFailure, Pause, Watch
from extender.cluster.watch.reflector import Reflector
from extender.cluster.watch.survey import PATIENCE_SECONDS, QUIET_SECONDS, Survey, Verification
from extender.errors import ClusterError, OutcomeUnknown, Refused
from extender.model.kinds import KINDS
from extender.model.pod import Pod
from tests.builders import make_pod
from tests.cluster.fake_api import PODS, FakeApiServer, answer, fake_api, hang_up
from tests.cluster.writers.recorder import Recorder


class Followed:
    """A reflector of pods beside its API server, told by hand."""

    def __init__(self, api: FakeApiServer, client: KubeClient) -> None:
        self.api, self.client, self.why = api, client, list[str]()
        self.reflector = Reflector(KINDS["Pod"], Recorder(), Recorder(), Random(1))
        self.list()

    def list(self) -> None:
        self.reflector.step(1e6)
        self.reflector.page(json.dumps(self.api.page(PODS, 0, "")).encode(), 0.0)
        self.reflector.step(1e6)

    def put(self, name: str) -> dict[str, Any]:
        return self.api.put(PODS, make_pod(name).uid(name).obj())

    def tell(self, kind: str, obj: dict[str, Any], now: float = 0.0) -> None:
        self.reflector.receive(json.dumps({"type": kind, "object": obj}).encode() + b"\n", now)

    def bookmark(self, version: int | str) -> None:
        self.tell("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})

    def survey(self, _kind: str = "Pod") -> Survey:
        def distrust(why: str) -> None:
            self.why.append(why)
            self.reflector.state.distrust()

        return Survey(self.client, self.reflector, distrust, distrust)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[KubeClient]:
    with fake_api() as api:
        client = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
        client.api = api  # type: ignore[attr-defined]  # for the next fixture
        yield client
        client.close()


@pytest.fixture
def followed(client: KubeClient) -> Followed:
    return Followed(client.api, client)  # type: ignore[attr-defined]  # see there


def test_it_takes_the_newest_pod_that_was_there_when_asked(followed: Followed) -> None:
    older, newest = followed.put("z"), followed.put("a")
    survey = followed.survey()
    followed.put("later")
    assert not survey.told()
    followed.tell("ADDED", older)
    assert not survey.told()
    followed.tell("ADDED", newest)
    assert survey.told()
    assert followed.why == []


def test_without_pods_there_is_nothing_to_wait_for(followed: Followed) -> None:
    assert followed.survey().told()


@pytest.mark.parametrize("newest", range(5))
def test_the_newest_may_be_on_any_page(followed: Followed, monkeypatch: pytest.MonkeyPatch, newest: int) -> None:
    monkeypatch.setattr(survey_module, "_PAGE_SIZE", 2)
    for index in range(5):
        followed.tell("ADDED", followed.put(f"p{index}"))
    changed = followed.put(f"p{newest}")
    survey = followed.survey()
    assert not survey.told()
    followed.tell("MODIFIED", changed)
    assert survey.told()
    assert sum(call.startswith("GET /api/v1/pods") for call in followed.api.calls) == 3


def test_the_list_is_a_quorum_read_of_what_the_reflector_follows(followed: Followed) -> None:
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
def test_a_list_that_cannot_be_had(followed: Followed, fault: object, error: type[ClusterError]) -> None:
    followed.api.fail(PODS, fault)  # type: ignore[arg-type]  # the table's column is wider
    with pytest.raises(error):
        followed.survey()


def test_versions_are_numbers() -> None:
    assert version_number("9") < version_number("10")
    with pytest.raises(OutcomeUnknown, match="no number"):
        version_number("x1")


# ---- where the reflector is led astray


def test_a_list_older_than_what_was_seen_is_of_a_server_that_was_restored(followed: Followed) -> None:
    followed.tell("ADDED", followed.put("p"))
    followed.bookmark(4278)
    survey = followed.survey()
    assert (survey.told(), followed.reflector.state.synced) == (False, False)
    assert followed.why == ["the list has version 101, and the watch told of 4278"]
    followed.list()
    assert (survey.told(), followed.reflector.state.synced, followed.reflector.state.version) == (True, True, "101")


def test_a_bookmark_past_a_pod_that_was_not_told_shows_that_events_are_lost(followed: Followed) -> None:
    version = int(followed.put("p")["metadata"]["resourceVersion"])
    survey = followed.survey()
    assert (survey.told(), followed.why) == (False, [])
    followed.bookmark(version)
    assert (survey.told(), followed.reflector.state.synced, len(followed.why)) == (False, False, 1)
    followed.list()
    assert survey.told()


@pytest.mark.parametrize("past", [pytest.param(0, id="behind"), pytest.param(9, id="and is past it by now")])
def test_an_object_that_was_newer_than_it_is_shows_that_the_server_was_restored(followed: Followed, past: int) -> None:
    followed.put("p")
    old = followed.put("p")
    for event in ("ADDED", "DELETED"):
        followed.list()
        newer = {**old, "metadata": {**old["metadata"], "resourceVersion": "105"}}
        followed.tell(event, newer)
        for _ in range(past):
            followed.put("q")
        assert (followed.survey().told(), followed.reflector.state.synced) == (False, False)
        followed.api.remove(PODS, "default/q", unnoticed=True) if past else None


def test_a_newest_object_that_goes_while_everything_is_listed_anew_is_waited_for_no_more(followed: Followed) -> None:
    followed.tell("ADDED", followed.put("older"))
    version = int(followed.put("newest")["metadata"]["resourceVersion"])
    survey = followed.survey()
    followed.bookmark(version)
    assert (survey.told(), len(followed.why)) == (False, 1)
    followed.api.remove(PODS, "default/newest")
    followed.list()
    assert (survey.told(), followed.reflector.state.synced, len(followed.why)) == (True, True, 1)


def test_an_object_that_is_gone_is_waited_for(followed: Followed) -> None:
    told = followed.put("p")
    followed.tell("ADDED", told)
    followed.api.remove(PODS, "default/p")
    survey = followed.survey()
    assert not survey.told()
    followed.tell("DELETED", {**told, "metadata": {**told["metadata"], "resourceVersion": "102"}})
    assert survey.told()
    assert followed.why == []


@pytest.mark.parametrize("version", ["zzz", "-1", "1e9", "0"])
def test_a_version_that_is_none_has_everything_listed_anew(followed: Followed, version: str) -> None:
    followed.bookmark(version)
    assert (followed.reflector.state.synced, followed.reflector.state.version) == (False, "100")
    followed.list()
    assert followed.reflector.state.synced


def test_an_event_older_than_what_was_seen_has_everything_listed_anew(followed: Followed) -> None:
    followed.bookmark(999999999999)
    followed.tell("ADDED", followed.put("p"))
    assert not followed.reflector.state.synced
    followed.list()
    assert (followed.reflector.state.synced, followed.reflector.state.version) == (True, "101")


def test_a_pod_that_is_listed_otherwise_than_told_was_missed(followed: Followed) -> None:
    told = followed.put("p")
    followed.tell("ADDED", told)
    followed.put("p")
    followed.tell("ADDED", followed.put("other"))
    survey = followed.survey()
    assert survey.told(), "a newer object was told of"
    assert survey.missed("p", msgspec.convert(told, Pod))
    assert not survey.missed("gone", None)
    assert not followed.reflector.state.synced
    followed.list()
    assert survey.missed("p", None), "whatever became of it in the cache, it is there"
    assert followed.reflector.state.synced, "a list has told of it: to list anew would change nothing"


# ---- now and then


def test_a_reflector_that_is_told_of_something_is_not_asked_about(followed: Followed) -> None:
    verification = Verification(followed.reflector, followed.survey)
    for now in (0.0, QUIET_SECONDS, 2 * QUIET_SECONDS):
        followed.tell("ADDED", followed.put("p"), now)
        assert verification.failed(now + QUIET_SECONDS - 1) == ""
    assert followed.api.calls == []


def test_a_quiet_kind_is_listed_and_trusted_where_nothing_is_new(followed: Followed) -> None:
    verification = Verification(followed.reflector, followed.survey)
    assert [verification.failed(QUIET_SECONDS + second) for second in range(int(3 * PATIENCE_SECONDS))].count("") == 60
    assert len(followed.api.calls) == 3


def test_a_watch_that_keeps_silent_about_what_a_list_shows_is_not_trusted(followed: Followed) -> None:
    verification = Verification(followed.reflector, followed.survey)
    followed.put("p")
    assert verification.failed(QUIET_SECONDS) == ""
    assert verification.failed(QUIET_SECONDS + PATIENCE_SECONDS - 1) == ""
    assert "told of nothing for 40 s" in verification.failed(QUIET_SECONDS + PATIENCE_SECONDS)


def test_a_reflector_that_waits_after_failures_goes_on_as_soon_as_a_list_comes(followed: Followed) -> None:
    verification = Verification(followed.reflector, followed.survey)
    for _ in range(9):
        followed.reflector.broken(ListWatchFailure.OTHER, QUIET_SECONDS)
    followed.api.fail(PODS, answer(500))
    with pytest.raises(OutcomeUnknown):
        verification.failed(QUIET_SECONDS)
    assert isinstance(followed.reflector.step(QUIET_SECONDS), Pause)
    assert verification.failed(2 * QUIET_SECONDS) == ""
    assert isinstance(followed.reflector.step(2 * QUIET_SECONDS), Watch)


def test_a_watch_that_is_behind_is_given_time_while_it_goes_on(followed: Followed) -> None:
    verification = Verification(followed.reflector, followed.survey)
    backlog = [followed.put(f"p{index}") for index in range(4)]
    assert verification.failed(QUIET_SECONDS) == ""
    for index, obj in enumerate(backlog, 1):
        now = QUIET_SECONDS + index * (PATIENCE_SECONDS - 1)
        followed.tell("ADDED", obj, now)
        assert verification.failed(now) == ""
    assert followed.why == []
