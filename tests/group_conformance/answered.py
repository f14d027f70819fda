"""Cases with the stock answer under `stock`: a checked-in set.

`python -m tests.group_conformance.answered [KIND...]` makes it again, or only the cases of these kinds; with `--next`,
the set of Kubernetes 1.38.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.builders import Object
from tests.group_conformance.cases import (
    KINDS,
    PREEMPTION_TREES,
    for_next_version,
    gates_of,
    kind_of,
    named,
    with_valid_priorities,
)
from tests.stock.build import NEXT_MINOR, build
from tests.stock.oracle import GroupOracle

ANSWERED = Path(__file__).parent / "answered.jsonl.gz"
NEXT = Path(__file__).parent / "answered_1_38.jsonl.gz"
"""A few cases of each kind, with the answers of kube-scheduler 1.38.0-beta.0."""
OF_A_KIND_OF_NEXT = 4
OF_A_KIND = 25
SEED = 1
EXTRA = ((PREEMPTION_TREES, 62002, 8, 8), (PREEMPTION_TREES, 62002, 167, 8), (PREEMPTION_TREES, 64001, 199, 1))
"""Kind, seed and number of cases that the comparison once got wrong, and how often each is recorded.

Stock answers those that are recorded several times in several ways, at random.
"""


def answered(path: Path = ANSWERED) -> Iterator[Object]:
    with gzip.open(path, "rt") as lines:
        yield from map(json.loads, lines)


def record(kinds: Sequence[str] = KINDS) -> None:
    """Makes the cases of these kinds again; cases that stock cannot decide are left out."""
    kept = [case for case in answered() if kind_of(case) not in kinds]
    _write(ANSWERED, (*kept, *_decided(kinds)))


def record_next() -> None:
    """Makes the set of NEXT again."""
    _write(NEXT, _decided_by_next())


def _write(path: Path, cases: Iterable[Object]) -> None:
    with path.open("wb") as file, gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as lines:
        for case in cases:
            lines.write(json.dumps(case, separators=(",", ":")).encode() + b"\n")


def _decided(kinds: Sequence[str]) -> Iterator[Object]:
    for kind in kinds:
        with GroupOracle(build()["oracle"], *gates_of(kind)) as oracle:
            for case in (*named(kind, OF_A_KIND, SEED), *_extra(kind)):
                stock = oracle.answer(case)
                if "error" not in stock:
                    yield {**case, "stock": stock}


def _decided_by_next() -> Iterator[Object]:
    for kind in KINDS:
        with GroupOracle(build(minor=NEXT_MINOR)["oracle"], *gates_of(kind)) as oracle:
            for case in map(with_valid_priorities, named(kind, OF_A_KIND_OF_NEXT, SEED)):
                stock = oracle.answer(for_next_version(case))
                if "error" not in stock:
                    yield {**case, "stock": stock}


def _extra(kind: str) -> Iterator[Object]:
    for seed, index, answers in [extra for each, *extra in EXTRA if each == kind]:
        case = named(kind, index + 1, seed)[index]
        yield from ({**case, "name": f"{case['name']} of seed {seed}, answer {number}"} for number in range(answers))


if __name__ == "__main__":
    if "--next" in sys.argv:
        record_next()
    else:
        record(sys.argv[1:] or KINDS)
