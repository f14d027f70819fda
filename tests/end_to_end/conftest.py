"""A running extender with the scheduler's configuration that calls it, and a running scheduler of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.end_to_end.scheduling import Scene
from tests.running import RunningExtender, RunningScheduler, schedule, serve
from tests.stock.control_plane import ControlPlane

StartExtender = Callable[..., AbstractContextManager[RunningExtender]]
StartScheduler = Callable[..., AbstractContextManager[RunningScheduler]]


@pytest.fixture
def start_extender(control_plane: ControlPlane, tmp_path: Path) -> StartExtender:
    """`with start_extender("--flag") as extender:` runs one until the block ends."""

    def start(*flags: str, kubeconfig: Path | None = None) -> AbstractContextManager[RunningExtender]:
        return serve(kubeconfig or control_plane.kubeconfig, tmp_path, *flags)

    return start


@pytest.fixture
def start_scheduler(control_plane: ControlPlane, tmp_path: Path) -> StartScheduler:
    """`with start_scheduler("--flag") as scheduler:` runs one until the block ends."""
    return partial(schedule, control_plane.kubeconfig, tmp_path)


@pytest.fixture(scope="module")
def scheduler(
    shared_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningScheduler]:
    """One that all tests of a module use."""
    with schedule(shared_control_plane.kubeconfig, tmp_path_factory.mktemp("scheduler")) as scheduler:
        yield scheduler


@pytest.fixture
def scene(control_plane: ControlPlane, scheduler: RunningScheduler) -> Scene:
    """An empty cluster; the scheduler that all tests of the module use knows that it is empty."""
    return Scene(control_plane, scheduler)
