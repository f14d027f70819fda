"""`make mutate`: draws mutants by seed, runs the tests that cover each, and reports which of them no test noticed."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import hypothesis
import pytest

from tests.mutation import covering, forks
from tests.mutation.changed_module import ChangedModule
from tests.mutation.mutants import Mutant, draw, mutants_of

ROOT = Path(__file__).parents[2]
STATE = ROOT / ".mutate"
ROOMS = ["cache", "queue", "framework", "plugins", "verbs", "scheduler", "cluster/election", "runtime"]

TESTS_SECONDS = 20
"""A mutant that many tests cover is run against the quickest that take so long together."""
_HANGS_SECONDS = 15
_TIMED_OUT = 98


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant: killed, timeout, survived, uncovered, or error.

    A timeout is no verdict, because the machine may be slow. `_confirm_timeouts` turns it into a kill.
    """

    key: str
    tree: str
    outcome: str
    test: str
    seconds: float


class Journal:
    """The verdicts so far, on disk; the latest of a mutant counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._verdicts: dict[str, Verdict] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                verdict = Verdict(**json.loads(line))
                self._verdicts[verdict.key] = verdict

    def of(self, mutant: Mutant) -> Verdict | None:
        return self._verdicts.get(mutant.key)

    def add(self, verdict: Verdict) -> None:
        self._verdicts[verdict.key] = verdict
        with self._path.open("a") as file:
            file.write(json.dumps({name: getattr(verdict, name) for name in Verdict.__slots__}) + "\n")


class InOrder:
    """A plugin of pytest: runs the given tests in their order, and remembers the one that failed or timed out."""

    def __init__(self, tests: list[str]) -> None:
        self._rank = {name: number for number, name in enumerate(tests)}
        self.failed = ""
        self.timed_out = False

    def pytest_configure(self, config: pytest.Config) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)  # one failure is enough, however long
        hypothesis.settings.register_profile("first failure", derandomize=True, deadline=None, phases=phases)
        hypothesis.settings.load_profile("first failure")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._rank]
        items[:] = sorted(chosen, key=lambda item: self._rank[item.nodeid])

    def pytest_exception_interact(self, call: pytest.CallInfo[object]) -> None:
        self.timed_out |= call.excinfo is not None and "from pytest-timeout" in str(call.excinfo.value)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def _test(mutant: Mutant, source: str, stages: list[list[str]], directory: Path) -> int:
    """Runs the tests in a child; leaves the name of the first that failed."""
    sys.meta_path.insert(0, ChangedModule(ROOT, mutant.module, source))
    options = ["-q", "-x", "--tb=no", f"--basetemp={directory / 'tmp'}", f"--timeout={_HANGS_SECONDS}"]
    for tests in stages:
        plugin = InOrder(tests)
        files = sorted({name.partition("::")[0] for name in tests})
        status = pytest.main([*options, "-p", "no:cacheprovider", *files], plugins=[plugin])
        if status != pytest.ExitCode.OK:
            (directory / "failed").write_text(plugin.failed)
            return _TIMED_OUT if plugin.timed_out else int(status)
    return 0


def _stages(mutant: Mutant, tests: covering.CoveringTests) -> list[list[str]]:
    """Returns the covering tests, quickest first: those of the mutant's own room, then all others."""
    own = f"tests/{mutant.room}/"
    by_stage: list[list[str]] = [[], []]
    total = 0.0
    for name in sorted(tests.of(mutant), key=lambda name: (not name.startswith(own), tests.seconds[name])):
        if total + tests.seconds[name] <= TESTS_SECONDS:
            total += tests.seconds[name]
            by_stage[not name.startswith(own)].append(name)
    return [stage for stage in by_stage if stage]


def _jobs(
    mutants: list[Mutant], tests: covering.CoveringTests, source: Callable[[Mutant], str]
) -> Iterator[forks.Job[Mutant]]:
    for mutant in mutants:
        if stages := _stages(mutant, tests):
            seconds = sum(tests.seconds[name] for stage in stages for name in stage)
            yield forks.Job(mutant, partial(_test, mutant, source(mutant), stages), 30 + 3 * seconds)


def _verdict(ended: forks.Ended[Mutant], tree: str) -> Verdict:
    failed = ended.directory / "failed"
    match ended.status:
        case 0:
            outcome = "survived"
        case pytest.ExitCode.TESTS_FAILED | pytest.ExitCode.INTERRUPTED:  # interrupted: a file cannot be imported
            outcome = "killed"
        case status if status in (None, _TIMED_OUT):
            outcome = "timeout"
        case _:
            outcome = "error"
    test = failed.read_text() if failed.exists() else ""
    return Verdict(ended.subject.key, tree, outcome, test, round(ended.seconds, 2))


