"""Fixtures of all tests, and of the stock control plane (etcd, kube-apiserver, kube-scheduler) of marker `stock`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Generator, Iterable, Iterator

import pytest
from hypothesis import settings

from tests.stock.build import MARKERS, Binaries, BuildError, GoMissingError, build
from tests.stock.cleaning import clean
from tests.stock.control_plane import ControlPlane
from tests.stock.oracle import Oracle

# What `make test` says of a commit does not hang on luck; `make explore` looks for cases that nobody has seen.
# A deadline for each example judges the machine: 400 ms instead of 20 where other work took its cores.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("exploring", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

_BUILT = pytest.StashKey[Binaries | BuildError]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup` one worker gets all stock tests, and one control plane does."""
    for item in items:
        if item.get_closest_marker("stock"):
            item.add_marker(pytest.mark.xdist_group("stock"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds before the first test, as no test's time limit allows for minutes of compiling.

    Without Go the whole run ends here: what is left out must be left out by name, with `-m 'not stock'`.
    """
    if session.config.option.collectonly or not any(item.get_closest_marker("stock") for item in session.items):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        try:
            session.config.stash[_BUILT] = build(report=_report, on_request=_on_request(session.items))
        except GoMissingError as error:
            raise pytest.UsageError(f"{error}; or leave out the tests that need it: -m 'not stock'") from None
        except BuildError as error:
            session.config.stash[_BUILT] = error


def _on_request(items: Iterable[pytest.Item]) -> list[str]:
    markers = {mark.name for item in items for mark in item.iter_markers()}
    return [program for marker, program in MARKERS.items() if marker in markers]


def _report(line: str) -> None:
    print(f"stock: {line}", file=sys.stderr, flush=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the ends of the servers' logs."""
    report = yield
    plane = getattr(item, "funcargs", {}).get("control_plane")
    if report.failed and isinstance(plane, ControlPlane):
        for process in plane.processes:
            report.sections.append((f"end of {process.log}", process.log_tail()))
    return report


@pytest.fixture(autouse=True)
def unchanged_logging() -> Iterator[None]:
    """A handler that stays writes into whatever has its descriptor by then: once it was the socket of another test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture(scope="session")
def stock_binaries(request: pytest.FixtureRequest) -> Binaries:
    """Executables by name, for tests with the marker `stock`. A failed build is an error."""
    built = request.config.stash[_BUILT]
    if isinstance(built, Exception):
        raise built
    return built


@pytest.fixture(scope="session")
def shared_control_plane(stock_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One a process; tests ask for `control_plane`, which is empty when they get it."""
    with ControlPlane(stock_binaries, tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture
def control_plane(shared_control_plane: ControlPlane) -> ControlPlane:
    """A running API server with an empty cluster; `with control_plane.scheduler(...)` adds the scheduler."""
    clean(shared_control_plane.client)
    return shared_control_plane


@pytest.fixture(scope="session")
def oracle(stock_binaries: Binaries) -> Iterator[Oracle]:
    """Answers what the stock scheduler's plugins decide; one a process."""
    with Oracle(stock_binaries["oracle"]) as running:
        yield running
