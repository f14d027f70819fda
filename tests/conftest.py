"""Fixtures of all tests, and of the stock control plane (etcd, kube-apiserver, kube-scheduler) of marker `stock`."""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM, SIGUSR2
from threading import Thread
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.stock.build import MARKERS, Binaries, GoMissingError, build, find_go, is_built
from tests.stock.cleaning import clean
from tests.stock.control_plane import ControlPlane
from tests.stock.oracle import Oracle

# What `make test` says of a commit does not hang on luck; `make explore` looks for new cases.
# A deadline for each example judges the machine: 400 ms instead of 20 where other work took its cores.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=40)
settings.register_profile("exploring", deadline=None, max_examples=400)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

T = TypeVar("T")
_BUILT = pytest.StashKey[Future[Binaries]]()
_STOCK_FILES = pytest.StashKey[set[Path]]()
_PLANE = pytest.StashKey[ControlPlane]()
_STDERR = pytest.StashKey[int]()
_LONG = ("processes", "thorough", "hypothesis")
"""The markers of tests that take long, in the order in which they begin."""
_GC_THRESHOLDS = (5_000, 10, 10)
"""By default, the collector begins after each 700 new objects."""
_HANGING_SECONDS = 60.0
"""A test that runs on for so long after its time limit will never end: its process writes where it is, and ends."""


