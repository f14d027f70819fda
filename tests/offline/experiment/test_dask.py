"""An experiment on the workers of Dask gives the results of this machine, also if a worker is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import extender
from extender.errors import ExtenderError
from extender.offline.experiment.sweep import as_csv

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[3] / "examples" / "experiment" / "experiment.yaml"


def test_a_lost_workers_runs_are_made_again_with_the_same_results(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'podseat[dask]'")
    local = extender.experiment(EXAMPLE)
    flags = {"host": "127.0.0.1", "threads_per_worker": 1, "dashboard_address": None, "local_directory": tmp_path}
    with distributed.LocalCluster(n_workers=2, **flags) as cluster:
        lost = cluster.workers[0].pid
        deaths: list[int] = []

        def kill_one(done: int, _total: int) -> None:
            if done and not deaths:
                os.kill(lost, signal.SIGKILL)
                deaths.append(lost)

        remote = extender.experiment(EXAMPLE, progress=kill_one, dask=cluster.scheduler_address)
    assert deaths == [lost]
    assert as_csv(remote) == as_csv(local)


def test_an_address_without_a_scheduler_is_named() -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'podseat[dask]'")
    with pytest.raises(ExtenderError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"):
        extender.experiment(EXAMPLE, dask="tcp://127.0.0.1:1")
