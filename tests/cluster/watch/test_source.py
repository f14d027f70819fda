"""A source against an API server that fails in every way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
import trustme

from extender.cluster import kube_client
from extender.cluster.credentials import Kubeconfig
from extender.cluster.kube_client import KubeClient
from extender.cluster.watch import list_watch_state as reflection
from extender.cluster.watch import source, survey
from extender.cluster.watch.source import ClusterSource
from extender.model.kinds import KINDS
from extender.model.pod import Pod
from extender.runtime.clock import SystemClock
from tests.builders import make_composite_pod_group, make_node, make_pod
from tests.cluster.fake_api import NODES, PODS, FakeApiServer, Fault, answer, fake_api, hang, hang_up, stream
from tests.cluster.recorder import Recorder
from tests.stock.waiting import wait_until


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflection, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(reflection, "LONGEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(source, "SURVEY_POLL_SECONDS", 0.01)


@contextmanager
def running(kubeconfig: Path, *kinds: str) -> Iterator[tuple[ClusterSource, Recorder]]:
    recorder = Recorder()
    connection = KubeClient(Kubeconfig(kubeconfig))
    following = ClusterSource(connection, [KINDS[kind] for kind in kinds], recorder, recorder, SystemClock(), Random(1))
    following.start()
    try:
        yield following, recorder
    finally:
        following.stop()


def names(recorder: Recorder, *expected: str) -> Callable[[], bool]:
    return lambda: recorder.keys("Node") == list(expected)


def test_a_source_lists_in_pages_and_follows_the_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflection, "PAGE_SIZE", 2)
    with (
        fake_api(*(make_node(f"n{i}").obj() for i in range(5))) as api,
        running(api.kubeconfig(tmp_path), "Node", "Pod") as (following, recorder),
    ):
        assert wait_until(lambda: not following.unsynced())
        assert recorder.keys("Node") == ["n0", "n1", "n2", "n3", "n4"]
        assert sum("limit=2" in call and call.startswith(f"GET {NODES}") for call in api.calls) == 3
        api.put(NODES, make_node("n5").obj())
        api.remove(NODES, "n0")
        api.put(PODS, make_pod("p").node("n1").obj())
        assert wait_until(names(recorder, "n1", "n2", "n3", "n4", "n5"))
        assert wait_until(lambda: recorder.keys("Pod") == ["default/p"])
        pod = recorder.objects["Pod"]["default/p"]
        assert isinstance(pod, Pod)
        assert pod.node_name == "n1"


def test_finished_pods_are_not_requested(tmp_path: Path) -> None:
    with fake_api() as api, running(api.kubeconfig(tmp_path), "Pod") as (following, _):
        assert wait_until(lambda: not following.unsynced())
        assert wait_until(lambda: len(api.calls) > 1)
        assert all("status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed" in call for call in api.calls)


ADDED = b'{"type":"ADDED","object":{"metadata":{"name":"odd","resourceVersion":"900"}}}\n'


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([hang_up], id="the connection ends before the answer"),
        pytest.param([hang_up] * 4, id="again and again"),
        pytest.param([answer(500)], id="500"),
        pytest.param([answer(503)], id="503"),
        pytest.param([answer(429, **{"Retry-After": "0"})], id="429"),
        pytest.param([answer(403)], id="403"),
        pytest.param([answer(404)], id="404 from another server than the API server"),
        pytest.param([answer(410)], id="410"),
        pytest.param([stream(b"{]\n")], id="a line that is no JSON"),
        pytest.param([stream(b"{]\n")] * 3, id="and again"),
        pytest.param([stream(ADDED[:20])], id="a line that breaks off"),
        pytest.param([stream(ADDED[:20], end=False)], id="a chunk that breaks off"),
        pytest.param([stream(b'{"type":"ERROR","object":{"code":410}}\n')], id="410 in the midst"),
        pytest.param([stream()], id="a watch that ends at once"),
        pytest.param([lambda call: call.wfile.write(b"SSH-2.0-x\r\n\r\n")], id="not HTTP"),
    ],
)
def test_a_watch_survives(tmp_path: Path, faults: list[Fault]) -> None:
    with fake_api(make_node("a").obj()) as api:
        api.fail(NODES, *faults, watch=True)
        with running(api.kubeconfig(tmp_path), "Node") as (following, recorder):
            assert wait_until(lambda: not following.unsynced())
            assert wait_until(lambda: not api.faults_left)
            api.put(NODES, make_node("b").obj())
            assert wait_until(names(recorder, "a", "b"))


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([hang_up, hang_up], id="no answer"),
        pytest.param([answer(500), answer(429), answer(403)], id="refusals"),
        pytest.param([lambda call: call.json(200, {"items": [{"metadata": {"name": 5}}]})], id="an object of odd form"),
    ],
)
def test_a_list_survives(tmp_path: Path, faults: list[Fault]) -> None:
    with fake_api(make_node("a").obj()) as api:
        api.fail(NODES, *faults)
        with running(api.kubeconfig(tmp_path), "Node") as (following, recorder):
            assert wait_until(lambda: not following.unsynced())
            assert recorder.keys("Node") == ["a"]


def test_an_object_whose_deletion_was_missed_is_gone_after_the_list(tmp_path: Path) -> None:
    with (
        fake_api(make_node("a").obj(), make_node("b").obj()) as api,
        running(api.kubeconfig(tmp_path), "Node") as (following, recorder),
    ):
        assert wait_until(lambda: not following.unsynced())
        assert wait_until(lambda: any("watch=1" in call for call in api.calls))
        api.remove(NODES, "a", unnoticed=True)
        api.forgotten = 10_000
        api.end_watches()
        assert wait_until(names(recorder, "b"))
        assert recorder.relists >= 1


def test_events_that_a_bookmark_passed_over_are_noticed_when_the_watch_is_resumed(tmp_path: Path) -> None:
    with fake_api(make_node("a").obj()) as api, running(api.kubeconfig(tmp_path), "Node") as (following, recorder):
        assert wait_until(lambda: not following.unsynced())
        assert wait_until(lambda: any("watch=1" in call for call in api.calls))
        api.put(NODES, make_node("b").obj(), unnoticed=True)
        api.bookmark(NODES)
        passed = api.page(NODES, 0, "")["metadata"]["resourceVersion"]
        assert wait_until(lambda: following.has_delivered("Node", passed))
        api.put(NODES, make_node("c").obj(), unnoticed=True)
        api.end_watches()
        api.put(NODES, make_node("d").obj())
        assert wait_until(names(recorder, "a", "b", "c", "d"))


def test_a_restart_of_the_server_loses_nothing(tmp_path: Path) -> None:
    with fake_api(make_node("a").obj()) as api, running(api.kubeconfig(tmp_path), "Node") as (following, recorder):
        assert wait_until(lambda: not following.unsynced())
        assert wait_until(lambda: any("watch=1" in call for call in api.calls))
        api.restart()
        api.put(NODES, make_node("b").obj())
        assert wait_until(names(recorder, "a", "b"))
        assert recorder.recorded.count("replaced Node 1") == 1, "the watch resumes, nothing is listed again"


def test_a_watch_that_hangs_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "WATCH_SILENCE_SECONDS", 0.2)
    release = threading.Event()
    with fake_api(make_node("a").obj()) as api:
        api.fail(NODES, hang(release), watch=True)
        with running(api.kubeconfig(tmp_path), "Node") as (following, recorder):
            assert wait_until(lambda: not following.unsynced())
            api.put(NODES, make_node("b").obj())
            assert wait_until(names(recorder, "a", "b"))
        release.set()


def test_an_unserved_kind_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "extender")
    with (
        fake_api(make_node("a").obj()) as api,
        running(api.kubeconfig(tmp_path), "Node", "ReplicaSet") as (following, recorder),
    ):
        assert wait_until(lambda: not following.unsynced())
        assert following.unsynced() == []
        assert "ReplicaSet" not in recorder.objects
        assert wait_until(lambda: caplog.messages)
        assert caplog.messages == ["kind not served, ignored kind=ReplicaSet path=/apis/apps/v1/replicasets"]


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha3"])
def test_a_kind_is_followed_in_the_version_that_is_served(version: str, tmp_path: Path) -> None:
    path = f"/apis/scheduling.k8s.io/{version}/compositepodgroups"
    with fake_api(make_node("a").obj()) as api:
        api.collections[path] = {}
        api.put(path, {**make_composite_pod_group("one"), "apiVersion": f"scheduling.k8s.io/{version}"})
        with running(api.kubeconfig(tmp_path), "CompositePodGroup") as (following, recorder):
            assert wait_until(lambda: not following.unsynced())
            api.put(path, {**make_composite_pod_group("two"), "apiVersion": f"scheduling.k8s.io/{version}"})
            assert wait_until(lambda: recorder.keys("CompositePodGroup") == ["default/one", "default/two"])
            api.end_watches()
            following.survey("CompositePodGroup")
            assert wait_until(lambda: sum("watch=1" in call and version in call for call in api.calls) == 2)
        others = [call for call in api.calls if "compositepodgroups" in call and version not in call]
        assert len(others) == (version == "v1alpha3")  # only the first list has to find out


def test_a_withdrawn_kind_is_dropped_until_it_is_served_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflection, "WITHDRAWN_SECONDS", 0.2)
    monkeypatch.setattr(reflection, "UNSERVED_PAUSE_SECONDS", 0.2)
    path = KINDS["ReplicaSet"].path
    with fake_api(make_node("a").obj()) as api:
        api.collections[path] = {}
        api.put(path, {"metadata": {"name": "r", "namespace": "default", "uid": "r"}})
        with running(api.kubeconfig(tmp_path), "Node", "ReplicaSet") as (following, recorder):
            assert wait_until(lambda: not following.unsynced())
            assert recorder.keys("ReplicaSet") == ["default/r"]
            withdrawn = api.collections.pop(path)
            api.end_watches()
            assert wait_until(lambda: recorder.keys("ReplicaSet") == [])
            assert recorder.gone == ["ReplicaSet"]
            assert (following.kinds(), following.unsynced()) == (["Node"], [])
            api.collections[path] = withdrawn
            assert wait_until(lambda: recorder.keys("ReplicaSet") == ["default/r"])
            assert wait_until(lambda: following.kinds() == ["Node", "ReplicaSet"])


def test_a_source_names_the_kinds_it_waits_for(tmp_path: Path) -> None:
    with fake_api() as api:
        api.fail(PODS, *[answer(500)] * 10_000)
        with running(api.kubeconfig(tmp_path), "Node", "Pod") as (following, _):
            assert wait_until(lambda: following.unsynced() == ["Pod"])
            assert not wait_until(lambda: not following.unsynced(), 0.05)


def test_credentials_that_rotate_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_client, "_RETRY_SECONDS", 0.05)
    with fake_api(make_node("a").obj(), authority=trustme.CA()) as api:
        api.token = "first"
        kubeconfig = api.kubeconfig(tmp_path, token="first")
        with running(kubeconfig, "Node") as (following, recorder):
            assert wait_until(lambda: not following.unsynced())
            api.token = "second"
            api.end_watches()
            assert wait_until(lambda: sum("watch=1" in call for call in api.calls) > 2)
            kubeconfig.write_text("")  # in the midst of being written
            api.kubeconfig(tmp_path, token="second")
            api.put(NODES, make_node("b").obj())
            assert wait_until(names(recorder, "a", "b"))


def test_a_source_stops_while_everything_hangs(tmp_path: Path) -> None:
    release = threading.Event()
    with fake_api(make_node("a").obj()) as api:
        api.fail(NODES, hang(release), watch=True)
        with running(api.kubeconfig(tmp_path), "Node", "Pod") as (following, _):
            assert wait_until(lambda: not following.unsynced())
            assert wait_until(lambda: not api.faults_left)
            following.stop()
            assert not [t for t in threading.enumerate() if t.name.startswith("reflector-")]
        release.set()


def test_a_failing_sink_does_not_end_the_watch_for_good(tmp_path: Path) -> None:
    class Fragile(Recorder):
        def changed(self, kind: str, obj: object) -> None:
            if not self.events["failed"]:
                self.events["failed"] += 1
                raise ArithmeticError
            super().changed(kind, obj)  # type: ignore[arg-type]  # as wide as the reflector's

    recorder = Fragile()
    with fake_api(make_node("a").obj()) as api:
        connection = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
        following = ClusterSource(connection, [KINDS["Node"]], recorder, recorder, SystemClock(), Random(1))
        following.start()
        assert wait_until(lambda: not following.unsynced())
        api.put(NODES, make_node("b").obj())
        assert wait_until(names(recorder, "a", "b"))
        following.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_revived_reflector_lists_everything_again(tmp_path: Path) -> None:
    class Deadly(Recorder):
        def changed(self, kind: str, obj: object) -> None:
            raise SystemExit

    recorder = Deadly()
    with fake_api(make_node("a").obj()) as api:
        client = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
        following = ClusterSource(client, [KINDS["Node"]], recorder, recorder, SystemClock(), Random(1))
        following.start()
        assert wait_until(lambda: not following.unsynced())
        assert following.revive() == []
        api.put(NODES, make_node("b").obj())
        assert wait_until(lambda: following.revive() == ["reflector-Node"])
        assert wait_until(names(recorder, "a", "b"))
        following.stop()


def test_a_restored_server_is_noticed_and_no_kind_is_synced_until_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "SHORTEST_INTERVAL_SECONDS", 0.05)
    with (
        fake_api(make_node("a").obj(), make_node("b").obj()) as api,
        running(api.kubeconfig(tmp_path), "Node", "Pod") as (following, recorder),
    ):
        assert wait_until(lambda: not following.unsynced())
        api.put(NODES, make_node("c").obj())
        assert wait_until(names(recorder, "a", "b", "c"))
        api.fail(NODES, *[answer(500)] * 10_000)
        api.forget_since(101)  # the survey of the pods notices it
        assert wait_until(lambda: "Node" in following.unsynced())
        api.heal()
        assert wait_until(names(recorder, "a"))
        assert wait_until(lambda: following.unsynced() == [])


def test_a_server_restored_during_an_interruption_is_noticed_even_past_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "SHORTEST_INTERVAL_SECONDS", 0.05)
    with (
        fake_api(make_node("a").obj(), make_node("b").obj()) as api,
        running(api.kubeconfig(tmp_path), "Node") as (following, recorder),
    ):
        assert wait_until(lambda: not following.unsynced())
        api.put(NODES, make_node("c").obj())
        assert wait_until(names(recorder, "a", "b", "c"))
        api.fail(NODES, *[answer(500)] * 2)
        api.end_watches()
        api.forget_since(101)
        for name in "defgh":
            api.put(NODES, make_node(name).obj())
        assert wait_until(names(recorder, "a", *"defgh"))


def test_a_watch_that_stays_open_and_silent_is_distrusted_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "SHORTEST_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(survey, "PATIENCE_SECONDS", 0.1)
    release = threading.Event()
    with fake_api(make_node("a").obj()) as api:
        api.fail(NODES, *[hang(release)] * 100, watch=True)
        with running(api.kubeconfig(tmp_path), "Node") as (following, recorder):
            assert wait_until(lambda: not following.unsynced())
            api.put(NODES, make_node("b").obj())
            assert wait_until(names(recorder, "a", "b"))
            api.put(NODES, make_node("c").obj())
            api.remove(NODES, "a")
            assert wait_until(names(recorder, "b", "c"))
            release.set()


def test_one_lost_event_is_found_while_later_ones_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "SHORTEST_INTERVAL_SECONDS", 0.05)
    with (
        fake_api(make_node("gone").obj(), make_node("b").obj()) as api,
        running(api.kubeconfig(tmp_path), "Node") as (following, recorder),
    ):
        assert wait_until(lambda: not following.unsynced())
        assert wait_until(lambda: any("watch=1" in call for call in api.calls))
        api.remove(NODES, "gone", unnoticed=True)
        api.put(NODES, make_node("c").obj())
        assert wait_until(names(recorder, "b", "c"))


def test_two_servers_are_two_clusters(tmp_path: Path) -> None:
    with fake_api(make_node("a").obj()) as one, FakeApiServer() as other:
        (tmp_path / "other").mkdir()
        other.put(NODES, make_node("z").obj())
        with (
            running(one.kubeconfig(tmp_path), "Node") as (first, seen),
            running(other.kubeconfig(tmp_path / "other"), "Node") as (second, seen_there),
        ):
            assert wait_until(lambda: not first.unsynced())
            assert wait_until(lambda: not second.unsynced())
            assert (seen.keys("Node"), seen_there.keys("Node")) == (["a"], ["z"])
