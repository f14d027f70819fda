"""`make test-next`: compares the extender with the version of Kubernetes that is not released yet.

Its scheduler's own plugins answer generated cases, and its kube-scheduler takes part in the end-to-end tests beside the
API server of the newest released version. Cycles of pod groups are compared step by step, as `make test-groups` does.
"""

from __future__ import annotations

import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

from tests.builders import Object
from tests.conformance.cases import KINDS, named
from tests.conformance.deciding import disagreements
from tests.conformance.stock import BRIEFLY, ask, gates
from tests.group_conformance.__main__ import compare
from tests.group_conformance.cases import KINDS as GROUP_KINDS
from tests.stock.build import NEXT_MINOR, NEXT_VERSION, BuildError, GoMissingError, build
from tests.stock.oracle import Oracle
from tests.versions.survey import outcomes, run_tests

CHANCES = 20
"""Of several volumes that would do, kube-scheduler takes any: a case with another decision is asked so often again."""


def main() -> int:
    parser = ArgumentParser("python -m tests.versions.next", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="number of cases, of all kinds together")
    parser.add_argument(
        "--group-cases", type=int, default=500, help="number of cycles of pod groups, of all kinds together"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this kind; may be given several times")
    parser.add_argument("tests", nargs="*", default=["tests/end_to_end"], help="'' for none; default tests/end_to_end")
    options = parser.parse_args()
    oracle = build(_progress, NEXT_MINOR)["oracle"]
    wrong = total = undecided = 0
    kinds = options.kind or KINDS
    for kind in kinds if options.cases else ():
        with Oracle(oracle, BRIEFLY, *gates(kind)) as stock:
            for case in named(kind, -(-options.cases // len(kinds)), options.seed):
                total += 1
                undecided += "error" in ask(stock, case, is_next=True)
                for difference in _differences(stock, case):
                    wrong += 1
                    print(f"{case['name']}: {difference}", flush=True)
    print(f"{total} cases, {wrong} differences, {undecided} not decided by kube-scheduler {NEXT_VERSION}", flush=True)
    if options.group_cases:
        each = -(-options.group_cases // len(GROUP_KINDS))
        total, wrong_groups, undecided = compare(GROUP_KINDS, each, options.seed, NEXT_MINOR)
        print(f"{total} groups, {wrong_groups} decided otherwise, {undecided} not decided", flush=True)
        wrong += wrong_groups
    failed = _failed_tests([test for test in options.tests if test])
    return 1 if wrong or failed else 0


def _differences(stock: Oracle, case: Object) -> Iterator[str]:
    found = disagreements(case, ask(stock, case, is_next=True), NEXT_MINOR)
    if found and all(disagreements(case, ask(stock, case, is_next=True), NEXT_MINOR) for _ in range(CHANCES)):
        yield "; ".join(map(str, found))


def _failed_tests(tests: list[str]) -> list[str]:
    """Runs the end-to-end tests; `serve` and `schedule` follow the next version, although the API server is older."""
    if not tests:
        return []
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        run_tests(NEXT_MINOR, report, tests, EXTENDER_KUBERNETES_VERSION=NEXT_MINOR)
        passed, failed, skipped = outcomes(report)
    print(f"end-to-end tests with kube-scheduler {NEXT_VERSION}: {passed} passed, {len(failed)} failed")
    for name, reason in skipped.items():
        print(f"left out: {name}: {reason}")
    for name in failed:
        print(f"failed: {name}")
    return failed


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (GoMissingError, BuildError) as error:
        sys.exit(str(error))