def _tree() -> str:
    """Identifies the product and the tests: verdicts count for one state of both."""
    files = sorted([*ROOT.glob("extender/**/*.py"), *ROOT.glob("tests/**/*.py")])
    return sha256("\n".join(f"{file} {covering.digest(file)}" for file in files).encode()).hexdigest()[:12]


def _report(mutants: list[Mutant], journal: Journal, tree: str) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant in mutants:
        verdict = journal.of(mutant)
        room = next(room for room in ROOMS if mutant.module.startswith(f"extender/{room}/"))
        outcome = verdict.outcome if verdict else "not run"
        counts[room][outcome] += 1
        if outcome not in ("killed", "not run"):
            print(f"{outcome}: {mutant.module} {mutant.scope}\n  - {mutant.before}\n  + {mutant.after}")
    total = sum(counts.values(), Counter())
    for room, outcomes in [*counts.items(), ("all", total)]:
        killed = outcomes["killed"]
        of = outcomes.total() - outcomes["not run"] - outcomes["timeout"]
        print(f"{room:17} {killed}/{of} killed, {100 * killed / max(of, 1):.1f} %  ({dict(outcomes)})")
    earlier = sum(1 for mutant in mutants if (verdict := journal.of(mutant)) and verdict.tree != tree)
    seconds = sum(verdict.seconds for mutant in mutants if (verdict := journal.of(mutant)))
    print(f"{seconds:.0f} s of children's time; {earlier} verdicts are from an earlier state of the code or the tests")


def _options() -> Namespace:
    parser = ArgumentParser("make mutate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--children", type=int, default=2, help="processes at a time")
    parser.add_argument("--module", action="append", help="only modules whose path begins so; may be repeated")
    parser.add_argument("--again", action="store_true", help="only the survivors, against the tests as they are now")
    parser.add_argument("--report", action="store_true", help="only print what is known")
    return parser.parse_args()


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that no child stays
    forks.preload()
    begin = time.monotonic()
    paths = [path for room in ROOMS for path in sorted((ROOT / "extender" / room).rglob("*.py"))]
    modules = [str(path.relative_to(ROOT)) for path in paths]
    prefixes = tuple(options.module or [""])
    every = [mutant for module in modules if module.startswith(prefixes) for mutant in mutants_of(ROOT, module)]
    mutants = draw(every, options.seed, options.count)
    tree = _tree()
    STATE.mkdir(exist_ok=True)
    journal = Journal(STATE / "verdicts.jsonl")
    if not options.report:
        due = [mutant for mutant in mutants if _is_due(journal.of(mutant), tree, options)]
        tests = covering.measure(ROOT, modules, STATE, options.children)
        _run(due, tests, journal, tree, options.children)
        _confirm_timeouts(mutants, tests, journal, tree, options.children)
    print(f"\nseed {options.seed}, {len(mutants)} of {len(every)} mutants, {time.monotonic() - begin:.0f} s")
    _report(mutants, journal, tree)


def _is_due(verdict: Verdict | None, tree: str, options: Namespace) -> bool:
    if options.again:
        return verdict is not None and verdict.outcome != "killed"
    return verdict is None or verdict.tree != tree


def _run(mutants: list[Mutant], tests: covering.CoveringTests, journal: Journal, tree: str, children: int) -> None:
    for mutant in mutants:
        if not _stages(mutant, tests):
            journal.add(Verdict(mutant.key, tree, "uncovered", "", 0.0))
    jobs = _jobs(mutants, tests, lambda mutant: mutant.source())
    for number, ended in enumerate(forks.run(jobs, children, STATE / "children"), 1):
        verdict = _verdict(ended, tree)
        journal.add(verdict)
        if verdict.outcome == "error":
            shutil.copy(ended.directory / "output", STATE / "error.txt")
        took = f"{verdict.outcome} {verdict.seconds:.1f} s"
        print(f"{number}/{len(mutants)} {took} {ended.subject.module} {ended.subject.scope}", flush=True)


def _confirm_timeouts(
    mutants: list[Mutant], tests: covering.CoveringTests, journal: Journal, tree: str, children: int
) -> None:
    """Counts a mutant that timed out as killed if the same tests pass in time without it."""
    timed_out = [mutant for mutant in mutants if (verdict := journal.of(mutant)) and verdict.outcome == "timeout"]
    jobs = _jobs(timed_out, tests, lambda mutant: (ROOT / mutant.module).read_text())
    for ended in forks.run(jobs, children, STATE / "children"):
        print(f"status {ended.status} without the mutant: {ended.subject.module} {ended.subject.scope}", flush=True)
        if ended.status == 0:
            journal.add(Verdict(ended.subject.key, tree, "killed", "timeout", round(ended.seconds, 2)))


if __name__ == "__main__":
    main()
