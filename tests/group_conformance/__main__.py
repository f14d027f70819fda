"""Compares generated cases with the stock scheduler: `python -m tests.group_conformance [--cases N] [--seed N]`."""

from __future__ import annotations

import argparse
import sys

from tests.builders import Object
from tests.group_conformance.cases import KINDS, gates_of, named
from tests.group_conformance.replay import differences
from tests.stock.build import build
from tests.stock.oracle import GroupOracle

CHANCES = 20


def _differences(oracle: GroupOracle, case: Object, stock: Object) -> list[str]:
    """Returns what we decide otherwise; of several volumes that would do, stock takes any, so ours may come later."""
    found = differences(case, stock)
    if not (found and any(item["kind"] == "PersistentVolume" for item in case["cluster"]["items"])):
        return found
    is_answered = any(not differences(case, oracle.answer(case)) for _ in range(CHANCES))
    return [] if is_answered else found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="number of cases, of all kinds together")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this kind; may be given several times")
    options = parser.parse_args()
    kinds = options.kind or KINDS
    wrong = undecided = total = 0
    for kind in kinds:
        with GroupOracle(build()["oracle"], *gates_of(kind)) as oracle:
            for case in named(kind, -(-options.cases // len(kinds)), options.seed):
                total += 1
                stock = oracle.answer(case)
                if "error" in stock:
                    undecided += 1
                    print(f"{case['name']}: stock gives no answer: {stock['error']}")
                elif found := _differences(oracle, case, stock):
                    wrong += 1
                    print(f"{case['name']}: {'; '.join(found)}")
    print(f"{total} cases, {wrong} decided otherwise, {undecided} not decided by stock")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
