"""Cases with the stock answer under `stock`, checked in; made by `python -m tests.conformance.answered [KIND]`."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.builders import Object
from tests.conformance.cases import KINDS, kind_of, named
from tests.conformance.stock import BRIEFLY, ask, gates, same
from tests.stock.build import build
from tests.stock.oracle import Oracle

ANSWERED = Path(__file__).parent / "answered.jsonl.gz"
NEXT = Path(__file__).parent / "answered_1_38.jsonl.gz"
NAMED = Path(__file__).parent / "cases"
OF_A_KIND = 40
SEED = 1
_REPETITIONS = 8


def answered(path: Path = ANSWERED) -> Iterator[Object]:
    """The checked-in set: all kinds, small clusters. That of NEXT has the answers of kube-scheduler 1.38.0-beta.0."""
    with gzip.open(path, "rt") as lines:
        yield from map(json.loads, lines)


def kept() -> list[Object]:
    """Cases, made as small as can be, that were once decided otherwise than stock decides; each says why in `about`."""
    return [json.loads(path.read_text()) for path in sorted(NAMED.glob("*.json"))]


def record(kinds: Sequence[str] = KINDS) -> None:
    """Makes the cases of these kinds again; cases that stock cannot decide, or not twice the same way, are left out."""
    others = [case for case in answered() if kind_of(case) not in kinds]
    with (
        ANSWERED.open("wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as lines,
    ):
        for case in (*others, *_decided(kinds)):
            lines.write(json.dumps(case, separators=(",", ":")).encode() + b"\n")


def _decided(kinds: Sequence[str]) -> Iterator[Object]:
    for kind in kinds:
        with Oracle(build()["oracle"], BRIEFLY, *gates(kind)) as oracle:
            for case in named(kind, OF_A_KIND, SEED):
                stock = ask(oracle, case)
                if "error" not in stock and all(same(stock, ask(oracle, case)) for _ in range(_REPETITIONS)):
                    yield {**case, "stock": stock}


if __name__ == "__main__":
    record(sys.argv[1:] or KINDS)
