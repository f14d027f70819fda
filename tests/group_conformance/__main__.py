"""Compares generated cases with the stock scheduler: `python -m tests.group_conformance [--cases N] [--seed N]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from tests.builders import Object
from tests.group_conformance.cases import KINDS, for_next_version, gates_of, named, with_valid_priorities
from tests.group_conformance.replay import differences
from tests.stock.build import MINOR, NEXT_MINOR, build
from tests.stock.oracle import GroupOracle

CHANCES = 20


def compare(kinds: Iterable[str], cases: int, seed: int, version: str) -> tuple[int, int, int]:
    """Compares that many cases of each kind with this version, and prints each difference.

    Returns the numbers of cases, of cases that we decide otherwise, and of those that stock does not decide.
    """
    wrong = undecided = total = 0
    for kind in kinds:
        with GroupOracle(build(minor=version)["oracle"], *gates_of(kind)) as oracle:
            for drawn in named(kind, cases, seed):
                case = with_valid_priorities(drawn) if version == NEXT_MINOR else drawn
                total += 1
                stock = _answer(oracle, case, version)
                if "error" in stock:
                    undecided += 1
                    print(f"{case['name']}: stock gives no answer: {stock['error']}")
                elif found := _differences(oracle, case, stock, version):
                    wrong += 1
                    print(f"{case['name']}: {'; '.join(found)}", flush=True)
    return total, wrong, undecided


def _answer(oracle: GroupOracle, case: Object, version: str) -> Object:
    return oracle.answer(for_next_version(case) if version == NEXT_MINOR else case)


def _differences(oracle: GroupOracle, case: Object, stock: Object, version: str) -> list[str]:
    """Returns what we decide otherwise; of several volumes that would do, stock takes any, so ours may come later."""
    found = differences(case, stock, version)
    if not (found and any(item["kind"] == "PersistentVolume" for item in case["cluster"]["items"])):
        return found
    is_answered = any(not differences(case, _answer(oracle, case, version), version) for _ in range(CHANCES))
    return [] if is_answered else found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="number of cases, of all kinds together")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this kind; may be given several times")
    parser.add_argument("--version", choices=(MINOR, NEXT_MINOR), default=MINOR)
    options = parser.parse_args()
    kinds = options.kind or KINDS
    total, wrong, undecided = compare(kinds, -(-options.cases // len(kinds)), options.seed, options.version)
    print(f"{total} cases, {wrong} decided otherwise, {undecided} not decided by stock")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