def pytest_configure(config: pytest.Config) -> None:
    """The workers of pytest-xdist take the files in the order of `collection_modifyitems`."""
    config.option.loadscopereorder = False
    config.stash[_STDERR] = _stderr(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All workers must agree on the order, also if the build ends while they start."""
    node.workerinput["stock_is_built"] = is_built()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return HalfWithServers(config, log) if config.option.dist == "loadfile" else None


class HalfWithServers(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives the files that need the stock servers to half of the workers, while there are other files.

    Each worker with such a file starts an API server of its own, which takes 5 s of CPU. Tests with servers also wait a
    lot; in the meantime, the tests of the other workers can use the CPU.
    """

    def _assign_work_unit(self, node: Any) -> None:
        takes_servers = int(node.gateway.id.removeprefix("gw")) < max(1, self.numnodes // 2)
        if is_built():
            fitting = (path for path in self.workqueue if self._needs_servers(path) is takes_servers)
            self.workqueue.move_to_end(next(fitting, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)

    def _needs_servers(self, path: str) -> bool:
        return _has_stock_mark(self.config.rootpath / path)


@cache
def _has_stock_mark(path: Path) -> bool:
    return "mark.stock" in path.read_text()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keeps the garbage collector from the modules and the items, which all live until the end.

    It took half of the collection's time, and later looked at a million objects again and again.
    """
    gc.disable()
    try:
        _begin_imports(session)
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
        gc.set_threshold(*_GC_THRESHOLDS)


def _begin_imports(session: pytest.Session) -> None:
    """Begins the imports of each worker at another file, so that together they compile a new clone's tests once."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    first, step = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    root = session.config.rootpath
    files = sorted(path for folder in session.config.args for path in (root / folder).rglob("test_*.py"))
    files = [path for path in files if not _is_left_out(path, session.config.option.markexpr)]
    for path in files[first::step]:
        with suppress(Exception):  # The collection, which follows, reports a file that cannot be imported.
            import_module(".".join(path.relative_to(root).with_suffix("").parts))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Keeps files from being imported whose own markers leave all their tests out: some import much."""
    return _is_left_out(collection_path, config.option.markexpr) or None


def _is_left_out(path: Path, expression: str) -> bool:
    """Returns True if `-m` leaves out each test of a file."""
    if not expression or not path.name.startswith("test_"):
        return False
    own = re.search(r"^pytestmark = (\[[^]]*]|.*)$", path.read_text(), re.MULTILINE)
    return own is not None and _leave_out(frozenset(re.findall(r"pytest\.mark\.(\w+)", own[1])), expression)


@cache
def _leave_out(marks: frozenset[str], expression: str) -> bool:
    """Returns True if the expression leaves out every test with these markers, whichever others it has."""
    names = set(re.findall(r"\w+", expression)) - {"and", "or", "not"}
    others, compiled = sorted(names - marks), compile(expression, "-m", "eval")
    if len(others) == len(names):
        return False
    further = (zip(others, chosen, strict=True) for chosen in product((False, True), repeat=len(others)))
    return not any(eval(compiled, dict.fromkeys(marks, True), dict(each)) for each in further)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begins with the files that take long, so that none of them is left alone at the end.

    While servers are built, the files that need none of them come first.
    """
    stock = config.stash[_STOCK_FILES] = {item.path for item in items if item.get_closest_marker("stock")}
    marked = {mark: {item.path for item in items if item.get_closest_marker(mark)} for mark in _LONG}
    built = getattr(config, "workerinput", {}).get("stock_is_built", is_built())
    items.sort(key=lambda item: ((item.path in stock) is not built, *(item.path not in marked[mark] for mark in _LONG)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begins to build what the tests need.

    Without Go the whole run ends here: what is left out must be left out by name, with `-m 'not stock'`.
    """
    if session.config.option.collectonly or not any(item.get_closest_marker("stock") for item in session.items):
        return
    on_request = _on_request(session.items)
    if not is_built(on_request=on_request):
        try:
            find_go()
        except GoMissingError as error:
            raise pytest.UsageError(f"{error}; or leave out the tests that need it: -m 'not stock'") from None
    report = _reporter(session.config)
    session.config.stash[_BUILT] = _in_background(lambda: build(report, on_request=on_request))


def _on_request(items: Iterable[pytest.Item]) -> list[str]:
    markers = {mark.name for item in items for mark in item.iter_markers()}
    return [program for marker, its_programs in MARKERS.items() if marker in markers for program in its_programs]


def _reporter(config: pytest.Config) -> Callable[[str], None]:
    """Returns a function that writes a line to the standard error of this process, also while a test's is captured."""

    def report(line: str) -> None:
        os.write(config.stash[_STDERR], f"stock: {line}\n".encode())

    return report


def _stderr(config: pytest.Config) -> int:
    """Returns a descriptor of the standard error of this process, which tests cannot capture."""
    capture = config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        return os.dup(2)


def _in_background(task: Callable[[], T]) -> Future[T]:
    outcome = Future[T]()

    def run() -> None:
        try:
            outcome.set_result(task())
        except Exception as error:  # the tests that need the result raise it
            outcome.set_exception(error)

    Thread(target=run, name="build", daemon=True).start()
    return outcome


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Waits until all is built before the time limit of the first test that needs it begins.

    The shared control plane stops when the next file needs none: idle, it takes a sixth of a core from the other tests.
    pytest-timeout raises an error once, and only in Python code. A test that then waits in a `finally`, or whose C code
    does not return, would hold up the whole run.
    """
    stash = item.config.stash
    if item.get_closest_marker("stock"):
        stash[_BUILT].exception()
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0] if marker else item.config.getini("timeout"))
    faulthandler.dump_traceback_later(seconds + _HANGING_SECONDS, file=stash[_STDERR], exit=True)
    outcome = yield
    faulthandler.cancel_dump_traceback_later()
    if _PLANE in stash and nextitem is not None and nextitem.path not in stash[_STOCK_FILES]:
        stash[_PLANE].stop()
    return outcome


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


@pytest.fixture(autouse=True)
def unchanged_process() -> Iterator[None]:
    """A command that runs in this process sets handlers of signals, and imports rules from the folder of its policy."""
    handlers = {number: signal.getsignal(number) for number in (SIGHUP, SIGINT, SIGTERM, SIGUSR2)}
    path, modules = sys.path[:], set(sys.modules)
    yield
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    if sys.path != path:
        for name in sys.modules.keys() - modules:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(tuple({*filter(None, sys.path)} - {*path})):
                del sys.modules[name]
        sys.path[:] = path


@pytest.fixture(scope="session")
def stock_binaries(request: pytest.FixtureRequest) -> Binaries:
    """Executables by name, for tests with the marker `stock`. A failed build is an error."""
    return request.config.stash[_BUILT].result()


@pytest.fixture(scope="session")
def session_control_plane(
    request: pytest.FixtureRequest, stock_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """One a process; it is stopped while no test needs it."""
    with ControlPlane(stock_binaries, tmp_path_factory.mktemp("control-plane")) as plane:
        request.config.stash[_PLANE] = plane
        yield plane


@pytest.fixture(scope="module")
def shared_control_plane(session_control_plane: ControlPlane) -> ControlPlane:
    """A running API server; tests ask for `control_plane`, which is empty when they get it."""
    if not session_control_plane.processes:
        session_control_plane.start()
    return session_control_plane


@pytest.fixture
def control_plane(shared_control_plane: ControlPlane) -> ControlPlane:
    """A running API server with an empty cluster; `with control_plane.scheduler(...)` adds the scheduler."""
    clean(shared_control_plane)
    return shared_control_plane


@pytest.fixture(scope="session")
def oracle(stock_binaries: Binaries) -> Iterator[Oracle]:
    """Answers what the stock scheduler's plugins decide; one a process."""
    with Oracle(stock_binaries["oracle"]) as running:
        yield running
