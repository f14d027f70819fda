"""Cases with the stock answer under `stock`: a checked-in set, made by `python -m tests.group_conformance.answered`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from tests.builders import Object
from tests.group_conformance.cases import KINDS, gates_of, named
from tests.stock.build import build
from tests.stock.oracle import GroupOracle

ANSWERED = Path(__file__).parent / "answered.jsonl.gz"
OF_A_KIND = 25
SEED = 1


def answered() -> Iterator[Object]:
    with gzip.open(ANSWERED, "rt") as lines:
        yield from map(json.loads, lines)


def record() -> None:
    """Makes the set again; cases that stock cannot decide are left out."""
    with (
        ANSWERED.open("wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as lines,
    ):
        for kind in KINDS:
            with GroupOracle(build()["oracle"], *gates_of(kind)) as oracle:
                for case in named(kind, OF_A_KIND, SEED):
                    stock = oracle.answer(case)
                    if "error" not in stock:
                        lines.write(json.dumps({**case, "stock": stock}, separators=(",", ":")).encode() + b"\n")


if __name__ == "__main__":
    record()
