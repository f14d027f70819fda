"""The copy of a cache that the pages are made of, and who gets to see them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from threading import Event
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import pytest
from werkzeug.test import Client

from extender import Cluster
from extender.app.feed import feed_factory_of
from extender.app.live_pages import CacheFollower, LiveCluster, live_pages, simulation_handler
from extender.app.serve import application
from extender.config.cluster_access import ClusterAccess
from extender.config.settings import Settings
from extender.errors import ClusterError
from extender.framework.profile import Profile, Profiles
from extender.model.node import Node
from extender.model.pod import Pod
from extender.offline.explain.explanation import Explanation
from extender.offline.live import read_state
from extender.offline.nodes import all_nodes, one_node
from extender.offline.state import ClusterState
from extender.plugins.registry import default_profile
from extender.plugins.users.predicate import predicate
from extender.plugins.users.rule_calls import OfflineHost
from extender.runtime.clock import ManualClock, TimeLimit
from extender.runtime.unsettled import UnsettledWrites
from extender.ui import Choices, Site
from extender.web.answers import Answer
from extender.web.app import PageServer, PrivatePages
from tests.app.test_serve import EXAMPLE
from tests.builders import make_node, make_pod
from tests.cache.watched_cluster import WatchedCluster
from tests.cluster.fake_api import PODS, answer, fake_api
from tests.stock.waiting import wait_until
from tests.verbs.cluster import cache_of

pytestmark = pytest.mark.processes

PROFILES = Profiles([default_profile()])


def contents(follower: CacheFollower) -> object:
    """Everything that pages say of the cluster."""
    state = follower.look().state
    nodes = all_nodes(state)
    return (
        nodes,
        [one_node(state, each["name"]) for each in nodes["nodes"]],
        {info.pod.key: Explanation(state, info.pod).to_dict(changes=False) for info in state.pending},
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_copy_that_follows_equals_a_new_one(seed: int) -> None:
    cluster = WatchedCluster(Random(seed))
    follower = CacheFollower(cluster.cache, PROFILES)
    for _ in range(12):
        cluster.live(8)
        assert contents(follower) == contents(CacheFollower(cluster.cache, PROFILES))


def test_it_has_what_the_cache_counts() -> None:
    cluster = WatchedCluster(Random(7))
    cluster.live(60)
    state = CacheFollower(cluster.cache, PROFILES).look().state
    with cluster.cache.snapshot("test") as table:
        for name in (each["name"] for each in all_nodes(state)["nodes"]):
            there, here = table.nodes.row_of[name], state.table.nodes.row_of[name]
            assert table.nodes.requested[:6, there].tolist() == state.table.nodes.requested[:6, here].tolist()
    assert {info.uid for info in cluster.cache.overview().unplaced} == {info.uid for info in state.pending}


def test_a_live_cluster_is_read_again_when_the_last_reading_is_old() -> None:
    clock = ManualClock()
    down = ClusterError("the API server is down")
    states: Iterator[ClusterState | ClusterError] = iter([ClusterState(()), down, ClusterState(())])

    def read() -> tuple[ClusterState, list[str]]:
        clock.advance(2)  # so that a reading is good for 20 s
        if isinstance(state := next(states), ClusterError):
            raise state
        return state, ["a note"]

    live = LiveCluster(read, clock.monotonic)
    first = live.look({})
    assert (first.revision, first.source, first.notes) == (1, "live cluster", ["a note"])
    clock.advance(19)
    assert live.look({}) is first
    clock.advance(1)
    with pytest.raises(ClusterError):
        live.look({})
    again = live.look({})
    assert again.revision == 2
    assert again.state is not first.state


def test_pages_of_a_live_cluster_show_what_is_new(tmp_path: Path) -> None:
    clock = ManualClock()
    with fake_api(make_node("n").obj()) as api:
        access = ClusterAccess((api.kubeconfig(tmp_path),))
        live = LiveCluster(lambda: read_state(access), clock.monotonic)
        pages = Site(live.look, Choices()).pages()
        api.put(PODS, make_pod("late").obj())
        assert b"late" not in pages["/ui/pending"]({}, "").body
        clock.advance(10)
        assert b"late" in pages["/ui/pending"]({}, "").body
        api.fail(PODS, answer(500, "down"))
        clock.advance(10)
        page = pages["/ui/pending"]({}, "")
        assert (page.status, b"pods cannot be listed" in page.body) == (503, True)
        assert pages["/ui/pending"]({}, "").status == 200


def test_what_has_changed_nothing_is_the_same_revision() -> None:
    cluster = WatchedCluster(Random(1))
    follower = CacheFollower(cluster.cache, PROFILES)
    first = follower.look()
    assert follower.look().revision == first.revision
    cluster.put("Node", make_node("late").obj())
    cluster.deliver_all()
    assert follower.look().revision != first.revision


@pytest.fixture(scope="module")
def app() -> Iterator[object]:
    settings = Settings.model_validate({"cluster": EXAMPLE})
    made = application(settings, feed_factory_of(settings), UnsettledWrites(10.0))
    made.lifecycle.start()
    yield made
    made.lifecycle.stop()


@pytest.mark.parametrize(
    ("address", "host", "status"),
    [
        pytest.param("127.0.0.1", "localhost:8888", 200, id="this machine"),
        pytest.param("127.0.0.1", "rebound.example", 403, id="a name that resolves to this machine"),
        pytest.param("10.0.0.7", "10.0.0.1:8888", 403, id="another machine"),
    ],
)
@pytest.mark.parametrize("path", ["/ui/pending", "/ui/nodes.json", "/ui/page.css"])
def test_serve_shows_its_pages_as_it_shows_the_cache(
    app: WSGIApplication, path: str, address: str, host: str, status: int
) -> None:
    def from_there(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        return app({**environ, "REMOTE_ADDR": address}, start_response)

    client = Client(from_there)
    assert client.get(path, headers={"Host": host}).status_code == status
    if status == 200:
        assert client.post(path, headers={"Host": host}).status_code == 405


def test_serve_shows_a_bind_that_it_has_made(app: object) -> None:
    client, pod = Client(app), Cluster.load(EXAMPLE).pod("shop/web-6d5f8-m7d3x")  # type: ignore[arg-type]

    def shown(page: str) -> Any:
        return client.get(f"/ui/{page}", environ_overrides={"REMOTE_ADDR": "127.0.0.1"}).json

    (best, *_) = shown(f"pod.json?pod={pod.key}")["best"]
    body = {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": best}
    assert pod.name in [each["name"] for each in shown("pending.json")["pending"]]
    assert client.post("/scheduler/bind", json=body).json == {"Error": ""}
    assert pod.name not in [each["name"] for each in shown("pending.json")["pending"]]
    assert pod.key in shown(f"node.json?node={best}")["pods"]


def test_a_rule_that_hangs_keeps_pages_and_simulations_no_longer_than_a_decision_may_take() -> None:
    asked, end = list[str](), Event()

    @predicate
    def hanging(pod: Pod, node: Node) -> bool:
        asked.append(pod.name)
        return end.wait(60)

    profiles = Profiles([Profile("default-scheduler", [hanging.rule("Hanging", {}, OfflineHost())], [])])
    limit, cache = TimeLimit(ManualClock(), 0.5), cache_of(make_node("n").obj(), make_pod("p").obj())
    pages = live_pages(cache, profiles, lambda: None, limit)
    simulate = simulation_handler(cache, profiles, lambda: None, limit)
    body = json.dumps({"pods": [make_pod("new").obj()]}).encode()

    def answers() -> Iterator[tuple[int, bytes]]:
        for path in ("/ui/pending", "/ui/pod.json", "/ui/compare"):
            answer = pages[path]({"pod": ["default/p"]}, "")
            yield answer.status, answer.body
        answer = simulate(body)
        yield answer.status, answer.body

    try:
        for _ in range(2):
            found = list(answers())
            assert [status for status, _ in found] == [200, 503, 503, 503]  # the list names the pod and goes on
            for _, page in found:
                assert b"no decision within 0.5 s: Hanging has not answered" in page
        assert not asked  # only in processes that have ended, so that no thread is left here
    finally:
        end.set()
    assert wait_until(lambda: {status for status, _ in answers()} == {200})


def test_another_machine_gets_no_pages_of_the_loop() -> None:
    server = PageServer("127.0.0.1", 0, PrivatePages({"/ui/pending": lambda *_: Answer(200, b"{}")}))
    server.start()
    from_a_mesh = ("127.0.0.6", 0)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60, source_address=from_a_mesh)
    connection.request("GET", "/ui/pending")
    answer = connection.getresponse()
    assert (answer.status, "only from this machine" in json.loads(answer.read())["error"]) == (403, True)
    connection.close()
    server.stop()
