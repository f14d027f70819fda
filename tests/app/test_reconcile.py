"""What a process waits for before it decides in another's place: what that one may have given away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from extender.app.feed import ClusterFeed, feed_factory_of
from extender.config.settings import Settings
from tests.app.feeds import recording_feed
from tests.builders import Object, make_node, make_pod, make_resource_claim
from tests.cluster.fake_api import NODES, PODS, FakeApiServer, fake_api
from tests.stock.waiting import wait_until

CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"


@contextmanager
def following(api: FakeApiServer, directory: Path) -> Iterator[ClusterFeed]:
    """Yields a feed that has heard of everything."""
    settings = Settings(kubeconfig=api.kubeconfig(directory), watch_kinds=("Node", "Pod", "ResourceClaim"))
    feed = recording_feed(feed_factory_of(settings))
    feed.start()
    try:
        assert wait_until(lambda: not feed.missing())
        yield feed
    finally:
        feed.stop()


@pytest.mark.parametrize(
    ("path", "untold", "later", "waits"),
    [
        pytest.param(PODS, make_pod("p").obj(), make_pod("q").obj(), True, id="pods have places"),
        pytest.param(
            CLAIMS, make_resource_claim("c", "gpu"), make_resource_claim("d", "gpu"), True, id="claims have devices"
        ),
        pytest.param(NODES, make_node("n").obj(), make_node("m").obj(), False, id="nodes have nothing"),
    ],
)
def test_it_waits_until_all_that_was_given_away_is_known(
    tmp_path: Path, path: str, untold: Object, later: Object, waits: bool
) -> None:
    with fake_api() as api:
        api.collections[CLAIMS] = {}
        with following(api, tmp_path) as feed:
            api.put(path, untold, unnoticed=True)
            is_told = feed.reconcile()
            assert is_told() is not waits
            api.put(path, later)
            assert wait_until(is_told)


def test_a_kind_that_the_api_server_does_not_serve_is_not_waited_for(tmp_path: Path) -> None:
    with fake_api() as api, following(api, tmp_path) as feed:
        assert wait_until(feed.reconcile())
