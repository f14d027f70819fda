"""Cases with the stock answer under `stock`: a checked-in set.

`python -m tests.group_conformance.answered [KIND...]` makes it again, or only the cases of these kinds.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.builders import Object
from tests.group_conformance.cases import KINDS, PREEMPTION_TREES, gates_of, kind_of, named
from tests.stock.build import build
from tests.stock.oracle import GroupOracle

ANSWERED = Path(__file__).parent / "answered.jsonl.gz"
OF_A_KIND = 25
SEED = 1
EXTRA = ((PREEMPTION_TREES, 62002, 8, 8), (PREEMPTION_TREES, 62002, 167, 8), (PREEMPTION_TREES, 64001, 199, 1))
"""Kind, seed and number of cases that the comparison once got wrong, and how often each is recorded.

Stock answers those that are recorded several times in several ways, at random.
"""


def answered() -> Iterator[Object]:
    with gzip.open(ANSWERED, "rt") as lines:
        yield from map(json.loads, lines)


def record(kinds: Sequence[str] = KINDS) -> None:
    """Makes the cases of these kinds again; cases that stock cannot decide are left out."""
    kept = [case for case in answered() if kind_of(case) not in kinds]
    with (
        ANSWERED.open("wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as lines,
    ):
        for case in (*kept, *_decided(kinds)):
            lines.write(json.dumps(case, separators=(",", ":")).encode() + b"\n")


def _decided(kinds: Sequence[str]) -> Iterator[Object]:
    for kind in kinds:
        with GroupOracle(build()["oracle"], *gates_of(kind)) as oracle:
            for case in (*named(kind, OF_A_KIND, SEED), *_extra(kind)):
                stock = oracle.answer(case)
                if "error" not in stock:
                    yield {**case, "stock": stock}


def _extra(kind: str) -> Iterator[Object]:
    for seed, index, answers in [extra for each, *extra in EXTRA if each == kind]:
        case = named(kind, index + 1, seed)[index]
        yield from ({**case, "name": f"{case['name']} of seed {seed}, answer {number}"} for number in range(answers))


if __name__ == "__main__":
    record(sys.argv[1:] or KINDS)
