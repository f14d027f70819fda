"""The state of an extender against that of the API server."""

from __future__ import annotations

import http.client
import json
from typing import Any

from tests.faults.sizes import SETTLE_SECONDS
from tests.running import RunningExtender
from tests.stock.api_client import ApiClient
from tests.stock.waiting import wait_until

ASSUMED = 'extender_cache_size{type="assumed_pods"}'
PODS_KNOWN, NODES_KNOWN = 'extender_cache_size{type="pods"}', 'extender_cache_size{type="nodes"}'


def check_agreement(client: ApiClient, extender: RunningExtender) -> None:
    """As many nodes and pods, none left assumed, and nothing that the comparer finds, now or ever."""

    def sizes() -> tuple[float, ...]:
        try:
            return tuple(extender.metric(name) for name in (NODES_KNOWN, PODS_KNOWN, ASSUMED))
        except OSError:
            return ()

    truth = (len(client.list("Node")), len(client.list("Pod")), 0)
    wait_until(lambda: sizes() == truth, SETTLE_SECONDS)
    assert sizes() == truth
    compared = wait_until(lambda: decided(extender.port), SETTLE_SECONDS)
    assert compared, comparison(extender.port)
    assert compared["compared"]["Pod"] == truth[1]
    assert compared["compared"]["Table"] > 0
    assert "extender_cache_differences_total{" not in extender.get("/metrics")[1]


def decided(port: int) -> dict[str, Any] | None:
    """The report, which finds nothing; None while a watch is still behind, as one may be that hangs to this moment."""
    compared = comparison(port)
    assert compared["differences"] == []
    return None if compared["undecided"] or compared["unlisted"] else compared


def comparison(port: int) -> dict[str, Any]:
    """Returns what the comparer reports; it takes as long as the watches take to tell what it waits for."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        connection.request("POST", "/debug/cache/compare")
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        report: dict[str, Any] = json.loads(body)
        return report
    finally:
        connection.close()
