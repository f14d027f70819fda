"""Which test runs which line: each file of tests runs under coverage.py, and again after it or its modules changed."""

from __future__ import annotations

import ast
import json
import time
from collections import defaultdict
from collections.abc import Container, Generator
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from itertools import groupby
from pathlib import Path

import coverage
import pytest

from tests.mutation import forks
from tests.mutation.mutants import Mutant

LONGEST_TEST_SECONDS = 5
LEFT_OUT = {"end_to_end", "bench", "upstream", "versions", "stock", "mutation"}
_FILE_LIMIT_SECONDS = 100


@dataclass(frozen=True, slots=True)
class CoveringTests:
    """Tests by the lines that they run, and how long each takes under coverage."""

    seconds: dict[str, float]
    by_line: dict[str, dict[int, set[str]]]
    importers: dict[str, set[str]]

    def of(self, mutant: Mutant) -> set[str]:
        """Returns the tests that run the mutant's statement.

        A statement that runs at import has the tests of its room, and those that run its module or one that imports it.
        """
        if mutant.at_import:
            modules = {mutant.module, *self.importers.get(mutant.module, ())}
            lines = [tests for module in modules for tests in self.by_line.get(module, {}).values()]
            return {name for name in self.seconds if name.startswith(f"tests/{mutant.room}/")}.union(*lines)
        by_line = self.by_line.get(mutant.module, {})
        return set().union(*(by_line[line] for line in mutant.lines if line in by_line))


def measure(root: Path, modules: list[str], state: Path, children: int) -> CoveringTests:
    """Reads what is known of each file of tests, and runs those that have changed or whose modules have."""
    files = [file for file in sorted(root.glob("tests/**/test_*.py")) if not LEFT_OUT & set(file.parts)]
    stale = [file for file in files if not _is_current(root, file, state)]
    folders = [list(group) for _, group in groupby(stale, key=lambda file: file.parent)]
    jobs = [
        forks.Job(folder, partial(_measure_files, root, modules, folder, state), _FILE_LIMIT_SECONDS * len(folder))
        for folder in folders
    ]
    for number, ended in enumerate(forks.run(jobs, children, state / "children"), 1):
        name = ended.subject[0].parent.relative_to(root)
        print(f"coverage {number}/{len(jobs)} {name} {ended.seconds:.0f} s", flush=True)
        if ended.status != 0:
            print(f"    not measured: {(ended.directory / 'output').read_text()[-2000:]}", flush=True)
    return _read([_kept(root, file, state) for file in files], _importers(root, modules))


def _kept(root: Path, file: Path, state: Path) -> Path:
    return state / "coverage" / (".".join(file.relative_to(root).with_suffix("").parts) + ".json")


def _is_current(root: Path, file: Path, state: Path) -> bool:
    kept = _kept(root, file, state)
    return kept.exists() and all(
        digest(root / name) == known for name, known in json.loads(kept.read_text())["digests"].items()
    )


@cache
def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def _measure_files(root: Path, modules: list[str], files: list[Path], state: Path, directory: Path) -> int:
    """Runs the tests of some files in a child, and writes down which lines each of them ran."""
    measured = coverage.Coverage(data_file=None, include=[str(root / module) for module in modules])
    measured.start()
    outcome = _Measuring(measured)
    names = [str(file.relative_to(root)) for file in files]
    options = ["-q", "-m", "not stock and not browser", f"--basetemp={directory / 'tmp'}", "--timeout=30"]
    status = pytest.main([*options, "-p", "no:cacheprovider", *names], plugins=[outcome])
    measured.stop()
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        return int(status)
    data = measured.get_data()
    lines = {str(Path(path).relative_to(root)): data.contexts_by_lineno(path) for path in data.measured_files()}
    for file, name in zip(files, names, strict=True):
        passed = {test: seconds for test, seconds in outcome.seconds.items() if test.startswith(f"{name}::")}
        covered = {module: by_line for module in lines if (by_line := _of_tests(passed, lines[module]))}
        kept = _kept(root, file, state)
        kept.parent.mkdir(parents=True, exist_ok=True)
        digests = {path: digest(root / path) for path in (name, *covered)}
        kept.write_text(json.dumps({"digests": digests, "seconds": passed, "lines": covered}))
    return 0


def _of_tests(tests: Container[str], contexts: dict[int, list[str]]) -> dict[int, list[str]]:
    """Returns the lines that these tests ran, and which of them did."""
    by_line = {line: [name for name in names if name in tests] for line, names in contexts.items()}
    return {line: names for line, names in by_line.items() if names}


class _Measuring:
    """A plugin of pytest: each test is a context of coverage. `seconds` has those that passed."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self.seconds: dict[str, float] = {}
        self._measured = measured

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._measured.switch_context(item.nodeid)
        begin = time.perf_counter()
        self.seconds[item.nodeid] = 0.0
        result = yield
        if item.nodeid in self.seconds:
            self.seconds[item.nodeid] = round(time.perf_counter() - begin, 4)
        self._measured.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.seconds.pop(report.nodeid, None)


def _read(kept: list[Path], importers: dict[str, set[str]]) -> CoveringTests:
    tests = CoveringTests({}, {}, importers)
    for path in kept:
        if not path.exists():
            continue
        known = json.loads(path.read_text())
        quick = {name: seconds for name, seconds in known["seconds"].items() if seconds <= LONGEST_TEST_SECONDS}
        tests.seconds.update(quick)
        for module, by_line in known["lines"].items():
            lines = tests.by_line.setdefault(module, defaultdict(set))
            for line, names in by_line.items():
                lines[int(line)].update(name for name in names if name in quick)
    return tests


def _importers(root: Path, modules: list[str]) -> dict[str, set[str]]:
    """Returns, for each module, the modules that import it."""
    importers: dict[str, set[str]] = defaultdict(set)
    by_name = {module.removesuffix(".py").removesuffix("/__init__").replace("/", "."): module for module in modules}
    for module in modules:
        for node in ast.walk(ast.parse((root / module).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    if name in by_name:
                        importers[by_name[name]].add(module)
    return importers
