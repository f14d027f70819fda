"""Cases with the stock answer under `stock`: a checked-in set, made anew by `python -m tests.conformance.answered`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from tests.builders import Object
from tests.conformance.cases import KINDS, named
from tests.conformance.stock import BRIEFLY, ask, same
from tests.stock.build import build
from tests.stock.oracle import Oracle

ANSWERED = Path(__file__).parent / "answered.jsonl.gz"
NAMED = Path(__file__).parent / "cases"
OF_A_KIND = 40
SEED = 1
_REPETITIONS = 8


def answered() -> Iterator[Object]:
    """The checked-in set: all kinds, small clusters."""
    with gzip.open(ANSWERED, "rt") as lines:
        yield from map(json.loads, lines)


def kept() -> list[Object]:
    """Cases, made as small as can be, that were once decided otherwise than stock decides; each says why in `about`."""
    return [json.loads(path.read_text()) for path in sorted(NAMED.glob("*.json"))]


def record() -> None:
    """Makes the set anew; cases that stock cannot decide, or not twice in the same way, are left out."""
    with (
        Oracle(build()["oracle"], BRIEFLY) as oracle,
        ANSWERED.open("wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as lines,
    ):
        for kind in KINDS:
            for case in named(kind, OF_A_KIND, SEED):
                stock = ask(oracle, case)
                if "error" not in stock and all(same(stock, ask(oracle, case)) for _ in range(_REPETITIONS)):
                    lines.write(json.dumps({**case, "stock": stock}, separators=(",", ":")).encode() + b"\n")


if __name__ == "__main__":
    record()
