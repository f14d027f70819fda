"""A flood of connections from two addresses keeps no probe from its answer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.faults.fuzz import write_cluster
from tests.faults.serving import on_snapshot
from tests.faults.sizes import SOAKING
from tests.faults.strangers import FLOODS, failed_probes, flood
from tests.stock.process import free_port

pytestmark = [pytest.mark.timeout(900 if SOAKING else 300), pytest.mark.processes]

_PROBES, _EVERY_SECONDS = (60, 0.5) if SOAKING else (10, 0.2)
_RATES = {"metrics": 150.0, "webhook": 500.0} if SOAKING else {"metrics": 60.0, "webhook": 100.0}
_PLACES = 32
_FEW_CASES = (
    ("refused", "metrics"),
    ("refused", "webhook"),
    ("half a line", "webhook"),
    ("served, then idle", "metrics"),
)
_CASES = tuple(product(FLOODS, _RATES)) if SOAKING else _FEW_CASES


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    folder: Path = tmp_path_factory.mktemp("strangers")
    write_cluster(folder / "cluster.json")
    metrics = free_port()
    flags = (f"--metrics-bind=127.0.0.1:{metrics}", *(() if SOAKING else (f"--connections={_PLACES}",)))
    with on_snapshot(folder, folder / "cluster.json", *flags) as running:
        yield {"metrics": metrics, "webhook": running.port}


@pytest.mark.parametrize(("sent", "port"), _CASES)
def test_no_probe_fails_while_strangers_take_all_places(ports: dict[str, int], sent: str, port: str) -> None:
    with flood(ports[port], FLOODS[sent], _RATES[port]):
        assert failed_probes(ports[port], _PROBES, _EVERY_SECONDS) == ([], [])
