"""Watches that stay open and deliver nothing, or lose one event, in front of a real API server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import make_node, make_pod
from tests.end_to_end.workload import violations
from tests.faults.injection import Injector, Severity
from tests.faults.mortal import MortalExtender
from tests.faults.proxy import FaultyProxy, kubeconfig_through, proxy_before
from tests.running import ONLY_EXTENDER, RunningExtender
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.slow]

NO_FAULTS = Severity({}, (0, 0), (0, 0))
TTL_SECONDS = 1
ROOM, MORE = 8, 4
MOST_BLIND_SECONDS = 110
NODES, PODS = 'extender_cache_size{type="nodes"}', 'extender_cache_size{type="pods"}'


def bound(control_plane: ControlPlane) -> int:
    return sum(bool(pod["spec"].get("nodeName")) for pod in control_plane.client.list("Pod", "default"))


@pytest.fixture
def proxy(control_plane: ControlPlane) -> Iterator[FaultyProxy]:
    with proxy_before(control_plane, Injector(0, NO_FAULTS)) as proxy:
        yield proxy


@pytest.fixture
def extender(control_plane: ControlPlane, proxy: FaultyProxy, tmp_path: Path) -> Iterator[RunningExtender]:
    """Follows the API server through the proxy, and knows the nodes a and b."""
    control_plane.client.create(*(make_node(name).obj() for name in ("a", "b")))
    kubeconfig = kubeconfig_through(proxy, control_plane, tmp_path)
    with MortalExtender(tmp_path, "--kubeconfig", str(kubeconfig)) as extender:
        assert wait_until(lambda: extender.running.metric(NODES) == 2)
        yield extender.running


def test_what_a_silent_watch_does_not_deliver_is_known_within_two_minutes(
    control_plane: ControlPlane, proxy: FaultyProxy, extender: RunningExtender
) -> None:
    proxy.hold_watches()
    control_plane.client.create(make_pod("p").node("a").obj())
    control_plane.client.delete("Node", "b")
    assert wait_until(lambda: (extender.metric(NODES), extender.metric(PODS)) == (1, 1), MOST_BLIND_SECONDS)


def test_a_deletion_that_is_lost_while_later_events_arrive_is_known_within_two_minutes(
    control_plane: ControlPlane, proxy: FaultyProxy, extender: RunningExtender
) -> None:
    proxy.lose_event(b'"type":"DELETED"', b'"kind":"Node"')
    control_plane.client.delete("Node", "b")
    assert wait_until(lambda: not proxy.events_to_lose)
    control_plane.client.create(make_node("c").obj(), make_node("d").obj())
    assert wait_until(lambda: extender.metric(NODES) == 4)  # b is among them
    assert wait_until(lambda: extender.metric(NODES) == 3, MOST_BLIND_SECONDS)


def test_bound_pods_keep_their_places_while_the_watch_is_silent(control_plane: ControlPlane, tmp_path: Path) -> None:
    client = control_plane.client
    client.create(*(make_node(name).capacity(cpu=str(ROOM // 2), memory="64Gi").obj() for name in ("a", "b")))
    with proxy_before(control_plane, Injector(0, NO_FAULTS)) as proxy:
        kubeconfig = kubeconfig_through(proxy, control_plane, tmp_path)
        flags = ("--kubeconfig", str(kubeconfig), f"--assumed-ttl-seconds={TTL_SECONDS}")
        with MortalExtender(tmp_path, *flags) as extender:
            configuration = {**extender.running.configuration(plugins=ONLY_EXTENDER), "podMaxBackoffSeconds": 1}
            with control_plane.scheduler(configuration):
                proxy.hold_watches()
                client.create(*(make_pod(f"early-{i}").req(cpu="1").obj() for i in range(ROOM)))
                assert wait_until(lambda: bound(control_plane) == ROOM)
                time.sleep(TTL_SECONDS + 2)  # the sweep for pods that are over runs every second
                client.create(*(make_pod(f"late-{i}").req(cpu="1").obj() for i in range(MORE)))
                refused = 'extender_refused_nodes_total{plugin="NodeResourcesFit"}'
                wait_until(lambda: bound(control_plane) > ROOM or extender.running.metric(refused) >= 2 * MORE, 10)
                assert violations(client.list("Node"), client.list("Pod", "default")) == []
                proxy.release_watches()
                assumed = 'extender_cache_size{type="assumed_pods"}'
                assert wait_until(lambda: extender.running.metric(assumed) == 0)
                assert bound(control_plane) == ROOM
